"""aiperf and guidellm beside our client: the same mock, streams, requests and ramp.

Each lives in an environment of its own (`make bench-load-peers` installs them where it can). Both
want a tokenizer; one of bytes is written here, so that nothing is fetched while they run.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(".cache")
# aiperf takes no folder while it is offline (0.13: it asks the hub's cache for a repository).
TOKENIZER = "preroll/bytes"
WORDS_IN = 8
LONGEST_RUN_S = 240.0


@dataclass(frozen=True, slots=True)
class Load:
    """One run; answers of `tokens` chunks, streams begin over `ramp_s`."""

    url: str
    streams: int
    requests: int
    tokens: int
    ramp_s: float


@dataclass(frozen=True, slots=True)
class Peer:
    """How one is called in `folder`, and where it leaves the TTFT of every request, in ms."""

    name: str
    command: Callable[[Load, Path, Path], list[str]]
    ttfts_ms: Callable[[Path], Iterator[float]]

    @property
    def program(self) -> Path:
        return (CACHE / self.name / "bin" / self.name).absolute()


@dataclass(frozen=True, slots=True)
class Run:
    ttfts_ms: list[float]
    wall_s: float
    cpu_s: float

    def quantile(self, q: float) -> float:
        return self.ttfts_ms[max(0, math.ceil(q * len(self.ttfts_ms)) - 1)]


def run(peer: Peer, load: Load, folder: Path) -> Run:
    """Raises RuntimeError with the end of what it said when it fails or leaves no samples."""
    folder.mkdir(parents=True)
    home = folder / "hub"
    tokenizer = byte_tokenizer(home)
    words = [str(peer.program), *peer.command(load, tokenizer, folder)]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(home)}
    before, start = _children_cpu_s(), time.monotonic()
    # What they say goes to a file: a pipe would keep a peer waiting for us.
    with (folder / "said.txt").open("w") as said:
        status = subprocess.run(
            words,
            cwd=folder,
            env=os.environ | offline,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            timeout=LONGEST_RUN_S,
        ).returncode
    wall_s, cpu_s = time.monotonic() - start, _children_cpu_s() - before
    found = sorted(peer.ttfts_ms(folder)) if status == 0 else []
    if len(found) < load.requests:
        end = " ".join((folder / "said.txt").read_text().split())[-600:]
        raise RuntimeError(f"{peer.name}: status {status}, {len(found)} samples: {end}")
    return Run(found, wall_s, cpu_s)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _aiperf(load: Load, tokenizer: Path, folder: Path) -> list[str]:
    words = ["profile", "--model", "mock", "--url", load.url, "--endpoint-type", "chat"]
    words += ["--streaming", "--tokenizer", TOKENIZER, "--ui", "none"]
    words += ["--isl", str(WORDS_IN), "--osl", str(load.tokens)]
    words += ["--concurrency", str(load.streams), "--request-count", str(load.requests)]
    words += ["--num-warmup-requests", str(load.streams), "--artifact-dir", str(folder / "out")]
    if load.streams > 1:
        words += ["--concurrency-ramp-duration", f"{load.ramp_s:g}"]
    return [*words, "--use-server-token-count", "--no-server-metrics", "--no-gpu-telemetry"]


def _aiperf_ttfts_ms(folder: Path) -> Iterator[float]:
    for line in (folder / "out" / "profile_export.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["metadata"].get("benchmark_phase") != "warmup":
            yield float(record["metrics"]["time_to_first_token"]["value"])


def _guidellm(load: Load, tokenizer: Path, folder: Path) -> list[str]:
    spec = {
        "backend": {"kind": "openai_http", "target": load.url, "model": "mock"},
        "profile": {
            "kind": "concurrent",
            "streams": [load.streams],
            "rampup_duration": load.ramp_s if load.streams > 1 else 0.0,
        },
        # It knows no warm-up in requests: the first ones are sent on top and left out below.
        "constraints": [{"kind": "max_requests", "count": load.requests + load.streams}],
        "tokenizer": {"kind": "huggingface_auto", "model": str(tokenizer)},
        "data": [
            {
                "kind": "synthetic_text",
                "prompt_tokens": WORDS_IN,
                "output_tokens": load.tokens,
            }
        ],
        "outputs": [{"kind": "json", "path": str(folder / "out.json")}],
    }
    scenario = folder / "scenario.json"
    scenario.write_text(json.dumps({"spec": spec}))
    return ["run", "--config", str(scenario), "--disable-console"]


def _guidellm_ttfts_ms(folder: Path) -> Iterator[float]:
    spec = json.loads((folder / "scenario.json").read_text())["spec"]
    warmup = spec["profile"]["streams"][0]
    report = json.loads((folder / "out.json").read_text())
    done = report["benchmarks"][0]["requests"]["successful"]
    done.sort(key=lambda request: request["request_start_time"])
    for request in done[warmup:]:
        yield float(request["time_to_first_token_ms"])


PEERS = (
    Peer("aiperf", _aiperf, _aiperf_ttfts_ms),
    Peer("guidellm", _guidellm, _guidellm_ttfts_ms),
)


def byte_tokenizer(home: Path) -> Path:
    """A Hugging Face tokenizer whose 256 tokens are the bytes, in GPT-2's spelling of them: as
    TOKENIZER in the cache `home`, and by its folder."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    spelled = {byte: chr(byte) for byte in plain}
    spelled |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    vocabulary = {spelled[byte]: byte for byte in range(256)} | {"<end>": 256}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level["use_regex"] = False
    end = {"id": 256, "content": "<end>", "special": True, "normalized": False}
    end |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    config |= {"pad_token": "<end>", "bos_token": "<end>"}
    repository = home / "hub" / ("models--" + TOKENIZER.replace("/", "--"))
    revision = "0" * 40
    folder = repository / "snapshots" / revision
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    return folder
