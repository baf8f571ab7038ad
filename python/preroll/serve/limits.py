"""Limits of requests in flight: from the app file, from a measured cliff, or the engine's own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from preroll import measurements
from preroll.engines.base import Engine, get_engine
from preroll.errors import InputError
from preroll.fingerprints import DigestCache, cache_path, fingerprint

if TYPE_CHECKING:
    from preroll.config import App, Stage
    from preroll.core import Measurement


@dataclass(frozen=True, slots=True)
class Limits:
    """`app`: each measured limit is a number in it where there is one. `sources`: by stage, where
    its limit comes from. `warnings`: what was asked for and is not there."""

    app: App
    sources: dict[str, str]
    warnings: tuple[str, ...]


def with_limits(app: App) -> Limits:
    """Fills in what `max_concurrency = "measured"` stands for.

    Reads weights for their digest where it is not known yet: not for an event loop. Raises
    InputError for a measurements file that is damaged.
    """
    stages, sources, warnings = dict(app.stages), {}, []
    entries: list[Measurement] | None = None
    for name, stage in app.stages.items():
        engine = get_engine(stage.engine)
        own = f"the engine's own limit, {engine.own_limit(stage)}"
        sources[name] = "the app file" if stage.max_concurrency else own
        if not stage.is_limit_measured:
            continue
        if entries is None:
            entries = read_entries(app)
        value, found = measured(app, stage, engine, entries)
        if value is None:
            warnings.append(missing(app, stage, found, own))
            sources[name] = f"{own} ({found})"
        else:
            sources[name] = found
            stages[name] = stage.model_copy(update={"max_concurrency": value})
    return Limits(app.model_copy(update={"stages": stages}), sources, tuple(warnings))


def read_entries(app: App) -> list[Measurement]:
    return measurements.read(measurements.measured_path(app.path)) if app.path else []


def measured(
    app: App, stage: Stage, engine: Engine, entries: list[Measurement]
) -> tuple[int | None, str]:
    """The limit, not above one that the engine's flags set, and where it is from; None and why."""
    if not any(m.stage == stage.name and m.kind == measurements.CLIFF for m in entries):
        return None, "not measured"
    try:
        now = fingerprint(stage, app.directory, DigestCache(cache_path()))
    except (InputError, OSError) as error:
        return None, f"its fingerprint cannot be taken: {error}"
    match = measurements.match(entries, stage.name, measurements.CLIFF, now)
    sentence = match.sentence(datetime.now(UTC))
    if match.current is None:
        return None, sentence
    limit = max(1, int(match.current.value))
    asked = stage.model_copy(update={"max_concurrency": limit})
    if any(problem.where == ("max_concurrency",) for problem in engine.check(asked)):
        limit = min(limit, engine.own_limit(stage))
    return limit, sentence


def missing(app: App, stage: Stage, why: str, used: str) -> str:
    """What to do about a limit that is not there."""
    ttft_s = stage.slo.ttft_p95_s
    promise = f"{round(ttft_s * 1000)}ms" if ttft_s else "800ms"
    return (
        f'stage {stage.name}: max_concurrency = "measured": {why}; {used}, is used; measure it'
        f" with `preroll cliff {app.path} {stage.name} --slo-ttft {promise}`"
    )
