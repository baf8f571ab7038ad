"""The model stages, as the voice service calls them: each through the door, each in its queue."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from preroll.errors import PrerollError, UnavailableError
from preroll.voice import packet, speaker, whisper
from preroll.voice.awaited import Awaited
from preroll.voice.live import Job
from preroll.voice.pcm import Samples
from preroll.voice.settings import VoiceSettings
from preroll.voice.utterance import Hypothesis
from preroll.worker.calls import CallError

if TYPE_CHECKING:
    from preroll.worker.client import Answer
    from preroll.worker.stage import Stage

ROLES = ("stt", "llm", "tts")
CHAT_PATH = "/v1/chat/completions"
URGENT = {"x-preroll-priority": "1"}
"""For what a listener waits for in silence; what is only fetched ahead goes behind it."""
IDLE = {"x-preroll-priority": "-1"}
"""For what nobody waits for."""
PROMPT_REFUSED = (400, 413)


class ModelError(PrerollError):
    """A model stage failed; `stage` is its role: stt, llm or tts."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(f"{stage}: {error}")
        self.stage = stage


class PromptRefusedError(ModelError):
    """The language model refuses the messages themselves: most likely they are too long for it."""


@dataclass(frozen=True, slots=True)
class Call:
    """How long one call took in all, how long of it the request waited in the stage's queue, and
    how many calls of this service the stage had not answered when it was made."""

    queue_s: float
    total_s: float
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """Some of a text's samples; `of`: how many all of it has, as far as that is known."""

    samples: Samples
    rate_hz: int
    of: int = 0


class Models:
    """The three model stages of one voice service."""

    def __init__(self, stage: Stage, settings: VoiceSettings) -> None:
        self.settings = settings
        self.outstanding = dict.fromkeys(ROLES, 0)
        """Calls that are not answered yet, by role."""
        self.awaited = Awaited()
        self._workers = 1
        self._num_beside = 0
        """Of the calls for transcripts: those that do not go through the stage's batches."""
        self._stage = stage

    def is_free(self, running: int) -> bool:
        """Whether one more transcript beside the `running` ones takes nothing from anybody: the
        stage said that it has a worker for it, and no other call is being answered."""
        others = self.outstanding["llm"] + self.outstanding["tts"]
        return running < self._workers and self.outstanding["stt"] <= running and not others

    @property
    def may_overtake(self) -> bool:
        """Whether the stage has a worker that batches leave alone, and it is free."""
        return self._num_beside < self._workers - 1

    async def recognize(self, job: Job, *, overtakes: bool = False) -> tuple[Hypothesis, Call]:
        """`overtakes`: not after what the stage is transcribing, where it has a worker for it.
        Raises ModelError."""
        began_s = time.monotonic()
        in_batches = self.outstanding["stt"] - self._num_beside
        is_beside = overtakes and in_batches > 0 and self.may_overtake
        head = {"prefix": job.prefix_ids, "before": job.before_ids, "beside": is_beside}
        body = packet.pack(head, job.audio)
        self._num_beside += is_beside
        try:
            with self._counted("stt") as ahead:
                answer = await self._stage.stage(self.settings.stt).post(body, whisper.PATH)
            heard = answer.json()
            self._workers = whisper.workers_of(heard)
            return whisper.from_json(heard), _call(answer, began_s, ahead)
        except (PrerollError, OSError, ValueError) as error:
            self._workers = 1  # until one is there that says otherwise
            raise ModelError("stt", error) from error
        finally:
            self._num_beside -= is_beside

    async def say(
        self, text: str, speed: float, told: Callable[[Call], None], *, is_urgent: bool = False
    ) -> AsyncGenerator[Said, None]:
        """A text's audio as it is made; `told` when it is whole. Raises ModelError."""
        began_s = time.monotonic()
        body = {"text": text, "speed": speed}
        headers = URGENT if is_urgent else None
        reader = packet.Reader()
        heads: list[Answer] = []
        stage = self._stage.stage(self.settings.tts)
        try:
            with self._counted("tts") as ahead:
                chunks = stage.stream(body, speaker.PATH, headers=headers, opened=heads.append)
                async with aclosing(chunks):
                    async for chunk in chunks:
                        samples = reader.push(chunk)
                        if samples.size and reader.head is not None:
                            rate_hz = int(reader.head["rate"])
                            yield Said(samples, rate_hz, _samples_of(heads[0], reader))
                reader.finish()
            told(_call(heads[0], began_s, ahead))
        except (PrerollError, OSError, ValueError, KeyError) as error:
            raise ModelError("tts", error) from error

    async def chat(
        self, messages: list[dict[str, str]], opened: Callable[[Call], None] | None = None
    ) -> AsyncGenerator[str, None]:
        """The text of an answer as it is written; `opened` when it begins.

        Raises ModelError, PromptRefusedError before any text.
        """
        body = {
            "model": self.settings.model,
            "messages": messages,
            "stream": True,
            "max_tokens": self.settings.max_answer_tokens,
            **self.settings.extra,
        }
        began_s = time.monotonic()
        stage = self._stage.stage(self.settings.llm)
        try:
            with self._counted("llm") as ahead:

                def tell(answer: Answer) -> None:
                    if opened is not None:
                        opened(_call(answer, began_s, ahead))

                async with aclosing(stage.events(body, CHAT_PATH, opened=tell)) as events:
                    async for event in events:
                        text = _content(event)
                        if text:
                            yield text
        except CallError as error:
            is_refused = error.answer.status in PROMPT_REFUSED
            raise (PromptRefusedError if is_refused else ModelError)("llm", error) from error
        except (PrerollError, OSError, ValueError) as error:
            raise ModelError("llm", error) from error

    async def read_ahead(self, messages: list[dict[str, str]]) -> None:
        """Has the language model read how the next request begins, while nobody waits for it.

        Nothing depends on it: what goes wrong here goes wrong again then, and is said then.
        """
        known = {"model": self.settings.model, "messages": messages}
        body = {**known, **self.settings.extra, "max_tokens": 1}
        with suppress(PrerollError, OSError):
            await self._stage.stage(self.settings.llm).post(body, CHAT_PATH, headers=IDLE)

    @contextmanager
    def _counted(self, role: str) -> Iterator[int]:
        """Counts a call while it lasts; gives how many there were before it."""
        ahead = self.outstanding[role]
        self.outstanding[role] += 1
        try:
            yield ahead
        finally:
            self.outstanding[role] -= 1


def _samples_of(answer: Answer, reader: packet.Reader) -> int:
    """How many samples are to come in all: the stage's word for it, or the length of its answer."""
    told = (reader.head or {}).get("samples")
    if isinstance(told, int):
        return told
    length = answer.headers.get("content-length", "")
    return (int(length) - reader.head_bytes) // 2 if length.isdigit() else 0


def _content(event: str) -> str:
    """The text of one chunk. Raises UnavailableError for an error event."""
    chunk: Any = json.loads(event)
    if not isinstance(chunk, dict):
        return ""
    if "error" in chunk:
        raise UnavailableError(f"the language model broke off: {chunk['error']}")
    choices = chunk.get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")


def _call(answer: Answer, began_s: float, ahead: int) -> Call:
    queue_ms = answer.headers.get("x-preroll-queue-ms", "0")
    try:
        queue_s = float(queue_ms) / 1e3
    except ValueError:
        queue_s = 0.0
    return Call(queue_s, time.monotonic() - began_s, ahead)
