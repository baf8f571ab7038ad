"""`preroll load`: load a server and say what the numbers are worth."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

from preroll.cli.call import call
from preroll.cli.load_inputs import header_pairs, model_of, prompts_from, replayed
from preroll.config.units import parse_duration
from preroll.errors import InputError
from preroll.instruments.load.compare import compare, records_of, table
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.report import markdown
from preroll.instruments.load.requests import Ask, parse_url, template
from preroll.instruments.load.result import Targets
from preroll.instruments.load.run import Job, run
from preroll.instruments.load.selftest import self_test

Flag = Annotated[bool, Parameter(negative=())]
HELP = f"""{__doc__}

    preroll load http://127.0.0.1:8080 --connections 32 --requests 600
    preroll load http://127.0.0.1:8080 --rate 5 --duration 60s --slo-ttft 800ms
    preroll load http://127.0.0.1:8080 --replay trace.csv --requests 500
    preroll load compare BEFORE AFTER
"""


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["compare"]:
        return call(compare_app(), arguments[1:])
    return call(load_app(), arguments)


def compare_app() -> cyclopts.App:
    app = cyclopts.App(name="preroll load compare", help="Two results side by side.")

    @app.default
    def two(first: Path, second: Path, /) -> int:
        """Differences of B to A with 95 % intervals, from the raw records of both.

        Parameters
        ----------
        first: Path
            Folder of a result, or its records.ndjson.
        second: Path
            The other one.
        """
        print(table(compare(records_of(first), records_of(second))))
        return 0

    return app


def seconds(text: str | None, name: str) -> float | None:
    """A duration of the command line. Raises InputError that names the option."""
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(f"{name} '{text}': {error}") from None


def load_app() -> cyclopts.App:
    app = cyclopts.App(name="preroll load", help=HELP, version_flags=[])

    @app.default
    def load(
        url: str,
        /,
        *,
        api: str = "chat",
        model: str | None = None,
        connections: int | None = None,
        rate: float | None = None,
        replay: Path | None = None,
        speed: float = 1.0,
        arrivals: str = "poisson",
        cv: float = 1.0,
        ramp_to: float | None = None,
        ramp: str | None = None,
        requests: int | None = None,
        duration: str | None = None,
        warmup: int | None = None,
        calls: int = 1,
        think: str | None = None,
        prompts: Path | None = None,
        prompt_words: int = 64,
        max_tokens: int = 64,
        no_stream: Flag = False,
        method: str = "POST",
        body: Path | None = None,
        file: Path | None = None,
        header: Sequence[str] = (),
        key_env: str | None = None,
        slo_ttft: str | None = None,
        slo_gap: str | None = None,
        slo_e2e: str | None = None,
        timeout: str = "60s",
        new_connections: Flag = False,
        seed: int = 0,
        out: Path | None = None,
        as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
        self_test: Flag = False,
    ) -> int:
        """Sends load, closed loop (--connections), open loop (--rate) or replayed (--replay).

        Parameters
        ----------
        url: str
            http://HOST:PORT, with a path to override the API's, or unix:/socket.
        api: str
            chat, completions, embeddings, speech, transcriptions, or http (--method, --body).
        model: str
            Name of the model; asked of /v1/models when left out.
        connections: int
            Closed loop: so many requests at once.
        rate: float
            Open loop: runs per second, whatever the server does.
        replay: Path
            Arrivals of a CSV trace (at_s or TIMESTAMP, tokens) or of the door's access log.
        speed: float
            Replay so many times as fast.
        arrivals: str
            poisson, constant or gamma (with --cv).
        cv: float
            Coefficient of variation of gamma arrivals.
        ramp_to: float
            Connections or rate at the end of a linear ramp over --ramp.
        ramp: str
            How long the ramp takes.
        requests: int
            Runs to measure.
        duration: str
            How long to measure; 30s when nothing else ends the run.
        warmup: int
            Runs sent first and left out; as many as connections when left out.
        calls: int
            Requests of a run, one after the other: an agent's calls, a conversation's turns.
        think: str
            Pause of a closed-loop user between two requests.
        prompts: Path
            One prompt a line (or JSON strings); a public-domain text when left out.
        prompt_words: int
            Length of built-in prompts.
        max_tokens: int
            Tokens of an answer at most.
        no_stream: bool
            Ask for whole answers.
        method: str
            For --api http.
        body: Path
            Body for --api http.
        file: Path
            Audio for --api transcriptions.
        header: str
            `name: value`, may repeat.
        key_env: str
            Environment variable that holds the API key.
        slo_ttft: str
            Time to first content that counts as met.
        slo_gap: str
            Longest gap of a stream that counts as met.
        slo_e2e: str
            End-to-end time that counts as met.
        timeout: str
            When a request is given up.
        new_connections: bool
            A new connection for every request.
        seed: int
            Of the arrival process.
        out: Path
            Folder for records and reports; preroll-load-DATE when left out.
        json: bool
            The result as JSON instead of text.
        self_test: bool
            Also measure the client's own error, on a mock at the same load.
        """
        server = parse_url(url)
        trace = None if replay is None else replayed(replay, requests, speed)
        plan = Plan(
            connections=connections,
            rate=rate,
            replay_s=None if trace is None else tuple(a.at_s for a in trace),
            arrivals=arrivals,
            cv=cv,
            ramp_to=ramp_to,
            ramp_s=seconds(ramp, "--ramp") or 0.0,
            requests=None if trace is not None else requests,
            seconds=seconds(duration, "--duration"),
            warmup=warmup,
            calls=calls,
            think_s=seconds(think, "--think") or 0.0,
            timeout_s=seconds(timeout, "--timeout") or 60.0,
            seed=seed,
            reuse=not new_connections,
        )
        ask = Ask(
            api=api,
            model=model if model is not None else model_of(server, api),
            max_tokens=max_tokens,
            stream=not no_stream,
            headers=header_pairs(header, key_env),
            method=method,
            body="" if body is None else body.read_text(),
        )
        templates = [
            template(server, a, text, file)
            for a, text in prompts_from(ask, prompts, prompt_words, trace)
        ]
        targets = Targets(
            ttft_ms=_ms(slo_ttft, "--slo-ttft"),
            gap_ms=_ms(slo_gap, "--slo-gap"),
            e2e_ms=_ms(slo_e2e, "--slo-e2e"),
        )
        now = datetime.now(UTC)
        folder = out or Path(f"preroll-load-{now:%Y%m%d-%H%M%S}")
        title = f"{url}, {now:%Y-%m-%d %H:%M} UTC"
        job = Job(server, templates, plan, targets, folder, title)
        return _show(job, as_json, self_test)

    return app


def _ms(text: str | None, name: str) -> float | None:
    value = seconds(text, name)
    return None if value is None else value * 1000


def _show(job: Job, as_json: bool, with_self_test: bool) -> int:
    result = run(job, _progress)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    own = self_test(job.plan) if with_self_test else None
    if as_json:
        document: dict[str, Any] = result.to_json() | {"folder": str(job.folder)}
        if own is not None:
            document["self_test"] = {n: getattr(own, n) for n in own.__slots__}
        print(json.dumps(document, indent=1))
    else:
        print(markdown(result, job.title))
        if own is not None:
            print(own.sentence())
        print(f"records and reports: {job.folder}/")
    if result.interrupted:
        return 130
    return 0 if result.ok else 1


def _progress(line: dict[str, Any]) -> None:
    if line.get("type") != "tick" or not sys.stderr.isatty():
        return
    text = (
        f"\r{line['elapsed_s']:6.0f} s  {line['finished']} done  {line['in_flight']} in flight  "
        f"{line['finished'] - line['ok']} failed  TTFT p50 {line['ttft_p50_ns'] / 1e6:.1f} ms  "
    )
    print(text, end="", file=sys.stderr, flush=True)
