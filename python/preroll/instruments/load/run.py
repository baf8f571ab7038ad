"""One run from plan to files: records as they come, then the result in three forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preroll.instruments.load.client import Client
from preroll.instruments.load.page import page
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import read
from preroll.instruments.load.report import markdown
from preroll.instruments.load.requests import Server, spill
from preroll.instruments.load.result import Result, Targets, summarise

Json = dict[str, Any]
RECORDS = "records.ndjson"


@dataclass(frozen=True, slots=True)
class Job:
    """What is run, against what, and where its files go."""

    server: Server
    requests: Sequence[Json]
    plan: Plan
    targets: Targets
    folder: Path
    title: str


def run(job: Job, progress: Callable[[Json], None]) -> Result:
    """Runs a load; an interrupt ends it and what was measured so far is a result all the same."""
    job.folder.mkdir(parents=True, exist_ok=True)
    requests = spill(job.requests, job.folder)
    spec = job.plan.spec(job.server, requests, job.folder / RECORDS)
    (job.folder / "spec.json").write_text(json.dumps(spec, indent=1) + "\n")
    with Client(spec) as client:
        lines = iter(client)
        while True:
            try:
                line = next(lines, None)
            except KeyboardInterrupt:
                client.abort()
                continue
            if line is None:
                break
            progress(line)
    return write(job)


def write(job: Job) -> Result:
    """The result of the records in the folder, written as JSON, Markdown and HTML."""
    raw = read(job.folder / RECORDS)
    result = summarise(raw, job.plan, job.targets)
    document = {"version": 1, "title": job.title, **result.to_json()}
    (job.folder / "result.json").write_text(json.dumps(document, indent=1) + "\n")
    (job.folder / "report.md").write_text(markdown(result, job.title))
    (job.folder / "report.html").write_text(page(result, raw, job.title))
    return result
