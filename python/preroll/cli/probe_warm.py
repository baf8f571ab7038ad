"""`preroll probe warm`: first calls against steady state, and eager against compiled."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from preroll import measurements
from preroll.cli.cliff_target import Found, find, measuring_folder
from preroll.cli.load_options import numbers, seconds
from preroll.core import Measurement
from preroll.engines.base import get_engine
from preroll.errors import InputError
from preroll.fingerprints import DigestCache, cache_path, fingerprint
from preroll.instruments import warmth
from preroll.instruments.load.requests import Ask, Server, parse_address, template
from preroll.instruments.load.text import prompt
from preroll.instruments.replica import own_replica

KIND = "warm"


def warm(
    app: str,
    stage: str | None = None,
    /,
    *,
    against: Annotated[str | None, Parameter(help="another app file: eager or compiled?")] = None,
    api: Annotated[str, Parameter(help="chat, completions, embeddings, speech, http")] = "chat",
    path: Annotated[str, Parameter(help="paths of --api http, comma-separated")] = "/",
    body: Annotated[Path | None, Parameter(help="body for --api http")] = None,
    model: Annotated[str | None, Parameter(help="the engine's own name when left out")] = None,
    prompt_words: Annotated[str, Parameter(help="lengths, each a route")] = "16,256",
    max_tokens: Annotated[int, Parameter(help="tokens of an answer at most")] = 16,
    replicas: Annotated[int, Parameter(help="fresh replicas of each side")] = 3,
    connections: Annotated[int, Parameter(help="in flight for the throughput")] = 8,
    requests: Annotated[int, Parameter(help="requests of the throughput run")] = 64,
    timeout: Annotated[str, Parameter(help="when a request is given up")] = "120s",
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Does the first user pay for something that the warm-up missed? Starts fresh replicas.

    Exit status 0 when every first call was like the later ones, 1 when one was not.

    Parameters
    ----------
    app: str
        App file.
    stage: str
        Its stage; may be left out when there is one only.
    """
    settings = warmth.Settings(
        replicas=replicas,
        connections=connections,
        requests=requests,
        timeout_s=seconds(timeout, "--timeout") or 120.0,
    )
    ask = Ask(
        api=api,
        max_tokens=max_tokens,
        extra={"temperature": 0} if api in ("chat", "completions") else {},
        body="" if body is None else body.read_text(),
    )
    targets = [find(app, stage)] + ([] if against is None else [find(against, stage)])
    if any(found.app is None for found in targets):
        raise InputError(f"'{app}': a replica must be fresh: give an app file (.toml)")
    shapes = path.split(",") if api == "http" else [str(n) for n in numbers(prompt_words)]
    sides = {_name(found): _side(found, ask, shapes, model) for found in targets}
    results = warmth.probe(sides, settings)
    notes = [note for f, r in zip(targets, results, strict=True) for note in _keep(f, r)]
    if as_json:
        print(json.dumps({"sides": [asdict(r) for r in results], "notes": notes}))
    else:
        print(warmth.text(results) + "".join(f"\n{note}" for note in notes))
    return 1 if any(result.findings() for result in results) else 0


def _name(found: Found) -> str:
    assert found.app is not None
    return f"{found.stage} of {found.app.path}"


def _side(
    found: Found, ask: Ask, shapes: list[str], model: str | None
) -> tuple[warmth.Fresh, Mapping[str, dict[str, Any]]]:
    assert found.app is not None
    stage, directory = found.app.stages[found.stage], found.app.directory
    names = get_engine(stage.engine).models(stage)
    asked = Ask(
        api=ask.api,
        model=model or (names[0] if names else ""),
        max_tokens=ask.max_tokens,
        extra=ask.extra,
        body=ask.body,
    )

    @contextmanager
    def fresh() -> Iterator[tuple[Server, float]]:
        with own_replica(stage, directory, measuring_folder()) as own:
            yield parse_address(own.address, own.keepalive_ms), own.start.total_s

    def request(shape: str) -> dict[str, Any]:
        if ask.api == "http":
            return template(Server("", "localhost", shape), asked, "")
        return template(Server("", "localhost", ""), asked, prompt(int(shape)))

    names_of = {s: s if ask.api == "http" else f"{ask.api}, {s} words" for s in shapes}
    return fresh, {names_of[s]: request(s) for s in shapes}


def _keep(found: Found, result: warmth.Warmth) -> list[str]:
    """Writes the measurement `warm`: milliseconds that the worst route's first call still pays."""
    assert found.app is not None and found.app.path is not None
    stage = found.app.stages[found.stage]
    entry = Measurement(
        stage=found.stage,
        kind=KIND,
        value=result.missed_ms,
        unit="ms",
        low=None,
        high=None,
        samples=tuple(s.first_ms for route in result.routes for s in route.seen),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=fingerprint(stage, found.app.directory, DigestCache(cache_path())),
    )
    return [f"written to {measurements.keep(found.app.path, entry)}"]
