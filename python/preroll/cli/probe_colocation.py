"""`preroll probe colocation`: two stages under load together, against each alone."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from preroll import measurements
from preroll.cli.cliff_target import measuring_folder
from preroll.cli.load_options import seconds
from preroll.config import App, load_app
from preroll.core import Measurement
from preroll.engines.base import get_engine
from preroll.errors import InputError
from preroll.fingerprints import DigestCache, cache_path, fingerprint
from preroll.instruments import colocation
from preroll.instruments.load.requests import Ask, Server, parse_address, template
from preroll.instruments.load.text import prompts
from preroll.instruments.replica import own_replica

NUM_PROMPTS = 4


def colocate(
    app: str,
    first: str,
    second: str,
    /,
    *,
    api: Annotated[str, Parameter(help="what both are asked")] = "chat",
    second_api: Annotated[str | None, Parameter(help="what the second is asked")] = None,
    path: Annotated[str, Parameter(help="for http")] = "/",
    second_path: Annotated[str, Parameter(help="for http")] = "/",
    body: Annotated[Path | None, Parameter(help="body for http")] = None,
    second_body: Annotated[Path | None, Parameter(help="body for http")] = None,
    connections: Annotated[int, Parameter(help="in flight at the first stage")] = 4,
    second_connections: Annotated[int, Parameter(help="in flight at the second")] = 4,
    max_tokens: Annotated[int, Parameter(help="tokens of an answer at most")] = 32,
    duration: Annotated[str, Parameter(help="of one run; there are three per round")] = "5s",
    rounds: Annotated[int, Parameter(help="at least 6")] = colocation.ROUNDS,
) -> int:
    """What do two stages on this machine do to each other? Starts one replica of each.

    Parameters
    ----------
    app: str
        App file.
    first: str
        A stage of it; the measurement is written for this one.
    second: str
        The other stage.
    """
    found = load_app(Path(app))
    for name in (first, second):
        if name not in found.stages:
            raise InputError(f"STAGE '{name}'; allowed: {', '.join(found.stages)}")
    if first == second:
        raise InputError(f"'{first}' twice; two different stages are compared")
    asks = (
        Ask(api=api, max_tokens=max_tokens, body=_read(body)),
        Ask(api=second_api or api, max_tokens=max_tokens, body=_read(second_body)),
    )
    with ExitStack() as stack:
        loads: list[colocation.Load] = []
        for number, name in enumerate((first, second)):
            folder = measuring_folder() / name
            own = stack.enter_context(own_replica(found.stages[name], found.directory, folder))
            server = replace(parse_address(own.address, own.keepalive_ms), path="")
            requests = _requests(found, name, asks[number], (path, second_path)[number])
            count = (connections, second_connections)[number]
            loads.append(colocation.Load(name, server, requests, count))
        run_s = seconds(duration, "--duration") or 5.0
        result = colocation.probe(loads[0], loads[1], run_s, rounds)
    print(colocation.text(result, f"{first} and {second} of {app}"))
    print(f"written to {_keep(found, first, second, result)}")
    return 0


def _read(path: Path | None) -> str:
    return "" if path is None else path.read_text()


def _requests(app: App, stage: str, ask: Ask, path: str) -> tuple[dict[str, Any], ...]:
    names = get_engine(app.stages[stage].engine).models(app.stages[stage])
    is_text = ask.api in ("chat", "completions")
    extra = {"temperature": 0, "seed": 0} if is_text else {}
    asked = replace(ask, model=names[0] if names else "", extra=extra)
    server = Server("", "localhost", path if ask.api == "http" else "")
    return tuple(template(server, asked, words) for words in prompts(NUM_PROMPTS, 24))


def _keep(app: App, first: str, second: str, result: colocation.Colocation) -> Path:
    assert app.path is not None
    effect = result.effects[0]
    entry = Measurement(
        stage=first,
        kind=f"colocation {second}",
        value=result.together,
        unit="machines",
        low=None,
        high=None,
        samples=(effect.rate.value, result.effects[1].rate.value),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=fingerprint(app.stages[first], app.directory, DigestCache(cache_path())),
        extra=dict(colocation.extra(result)),
    )
    return measurements.keep(app.path, entry)
