"""The process of one llama.cpp replica: llama.cpp's own server, by the xllamacpp package.

Run as `python -P -m preroll.engines.llamacpp_worker`; it imports nothing that a start would have
to pay for, and serves until SIGTERM.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

from preroll.engines import llamacpp_flags


def main(arguments: list[str]) -> int:
    """`--model GGUF --listen unix:PATH|tcp:HOST:PORT [--alias NAME]… -- FLAGS`."""
    # Blocked before the server's threads exist: they inherit the mask, and the main thread can
    # wait for the signal instead of being interrupted inside the library.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    options, flags = split(arguments)
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = options["--model"][-1]
    params.model_alias = set(options.get("--alias", []))
    params.ui = False
    params.endpoint_metrics = True
    kind, _, address = options["--listen"][-1].partition(":")
    if kind == "unix":
        bound = socket_beside(Path(address))
        params.hostnames = [str(bound)]
    else:
        host, _, port = address.rpartition(":")
        params.hostnames, params.port = [host.strip("[]")], int(port)
    try:
        llamacpp_flags.apply(xllamacpp, params, llamacpp_flags.parse_flags(flags))
        _server = xllamacpp.Server(params)  # kept: it serves while it lives
    except (llamacpp_flags.FlagError, RuntimeError) as error:
        sys.stderr.write(f"llama.cpp: {error}\n")
        return 2
    if kind == "unix":
        bound.replace(address)
    sys.stdout.write(f"llama.cpp: serving at {address}\n")
    sys.stdout.flush()
    signal.sigwait(signals)
    # The library's destructor waits for open connections without a bound; whoever stops this
    # process has drained it, so there is nothing left to wait for.
    os._exit(0)


def socket_beside(address: Path) -> Path:
    """Where the library binds before the socket is moved to `address`.

    It takes a host for a socket only if the name ends in .sock. The way through the directory's
    descriptor keeps the name short: a socket's path has 107 bytes at most.
    """
    directory = os.open(address.parent, os.O_PATH | os.O_DIRECTORY)
    return Path(f"/proc/self/fd/{directory}/{os.getpid()}.sock")


def split(arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Our own options (each with one value, may repeat) and, after `--`, the engine's flags."""
    end = arguments.index("--")
    options: dict[str, list[str]] = {}
    for name, value in zip(arguments[:end:2], arguments[1:end:2], strict=True):
        options.setdefault(name, []).append(value)
    return options, arguments[end + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
