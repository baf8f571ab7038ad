"""Control's side of the door: its state, its events, its end."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from preroll.errors import UnavailableError
from preroll.serve.http import Lines, request

DoorEvent = dict[str, Any]
NEW_DOOR = "new_door"
"""Kind of an event of our own: another process than before answers as the door."""


class Door:
    """Talks to the admin socket at `admin` ("unix:/path"). Blocking calls run in threads."""

    def __init__(self, admin: str) -> None:
        self.admin = admin
        self._follower: _Follower | None = None

    def health(self) -> dict[str, Any]:
        value: dict[str, Any] = self._get("/healthz")
        return value

    def state(self) -> dict[str, Any]:
        """`GET /state`: counters by stage name. Raises UnavailableError."""
        value: dict[str, Any] = self._get("/state")
        stages: dict[str, Any] = value.get("stages", value)
        return stages

    def in_flight(self, stage: str, replica: str) -> int:
        """Requests running at a replica; 0 for one that the door does not know (any more)."""
        replicas = self.state().get(stage, {}).get("replicas", {})
        facts = replicas.get(replica, {})
        return int(facts.get("in_flight", 0))

    def drain(self) -> None:
        request(self.admin, "POST", "/drain")

    def _get(self, path: str) -> Any:
        response = request(self.admin, "GET", path)
        if response.status != 200:
            raise UnavailableError(f"door: GET {path} answered {response.status}")
        return response.json()

    def follow(self, handle: Callable[[DoorEvent], None]) -> None:
        """Calls `handle` on this event loop for each event of the door, across its restarts."""
        loop = asyncio.get_running_loop()

        def deliver(event: DoorEvent) -> None:
            loop.call_soon_threadsafe(handle, event)

        self._follower = _Follower(self, deliver)
        self._follower.start()

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()


class _Follower(threading.Thread):
    """Reads `GET /events` in a thread of its own: a demand must not wait for a poll."""

    def __init__(self, door: Door, deliver: Callable[[DoorEvent], None]) -> None:
        super().__init__(name="preroll-door-events", daemon=True)
        self._door = door
        self._deliver = deliver
        self._closing = threading.Event()
        self._lines: Lines | None = None

    def close(self) -> None:
        self._closing.set()
        if self._lines is not None:
            self._lines.close()
        self.join(timeout=5)

    def run(self) -> None:
        pid, sequence, delay_s = 0, 0, 0.02
        while not self._closing.is_set():
            try:
                current = int(self._door.health()["pid"])
                if current != pid:
                    if pid:
                        self._give({"kind": NEW_DOOR})
                    pid, sequence = current, 0
                self._lines = Lines(self._door.admin, f"/events?since={sequence}")
                for line in self._lines:
                    delay_s = 0.02
                    event = json.loads(line)
                    sequence = max(sequence, int(event.get("seq", 0)))
                    self._give(event)
            except (UnavailableError, ValueError, KeyError):
                pass
            self._closing.wait(delay_s)
            delay_s = min(delay_s * 2, 1.0)

    def _give(self, event: DoorEvent) -> None:
        try:
            self._deliver(event)
        except RuntimeError:  # the loop has ended
            self._closing.set()


def is_fresh(event: DoorEvent, max_age_s: float = 2.0) -> bool:
    """Whether an event is news: a door replays older ones to whoever begins to follow."""
    return time.monotonic_ns() - int(event.get("t_ns", 0)) < max_age_s * 1e9
