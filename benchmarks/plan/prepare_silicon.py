"""Make planning/data/silicon.csv.xz from AIConfigurator's published measurements.

    python benchmarks/plan/prepare_silicon.py silicon_sample.csv

Kept: aggregated serving on 1 to 8 devices of the catalogue. Dropped: disaggregated rows, rows
whose size says several nodes, devices with too few rows. Rows republished in several of the
source's dumps are merged to their median. Points whose step is faster than the device's peak
bandwidth reads its weights and KV cache are mislabelled (six, all of one set at 512 requests at
once), and dropped. The source writes tensor × expert parallel size into
one column for some dumps; the true number of devices is in the row's id, or is its square root.
"""

from __future__ import annotations

import csv
import io
import lzma
import math
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from preroll.planning.calibration import measured

TARGET = Path(__file__).resolve().parents[2] / "python/preroll/planning/data/silicon.csv.xz"
COLUMNS = [
    "model",
    "engine",
    "device",
    "precision",
    "devices",
    "ep",
    "dp_attention",
    "concurrency",
    "isl",
    "osl",
    "month",
    "ttft_ms",
    "tpot_ms",
]
DEVICES = {"h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "b300_sxm": "b300"}
MODELS = {
    "MiniMax-M2.5": "MiniMax-M2.5",
    "Qwen3-235B-A22B-FP8": "Qwen3-235B-A22B",
    "Qwen3-32B": "Qwen3-32B",
    "Qwen3-32B-NVFP4": "Qwen3-32B",
    "Qwen3.5-397B-A17B": "Qwen3.5-397B-A17B",
    "DeepSeek-R1": "DeepSeek-V3",
    "DeepSeek-V3": "DeepSeek-V3",
    "DeepSeek-R1-NVFP4": "DeepSeek-V3",
    "DeepSeek-V3.1-NVFP4": "DeepSeek-V3",
    "Llama-3.1-70B": "Llama-3.1-70B",
    "Llama-3.1-8B-Instruct": "Llama-3.1-8B",
    "Llama-3.1-8B-Instruct-FP8": "Llama-3.1-8B",
    "Kimi-K2.5": "Kimi-K2",
    "gpt-oss-120b": "gpt-oss-120b",
    "GLM-5": "GLM-5",
}
ID_SIZES = re.compile(r"_tp(\d+)(?:_0)?_ep(\w+?)(?:_0)?_\d+$")
LARGEST = 8


def integer(text: str) -> int:
    return int(text) if text else 0


def sizes(row: dict[str, str]) -> tuple[int, int]:
    """(devices, expert parallel) of one row."""
    split, ep = integer(row["tp_size"]), max(1, integer(row["moe_ep_size"]))
    match = ID_SIZES.search(row["id"])
    if match:
        devices = int(match[1])
        return devices, int(match[2]) if match[2].isdigit() else min(ep, devices)
    product = split * max(1, integer(row["attention_dp_size"]))
    if ep == 1:
        return product, 1
    devices = math.isqrt(product)
    return devices, devices


def concurrency(row: dict[str, str], replicated: int) -> int:
    """Requests at once on one replica; the gap-analysis dumps count several replicas together."""
    note = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    batch = integer(row["batch_size"]) * max(1, replicated)
    return batch if note is None or "/data/" in row["silicon_data_source"] else int(note[1])


def precision(row: dict[str, str]) -> str:
    if row["model_path"].endswith("gpt-oss-120b"):
        return "mxfp4"
    return row["precision"] or "bf16"


def key(row: dict[str, str]) -> tuple[str | int, ...] | None:
    """The row's point, or None when it is out of scope."""
    device, model = DEVICES.get(row["system"]), MODELS.get(row["model_path"].split("/")[-1])
    if row["mode"] != "agg" or device is None or model is None:
        return None
    devices, ep = sizes(row)
    if devices > LARGEST:
        return None
    replicated = integer(row["attention_dp_size"])
    load = concurrency(row, replicated)
    point = (load, int(row["isl"]), int(row["osl"]))
    return (model, row["backend"], device, precision(row), devices, ep, int(replicated > 1), *point)


def is_possible(row: list[str]) -> bool:
    """Whether one step takes at least as long as its bytes at peak bandwidth."""
    m = measured(dict(zip(COLUMNS, row, strict=True)))
    terms = m.point.terms("tpot")
    return m.tpot_s >= terms["weights"] + terms["experts"] + terms["kv"]


def main(source: str) -> int:
    merged: dict[tuple[str | int, ...], list[tuple[str, float, float]]] = defaultdict(list)
    with Path(source).open(newline="") as file:
        for row in csv.DictReader(file):
            point = key(row)
            if point is not None:
                month = re.search(r"measured=(\d{4}-\d\d)", row["silicon_data_source"])
                times = float(row["silicon_ttft_ms"]), float(row["silicon_tpot_ms"])
                merged[point].append((month[1] if month else "", *times))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    kept = []
    for point, seen in sorted(merged.items(), key=lambda item: [str(v) for v in item[0]]):
        middle = [f"{statistics.median(s[i] for s in seen):.5g}" for i in (1, 2)]  # type: ignore[misc]
        row = [*map(str, point), max(s[0] for s in seen), *middle]
        if is_possible(row):
            kept.append(row)
    writer.writerows(kept)
    TARGET.write_bytes(lzma.compress(text.getvalue().encode(), preset=9))
    rows, dropped = sum(map(len, merged.values())), len(merged) - len(kept)
    print(f"{rows} rows, {len(kept)} points, {dropped} impossible, {TARGET.stat().st_size} B")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
