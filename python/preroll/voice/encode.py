"""Speech as the client wants it: each encoder takes samples as they come and gives bytes.

A new format is a class here and a line in `FORMATS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from preroll.errors import InputError
from preroll.voice import wav
from preroll.voice.pcm import SPEECH_RATE_HZ, Samples, to_s16le


class Encoder(ABC):
    """One stream of mono speech at `rate_hz`. `push` in order, then `finish` once."""

    media_type: ClassVar[str]

    def __init__(self, rate_hz: int = SPEECH_RATE_HZ) -> None:
        self.rate_hz = rate_hz

    @abstractmethod
    def push(self, samples: Samples) -> bytes:
        """The bytes that are ready; may be empty."""

    def finish(self) -> bytes:
        """The rest of the stream."""
        return b""


class Pcm(Encoder):
    """s16le, mono, without a head: whole samples only, so never an odd byte."""

    media_type = "audio/pcm"

    def push(self, samples: Samples) -> bytes:
        return to_s16le(samples)


class Wav(Encoder):
    media_type = "audio/wav"

    def __init__(self, rate_hz: int = SPEECH_RATE_HZ) -> None:
        super().__init__(rate_hz)
        self._head = wav.head(rate_hz)

    def push(self, samples: Samples) -> bytes:
        head, self._head = self._head, b""
        return head + to_s16le(samples)

    def finish(self) -> bytes:
        head, self._head = self._head, b""
        return head


class _Sink:
    """What the muxer writes to. It has no `seek`: the muxer must do without going back."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self.data)
        self.data.clear()
        return data


class _Muxed(Encoder):
    """An encoder and a container of FFmpeg's."""

    container: ClassVar[str]
    codec: ClassVar[str]
    options: ClassVar[dict[str, str]] = {}
    bit_rate: ClassVar[int | None] = None
    sample_format: ClassVar[str] = "s16"

    def __init__(self, rate_hz: int = SPEECH_RATE_HZ) -> None:
        super().__init__(rate_hz)
        import av

        self._sink = _Sink()
        self._out = av.open(
            self._sink,
            mode="w",
            format=self.container,
            options={"flush_packets": "1", **self.options},
        )
        self._stream: Any = self._out.add_stream(self.codec, rate=rate_hz)
        self._stream.layout = "mono"
        self._stream.format = self.sample_format
        if self.bit_rate is not None:
            self._stream.bit_rate = self.bit_rate
        self._num_samples = 0

    def push(self, samples: Samples) -> bytes:
        if samples.size:
            import av

            whole = np.clip(np.rint(samples * 32767.0), -32768, 32767).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(whole[None, :], format="s16", layout="mono")
            frame.sample_rate = self.rate_hz
            frame.pts = self._num_samples
            self._num_samples += samples.size
            self._out.mux(self._stream.encode(frame))
        return self._sink.take()

    def finish(self) -> bytes:
        self._out.mux(self._stream.encode(None))
        self._out.close()
        return self._sink.take()


class Flac(_Muxed):
    media_type = "audio/flac"
    container, codec = "flac", "flac"


class Opus(_Muxed):
    media_type = "audio/ogg"
    container, codec = "ogg", "libopus"
    # A page a frame: the muxer's own second of audio a page would be a second of silence.
    options: ClassVar[dict[str, str]] = {"page_duration": "20000"}
    bit_rate = 32_000


class Mp3(_Muxed):
    """What the `openai` package asks for when it is not told."""

    media_type = "audio/mpeg"
    container, codec = "mp3", "libmp3lame"
    # The head with the length would be written by going back.
    options: ClassVar[dict[str, str]] = {"write_xing": "0"}
    bit_rate = 64_000
    sample_format = "s16p"


class Aac(_Muxed):
    media_type = "audio/aac"
    container, codec = "adts", "aac"
    bit_rate = 64_000
    sample_format = "fltp"


FORMATS: dict[str, type[Encoder]] = {
    "pcm": Pcm,
    "wav": Wav,
    "flac": Flac,
    "opus": Opus,
    "mp3": Mp3,
    "aac": Aac,
}


def get_encoder(form: str, rate_hz: int = SPEECH_RATE_HZ) -> Encoder:
    """A new encoder of that format (a key of `FORMATS`). Raises InputError."""
    if form not in FORMATS:
        raise InputError(f"response_format is {form!r}; allowed: {', '.join(FORMATS)}")
    return FORMATS[form](rate_hz)
