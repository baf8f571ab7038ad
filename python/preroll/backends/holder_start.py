"""Waiting for a holder to be up, and for its end while we live."""

from __future__ import annotations

import asyncio
import os

from preroll.backends.holder_program import Detached, Spawned
from preroll.errors import InputError, UnavailableError

BUSY_WAIT_S = 0.5
"""How long a folder's last holder, released already, may take to be gone."""
START_TIMEOUT_S = 30.0
"""A holder is up in milliseconds; on a machine that swaps it may take its time."""


class Reaper:
    """Collects holders that end while we live: until then each is our child."""

    def __init__(self) -> None:
        self._pidfds: set[int] = set()

    def watch(self, process: Detached) -> None:
        loop = asyncio.get_running_loop()
        pidfd = os.pidfd_open(process.pid)
        self._pidfds.add(pidfd)

        def ended() -> None:
            loop.remove_reader(pidfd)
            self._pidfds.discard(pidfd)
            os.close(pidfd)
            process.wait()

        loop.add_reader(pidfd, ended)

    def close(self) -> None:
        """Lets go of all that still run; call it on the loop that started them."""
        for pidfd in self._pidfds:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)
        self._pidfds.clear()


async def settled(spawned: Spawned, reaper: Reaper) -> None:
    """Returns when the holder runs and has started its child (or knows why it could not).

    Raises InputError with the holder's complaint, UnavailableError when it says nothing.
    """
    reaper.watch(spawned.process)
    try:
        complaint = await read_to_end(spawned.complaints)
    except TimeoutError as error:
        spawned.process.kill()
        raise UnavailableError(
            f"the holder for {spawned.spec_path} was not up within {START_TIMEOUT_S:g} s"
        ) from error
    if complaint:
        raise InputError(complaint.decode(errors="replace").strip())


async def read_to_end(file: int) -> bytes:
    """Reads a pipe until its writer has let go, and closes it."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    pipe = os.fdopen(file, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            return await reader.read()
    finally:
        transport.close()
