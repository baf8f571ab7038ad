"""The real cause of a crash, as people who cursed its absence would have liked to read it."""

from __future__ import annotations

import pytest

from preroll.engines.cause import real_cause

VLLM = """(EngineCore pid=9) ERROR 06-02 00:51:13 [core.py:700] Traceback (most recent call last):
(EngineCore pid=9) ERROR 06-02 00:51:13 [core.py:700]   File "/x/core.py", line 691, in run
(EngineCore pid=9) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.
(APIServer pid=7) Traceback (most recent call last):
(APIServer pid=7)   File "/x/api_server.py", line 1, in <module>
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"""

CHAINED = """Traceback (most recent call last):
  File "app.py", line 3, in <module>
KeyError: 'HF_TOKEN'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "app.py", line 9, in <module>
mypkg.ConfigError: the variable HF_TOKEN is not set"""

LLAMACPP = """0.00.003.256 W srv          init: security: no API key is set
0.00.003.615 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 80
0.00.003.616 I srv    operator(): operator(): cleaning up before exit...
0.00.004.044 E srv          init: exiting due to HTTP server error
llama.cpp: Failed to init server, please check the input params."""

LOOP = "\n".join(["starting", "ValueError: port 80 is taken"] * 40 + ["restarting worker"])


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (VLLM, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."),
        (CHAINED, "mypkg.ConfigError: the variable HF_TOKEN is not set"),
        (LLAMACPP, "couldn't bind HTTP server socket"),
        (LOOP, "ValueError: port 80 is taken"),
        ("sh: 1: nosuch: not found", "sh: 1: nosuch: not found"),
        ("thread 'main' panicked at src/main.rs:2:5:\nboom", "thread 'main' panicked"),
        ("hello\nbye", "bye"),
        ("  | ExceptionGroup: two\n    | KeyError: 'a'\n    +----", "KeyError: 'a'"),
        ('cannot open /m\n127.0.0.1 - "GET / HTTP/1.1" 404 Not Found', "cannot open /m"),
        ("what():  illegal instruction\nbye", "illegal instruction"),
        ("hello\n\n", "hello"),
        ("RuntimeError: Engine core initialization failed.", "Engine core initialization failed"),
        ("", ""),
    ],
)
def test_the_cause_is_found(output: str, cause: str) -> None:
    assert cause in real_cause(output.splitlines())
    assert bool(cause) == bool(real_cause(output.splitlines()))
