"""The ASGI application of one replica. No framework: its cost is paid by every request."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from preroll.worker import answer, reporting
from preroll.worker.admission import Admission
from preroll.worker.context import Context, set_current
from preroll.worker.errors import StageFatal, status_of
from preroll.worker.exchange import Exchange
from preroll.worker.handlers import Handler, Routes
from preroll.worker.metrics import SECONDS, Metrics
from preroll.worker.pace import Pace, PaceMetrics
from preroll.worker.sending import SlowListeners, Stream
from preroll.worker.session import Session, SessionClosedError
from preroll.worker.settings import Settings
from preroll.worker.stage import Stage
from preroll.worker.threads import Threads

# Paths of the worker itself; no route of a stage may begin so.
OWN = "/_preroll/"
HEALTH = OWN + "health"
METRICS = OWN + "metrics"
MAX_WAIT_S = 10


class App:
    """Routes requests to a stage's methods. `on_fatal` is called once, with a StageFatal."""

    def __init__(
        self, stage: Stage, settings: Settings, on_fatal: Callable[[StageFatal], None]
    ) -> None:
        self.stage = stage
        self.settings = settings
        self.metrics: Metrics = stage.preroll_metrics
        self.routes = Routes(stage)
        self.phase = "load"
        """"ready" once requests are taken; until then what the start is at."""
        self.settled = asyncio.Event()
        """Set when the start is over, well or not, and when the worker is to end."""
        self.admission = Admission(settings.max_concurrency)
        # Fewer than requests would be a queue that the door knows nothing of.
        self.threads = Threads(stage.threads or settings.max_concurrency, "stage")
        self.slow = SlowListeners(settings.idle_timeout_s)
        self._on_fatal = on_fatal
        self._is_failed = False
        self._exchanges: set[Exchange] = set()
        self._sessions: set[asyncio.Task[Any]] = set()
        self._answers: dict[int, Any] = {}
        metrics = self.metrics
        self._seconds = metrics.histogram("preroll_worker_request_seconds", SECONDS)
        self._ttft = metrics.histogram("preroll_worker_time_to_first_chunk_seconds", SECONDS)
        self._chunks = metrics.counter("preroll_worker_chunks_total")
        self.num_cancelled = metrics.counter("preroll_worker_requests_cancelled_total")
        self._pace = PaceMetrics(metrics) if settings.frame_s else None
        metrics.gauge("preroll_worker_requests_running", lambda: self.admission.busy)
        metrics.gauge("preroll_worker_requests_waiting", lambda: self.admission.waiting)
        metrics.gauge("preroll_worker_sessions", lambda: len(self._sessions))
        metrics.gauge("preroll_worker_tasks", lambda: len(asyncio.all_tasks()))

    @property
    def has_sessions(self) -> bool:
        return self.routes.has_sessions

    def __call__(self, scope: Any, receive: Any, send: Any) -> Coroutine[Any, Any, None]:
        if scope["type"] == "http":
            return self._http(scope, receive, send)
        return self._websocket(scope, receive, send)

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        path, method = scope["path"], scope["method"]
        if path.startswith(OWN):
            await self._own(path, method, scope["headers"], send)
            return
        if self.phase != "ready":
            await self._refuse(send, 503, "unavailable", f"the stage is not ready: {self.phase}")
            return
        handlers, values = self._find(path, method)
        if not handlers:
            await self._no_handler(path, method, send)
            return
        context = Context(scope)
        if values:
            context.path_values = values
        set_current(context)
        exchange = Exchange(self, context, receive, send)
        self._exchanges.add(exchange)
        try:
            await exchange.run(handlers)
        finally:
            self._exchanges.discard(exchange)
        self._count(exchange.status, time.monotonic() - context.began_s)

    def _find(self, path: str, method: str) -> tuple[dict[str, Handler], dict[str, str]]:
        """The one handler of a request, or both `__call__` and `stream`; empty: none."""
        routed, values = self.routes.find(path)
        if routed is not None:
            return ({method: routed[method]} if method in routed else {}), values
        return (self.routes.posts if method == "POST" else {}), values

    async def _no_handler(self, path: str, method: str, send: Any) -> None:
        routed, _ = self.routes.find(path)
        allowed = [m for m in routed or () if m != "WEBSOCKET"]
        if routed is None and self.routes.posts:
            allowed = ["POST"]
        if allowed:
            message = f"{method} {path}; allowed: {', '.join(allowed)}"
            extra = {"allow": ", ".join(allowed)}
            await self._refuse(send, 405, "method_not_allowed", message, extra)
        else:
            await self._refuse(send, 404, "not_found", f"{method} {path}: nothing is there")

    async def _refuse(
        self, send: Any, status: int, kind: str, message: str, extra: dict[str, str] | None = None
    ) -> None:
        body = answer.error_body(status, kind, message)
        await self._plain(send, status, answer.JSON, body, extra or {})
        self._count(status, 0.0)

    async def _plain(
        self, send: Any, status: int, kind: bytes, body: bytes, extra: dict[str, str]
    ) -> None:
        headers = answer.headers_of(kind, len(body), extra)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _own(self, path: str, method: str, headers: list[answer.Header], send: Any) -> None:
        # The door gives every request an id: these paths are not for its clients.
        is_public = any(name == b"x-request-id" for name, _ in headers)
        if is_public or method != "GET" or path not in (HEALTH, METRICS):
            await self._plain(send, 404, answer.TEXT, b"not found\n", {})
        elif path == METRICS:
            await self._plain(send, 200, answer.TEXT, self.metrics.text().encode(), {})
        else:
            await self._wait(headers)
            status = 200 if self.phase == "ready" else 503
            await self._plain(send, status, answer.JSON, answer.to_json({"phase": self.phase}), {})

    async def _wait(self, headers: list[answer.Header]) -> None:
        """A start that goes on is waited for, as long as `Prefer: wait=SECONDS` says (RFC 7240):
        who would ask again and again takes from the start what it needs."""
        preferred = next((value for name, value in headers if name == b"prefer"), b"")
        seconds = preferred.removeprefix(b"wait=")
        if seconds != preferred and seconds.isdigit() and len(seconds) < 10:
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):  # 3.10: two types
                await asyncio.wait_for(self.settled.wait(), min(int(seconds), MAX_WAIT_S))

    # Sessions -------------------------------------------------------------------------------

    async def _websocket(self, scope: Any, receive: Any, send: Any) -> None:
        context = Context(scope)
        task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]
        session = Session(context, receive, send, task)
        routed, values = self.routes.find(context.path)
        methods = self.routes.defaults if routed is None else routed
        handler = methods.get("session" if routed is None else "WEBSOCKET")
        if self.phase != "ready":
            await session.reject(503, f"the stage is not ready: {self.phase}", "unavailable")
        elif handler is None:
            await session.reject(404, f"{context.path}: no session is there", "not_found")
        else:
            context.path_values = values
            context.is_answered = True  # no call of a session is made for a first byte
            set_current(context)
            await self._session(handler, session, task)

    async def _session(self, handler: Handler, session: Session, task: asyncio.Task[Any]) -> None:
        self._sessions.add(task)
        self.slow.add(session, task)
        try:
            await handler.call(*handler.arguments(session, session.context))
            await session.close()
        except SessionClosedError:
            pass  # the client left; the code had nothing to tidy up
        except asyncio.CancelledError:
            if session.is_slow:
                reporting.say(f"session {session.context.request_id}: the client took nothing")
            elif not session.context.cancelled:
                await session.close(1012, "the stage ends")
        except BaseException as error:
            await self._failed_session(session, error)
        finally:
            session.end()
            self.slow.remove(session)
            self._sessions.discard(task)

    async def _failed_session(self, session: Session, error: BaseException) -> None:
        status, kind, _ = status_of(error)
        message = reporting.failure(error, status, session.context)
        if session.is_accepted:
            await session.close(1008 if status < 500 else 1011, message)
        else:
            await session.reject(status, message, kind)
        if isinstance(error, StageFatal):
            self.fail(error, None)

    # Accounts -------------------------------------------------------------------------------

    def _count(self, status: int, seconds: float) -> None:
        if status == 0:
            return  # the client has left
        self._seconds.observe(seconds)
        counter = self._answers.get(status)
        if counter is None:
            counter = self.metrics.counter("preroll_worker_requests_total", status=str(status))
            self._answers[status] = counter
        counter.value += 1

    def record_stream(self, stream: Stream, pace: Pace | None, context: Context) -> None:
        self._chunks.value += stream.num_chunks
        if stream.first_s is not None:
            self._ttft.observe(stream.first_s - context.began_s)
        if pace is not None and self._pace is not None:
            pace.record(self._pace)

    def fail(self, error: StageFatal, source: Exchange | None) -> None:
        """The replica is done for: what else is in flight gets 503, and the process ends."""
        if self._is_failed:
            return
        self._is_failed = True
        self.phase = "failed"
        self.settled.set()
        for exchange in list(self._exchanges):
            if exchange is not source:
                exchange.fatal = error
                exchange.task.cancel()
        for task in self._sessions:
            task.cancel()
        self._on_fatal(error)
