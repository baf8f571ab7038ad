"""What leaves as speech is what went in, in every format, chunk by chunk."""

from __future__ import annotations

import io
import struct
import wave

import av
import numpy as np
import pytest
import sounds
from hypothesis import given, settings
from hypothesis import strategies as st

from preroll.errors import InputError
from preroll.voice import wav
from preroll.voice.decode import decode
from preroll.voice.encode import FORMATS, get_encoder

LOSSY = {"mp3": 0.15, "aac": 0.15, "opus": 0.1}


def encode(form: str, samples: sounds.Samples, sizes: list[int]) -> bytes:
    encoder, out, at = get_encoder(form), b"", 0
    for size in [*sizes, samples.size]:
        out += encoder.push(samples[at : at + size])
        at += size
        if at >= samples.size:
            break
    return out + encoder.finish()


@pytest.mark.parametrize("form", sorted(FORMATS))
@given(sizes=st.lists(st.integers(0, 5_000), max_size=8))
@settings(max_examples=15, deadline=None)
def test_chunks_of_any_size_give_the_same_speech(form: str, sizes: list[int]) -> None:
    speech = sounds.tone(0.5, 24_000)
    data = encode(form, speech, sizes)
    if form == "pcm":
        data = wav.head(24_000, len(data)) + data
    got = np.concatenate(list(decode(data)))
    assert got.size / 16_000 == pytest.approx(0.5, abs=0.12 if form in LOSSY else 0.001)
    assert sounds.rms(got) == pytest.approx(0.3 / 2**0.5, rel=LOSSY.get(form, 0.01))


@given(sizes=st.lists(st.integers(0, 999), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_pcm_never_has_an_odd_byte(sizes: list[int]) -> None:
    encoder = get_encoder("pcm")
    for size in sizes:
        data = encoder.push(np.zeros(size, np.float32))
        assert len(data) == 2 * size


def test_the_first_bytes_leave_with_the_first_tenth_of_a_second() -> None:
    for form in sorted(FORMATS):
        encoder = get_encoder(form)
        assert any(encoder.push(sounds.tone(0.1, 24_000)) for _ in range(2)), form


def test_a_streamed_wav_is_read_by_strict_readers() -> None:
    speech = sounds.tone(0.7, 24_000)
    data = encode("wav", speech, [1_000, 3_001])
    with wave.open(io.BytesIO(data)) as strict:
        assert (strict.getframerate(), strict.getnchannels(), strict.getsampwidth()) == (
            24_000,
            1,
            2,
        )
        assert len(strict.readframes(strict.getnframes())) == 2 * speech.size
    with av.open(io.BytesIO(data)) as container:
        assert sum(f.samples for f in container.decode(audio=0)) == speech.size


def test_the_sizes_of_a_streamed_wav_are_even_consistent_and_positive_when_signed() -> None:
    head = wav.head(24_000)
    riff, data = struct.unpack_from("<i", head, 4)[0], struct.unpack_from("<i", head, 40)[0]
    assert len(head) == wav.HEAD_BYTES
    assert data > 0
    assert data % 2 == 0
    assert riff == data + 36 > 0


def test_an_empty_wav_still_has_a_head() -> None:
    assert get_encoder("wav").finish()[:4] == b"RIFF"


def test_loud_samples_are_clipped_and_not_wrapped() -> None:
    data = get_encoder("pcm").push(np.array([2.0, -2.0, 1.0, -1.0], np.float32))
    assert list(np.frombuffer(data, "<i2")) == [32767, -32768, 32767, -32767]


def test_an_unknown_format_is_told_what_is_allowed() -> None:
    with pytest.raises(InputError, match=r"'midi'; allowed: pcm, wav, flac"):
        get_encoder("midi")
