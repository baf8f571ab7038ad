"""One request in flight: body in, the stage's method, answer out, and the client that leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from preroll.worker import answer, reporting
from preroll.worker.answer import Response
from preroll.worker.body import BodyReader, BodyStream, ClientLeftError, decoder
from preroll.worker.context import CancelledRequestError, Context
from preroll.worker.cycle import ON_LEFT
from preroll.worker.errors import StageFatal, status_of
from preroll.worker.guard import leave_if_forked
from preroll.worker.handlers import Handler
from preroll.worker.pace import Pace
from preroll.worker.sending import Stream
from preroll.worker.threaded import ThreadedIterator
from preroll.worker.threads import Job

if TYPE_CHECKING:
    from preroll.worker.app import App

# Where the server does not say that a client has left, an answer within this time is not watched
# for it: watching costs a task.
WATCH_AFTER_S = 0.005
# Larger bodies are parsed in a thread.
LARGE_BYTES = 256 << 10
# Code that goes on after it was cancelled is cancelled again, this often.
INSIST_S = 1.0
INSIST_TIMES = 3


class Exchange:
    """The life of one HTTP request."""

    def __init__(self, app: App, context: Context, receive: Any, send: Any) -> None:
        self.app = app
        self.context = context
        self.task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]
        self.fatal: StageFatal | None = None
        self._receive = receive
        self._send = send
        self._is_complete = False
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._body_stream: BodyStream | None = None
        self._stream: Stream | None = None
        self._job: Job | None = None
        self.status = 0

    async def run(self, handlers: dict[str, Handler]) -> None:
        """Never raises: whatever happens here is this request's own."""
        admission = self.app.admission
        try:
            admission.check()
            handler, argument = await self._input(handlers)
            self._watch_soon()
            if not admission.try_enter():
                await admission.enter()
            try:
                await self._answer(handler, argument)
            finally:
                # A thread that goes on after its client has left still holds the place.
                if self._job is None or self._job.is_ended:
                    admission.leave()
                else:
                    self._job.ended = admission.leave
        except asyncio.CancelledError as error:
            await self._cancelled(error)
        except (ClientLeftError, CancelledRequestError):
            self.context.cancelled = True
            self.app.num_cancelled.value += 1
        except BaseException as error:
            await self._fail(error)
        finally:
            self._is_complete = True
            if self._timer is not None:
                self._timer.cancel()
            if self._watcher is not None:
                self._watcher.cancel()
            if self._body_stream is not None:
                self._body_stream.close()

    async def _input(self, handlers: dict[str, Handler]) -> tuple[Handler, Any]:
        """The handler that answers, and its argument."""
        reader = BodyReader(self._receive, self.app.stage.max_body_bytes)
        handler = next(iter(handlers.values()))
        if len(handlers) == 1 and handler.is_body_iterator:
            self._body_stream = BodyStream(reader, self._left)
            return handler, self._body_stream
        body = await reader.whole()
        if len(handlers) > 1:
            handler = handlers["stream" if wants_stream(self.context, body) else "__call__"]
        if not handler.takes_body:
            return handler, None
        if len(body) > LARGE_BYTES:  # parsing it would hold up everybody else
            return handler, await asyncio.to_thread(handler.decode, body, self.context)
        return handler, handler.decode(body, self.context)

    async def _answer(self, handler: Handler, argument: Any) -> None:
        arguments = handler.arguments(argument, self.context)
        if handler.is_inline:
            result = handler.call(*arguments)
            if hasattr(result, "__await__"):
                result = await result
            result = answer.render(result, handler.name, handler.content_type)
        else:
            result = await self._in_thread(handler, arguments)
        if isinstance(result, answer.Whole):
            await self._send_whole(result)
        else:
            await self._send_stream(handler, result)

    async def _in_thread(self, handler: Handler, arguments: tuple[Any, ...]) -> Any:
        def call() -> Any:
            return answer.render(handler.call(*arguments), handler.name, handler.content_type)

        self._job = self.app.threads.submit(call)
        try:
            return await self._job.future
        except asyncio.CancelledError:
            self._job.is_dropped = True
            raise

    async def _send_whole(self, whole: answer.Whole) -> None:
        leave_if_forked()
        status, headers, body = whole
        self.status = status
        self._is_complete = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _send_stream(self, handler: Handler, result: Any) -> None:
        head = result if isinstance(result, Response) else None
        chunks = result.body if head is not None else result
        app = self.app
        pace = Pace(app.settings.frame_s) if app.settings.frame_s else None
        stream = Stream(self._send, self.context, handler.name, handler.content_type, pace, head)
        self._stream = stream
        if not hasattr(chunks, "__aiter__"):
            chunks = ThreadedIterator(chunks, app.threads, self.context)
            self._job = chunks.job
        app.slow.add(stream, self.task)
        try:
            async for chunk in chunks:
                await stream.put(chunk)
            self._is_complete = True
            await stream.end()
            self.status = 200
        finally:
            app.slow.remove(stream)
            app.record_stream(stream, pace, self.context)
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    # The client that leaves -----------------------------------------------------------------

    def _watch_soon(self) -> None:
        if self._body_stream is not None:
            return  # it reads on, and says so
        on_left = self.context.scope.get(ON_LEFT)
        if on_left is not None:
            on_left(self._client_left)
        else:
            self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._watch)

    def _watch(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._wait_for_leaving())

    async def _wait_for_leaving(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._is_complete:
            self._left()
            await self._insist()

    def _client_left(self) -> None:
        if not self._is_complete:
            self._left()
            self._watcher = asyncio.get_running_loop().create_task(self._insist())

    async def _insist(self) -> None:
        for _ in range(INSIST_TIMES):
            await asyncio.sleep(INSIST_S)
            self.task.cancel()
        reporting.say(
            f"request {self.context.request_id}: the code goes on though it was cancelled"
        )

    def _left(self) -> None:
        if not self._is_complete:
            self.context.cancelled = True
            self.task.cancel()

    async def _cancelled(self, error: asyncio.CancelledError) -> None:
        if self.fatal is not None:
            await self._fail(self.fatal)
            return
        if self._stream is not None and self._stream.is_slow:
            reporting.say(
                f"request {self.context.request_id}: the client took nothing for"
                f" {self.app.settings.idle_timeout_s:g} s; the stream was cancelled"
            )
        elif not self.context.cancelled:
            await self._fail(RuntimeError("the stage's code cancelled its own request"))
        self.context.cancelled = True
        self.app.num_cancelled.value += 1

    async def _fail(self, error: BaseException) -> None:
        status, kind, param = status_of(error)
        self.status = status
        message = reporting.failure(error, status, self.context)
        stream = self._stream
        try:
            if stream is not None and stream.is_started:
                await stream.fail(status, kind, message)
            else:
                body = answer.error_body(status, kind, message, param)
                # A deadline that has passed has passed for every further try too.
                extra = {"x-should-retry": "false"} if status == 504 else {}
                headers = answer.headers_of(answer.JSON, len(body), extra)
                await self._send_whole(answer.Whole(status, headers, body))
        finally:
            if isinstance(error, StageFatal) and self.fatal is None:
                self.app.fail(error, self)


as_object = decoder(dict)


def wants_stream(context: Context, body: bytes) -> bool:
    """Whether a request to a stage with both kinds of answer asks for a stream."""
    if "text/event-stream" in (context.header(b"accept") or ""):
        return True
    if b'"stream"' not in body:
        return False
    try:
        document = as_object(body, context)
    except Exception:
        return False  # the method's own parameter will say what is wrong
    return document.get("stream") is True
