"""uvicorn around the application, on sockets that are bound already."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
from typing import Any, Protocol

from preroll.errors import InputError


class Application(Protocol):
    """An ASGI application that says whether it takes WebSockets."""

    @property
    def has_sessions(self) -> bool: ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


def event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    if importlib.util.find_spec("uvloop") is not None:
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
        return loop
    return asyncio.new_event_loop()


def server(app: Application) -> Any:
    """A `uvicorn.Server` that logs nothing of its own and adds no header.

    Raises InputError where uvicorn is missing, or a WebSocket library and the stage has sessions.
    """
    if importlib.util.find_spec("uvicorn") is None:
        raise InputError("the package 'uvicorn' is not installed; pip install 'preroll[stage]'")
    if app.has_sessions and importlib.util.find_spec("websockets") is None:
        raise InputError(
            "the stage has sessions, and the package 'websockets' is not installed;"
            " pip install 'preroll[stage]'"
        )
    import uvicorn

    class Server(uvicorn.Server):
        """Signals are the process's own affair."""

        def capture_signals(self) -> Any:
            return contextlib.nullcontext()

    config = uvicorn.Config(
        app,
        http=_protocol(),
        interface="asgi3",
        proxy_headers=False,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        # Compression and pings cost CPU and gain nothing between two processes of one machine.
        ws="websockets-sansio" if app.has_sessions else "none",
        ws_per_message_deflate=False,
        ws_ping_interval=None,
    )
    return Server(config)


def _protocol() -> Any:
    """Our own where httptools is installed, else the one that uvicorn finds."""
    if importlib.util.find_spec("httptools") is None:
        return "auto"
    from preroll.worker.connection import Connection

    return Connection


def descriptors(server: Any, sockets: list[socket.socket]) -> list[int]:
    """The numbers of what a server listens on and of its clients' connections."""
    found = [one.fileno() for one in sockets]
    for connection in server.server_state.connections:
        transport = connection.transport
        one = transport.get_extra_info("socket") if transport is not None else None
        if one is not None:
            found.append(one.fileno())
    return [number for number in found if number >= 0]


def inherited_sockets(environment: dict[str, str]) -> list[socket.socket]:
    """The listening sockets that the holder has passed on (from descriptor 3 on)."""
    count = environment.get("LISTEN_FDS", "0")
    return [socket.socket(fileno=3 + i) for i in range(int(count))]


def unix_socket(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(path)
    made.listen(1024)
    return made
