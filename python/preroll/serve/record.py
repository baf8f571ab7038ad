"""What control writes down about a replica, so that a later control can adopt it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from preroll.backends.devices import Assignment, Share
from preroll.backends.devices import environment as devices_environment
from preroll.engines.base import Engine, Launch, Listens

if TYPE_CHECKING:
    from pathlib import Path

    from preroll.config import Stage

RECORD_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """`replica.json` beside a holder's files. `ready_ns` None: not yet warmed up."""

    id: str
    stage: str
    ordinal: int
    digest: str
    address: str
    boot_id: str
    placed_ns: int
    ready_ns: int | None = None
    devices: tuple[str, ...] = ()
    share: Share = Share.NONE
    share_bytes: int | None = None

    @property
    def assignment(self) -> Assignment:
        env = devices_environment(self.devices, self.share_bytes)
        return Assignment(self.devices, self.share, self.share_bytes, env)

    def to_json(self) -> dict[str, Any]:
        return {"version": RECORD_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, value: Any) -> ReplicaRecord | None:
        """None for what is no record of this version: its replica cannot be adopted."""
        if not isinstance(value, dict) or value.get("version") != RECORD_VERSION:
            return None
        try:
            known = {name: value[name] for name in cls.__slots__}
            known |= {"devices": tuple(known["devices"]), "share": Share(known["share"])}
            return cls(**known)
        except (KeyError, TypeError, ValueError):
            return None


def placeholder_address(listens: Listens) -> str:
    return "unix:/SOCKET" if listens is Listens.SOCKET else "tcp:127.0.0.1:1"


def spec_digest(engine: Engine, stage: Stage, directory: Path) -> str:
    """Changes exactly when a running replica no longer is what the app file asks for.

    Bounds of the queue, scaling and routes are the door's and control's: they restart nothing.
    Raises InputError where the engine cannot be launched at all.
    """
    launch: Launch = engine.launch(stage, directory, placeholder_address(engine.listens(stage)))
    resources = stage.resources
    facts = (
        launch.argv,
        sorted(launch.env.items()),
        str(launch.cwd),
        launch.pty,
        engine.version(stage),
        (resources.cpus, resources.memory_bytes, resources.gpus, resources.gpu_memory_bytes),
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
