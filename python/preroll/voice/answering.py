"""One spoken answer: the language model's text, said and sent while it is written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from preroll.voice.gauges import Gauges
from preroll.voice.history import History
from preroll.voice.models import Call, Models, PromptRefusedError
from preroll.voice.playing import Player
from preroll.voice.saying import Saying

Tell = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class TurnMarks:
    """When the user's turn ended (time.monotonic): the arrival of the last voiced sample, the
    decision that it was the last, and the transcript; and the calls that made the transcript."""

    speech_end_s: float
    decided_s: float
    transcript_s: float
    stt_calls: list[Call] = field(default_factory=list)


class Answer:
    """The answer of one turn. `run` may be cancelled at any time: nothing goes on behind it.

    It is made from the moment it runs, but the client is told nothing of it before `want`.
    """

    def __init__(
        self,
        turn: int,
        history: History,
        instructions: str,
        models: Models,
        tell: Tell,
        player: Player,
        speed: float,
    ) -> None:
        self.turn = turn
        self.player = player
        self.mark_s: float | None = None
        """The client's word for how much of the answer it has played, in seconds."""
        self.is_whole = False
        self._history = history
        self._instructions = instructions
        self._models = models
        self._tell = tell
        self._saying = Saying(models, speed, player.rate_hz)
        self._untold: deque[dict[str, Any]] = deque()
        self._began_s = time.monotonic()
        self._llm_call: Call | None = None

    async def run(self) -> None:
        """Returns when the answer has been played. Raises ModelError."""
        pieces = self._saying.pieces(self._texts())
        try:
            await self.player.play(pieces)
        finally:
            await pieces.aclose()
        await self.player.wanted.wait()
        await self._tell(
            {
                "type": "audio_end",
                "turn": self.turn,
                "audio_ms": round(1e3 * self.player.sent_s),
            }
        )
        await self.player.finish()
        self.is_whole = True

    async def want(self) -> None:
        """The turn is decided: the client is told what there is, and the rest as it is made."""
        await self._tell({"type": "answer_started", "turn": self.turn, "rate": self.player.rate_hz})
        while self._untold:
            await self._tell(self._untold.popleft())
        self.player.wanted.set()

    async def _tell_text(self, text: str) -> None:
        message = {"type": "text", "turn": self.turn, "text": text}
        if self.player.wanted.is_set():
            await self._tell(message)
        else:
            self._untold.append(message)

    async def _texts(self) -> AsyncIterator[str]:
        """What the model refuses is tried again with half of the history; that is forgotten for
        good only when it was the reason."""
        history: History | None = self._history
        while history is not None:
            chunks = self._models.chat(history.messages(self._instructions), self._opened)
            try:
                async for text in chunks:
                    if history is not self._history:
                        self._history.become(history)
                        history = self._history
                    await self._tell_text(text)
                    yield text
                return
            except PromptRefusedError:
                history = history.halved()
                if history is None:
                    raise
            finally:
                await chunks.aclose()

    def _opened(self, call: Call) -> None:
        self._llm_call = call

    @property
    def heard_s(self) -> float | None:
        """None: all of it."""
        return None if self.is_whole else self.player.heard_s(self.mark_s)

    def observe(self, turn: TurnMarks, gauges: Gauges) -> None:
        player, saying = self.player, self._saying.marks
        for call in saying.calls:
            gauges.queue_wait("tts").observe(call.queue_s)
            gauges.call("tts").observe(call.total_s)
        if self._llm_call is not None:
            gauges.queue_wait("llm").observe(self._llm_call.queue_s)
        if saying.first_text_s is not None:
            gauges.call("llm").observe(saying.first_text_s - self._began_s)
        if player.first_byte_s is not None:
            gauges.first_byte.observe(player.first_byte_s - turn.decided_s)
            gauges.trimmed.observe(saying.trimmed_ms / 1e3)
        if player.first_audible_s is not None:
            gauges.first_audible.observe(player.first_audible_s - turn.decided_s)
        gauges.underruns.value += player.underruns
        if player.sent_s:
            gauges.realtime_factor.observe(sum(c.total_s for c in saying.calls) / player.sent_s)

    def timings(self, turn: TurnMarks) -> dict[str, Any]:
        """Milliseconds after the last voiced sample; what did not happen is missing."""
        player, saying = self.player, self._saying.marks
        moments = {
            "decided": turn.decided_s,
            "transcript": turn.transcript_s,
            "llm_sent": self._began_s,
            "llm_first_text": saying.first_text_s,
            "first_clause": saying.first_clause_s,
            "tts_first_audio": saying.first_audio_s,
            "first_byte": player.first_byte_s,
            "first_audible": player.first_audible_s,
            "end": time.monotonic(),
        }
        calls = {
            "stt": turn.stt_calls[-1] if turn.stt_calls else None,
            "llm": self._llm_call,
            "tts": saying.calls[0] if saying.calls else None,
        }
        return {
            "type": "timings",
            "turn": self.turn,
            "ms": {
                name: round(1e3 * (at_s - turn.speech_end_s), 1)
                for name, at_s in moments.items()
                if at_s is not None
            },
            "queue_ms": {
                role: round(1e3 * call.queue_s, 1) for role, call in calls.items() if call
            },
            "queue_depth": {role: call.ahead for role, call in calls.items() if call},
            "trimmed_ms": round(saying.trimmed_ms),
            "audio_ms": round(1e3 * player.sent_s),
            "underruns": player.underruns,
        }
