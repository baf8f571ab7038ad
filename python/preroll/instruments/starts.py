"""N cold launches of anything: the loop. Each start is written before the next begins.

Every launch is a new process tree; the page cache and other state of the machine are as the launch
before left them, so the first sample often differs: it is kept, and shown apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from preroll.core import Start
from preroll.errors import UnavailableError
from preroll.instruments.starts_raw import Launched, RawFile

# A command that fails twice in a row will fail a third time.
MAX_FAILURES = 2

Launcher = Callable[[int], Awaitable[Start]]
"""Makes one launch (its number counts from 1); UnavailableError says why it did not get ready."""


async def run(
    count: int, launcher: Launcher, raw: RawFile, on_each: Callable[[Launched], None]
) -> None:
    """Launches until `raw` holds `count` starts.

    Raises UnavailableError with the cause when launches keep failing.
    """
    done = len(totals_s(raw.samples))
    failures = 0
    while done < count:
        number = len(raw.samples) + 1
        date = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            launched = Launched(number, date, await launcher(number))
            done, failures = done + 1, 0
        except UnavailableError as error:
            launched = Launched(number, date, failure=str(error))
            failures += 1
        raw.append(launched)
        on_each(launched)
        if failures == MAX_FAILURES:
            raise UnavailableError(
                f"{failures} launches in a row failed; the samples so far are in {raw.path}"
                f"\n{launched.failure}"
            )


def totals_s(launches: Sequence[Launched]) -> list[float]:
    """Seconds from spawn to ready of the launches that became ready, in their order."""
    return [launched.start.total_s for launched in launches if launched.start is not None]
