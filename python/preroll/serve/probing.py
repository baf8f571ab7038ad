"""Blocking probes and warm-up calls to one replica; they run in threads of control."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from preroll.control.health import start_delay_s
from preroll.engines.base import Launch, Probe
from preroll.errors import PrerollError, UnavailableError
from preroll.serve.http import connect, request

PROBE_TIMEOUT_S = 2.0
WAIT = ("Prefer", "wait=1")
"""To a replica that starts: a server that knows the field (RFC 7240; Python stages do) answers when
it is ready, and is not asked again meanwhile. Shorter than a probe's timeout."""


class NotServingError(PrerollError):
    """A replica runs and may answer its health probe, but does not serve."""


def check(address: str, probe: Probe, timeout_s: float = PROBE_TIMEOUT_S) -> None:
    """One probe. Raises UnavailableError with the reason when it fails."""
    if probe.path is None:
        try:
            connect(address, timeout_s).close()
        except OSError as error:
            raise UnavailableError(f"connecting to {address}: {error}") from error
        return
    response = request(address, "GET", probe.path, headers=probe.headers, timeout_s=timeout_s)
    if response.status not in probe.ok:
        raise UnavailableError(f"GET {probe.path} answered {response.status}")


def wait_until_healthy(
    address: str, probe: Probe, began_s: float, timeout_s: float, stop: threading.Event
) -> None:
    """Probes until one succeeds, often at first and then ever more rarely.

    `began_s`: monotonic time of the spawn. Returns early when `stop` is set. Raises
    NotServingError, with the last probe's error, after `timeout_s`.
    """
    error = "never probed"
    probe = replace(probe, headers=(*probe.headers, WAIT))
    while not stop.is_set():
        elapsed_s = time.monotonic() - began_s
        if elapsed_s > timeout_s:
            raise NotServingError(
                f"not healthy {timeout_s:g} s after its start (last probe: {error}); raise"
                " start_timeout if it needs longer"
            )
        try:
            if is_missing(address):
                raise UnavailableError(f"there is no socket at {address} yet")
            check(address, probe)
        except UnavailableError as failure:
            error = str(failure)
            stop.wait(start_delay_s(elapsed_s))
        else:
            return


def is_missing(address: str) -> bool:
    """Whether nothing can be there: told without the cost of an attempt."""
    kind, _, path = address.partition(":")
    return kind == "unix" and not Path(path).exists()


def warm_up(launch: Launch, timeout_s: float) -> None:
    """Sends the explicit warm-up, one call after the other, within `timeout_s` in all.

    Raises NotServingError when one fails: health was answered, traffic was not.
    """
    deadline_s = time.monotonic() + timeout_s
    for call in launch.warmup:
        fields = [("Host", launch.host), *call.headers]
        if launch.authorization:
            fields.append(("Authorization", launch.authorization))
        try:
            response = request(
                launch.address,
                call.method,
                call.path,
                body=call.body,
                headers=fields,
                timeout_s=max(0.1, deadline_s - time.monotonic()),
            )
        except UnavailableError as error:
            raise NotServingError(f"healthy, but its warm-up failed: {error}") from error
        if response.status >= 400:
            said = response.body[:500].decode(errors="replace").strip()
            raise NotServingError(
                f"healthy, but its warm-up failed: {call.method} {call.path} answered"
                f" {response.status}: {said}"
            )
