"""Cold requests to a server that starts by itself: each after a time without any."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic_ns

from preroll.core import Phase, Start, Wait
from preroll.errors import UnavailableError
from preroll.instruments.starts_ready import http_status

AGAIN_S = 0.05
# Answers that mean "not yet": they are asked again, as a patient client would.
NOT_YET = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class UrlLauncher:
    """A request after `idle_s` without one: from sending until the first whole 2xx answer.

    What the server does behind it cannot be seen from here: the bill has one phase.
    """

    address: str
    path: str
    body: bytes
    idle_s: float
    timeout_s: float

    async def __call__(self, number: int) -> Start:
        await asyncio.sleep(self.idle_s)
        sent_ns = monotonic_ns()
        refusals = await self._until_answered(sent_ns)
        answered_ns = monotonic_ns()
        label = "request" if not refusals else f"request, {refusals} refusals before its answer"
        phase = Phase(Wait.INIT, label, sent_ns, answered_ns)
        return Start(f"url-{number}", "url", sent_ns, answered_ns, (phase,))

    async def _until_answered(self, sent_ns: int) -> int:
        method = "POST" if self.body else "GET"
        headers = (("content-type", "application/json"),) if self.body else ()
        refusals = 0
        while (left_s := self.timeout_s - (monotonic_ns() - sent_ns) / 1e9) > 0:
            status = await http_status(
                self.address, method, self.path, self.body, headers, timeout_s=left_s
            )
            if 200 <= status < 300:
                return refusals
            if status not in NOT_YET:
                raise UnavailableError(f"{method} {self.path}: status {status}")
            refusals += 1
            await asyncio.sleep(AGAIN_S)
        raise UnavailableError(f"{method} {self.path}: no answer within {self.timeout_s:g} s")
