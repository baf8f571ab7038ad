"""`WebSocket /v1/talk`: a conversation by turns.

Client: audio; `heard` (`ms` of the answer `turn` that were played), `cancel`, `commit` (the turn
ends now), `settings` (`instructions`, `speed`), `end`.
Server: `ready`, `speech_started`, `speech_stopped`, `partial`, `final`, `transcript`,
`answer_started`, `text`, binary audio (of the answer that was started last), `audio_end`,
`answer_ended`, `interrupted`, `timings`, `error`, `done`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from preroll.errors import InputError
from preroll.voice import turns, wire
from preroll.voice.activity import Edge
from preroll.voice.answering import Answer, TurnMarks
from preroll.voice.begun import Begun
from preroll.voice.gauges import Gauges
from preroll.voice.hearing import Ear
from preroll.voice.history import History
from preroll.voice.listening import Listener
from preroll.voice.live import LiveSettings, LiveTranscript, Update
from preroll.voice.live_session import update_message
from preroll.voice.models import ModelError, Models
from preroll.voice.patience import Patience
from preroll.voice.playing import Player
from preroll.voice.silero import Silero
from preroll.worker.session import Session

TURNS = LiveSettings(whole_s=10.0)
"""An answer rests on the whole utterance heard anew; the pause that ends a turn has the time."""

COMMANDS = ("heard", "cancel", "commit", "settings", "end")


class Talk:
    """One conversation, from its first message to its last."""

    def __init__(
        self, socket: Session, settings: wire.SessionSettings, models: Models, gauges: Gauges
    ) -> None:
        self._socket = socket
        self._settings = settings
        self._models = models
        self._gauges = gauges
        self._instructions = models.settings.instructions
        self._speed = settings.speed
        self._ear = Ear(settings)
        live = LiveTranscript(Silero().push, TURNS, settings.activity)
        self._listener = Listener(live, models, gauges, self._heard, self._stt_failed)
        self._turns = turns.Turns()
        self._history = History(models.settings.max_history_chars)
        self._words: list[str] = []
        self._decided_s = self._speech_end_s = 0.0
        self._begun: Begun | None = None
        """Of a turn that is not decided yet."""
        self._current: Begun | None = None
        self._answering: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._has_forgotten = False
        self._patience = Patience(socket)

    async def run(self) -> None:
        await self._socket.send({"type": "ready", "output_rate": self._settings.output_rate_hz})
        listening = asyncio.create_task(self._listener.run())
        try:
            async for message in self._socket:
                if not await self._take(message):
                    break
        finally:
            works = [begun.work for begun in (self._begun, self._current) if begun is not None]
            for task in (listening, self._answering, self._reading, *works):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, ConnectionError, ModelError):
                        await task

    async def _take(self, message: str | bytes) -> bool:
        """Whether the conversation goes on."""
        try:
            said = wire.parse(message, COMMANDS)
            if isinstance(said, wire.Command):
                return await self._command(said)
        except InputError as error:
            return await self._patience.answer(error)
        await self._edges(self._listener.accept(self._ear, said))
        self._consider()
        await self._listener.room()
        return True

    async def _command(self, said: wire.Command) -> bool:
        """Raises InputError for fields that are wrong."""
        if said.kind == "heard":
            self._mark(said.fields)
        elif said.kind == "settings":
            self._change(said.fields)
        elif said.kind == "cancel":
            await self._act(self._turns.cancel())
        else:
            await self._edges(self._listener.finish())
            await self._listener.drain()
        if said.kind != "end":
            return True
        if self._answering is not None:
            await asyncio.wait([self._answering])
        await self._socket.send({"type": "done"})
        await self._socket.close()
        return False

    def _mark(self, fields: dict[str, object]) -> None:
        ms, turn = fields.get("ms"), fields.get("turn")
        if isinstance(ms, bool) or not isinstance(ms, int | float) or not 0 <= ms < 1e9:
            raise InputError(f"heard: ms is {ms!r}; milliseconds of the answer are needed")
        if self._current is not None and turn == self._current.answer.turn:
            self._current.answer.mark_s = ms / 1e3

    def _change(self, fields: dict[str, object]) -> None:
        for name in fields:
            if name not in ("instructions", "speed"):
                raise InputError(f"settings: {name!r} is unknown; allowed: instructions, speed")
        instructions = fields.get("instructions", self._instructions)
        if not isinstance(instructions, str) or len(instructions) > wire.MAX_INSTRUCTIONS:
            raise InputError(
                f"settings: instructions; text of at most {wire.MAX_INSTRUCTIONS} characters"
            )
        self._speed = wire.check_speed(fields.get("speed", self._speed))
        self._instructions = instructions
        self._drop()

    async def _edges(self, edges: list[Edge]) -> None:
        for edge in edges:
            if edge.kind == "start":
                await self._act(self._turns.speech_started())
                await self._socket.send({"type": "speech_started", "at_ms": _ms(edge.at_s)})
            else:
                self._turns.speech_stopped()
                self._decided_s = time.monotonic()
                self._speech_end_s = self._listener.arrivals.at(edge.at_s) or self._decided_s
                await self._socket.send({"type": "speech_stopped", "at_ms": _ms(edge.at_s)})

    async def _heard(self, update: Update, lag_ms: float | None) -> None:
        await self._socket.send(update_message(update, lag_ms))
        if update.kind != "final":
            return
        self._words.append(update.text)
        if update.is_end:
            text, self._words = "".join(self._words), []
            await self._act(self._turns.heard(text if update.whole is None else update.whole))

    async def _stt_failed(self, error: ModelError) -> None:
        await self._socket.send(wire.error(str(error), "stage_failed", error.stage))

    async def _act(self, actions: list[turns.Action]) -> None:
        for action in actions:
            if isinstance(action, turns.Interrupt):
                await self._interrupt()
            else:
                self._begin(action)

    def _consider(self) -> None:
        """Begins an answer in a pause that may end the turn, unless others are being answered:
        what may be in vain is not at their expense. Drops it when speech goes on."""
        live, waiting = self._listener.live, self._models.outstanding
        voiced_until_s = live.activity.voiced_until_s
        if self._begun is not None and voiced_until_s > self._begun.voiced_until_s:
            self._drop()
        is_free = waiting["llm"] == waiting["tts"] == 0
        if (
            self._begun is not None
            or not is_free
            or not self._models.settings.preemptive_generation
        ):
            return
        text = live.likely_text()
        action = None if text is None else self._turns.likely(text)
        if action is not None:
            self._begun = self._make(action, voiced_until_s)
            self._gauges.preempted.value += 1

    def _drop(self) -> None:
        if self._begun is not None:
            self._begun.work.cancel()
            self._begun = None
            self._gauges.preempted_in_vain.value += 1

    def _make(self, action: turns.Answer, voiced_until_s: float) -> Begun:
        since_s = time.monotonic()
        history = self._history.with_user(action.text)
        answer = Answer(
            action.turn,
            history,
            self._instructions,
            self._models,
            self._socket.send,
            Player(self._socket.send, self._settings.output_rate_hz, self._models.settings.lead_s),
            self._speed,
        )
        if self._reading is not None:
            self._reading.cancel()
        return Begun(action, answer, history, voiced_until_s, since_s, self._reading)

    def _begin(self, action: turns.Answer) -> None:
        begun = self._begun
        if begun is None or not begun.fits(action):
            self._drop()
            begun = self._make(action, self._listener.live.activity.voiced_until_s)
        self._begun, self._current, self._history = None, begun, begun.history
        marks = TurnMarks(
            speech_end_s=self._speech_end_s,
            decided_s=self._decided_s,
            transcript_s=begun.since_s,
            stt_calls=list(self._listener.calls),
        )
        self._gauges.turns.value += 1
        # At once, so that speech which goes on the next moment finds something to interrupt.
        self._answering = asyncio.create_task(self._run(begun, marks, self._answering))

    async def _run(self, begun: Begun, marks: TurnMarks, before: asyncio.Task[None] | None) -> None:
        """One answer to its end, well or not; what the user heard of it becomes history."""
        action, answer = begun.action, begun.answer
        try:
            if before is not None:
                await asyncio.wait([before])
            await self._socket.send(
                {"type": "transcript", "turn": action.turn, "text": action.text}
            )
            await answer.want()
            await begun.work
        except ModelError as error:
            self._gauges.errors(error.stage).value += 1
            failed = wire.error(str(error), "stage_failed", error.stage)
            await self._socket.send({**failed, "turn": answer.turn})
        finally:
            begun.work.cancel()
            self._has_forgotten = begun.history.add_answer(answer.player.pieces, answer.heard_s)
            answer.observe(marks, self._gauges)
        self._turns.answered(answer.turn)
        await self._socket.send(answer.timings(marks))
        await self._socket.send({"type": "answer_ended", "turn": answer.turn})
        self._read_ahead()

    def _read_ahead(self) -> None:
        """After an answer for which turns were forgotten: the next request begins otherwise."""
        if self._has_forgotten:
            self._has_forgotten = False
            messages = self._history.messages(self._instructions)
            self._reading = asyncio.create_task(self._models.read_ahead(messages))

    async def _interrupt(self) -> None:
        """Silence: synthesis and language model are stopped, their slots free, before the client
        is told."""
        task, current = self._answering, self._current
        if task is None or current is None or task.done():
            return
        began_s = time.monotonic()
        answer = current.answer
        for one in (task, current.work):
            one.cancel()
        await asyncio.wait([task, current.work])
        took_s = time.monotonic() - began_s
        self._gauges.interrupt.observe(took_s)
        self._gauges.interruptions.value += 1
        await self._socket.send(
            {
                "type": "interrupted",
                "turn": answer.turn,
                "heard_ms": _ms(answer.player.heard_s(answer.mark_s)),
                "sent_ms": _ms(answer.player.sent_s),
                "took_ms": round(1e3 * took_s, 1),
            }
        )
        self._read_ahead()


def _ms(seconds: float) -> int:
    return round(1e3 * seconds)
