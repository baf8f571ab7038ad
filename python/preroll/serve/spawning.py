"""From a stage's launch to a process specification."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from preroll.backends.base import Limits, Listen, ProcessSpec, Restart, Stdio
from preroll.errors import UnavailableError

if TYPE_CHECKING:
    from preroll.backends.devices import Assignment
    from preroll.config import Stage
    from preroll.engines.base import Launch

DOOR_RESTART = Restart(min_s=0.02, max_s=5.0)
"""The door must come back while control is away."""
NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID")


def replica_spec(
    replica_id: str, stage: Stage, launch: Launch, assignment: Assignment
) -> ProcessSpec:
    """The process of one replica: our environment with the launch's and its devices' added."""
    return ProcessSpec(
        id=replica_id,
        argv=launch.argv,
        env=environment({**launch.env, **assignment.env}),
        cwd=launch.cwd,
        stdio=Stdio.PTY if launch.pty else Stdio.PIPES,
        limits=Limits(memory_bytes=stage.memory_bytes),
        grace_s=stage.stop_grace_s,
    )


def door_spec(door_id: str, argv: Sequence[str], listen: Sequence[Listen]) -> ProcessSpec:
    return ProcessSpec(
        id=door_id,
        argv=tuple(argv),
        env=environment({}),
        listen=tuple(listen),
        restart=DOOR_RESTART,
    )


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Ours, less what speaks of this very process, plus `more`."""
    return {**{k: v for k, v in os.environ.items() if k not in NOT_INHERITED}, **more}


def program(name: str) -> str:
    """Path of one of the programs that come with the package. Raises UnavailableError."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise UnavailableError(f"{name} is not installed: pip install preroll-bin")
    return found
