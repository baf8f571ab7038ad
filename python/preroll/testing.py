"""Runs a stage inside a test: the real worker under the real server, on a loopback port.

from preroll.testing import serve

def test_echo() -> None:
    with serve(Echo) as stage:
        assert stage.post({"text": "hi"}).json() == {"text": "hi"}
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from preroll.worker import lifecycle, serving
from preroll.worker.app import HEALTH, METRICS, App
from preroll.worker.errors import StageFatal
from preroll.worker.settings import Settings
from preroll.worker.stage import Stage

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Answer:
    """One whole answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Served:
    """A stage that takes requests at `url`, by this class's methods or by any other client."""

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        self.stage = app.stage
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.fatal: StageFatal | None = None
        """What ended the replica, if a StageFatal did."""

    def request(
        self,
        method: str,
        path: str = "/",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """Sends bytes and str as they are, anything else but None as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            response = _send(connection, method, path, body, headers or {})
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def post(self, body: Any = None, path: str = "/", **headers: str) -> Answer:
        """A POST; `x_request_id="a"` among `headers` sends `x-request-id: a`."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", path, body, fields)

    def get(self, path: str = "/") -> Answer:
        return self.request("GET", path)

    @contextmanager
    def stream(
        self, body: Any = None, path: str = "/", method: str = "POST", **headers: str
    ) -> Iterator[Iterator[bytes]]:
        """Chunks as they come; leaving the block early is a client that leaves.

        Raises http.client.IncompleteRead where the stage breaks the stream off.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        response = _send(connection, method, path, body, fields)
        try:
            yield iter(lambda: response.read1(1 << 16), b"")
        finally:
            response.close()
            connection.close()

    def events(self, body: Any = None, path: str = "/", **headers: str) -> list[Any]:
        """The server-sent events of a whole stream, parsed; without the final `[DONE]`."""
        with self.stream(body, path, **headers) as chunks:
            lines = b"".join(chunks).decode().split("\n")
        data = [line[6:] for line in lines if line.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]

    def connect(self, path: str = "/", **options: Any) -> Any:
        """A WebSocket, for a `with` block: `websockets.sync.client.connect` with its options."""
        from websockets.sync.client import connect

        return connect(f"ws://127.0.0.1:{self.port}{path}", **options)

    def metrics(self) -> dict[str, float]:
        """The replica's metrics by series, as `name{labels}`."""
        lines = self.get(METRICS).text.splitlines()
        series = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in series}


@contextmanager
def serve(
    stage: type[Stage],
    *,
    max_concurrency: int = 64,
    options: Mapping[str, Any] | None = None,
    idle_timeout_s: float = 30.0,
    frame_s: float | None = None,
    calls: Mapping[str, type[Stage]] | None = None,
) -> Iterator[Served]:
    """Starts the stage (its hooks run), and stops it after the block.

    The parameters are what the app file would say. `calls`: the stages that this one may call, by
    name; they run beside it, and any of them may call any. Raises what a hook raises.
    """
    with tempfile.TemporaryDirectory(prefix="preroll-") as folder:
        settings = Settings(
            stage=stage.__name__.lower(),
            max_concurrency=max_concurrency,
            idle_timeout_s=idle_timeout_s,
            frame_s=frame_s,
            options=options or {},
            calls=tuple(calls or ()),
            internal=f"{folder}/internal" if calls else None,
        )
        with _started(_Runner(stage, settings, calls or {})) as served:
            yield served


@contextmanager
def _started(runner: _Runner) -> Iterator[Served]:
    runner.start()
    try:
        yield runner.served
    finally:
        runner.stop()


class _Runner:
    """The worker in a thread with a loop of its own."""

    def __init__(
        self, stage: type[Stage], settings: Settings, calls: Mapping[str, type[Stage]]
    ) -> None:
        app = self._app(stage, settings)
        self._called = {
            name: self._app(called, replace(settings, stage=name, frame_s=None, options={}))
            for name, called in calls.items()
        }
        self._internal = settings.internal
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.served = Served(app, self._socket.getsockname()[1])
        self._server = serving.server(app)
        self._error: BaseException | None = None
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="preroll-testing", daemon=True)

    def _app(self, stage: type[Stage], settings: Settings) -> App:
        app = App(lifecycle.make(stage, settings), settings, self._fatal)
        lifecycle.check_limits(app)
        return app

    def start(self) -> None:
        self._thread.start()
        self._is_ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the stage did not stop within {TIMEOUT_S:g} s")

    def _fatal(self, error: StageFatal) -> None:
        self.served.fatal = error
        self._server.should_exit = True

    def _run(self) -> None:
        loop = serving.event_loop()
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._serve())
        finally:
            self._is_ready.set()
            asyncio.set_event_loop(None)
            loop.close()

    async def _serve(self) -> None:
        switch = serving.server(_Switch(self._called))
        starting = asyncio.get_running_loop().create_task(self._start())
        serving_calls = None
        if self._internal is not None:
            sockets = [serving.unix_socket(self._internal)]
            serving_calls = asyncio.get_running_loop().create_task(switch.serve(sockets))
        await self._server.serve(sockets=[self._socket])
        await starting
        if self._error is None:
            for app in (self.served.app, *self._called.values()):
                await lifecycle.end(app)
        switch.should_exit = True
        if serving_calls is not None:
            await serving_calls

    async def _start(self) -> None:
        try:
            for app in (*self._called.values(), self.served.app):
                await lifecycle.start(app)
        except BaseException as error:
            self._error = error
            self._server.should_exit = True
        self._is_ready.set()


class _Switch:
    """Takes the door's place between stages: a call goes to the stage that it names."""

    def __init__(self, apps: Mapping[str, App]) -> None:
        self._apps = apps

    @property
    def has_sessions(self) -> bool:
        return any(app.has_sessions for app in self._apps.values())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name = dict(scope["headers"])[b"x-preroll-stage"].decode()
        await self._apps[name](scope, receive, send)


def _send(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: Any,
    headers: Mapping[str, str],
) -> http.client.HTTPResponse:
    fields = dict(headers)
    if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
        fields.setdefault("content-type", "application/json")
    if isinstance(body, str):
        body = body.encode()
    connection.request(method, path, body, fields)
    return connection.getresponse()


__all__ = ["HEALTH", "Answer", "Served", "serve"]
