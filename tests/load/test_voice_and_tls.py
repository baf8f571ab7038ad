"""What the load client says of audio, live audio, conversations and TLS, against planted truth."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import pytest
from loading import Runner
from speaking import CERTIFICATE, Speaking, pcm, speaking

from preroll.cli.load import main
from preroll.errors import InputError, PrerollError
from preroll.instruments.load.client import Client
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.records import Raw, read
from preroll.instruments.load.requests import Ask, conversation, parse_url, spill, template
from preroll.instruments.load.result import Targets, summarise

ONE = Plan(connections=1, requests=6, warmup=1)


def wav(folder: Path, ms: int = 600) -> Path:
    path = folder / "said.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(pcm(ms, 500))
    return path


def live(server: Speaking, folder: Path, plan: Plan) -> Raw:
    target = parse_url(server.url)
    request = template(target, Ask(api="live-transcriptions"), "", wav(folder))
    file = folder / "records.ndjson"
    with Client(plan.spec(target, spill([request], folder), file)) as client:
        for _ in client:
            pass
    return read(file)


def test_the_first_audible_sample_is_not_the_first_byte_and_stillness_is_measured(
    runner: Runner,
) -> None:
    ask = Ask(api="speech", model="m")
    with speaking(stall_s=0.08) as server:
        result = runner.result(server.url, ONE, ask, Targets(still_ms=20.0))
        raw = read(runner.folder / "records.ndjson")
    assert result.ok == 6 and result.within_slo == 0.0
    for record in raw.ok:
        heard = record["first_audible_ns"] - record["first_content_ns"]
        assert heard >= 25e6, "the soft noise before the tone was taken for speech"
        # 250 ms of audio; playing ends 150 ms after the first byte, the rest comes at 230 ms.
        assert record["playing_ns"] == 250_000_000
        assert record["underruns"] == 1 and record["still_ns"] >= 60e6
    with speaking() as server:
        smooth = runner.result(server.url, ONE, ask)
        assert "audible" in smooth.metrics and "still" in smooth.metrics


def test_live_audio_goes_out_at_its_pace_and_the_last_words_are_timed(tmp_path: Path) -> None:
    with speaking() as server:
        raw = live(server, tmp_path, Plan(connections=1, requests=2, warmup=0))
    assert len(raw.ok) == 2
    assert [size for _, size in server.frames] == [960] * 60
    for first in (0, 30):
        at = [t for t, _ in server.frames[first : first + 30]]
        assert at[-1] - at[0] > 0.5, "29 frames of 20 ms cannot come sooner"
    for record in raw.ok:
        # Frame 10 is meant 180 ms after the opening; `ready` before it is no content.
        assert record["first_content_ns"] - record["intended_ns"] >= 175e6
        assert record["content_events"] == 4 and record["status"] == 101
        assert record["end_ns"] - record["audio_end_ns"] >= 45e6
    result = summarise(raw, Plan(connections=1, requests=2), Targets(tail_ms=1.0))
    assert result.metrics["tail"].count == 2 and result.within_slo == 0.0


def test_a_websocket_that_is_refused_or_cut_is_a_failure(tmp_path: Path) -> None:
    class Cut(Speaking):
        def _websocket(self, connection, reader, key) -> None:  # type: ignore[no-untyped-def]
            connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x88\x02\x03\xf4")

    class Refusing(Speaking):
        def _websocket(self, connection, reader, key) -> None:  # type: ignore[no-untyped-def]
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    for kind, failure, detail in ((Cut, "closed", "1012"), (Refusing, "websocket", "101")):
        server = kind()
        raw = live(server, tmp_path, Plan(connections=1, requests=1, warmup=0))
        server.close()
        (record,) = raw.measured
        assert record["failure"]["kind"] == failure and detail in record["failure"]["detail"]


def test_a_conversation_carries_what_was_said(tmp_path: Path) -> None:
    with speaking() as server:
        target = parse_url(server.url)
        requests = conversation(target, Ask(model="m", stream=False), ["a", 'b "quoted"', "c"])
        plan = Plan(connections=2, requests=4, calls=3, warmup=0)
        file = tmp_path / "r.ndjson"
        with Client(plan.spec(target, requests, file) | {"keep_text": True}) as client:
            for _ in client:
                pass
    raw = read(file)
    assert len(raw.ok) == 12
    for record in raw.ok:
        count = 2 * record["call"] + 1
        assert record["text"].startswith(f"{count} messages, before: ")
        assert record["text"].count("messages") == record["call"] + 1


def test_tls_is_verified_and_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--api", "speech", "--model", "m", "--connections", "2", "--requests", "8"]
    common += ["--out", str(tmp_path / "out"), "--json"]
    with speaking(tls=True) as server:
        assert main([server.url, *common, "--cacert", str(CERTIFICATE)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["ok"] == 8 and found["failures"] == {}
        assert main([server.url, *common, "--insecure"]) == 0
        capsys.readouterr()
        assert main([server.url, *common]) == 1
        assert json.loads(capsys.readouterr().out)["failures"] == {"reset": 8}
        with pytest.raises(PrerollError, match="certificate"):
            main([server.url, *common, "--cacert", str(wav(tmp_path))])


def test_a_large_answer_and_a_large_body_pass_through_tls(tmp_path: Path) -> None:
    with speaking(tls=True) as server:
        target = parse_url(server.url, CERTIFICATE)
        ask = Ask(model="m", stream=False)
        requests = conversation(target, ask, ["x" * 3_000_000])
        file = tmp_path / "r.ndjson"
        plan = Plan(connections=1, requests=3, warmup=0)
        with Client(plan.spec(target, requests, file)) as client:
            for _ in client:
                pass
    assert len(read(file).ok) == 3


def test_wrong_audio_and_wrong_options_are_named(tmp_path: Path) -> None:
    target = parse_url("http://127.0.0.1:1")
    (tmp_path / "bad.wav").write_bytes(b"RIFF")
    for file in (None, tmp_path / "none.wav", tmp_path / "bad.wav"):
        with pytest.raises(InputError, match="--file"):
            template(target, Ask(api="live-transcriptions"), "", file)
    with pytest.raises(InputError, match="--multi-turn"):
        main(["http://127.0.0.1:1", "--api", "http", "--multi-turn", "--connections", "1"])
