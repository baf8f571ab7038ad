"""Silence and low noise in front of speech go; speech stays."""

from __future__ import annotations

import numpy as np
import pytest
import sounds

from preroll.voice.trim import FirstAudible, LeadingTrim

RATE = 22_050


def trimmed(samples: sounds.Samples, step: int = 441) -> tuple[sounds.Samples, LeadingTrim]:
    trim = LeadingTrim(RATE)
    out = [trim.push(samples[i : i + step]) for i in range(0, samples.size, step)]
    return np.concatenate([*out, trim.finish()]), trim


@pytest.mark.parametrize("step", [100, 441, 5_000, 10**6])
@pytest.mark.parametrize("noise_db", [-120, -70, -50, -45])
@pytest.mark.parametrize("lead_ms", [0, 40, 300, 600])
def test_silence_and_low_noise_in_front_are_cut(lead_ms: int, noise_db: int, step: int) -> None:
    lead = sounds.noise(lead_ms / 1e3, RATE, sounds.dbfs(noise_db))
    speech = sounds.tone(0.5, RATE)
    got, trim = trimmed(np.concatenate([lead, speech]), step)
    assert lead_ms - 45 <= trim.trimmed_ms <= lead_ms
    assert np.array_equal(got[-speech.size :], speech)
    assert got.size + trim.trimmed_samples == lead.size + speech.size


def test_speech_that_begins_at_once_loses_nothing() -> None:
    speech = sounds.tone(0.3, RATE)
    got, trim = trimmed(speech)
    assert np.array_equal(got, speech)
    assert trim.trimmed_ms == 0


def test_a_voice_that_is_soft_throughout_is_not_silence() -> None:
    soft = sounds.tone(1.0, RATE, level=sounds.dbfs(-48))
    got, _ = trimmed(soft)
    assert got.size == soft.size


def test_silence_alone_is_given_back_whole_at_the_end() -> None:
    got, trim = trimmed(sounds.silence(0.5, RATE))
    assert got.size == round(0.5 * RATE)
    assert trim.trimmed_ms == 0


def test_what_is_held_is_bounded() -> None:
    trim = LeadingTrim(RATE)
    noise = sounds.noise(0.1, RATE, sounds.dbfs(-50))
    outs = [trim.push(noise).size for _ in range(40)]
    assert sum(outs) > 0
    assert sum(outs[:15]) == 0


def test_a_click_is_not_speech() -> None:
    lead = sounds.silence(0.3, RATE)
    lead[500] = 0.4
    _, trim = trimmed(np.concatenate([lead, sounds.tone(0.3, RATE)]))
    assert trim.trimmed_ms > 250


@pytest.mark.parametrize("step", [50, 240, 10**6])
def test_the_first_audible_sample_is_found_behind_noise(step: int) -> None:
    lead = sounds.noise(0.25, RATE, sounds.dbfs(-52))
    data = np.concatenate([lead, sounds.tone(0.2, RATE)])
    audible = FirstAudible(RATE)
    hits = [audible.push(data[i : i + step]) for i in range(0, data.size, step)]
    assert audible.position is not None
    assert abs(audible.position - lead.size) <= 0.010 * RATE
    assert sum(hits) == 1


def test_silence_has_no_audible_sample() -> None:
    audible = FirstAudible(RATE)
    assert not audible.push(sounds.silence(1.0, RATE))
    assert audible.position is None
