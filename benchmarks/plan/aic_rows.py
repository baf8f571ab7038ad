"""AIConfigurator's own estimates of the measured points, for the comparison in accuracy.py.

Run with a Python that has aiconfigurator 0.12 (its own environment, .cache/aic):

    .cache/aic/bin/python benchmarks/plan/aic_rows.py OUT.json [EVERY [SECONDS]]

Takes every EVERY-th point (default 8) and writes {point: TPOT in ms} and {point: why it gives
none}; goes on where an earlier run stopped. Estimates are those of its newest database of each
engine, in its hybrid mode, which fills gaps. AIConfigurator is NVIDIA's, under Apache-2.0.
"""

from __future__ import annotations

import csv
import json
import logging
import lzma
import sys
import time
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "python/preroll/planning/data/silicon.csv.xz"
PATHS = {
    "DeepSeek-V3": "deepseek-ai/DeepSeek-V3",
    "GLM-5": "zai-org/GLM-5-FP8",
    "Kimi-K2": "moonshotai/Kimi-K2.5",
    "Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B",
    "MiniMax-M2.5": "MiniMaxAI/MiniMax-M2.5",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B-FP8",
    "Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen3.5-397B-A17B": "Qwen/Qwen3.5-397B-A17B",
    "gpt-oss-120b": "openai/gpt-oss-120b",
}
SOURCE = "aiconfigurator 0.12.0, cli_estimate in HYBRID mode, newest database of each engine"
BLOCKED = ("DeepSeek-V3", "GLM-5", "MiniMax-M2.5", "Qwen3-235B-A22B", "Qwen3.5-397B-A17B")
"""Models whose fp8 weights have block scales."""


def quantisation(row: dict[str, str]) -> dict[str, str]:
    kind = row["precision"]
    if kind == "bf16":
        return {}
    if kind == "mxfp4":  # Blackwell multiplies it with fp8 activations, Hopper widens it
        blackwell = row["device"].startswith("b")
        return {"moe_quant_mode": "w4a8_mxfp4_mxfp8" if blackwell else "w4a16_mxfp4"}
    if kind == "int4":
        return {"moe_quant_mode": "int4_wo"}
    fp8 = "fp8_block" if row["model"] in BLOCKED else "fp8"
    name = "nvfp4" if kind == "fp4" else fp8
    return {"gemm_quant_mode": name, "moe_quant_mode": name, "kvcache_quant_mode": "fp8"}


KEY = (
    *("model", "engine", "device", "precision", "devices", "ep", "dp_attention"),
    *("concurrency", "isl", "osl"),
)


def key(row: dict[str, str]) -> str:
    """What tells a point from all others."""
    return " ".join(row[name] for name in KEY)


def estimate(cli_estimate: Any, row: dict[str, str]) -> float | str:
    """TPOT in ms, or why there is none."""
    devices, ep = int(row["devices"]), int(row["ep"])
    replicated = devices if row["dp_attention"] == "1" else 1
    try:
        found = cli_estimate(
            PATHS[row["model"]],
            f"{row['device']}_sxm",
            backend_name=row["engine"],
            database_mode="HYBRID",
            isl=int(row["isl"]),
            osl=int(row["osl"]),
            batch_size=max(1, int(row["concurrency"]) // replicated),
            tp_size=devices // replicated,
            attention_dp_size=replicated,
            moe_tp_size=devices // ep,
            moe_ep_size=ep,
            **quantisation(row),
        )
    except Exception as error:  # whatever it raises is a refusal; it is counted and shown
        return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
    return float(found.tpot)


def main(target: str, every: str = "8", limit_s: str = "3600") -> int:
    """Exit status 0 when all sampled points are there, 3 when another run has to go on."""
    from aiconfigurator.cli.api import cli_estimate

    logging.disable(logging.CRITICAL)
    path, begin = Path(target), time.monotonic()
    rows = list(csv.DictReader(lzma.decompress(DATA.read_bytes()).decode().splitlines()))
    empty = {"source": SOURCE, "tpot_ms": {}, "refused": {}}
    record = json.loads(path.read_text()) if path.exists() else empty
    known = {**record["tpot_ms"], **record["refused"]}
    due = [row for row in rows[:: int(every)] if key(row) not in known]
    due.sort(key=lambda row: (row["device"], row["engine"], row["model"]))
    for row in due:
        if time.monotonic() - begin > float(limit_s):
            return 3
        found = estimate(cli_estimate, row)
        record["refused" if isinstance(found, str) else "tpot_ms"][key(row)] = found
        path.write_text(json.dumps(record, indent=0) + "\n")
    print(f"{len(record['tpot_ms'])} points, {len(record['refused'])} refused")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
