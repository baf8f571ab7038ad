"""Any common audio container to mono float32 at the hearing rate, in flat memory.

A few hundred bytes can describe hours of sound, and a playlist can name other files. So: what is
decoded comes out in blocks and is never held, its duration is bounded, and only demuxers of plain
audio containers may look at the bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from preroll.errors import InputError
from preroll.voice.pcm import HEARING_RATE_HZ

if TYPE_CHECKING:
    from preroll.voice.pcm import Samples

CONTAINERS = (
    "wav,w64,flac,ogg,mp3,aac,mov,matroska,webm,aiff,caf,au,amr,amrnb,amrwb,asf,mpegts,mpeg"
)
"""Demuxers that read one stream of bytes and nothing else: no playlists, no scripts."""

RATES_HZ = range(4_000, 768_001)
"""Below, one packet would swell to gigabytes when it is brought to 16 kHz."""

MAX_AUDIO_S = 4 * 3600.0
ACCEPTED = "wav, flac, ogg, opus, mp3, mp4, m4a, aac, webm and mka are read"


def decode(data: bytes, max_audio_s: float = MAX_AUDIO_S) -> Iterator[Samples]:
    """Blocks of mono float32 at 16 kHz, of at most a few seconds each.

    A container that ends too early, or a damaged packet, costs what is damaged; what decodes is
    given. Raises InputError when the bytes are no audio, or hold more than `max_audio_s`.
    """
    if not data:
        raise InputError(f"the audio is empty (0 bytes); {ACCEPTED}")
    import av

    try:
        container = av.open(
            io.BytesIO(data),
            mode="r",
            options={"format_whitelist": CONTAINERS},
            metadata_errors="ignore",
        )
    except (av.FFmpegError, ValueError, OSError) as error:
        raise InputError(f"the audio cannot be opened ({_reason(error)}); {ACCEPTED}") from error
    with container:
        if not container.streams.audio:
            raise InputError(f"the file has no audio stream; {ACCEPTED}")
        num_samples = 0
        for block in _blocks(container):
            num_samples += block.size
            if num_samples > max_audio_s * HEARING_RATE_HZ:
                raise InputError(
                    f"the audio is longer than {max_audio_s:g} s, the most that is taken; cut it up"
                )
            yield block
        if num_samples == 0:
            raise InputError(f"the file has no decodable audio; {ACCEPTED}")


def _blocks(container: Any) -> Iterator[Samples]:
    resampler = _Resampler()
    for packet in _packets(container):
        for frame in _frames(packet):
            if frame.sample_rate not in RATES_HZ:
                raise InputError(
                    f"the audio's rate is {frame.sample_rate} Hz; "
                    f"{RATES_HZ.start} to {RATES_HZ.stop - 1} Hz are read"
                )
            yield from resampler.push(frame)
    yield from resampler.finish()


def _packets(container: Any) -> Iterator[Any]:
    """Packets of the first audio stream; a container that breaks off ends there."""
    import av

    packets = container.demux(container.streams.audio[0])
    while True:
        try:
            yield next(packets)
        except (StopIteration, av.FFmpegError):
            return


def _frames(packet: Any) -> list[Any]:
    import av

    try:
        return list(packet.decode())
    except av.FFmpegError:
        return []


class _Resampler:
    """To mono, 16 kHz. Set up anew when a stream changes its rate or layout on the way."""

    def __init__(self) -> None:
        self._kind: object = None
        self._inner: Any = None

    def push(self, frame: Any) -> Iterator[Samples]:
        import av

        kind = (frame.format.name, frame.layout.name, frame.sample_rate)
        if kind != self._kind:
            yield from self.finish()
            self._kind = kind
            self._inner = av.AudioResampler("flt", "mono", HEARING_RATE_HZ)
        frame.pts = None
        for out in self._inner.resample(frame):
            yield _clean(out.to_ndarray()[0])

    def finish(self) -> Iterator[Samples]:
        if self._inner is not None:
            for out in self._inner.resample(None):
                yield _clean(out.to_ndarray()[0])


def _clean(samples: Any) -> Samples:
    """A float file may hold anything, and one NaN would spoil every feature of its window."""
    finite = np.nan_to_num(np.asarray(samples, np.float32), nan=0.0, posinf=1.0, neginf=-1.0)
    return np.clip(finite, -1.0, 1.0)


def _reason(error: BaseException) -> str:
    import av

    return str(error.strerror) if isinstance(error, av.FFmpegError) else str(error)
