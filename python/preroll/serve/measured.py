"""What the measurements beside the app file say about starts, found without holding up a start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from preroll import measurements
from preroll.errors import InputError
from preroll.fingerprints import DigestCache, cache_path, fingerprint

if TYPE_CHECKING:
    from preroll.config import App


@dataclass(frozen=True, slots=True)
class MeasuredStarts:
    """Samples in seconds (none when nothing fits) and a sentence on where they come from."""

    samples_s: tuple[float, ...]
    source: str
    is_stale: bool


def measured_starts(app: App) -> dict[str, MeasuredStarts]:
    """By stage. Reads weights for their digest where it is not known yet: not for an event loop."""
    if app.path is None or not app.path.is_file():
        return {}
    entries = measurements.read(measurements.measured_path(app.path))
    digests = DigestCache(cache_path())
    found: dict[str, MeasuredStarts] = {}
    for name, stage in app.stages.items():
        if not any(m.stage == name and m.kind == measurements.START for m in entries):
            continue
        try:
            now = fingerprint(stage, app.directory, digests)
        except (InputError, OSError):
            continue
        match = measurements.match(entries, name, measurements.START, now)
        samples = match.current.samples if match.current else ()
        source = match.sentence(datetime.now(UTC))
        found[name] = MeasuredStarts(samples, source, match.current is None)
    return found
