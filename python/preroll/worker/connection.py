"""One client's connection, as uvicorn serves it: httptools parses, `Cycle` answers.

uvicorn's own protocol sets a timer and makes an event for each request, searches each header twice,
and sends head and body by two writes, which wake the door twice. Here is what the door and our
application use, and no more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from urllib.parse import unquote

import httptools

from preroll.worker.cycle import Cycle

# The door gives a pooled connection up before this.
KEEP_ALIVE_S = 5.0
# Bytes of a body that wait for the application; the rest waits in the socket.
MAX_UNREAD_BYTES = 64 << 10

# Requests that may wait behind the one in flight before no more is read, nor a leaving noticed.
MAX_WAITING = 16

BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 31\r\nconnection: close\r\n\r\nInvalid HTTP request received.\n"
)


class Connection(asyncio.Protocol):
    """The arguments, `shutdown` and what becomes of `server_state` are uvicorn's contract."""

    transport: Any = None

    def __init__(
        self, config: Any, server_state: Any, app_state: Any, _loop: Any = None, **_: Any
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        self.is_reading = True
        self.writable: asyncio.Event | None = None
        """Not set while the client takes nothing; None until that happens for the first time."""
        self._config = config
        self._app = config.loaded_app
        self._state = server_state
        self._app_state = app_state
        self._parser = httptools.HttpRequestParser(self)
        self._cycle: Cycle | None = None
        """The request that is being answered; those sent behind it wait in `_waiting`."""
        self._received: Cycle | None = None
        """The request whose body comes in."""
        self._waiting: deque[Cycle] = deque()
        self._idle_since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []

    # The transport ---------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._state.connections.add(self)
        self._idle_since_s = self.loop.time()
        self._timer = self.loop.call_later(KEEP_ALIVE_S, self._look)

    def connection_lost(self, error: Exception | None) -> None:
        self._state.connections.discard(self)
        self._stop_timer()
        if self.writable is not None:
            self.writable.set()
        self._waiting.clear()
        for cycle in (self._cycle, self._received):
            if cycle is not None:
                cycle.lost()

    def pause_writing(self) -> None:
        if self.writable is None:
            self.writable = asyncio.Event()
        self.writable.clear()

    def resume_writing(self) -> None:
        if self.writable is not None:
            self.writable.set()

    def pause_reading(self) -> None:
        if self.is_reading:
            self.is_reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        is_open = not self.transport.is_closing()
        if not self.is_reading and len(self._waiting) < MAX_WAITING and is_open:
            self.is_reading = True
            self.transport.resume_reading()

    def _look(self) -> None:
        """Ends a connection on which nothing has come for `KEEP_ALIVE_S`; never by a timer a
        request."""
        idle_s = self.loop.time() - self._idle_since_s if self._cycle is None else 0.0
        if idle_s >= KEEP_ALIVE_S:
            self.transport.close()
        else:
            self._timer = self.loop.call_later(KEEP_ALIVE_S - idle_s, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def shutdown(self) -> None:
        """The server ends: closes after the request in flight, at once where there is none."""
        if self._cycle is None:
            self.transport.close()
        else:
            self._cycle.keep_alive = False

    # Requests come in ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._wants_websocket():
                self._upgrade()
        except httptools.HttpParserError:
            self._garbage()

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade() and self._wants_websocket():
            return
        version = parser.get_http_version()
        raw_path, _, query = self._url.partition(b"?")
        if not raw_path.startswith(b"/"):
            parsed = httptools.parse_url(self._url)
            raw_path, query = parsed.path or b"/", parsed.query or b""
        path = raw_path.decode("ascii")
        scope = {
            "type": "http",
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
        }
        cycle = Cycle(self, scope, version != "1.0" and parser.should_keep_alive())
        self._received = cycle
        if self._cycle is None:
            self._start(cycle)
        else:
            self._waiting.append(cycle)
            if len(self._waiting) >= MAX_WAITING:
                self.pause_reading()

    def on_body(self, body: bytes) -> None:
        cycle = self._received
        if cycle is not None and cycle.feed(body) > MAX_UNREAD_BYTES:
            self.pause_reading()

    def on_message_complete(self) -> None:
        cycle = self._received
        if cycle is not None:
            cycle.feed_end()

    def _garbage(self) -> None:
        """What comes is no HTTP. The answer to a request before it is not torn."""
        cycle = self._cycle
        if cycle is None:
            self.transport.write(BAD_REQUEST)
            self.transport.close()
        elif cycle.is_body_complete:
            cycle.keep_alive = False
            self._waiting.clear()
            self.pause_reading()
        else:
            self.transport.close()

    def _wants_websocket(self) -> bool:
        if self._config.ws_protocol_class is None:
            return False
        return any(n == b"upgrade" and v.lower() == b"websocket" for n, v in self._headers)

    def _upgrade(self) -> None:
        """Hands the connection over to uvicorn's WebSocket protocol, which reads the head anew."""
        self._state.connections.discard(self)
        self._stop_timer()
        head = [self._parser.get_method(), b" ", self._url, b" HTTP/1.1\r\n"]
        for name, value in self._headers:
            head += [name, b": ", value, b"\r\n"]
        protocol = self._config.ws_protocol_class(
            config=self._config, server_state=self._state, app_state=self._app_state
        )
        protocol.connection_made(self.transport)
        protocol.data_received(b"".join([*head, b"\r\n"]))
        self.transport.set_protocol(protocol)

    # Requests are answered -------------------------------------------------------------------

    def _start(self, cycle: Cycle) -> None:
        self._cycle = cycle
        task = self.loop.create_task(cycle.run(self._app))
        self._state.tasks.add(task)
        cycle.task = task

    def answered(self, cycle: Cycle) -> None:
        """The whole answer to the request in flight is written; its code may still tidy up."""
        self._state.total_requests += 1
        self._cycle = None
        if not cycle.keep_alive:
            self.transport.close()
        elif self._waiting:
            self._start(self._waiting.popleft())
        else:
            self._idle_since_s = self.loop.time()
        if not self.is_reading:
            self.resume_reading()

    def ended(self, cycle: Cycle) -> None:
        """The application has returned; without an answer, or with half of one, nothing more can
        be said on this connection."""
        self._state.tasks.discard(cycle.task)
        if not cycle.is_complete:
            self.transport.close()
