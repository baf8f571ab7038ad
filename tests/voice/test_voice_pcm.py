"""Streams of bytes to whole samples, and rates without clicks."""

from __future__ import annotations

import numpy as np
import pytest
import sounds
from hypothesis import given, settings
from hypothesis import strategies as st

from preroll.errors import InputError
from preroll.voice.pcm import Framer, check_rate
from preroll.voice.resample import Resampler, resample


@given(data=st.binary(max_size=400), cuts=st.lists(st.integers(0, 60), max_size=12))
@settings(deadline=None)
def test_odd_chunks_never_shift_a_sample(data: bytes, cuts: list[int]) -> None:
    framer, got, at = Framer(), [], 0
    for cut in [*cuts, len(data)]:
        got.append(framer.push(data[at : at + cut]))
        at += cut
    whole = np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float32) / 32768
    assert np.array_equal(np.concatenate(got), whole)
    assert framer.pending_bytes == len(data) % 2


def test_channels_are_mixed_and_a_part_of_a_frame_waits() -> None:
    framer = Framer("f32le", 2)
    data = np.array([0.5, 0.1, 1.0, -1.0], "<f4").tobytes()
    assert framer.push(data[:9]) == pytest.approx([0.3])
    assert framer.push(data[9:]) == pytest.approx([0.0])


def test_float_garbage_on_the_wire_is_no_number_that_spoils_the_rest() -> None:
    data = np.array([np.nan, np.inf, -np.inf, 5.0, 0.25], "<f4").tobytes()
    assert list(Framer("f32le").push(data)) == [0.0, 1.0, -1.0, 1.0, 0.25]


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 22_050, 44_100, 48_000])
def test_a_stream_in_pieces_is_resampled_as_if_it_were_whole(rate_hz: int) -> None:
    tone = sounds.tone(1.0, rate_hz)
    stream = Resampler(rate_hz, 16_000)
    pieces = [stream.push(tone[i : i + 333]) for i in range(0, tone.size, 333)]
    got = np.concatenate([*pieces, stream.finish()])
    assert np.allclose(got, resample(tone, rate_hz, 16_000), atol=1e-6)
    assert abs(got.size - 16_000) <= 1
    # A click would be a jump far above the steepest slope of the tone.
    assert np.abs(np.diff(got)).max() < 2.2 * 0.3 * np.pi * 440 / 16_000 + 0.01


@pytest.mark.parametrize("rate", [0, -1, 7_999, 48_001, 10**9, True, "16000", 16_000.0, None])
def test_rates_out_of_range_are_refused(rate: object) -> None:
    with pytest.raises(InputError, match="rate is"):
        check_rate(rate)


@pytest.mark.parametrize(("form", "channels"), [("mp3", 1), ("s16le", 0), ("s16le", 9)])
def test_formats_that_do_not_exist_are_refused(form: str, channels: int) -> None:
    with pytest.raises(InputError, match="allowed"):
        Framer(form, channels)
