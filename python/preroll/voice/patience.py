"""How much garbage a session may send before it is closed."""

from __future__ import annotations

from preroll.errors import InputError
from preroll.voice import wire
from preroll.worker.session import Session


class Patience:
    """Of one session; each bad message is answered with what is wrong with it."""

    def __init__(self, socket: Session) -> None:
        self._socket = socket
        self._num_errors = 0

    async def answer(self, error: InputError) -> bool:
        """Whether the session goes on."""
        await self._socket.send(wire.error(str(error), "bad_message"))
        self._num_errors += 1
        if self._num_errors < wire.MAX_ERRORS:
            return True
        await self._socket.close(1008, "too many bad messages")
        return False
