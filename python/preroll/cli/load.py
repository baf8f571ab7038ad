"""`preroll load`: load a server and say what the numbers are worth."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

from preroll.cli.call import call
from preroll.cli.load_options import Promise, Request, Shape, Trust
from preroll.cli.options import Flag
from preroll.instruments.load.compare import compare, records_of, table
from preroll.instruments.load.report import markdown
from preroll.instruments.load.run import Job, run
from preroll.instruments.load.selftest import self_test as own_error

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


def load_app() -> cyclopts.App:
    app = cyclopts.App(name="preroll load", help=HELP, help_format="plaintext", version_flags=[])

    @app.default
    def load(
        url: str,
        /,
        *,
        shape: Shape | None = None,
        request: Request | None = None,
        promise: Promise | None = None,
        trust: Trust | None = None,
        out: Path | None = None,
        as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
        self_test: Flag = False,
    ) -> int:
        """Sends load and writes records, result and reports into a folder.

        Parameters
        ----------
        url: str
            http://HOST:PORT or https, with a path to override the API's, or unix:/socket.
        out: Path
            The folder; preroll-load-DATE when left out.
        json: bool
            The result as JSON instead of text.
        self_test: bool
            Also measure the client's own error, on a mock at the same load.
        """
        shape, request = shape or Shape(), request or Request()
        server = request.to((trust or Trust()).server(url))
        trace = shape.trace()
        plan = shape.plan(trace)
        templates = request.templates(server, trace)
        targets = (promise or Promise()).targets()
        now = datetime.now(UTC)
        folder = out or Path(f"preroll-load-{now:%Y%m%d-%H%M%S}")
        title = f"{url}, {now:%Y-%m-%d %H:%M} UTC"
        job = Job(server, templates, plan, targets, folder, title)
        return _show(job, as_json, self_test)

    return app


def _show(job: Job, as_json: bool, with_self_test: bool) -> int:
    result = run(job, _progress)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    own = own_error(job.plan) if with_self_test else None
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
