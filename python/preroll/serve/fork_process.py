"""The process of a fork server: its id, which is made of what it is for, and how it is run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from preroll.backends.base import Orphans, ProcessSpec
from preroll.engines.base import Fork
from preroll.serve.spawning import environment

PREFIX = "forkserver-"
ROOM = "PREROLL_ROOM"
ROOM_BYTES = 4096
"""A fork shows its own environment in the memory of its parent's: there must be enough."""


def server_id(fork: Fork) -> str:
    facts = (fork.python, sorted(fork.env.items()), str(fork.cwd), fork.imports)
    return PREFIX + hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:10]


def socket_name(process_id: str) -> str:
    """Of the socket at which the server is asked for forks."""
    return f"{process_id}.fork"


def process(fork: Fork, socket: Path) -> ProcessSpec:
    module = ("-m", fork.module, "--uds", str(socket), "--", *fork.imports)
    return ProcessSpec(
        id=server_id(fork),
        argv=(fork.python, *module),
        env=environment({**fork.env, ROOM: "x" * ROOM_BYTES}),
        cwd=fork.cwd,
        orphans=Orphans.FREE,
        grace_s=2.0,
    )
