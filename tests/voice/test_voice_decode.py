"""Any container in, mono 16 kHz out, in flat memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import sounds

from preroll.errors import InputError
from preroll.voice import decode as module
from preroll.voice.decode import decode


def decoded(data: bytes) -> sounds.Samples:
    return np.concatenate(list(decode(data)))


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_a_tone_keeps_its_length_and_level_at_every_rate(rate_hz: int) -> None:
    got = decoded(sounds.wav(sounds.s16(sounds.tone(1.0, rate_hz)), rate_hz))
    assert got.dtype == np.float32
    assert abs(got.size - 16_000) <= 2
    assert sounds.rms(got) == pytest.approx(0.3 / 2**0.5, rel=0.02)


def test_stereo_is_mixed_to_mono() -> None:
    left = sounds.tone(0.5)
    both = np.stack([left, np.zeros_like(left)], axis=1).reshape(-1)
    got = decoded(sounds.wav(sounds.s16(both), 16_000, channels=2))
    assert abs(got.size - left.size) <= 2
    assert 0.4 < sounds.rms(got) / sounds.rms(left) < 0.75


def test_float_samples_that_are_no_numbers_become_silence_or_full_scale() -> None:
    samples = sounds.tone(0.2)
    samples[10], samples[20], samples[30] = np.nan, np.inf, 1e30
    got = decoded(sounds.wav(samples.astype("<f4").tobytes(), 16_000, bits=32, form=3))
    assert np.isfinite(got).all()
    assert np.abs(got).max() <= 1.0


@pytest.mark.parametrize(("bits", "form"), [(8, 1), (24, 1), (32, 1), (32, 3), (64, 3)])
def test_every_width_of_sample_is_read(bits: int, form: int) -> None:
    tone = sounds.tone(0.25)
    if form == 3:
        data = tone.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        data = (tone * 127 + 128).astype(np.uint8).tobytes()
    else:
        whole = (tone.astype(np.float64) * (2 ** (bits - 1) - 1)).astype("<i4")
        data = b"".join(int(v).to_bytes(bits // 8, "little", signed=True) for v in whole)
    got = decoded(sounds.wav(data, 16_000, bits=bits, form=form))
    assert sounds.rms(got) == pytest.approx(sounds.rms(tone), rel=0.03)


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("flac", "flac"),
        ("ogg", "libopus"),
        ("mp3", "libmp3lame"),
        ("mp4", "aac"),
        ("adts", "aac"),
        ("webm", "libopus"),
    ],
)
def test_common_containers_are_read(container: str, codec: str) -> None:
    got = decoded(sounds.encoded(sounds.tone(1.0, 48_000), 48_000, container, codec))
    assert abs(got.size / 16_000 - 1.0) < 0.11
    assert sounds.rms(got) == pytest.approx(0.3 / 2**0.5, rel=0.12)


def test_one_sample_is_audio() -> None:
    assert decoded(sounds.wav(b"\x00\x10", 16_000)).size == 1


def test_an_odd_byte_at_the_end_is_dropped() -> None:
    assert decoded(sounds.wav(b"\x00\x10" * 100 + b"\x7f", 16_000)).size == 100


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"RIFF",
        b"\x00" * 4096,
        b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n",
        b"ffconcat version 1.0\nfile /etc/hostname\n",
        b'<?xml version="1.0"?><MPD></MPD>',
        b"{}",
    ],
    ids=["empty", "byte", "cut", "zeros", "playlist", "concat", "dash", "json"],
)
def test_what_is_no_audio_is_told_so(data: bytes) -> None:
    with pytest.raises(InputError, match="audio"):
        decoded(data)


def test_a_wav_without_samples_is_no_audio() -> None:
    with pytest.raises(InputError, match="no decodable audio"):
        decoded(sounds.wav(b"", 16_000))


@pytest.mark.parametrize(
    ("container", "codec"), [("flac", "flac"), ("ogg", "libopus"), ("mp3", "libmp3lame")]
)
def test_a_truncated_container_gives_what_is_there(container: str, codec: str) -> None:
    whole = sounds.encoded(sounds.tone(4.0, 48_000), 48_000, container, codec)
    got = decoded(whole[: len(whole) // 2])
    assert 0.5 < got.size / 16_000 < 3.5


def test_damaged_packets_cost_only_themselves() -> None:
    whole = bytearray(sounds.encoded(sounds.tone(4.0, 48_000), 48_000, "mp3", "libmp3lame"))
    middle = len(whole) // 2
    whole[middle : middle + 600] = bytes(range(256)) * 2 + bytes(88)
    assert decoded(bytes(whole)).size / 16_000 > 3.0


def test_a_small_file_that_swells_is_stopped_in_flat_memory() -> None:
    """An hour of silence is a few kilobytes of FLAC."""
    bomb = sounds.encoded(np.zeros(3600 * 8_000, np.float32), 8_000, "flac", "flac")
    assert len(bomb) < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="longer than 600 s"):
            for _ in decode(bomb, max_audio_s=600):
                pass
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("rate_hz", [1, 100, 3_999])
def test_a_rate_that_would_swell_one_packet_is_refused(rate_hz: int) -> None:
    with pytest.raises(InputError, match=f"rate is {rate_hz} Hz"):
        decoded(sounds.wav(bytes(2 * 4096), rate_hz))


def test_only_plain_demuxers_are_allowed() -> None:
    for name in ("hls", "concat", "dash", "applehttp", "tedcaptions", "lavfi"):
        assert name not in module.CONTAINERS.split(",")
