"""`preroll plan` as a user meets it: the page, the JSON, the app file, errors in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from preroll import measurements
from preroll.cli import plan as command
from preroll.cli.main import run
from preroll.config import load_app
from preroll.core import Fingerprint, Measurement
from preroll.errors import InputError
from preroll.planning import probe, report

KNOWN = ["--model", "Llama-3.1-70B", "--on", "8xH100"]
TRAFFIC = ["--traffic", "rate=6/s,in=500,out=200", "--slo", "ttft=800ms,itl=40ms"]
PARTS = [
    *("start_bill", "transfer", "cold_starts", "spike", "utilisation", "kv", "speed"),
    *("determinism", "tail"),
]


def plan_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["plan", *arguments, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def line(result: dict[str, Any], part: str, label: str) -> dict[str, Any]:
    lines = next(p["lines"] for p in result["parts"] if p["key"] == part)
    found: dict[str, Any] = next(x for x in lines if x["label"].startswith(label))
    return found


def conclusion(result: dict[str, Any], label: str) -> dict[str, Any]:
    found: dict[str, Any] = next(x for x in result["conclusions"] if x["label"] == label)
    return found


def test_nine_parts_each_with_formula_inputs_result_and_validity(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = plan_json(capsys, *KNOWN, *TRAFFIC, "--price", "2.5")
    assert [p["key"] for p in result["parts"]] == PARTS
    for part in result["parts"]:
        assert part["formula"] and part["inputs"] and part["validity"] and part["lines"]
    assert line(result, "start_bill", "new node")["value"] == pytest.approx(420, rel=0.01)
    assert line(result, "kv", "per token")["value"] == 327_680
    assert line(result, "kv", "sessions of 131,072")["value"] == 9
    assert line(result, "tail", "20 call")["value"] == pytest.approx(0.18, abs=0.005)
    assert conclusion(result, "cost")["value"] == pytest.approx(
        2.5 * 8 * conclusion(result, "replicas")["value"]
    )
    speed = line(result, "speed", "batch 64")
    assert speed["low"] < speed["value"] < speed["high"]


def test_the_page_fits_a_hundred_columns_and_numbers_its_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan", *KNOWN, *TRAFFIC]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 100
    assert [f"\n{n}. " in page for n in range(1, 10)] == [True] * 9
    assert "POISSON, assumed" in page


def test_no_line_breaks_between_a_number_and_its_unit() -> None:
    text = " ".join(f"{n} s then {n} GB/s and {n} %" for n in range(40))
    rows = report.wrap(text)
    assert " ".join(rows) == text
    assert not [row for row in rows if row.split()[0] in {"s", "GB/s", "%"}]


def test_a_rate_that_nobody_will_see_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    result = plan_json(capsys, *KNOWN, "--traffic", "rate=1/s")
    assert "under 1 a year" in line(result, "cold_starts", "T = 60 s")["text"]
    assert report.per_hour(2.2) == "2.2/h"
    assert report.per_hour(0.0) == "0/h"


def test_fp8_kv_is_a_lever_only_where_memory_is_what_binds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    speed_bound = plan_json(capsys, *KNOWN, *TRAFFIC)["levers"]
    long = ["--traffic", "rate=6/s,in=60000,out=200"]
    memory_bound = plan_json(capsys, *KNOWN, *long)["levers"]
    assert not any("fp8 KV" in lever for lever in speed_bound)
    assert any("fp8 KV" in lever for lever in memory_bound)


def test_the_app_file_scales_as_far_as_the_spike_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    traffic = ["--traffic", "rate=2/s,in=2000,out=500", "--slo", "ttft=2s,itl=50ms"]
    result = plan_json(capsys, "--model", "DeepSeek-V3", "--on", "8xH200", *traffic)
    ready = conclusion(result, "replicas")["value"]
    patient = line(result, "spike", "patient clients")["label"]
    added = int(patient.split("+")[1].split()[0])
    assert f"max = {ready + added}," in result["app_file"]
    assert any(lever.startswith(f"devices: {added} more") for lever in result["levers"])
    calm = plan_json(capsys, "--model", "DeepSeek-V3", "--on", "8xH200", *traffic, "--spike", "1")
    assert f"max = {ready}," in calm["app_file"]


def test_a_batch_that_the_pool_does_not_hold_is_said_to_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = plan_json(capsys, *KNOWN, "--traffic", "rate=6/s,in=60000,out=200")
    assert "fit, the rest wait" in line(result, "speed", "batch 256")["text"]
    assert "wait" not in line(result, "speed", "batch 16")["text"]


def test_the_app_file_is_accepted_and_carries_the_limits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    result = plan_json(capsys, *KNOWN, *TRAFFIC, "--stage", "chat")
    path = tmp_path / "app.toml"
    path.write_text(result["app_file"])
    stage = load_app(path).stages["chat"]
    assert stage.max_concurrency == conclusion(result, "max_concurrency")["value"]
    assert stage.slo_table.itl_p95_s == pytest.approx(0.04)
    assert stage.scale is not None
    assert stage.scale.min_replicas == conclusion(result, "replicas")["value"]
    assert stage.gpus == 8


def quiet_log(folder: Path) -> Path:
    """Two bursts an hour for two days: gaps of 25 minutes that no rate shows."""
    times = [1800 * k + 20 * i for k in range(96) for i in range(4)]
    path = folder / "access.jsonl"
    path.write_text("".join(json.dumps({"t_ns": t * 10**9}) + "\n" for t in times))
    return path


def test_cold_starts_come_from_the_users_own_gaps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = str(quiet_log(tmp_path))
    result = plan_json(capsys, "--model", "Llama-3.1-8B", "--on", "1xH100", "--access-log", log)
    part = next(p for p in result["parts"] if p["key"] == "cold_starts")
    assert "your own gaps" in part["title"]
    ten_minutes = line(result, "cold_starts", "T = 10.0 min")
    assert ten_minutes["value"] == pytest.approx(95 / 383, abs=0.001)
    best = line(result, "cold_starts", "cheapest")["value"]
    assert 0 <= best < 60  # the gaps in a burst are below 20 s, those between above 28 min
    assert "min = 0" in result["app_file"]


def test_a_busy_trace_is_never_put_to_sleep(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "busy.csv"
    path.write_text("t\n" + "".join(f"{i * 0.1:.1f}\n" for i in range(600)))
    result = plan_json(capsys, "--model", "Llama-3.1-8B", "--on", "1xH100", "--traffic", str(path))
    assert "never goes cold" in line(result, "cold_starts", "no idle gap")["text"]
    assert "min = 0" not in result["app_file"]


def entry(kind: str, value: float, unit: str, stage: str = "chat") -> Measurement:
    fingerprint = Fingerprint("H100", "1", "vllm", "1", (), "x")
    when = "2026-11-28T10:00:00+00:00"
    samples = (value - 0.5, value + 0.5)
    return Measurement(
        stage, kind, value, unit, value - 1.5, value + 1.5, samples, when, fingerprint
    )


def test_a_measured_start_stands_beside_the_model_and_is_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    measurements.write(tmp_path / "app.measured.toml", [entry("start", 41.5, "s")])
    arguments = [*KNOWN, *TRAFFIC, "--measured", str(tmp_path / "app.toml")]
    result = plan_json(capsys, *arguments)
    beside = line(result, "start_bill", "local weights")["measured"]
    assert (beside["value"], beside["samples"]) == (41.5, 2)
    assert conclusion(result, "idle time-out")["value"] == 41.5
    assert 'idle_timeout = "42s"' in result["app_file"]
    assert result["app_file"].startswith("[stage.chat]")  # the only stage that was measured
    assert run(["plan", *arguments]) == 0
    assert "measured here: 41.5 s (40–43, 2 samples, 2026-11-28)" in capsys.readouterr().out


def test_a_measured_cliff_stands_beside_the_limit_and_bounds_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "app.measured.toml"
    arguments = [*KNOWN, *TRAFFIC, "--measured", str(file), "--stage", "chat"]
    measurements.write(file, [entry("cliff", 30.0, "requests")])
    low = conclusion(plan_json(capsys, *arguments), "max_concurrency")
    assert (low["value"], low["measured"]["value"]) == (30, 30.0)
    assert "bounded by the measured cliff" in low["text"]
    measurements.write(file, [entry("cliff", 3000.0, "requests")])
    high = conclusion(plan_json(capsys, *arguments), "max_concurrency")
    assert high["value"] == conclusion(plan_json(capsys, *KNOWN, *TRAFFIC), high["label"])["value"]
    assert high["measured"]["value"] == 3000.0


def test_measurements_of_other_stages_only_are_said_to_be_unused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "app.measured.toml"
    measurements.write(file, [entry("start", 41.5, "s"), entry("start", 9.0, "s", "voice")])
    result = plan_json(capsys, *KNOWN, *TRAFFIC, "--measured", str(file))
    assert "give --stage (chat, voice)" in result["warnings"][0]
    assert line(result, "start_bill", "local weights")["measured"] is None


def test_a_long_start_and_a_short_client_time_out_are_called_metastable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*KNOWN, "--traffic", "rate=10/s,in=500,out=200", "--slo", "itl=40ms"]
    arguments += ["--preparedness", "new_node", "--client-timeout", "10s", "--retries", "3"]
    result = plan_json(capsys, *arguments)
    served = line(result, "spike", "abandoned work served")
    assert "METASTABLE" in served["text"]
    assert served["value"] is None
    assert line(result, "spike", "abandoned work dropped")["value"] is not None


def test_a_stricter_speed_target_lowers_the_batch_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    limits = [
        conclusion(plan_json(capsys, *KNOWN, "--slo", f"itl={ms}ms"), "max_concurrency")["value"]
        for ms in (100, 40, 25)
    ]
    assert limits[0] > limits[1] > limits[2] >= 1


def test_an_unreachable_first_token_target_is_said_aloud(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = plan_json(capsys, *KNOWN, "--slo", "ttft=1ms")
    assert "no number of replicas meets it" in result["warnings"][0]


def test_more_than_a_node_is_a_fleet_of_one_replica_per_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, heavy = ["--model", "Llama-3.3-70B"], ["--traffic", "rate=40/s,in=500,out=200"]
    slo = ["--slo", "ttft=800ms,itl=40ms"]
    node = plan_json(capsys, *model, "--on", "8xH100", *heavy, *slo)
    fleet = plan_json(capsys, *model, "--on", "48xH100", *heavy, *slo)
    needed = conclusion(node, "replicas")["value"]
    assert 3 <= needed <= 5
    assert fleet["parts"] == node["parts"]
    assert f"{6 - needed} to spare" in conclusion(fleet, "fleet")["text"]
    assert "max = 6" in fleet["app_file"]
    few = plan_json(capsys, *model, "--on", "16xH100", *heavy, *slo)
    assert f"{needed - 2} TOO FEW" in conclusion(few, "fleet")["text"]
    assert any("2 nodes are too few" in warning for warning in few["warnings"])
    assert "min = 2, max = 2" in few["app_file"]


WRONG = [
    (["--model", "Nope-9B", "--on", "8xH100"], "neither a folder"),
    (["--model", "Llama-3.1-70B", "--on", "8xH101"], "devices: a100"),
    (["--model", "Llama-3.1-70B", "--on", "0xH100"], "1 to 8"),
    (["--model", "Llama-3.1-70B", "--on", "900xH100"], "whole nodes of 8"),
    (["--model", "Llama-3.1-70B", "--on", "99992xH100"], "whole nodes of 8"),
    (["--model", "Kimi-K2", "--on", "16xH100"], "over several nodes is not planned"),
    (["--model", "Llama-3.1-70B", "--on", "1xH100"], "does not fit"),
    (["--model", "Llama-3.1-70B"], "--model and --on"),
    ([*KNOWN, "--traffic", "rate=6"], "a rate needs its unit"),
    ([*KNOWN, "--traffic", "rate=-6/s"], "traffic rate"),
    ([*KNOWN, "--traffic", "rate=nan/s"], "a rate needs its unit"),
    ([*KNOWN, "--traffic", "speed=6/s"], "allowed: rate"),
    ([*KNOWN, "--traffic", "rate=6/s,rate=7/s"], "twice"),
    ([*KNOWN, "--traffic", "in=1e30"], "traffic in"),
    ([*KNOWN, "--traffic", "no-such-file"], "cannot be read"),
    ([*KNOWN, "--slo", "ttft=800"], "ms"),
    ([*KNOWN, "--slo", "itl=1ms"], "not reached even by one stream"),
    ([*KNOWN, "--engine", "magic"], "allowed: vllm"),
    ([*KNOWN, "--dtype", "fp3"], "allowed: bf16"),
    ([*KNOWN, "--kv-dtype", "fp3"], "known: fp32"),
    ([*KNOWN, "--client-timeout", "soon"], "--client-timeout"),
    ([*KNOWN, "--retries", "-1"], "retries"),
    ([*KNOWN, "--calls", "0"], "calls"),
    ([*KNOWN, "--price", "0"], "price"),
    ([*KNOWN, "--spike", "nan"], "spike"),
    ([*KNOWN, "--ep", "0"], "ep"),
    ([*KNOWN, "--stage", "a b"], "--stage"),
    ([*KNOWN, "--trace", "a", "--access-log", "b"], "give arrivals once"),
    ([*KNOWN, "--measured", "no-such.toml"], "does not exist"),
]


@pytest.mark.parametrize(("arguments", "named"), WRONG, ids=lambda v: str(v)[-30:])
def test_a_wrong_input_is_one_line_that_says_what_is_allowed(
    arguments: list[str], named: str
) -> None:
    with pytest.raises(InputError) as raised:
        run(["plan", *arguments])
    message = str(raised.value)
    assert named in message
    assert len(message.splitlines()) == 1


def test_a_folder_is_read_with_its_files_sizes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"0" * 2_000_000)
    result = plan_json(capsys, "--model", str(tmp_path), "--on", "L4")
    assert "2 MB" in result["header"]
    assert f'model = "{tmp_path}"' in result["app_file"]


def test_a_damaged_config_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", ')
    with pytest.raises(InputError, match="no readable JSON"):
        run(["plan", "--model", str(tmp_path), "--on", "L4"])
    with pytest.raises(InputError, match=r"no config\.json"):
        run(["plan", "--model", str(tmp_path.parent), "--on", "L4"])


def test_list_names_models_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--list"]) == 0
    shown = capsys.readouterr().out
    for name in ("Llama-3.1-70B", "Whisper-tiny", "mi300x", "rtx-pro-6000", "b200", "l40s"):
        assert name in shown


def test_this_machine_can_be_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probe, "BLOCK", 8 << 20)
    monkeypatch.setattr(probe, "ROWS", 512)
    monkeypatch.setattr(probe, "COLUMNS", 512)
    assert run(["plan", "--measure-here", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["copy_bytes_s"] > 1e7
    assert found["gemv_bytes_s"] is None or found["gemv_bytes_s"] > 1e6
    assert command.main(["--measure-here", "--model", "SmolLM2-135M"]) == 0
    shown = capsys.readouterr().out
    assert "memory copy" in shown
    assert "SmolLM2-135M (bf16): at most" in shown


def test_the_figures_of_the_manual_are_those_of_the_tool(
    capsys: pytest.CaptureFixture[str],
) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "plan.md").read_text("utf-8")
    result = plan_json(capsys, *KNOWN, *TRAFFIC, "--price", "2.5")
    for row in result["app_file"].splitlines():
        assert row in manual
    flat = " ".join(manual.split())
    alone, limit = line(result, "speed", "batch 1"), line(result, "speed", "batch limit")
    assert alone["text"].split(" each")[0] in flat
    assert limit["text"].split(" expected")[0].replace("surely (95 %)", "surely") in flat
    assert f"{line(result, 'kv', 'pool')['text'].split(' on ')[0]}" in flat
    storm = ["--preparedness", "new_node", "--client-timeout", "10s", "--retries", "3"]
    result = plan_json(capsys, *KNOWN, *TRAFFIC, *storm, "--spike", "4")
    patient = line(result, "spike", "patient clients")
    assert f"{patient['value']:,.0f} deep" in flat
    assert "never recovers" in line(result, "spike", "abandoned work served")["text"]
