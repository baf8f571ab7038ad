"""`preroll weights inspect FILE|DIR`: what precision is it really, asked of the file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from rich.console import Console
from rich.table import Table

from preroll.cli import weights_kv
from preroll.cli.call import call
from preroll.state.inspect.report import Report, inspect_path

app = cyclopts.App(name="preroll weights", help="Weights as they are stored.", version_flags=[])


def as_json(report: Report) -> dict[str, Any]:
    return {
        "path": str(report.path),
        "dtypes": [asdict(entry) for entry in report.by_dtype()],
        "files": [
            {
                "path": str(contents.path),
                "format": contents.format,
                "tensors": len(contents.tensors),
                "unknown": contents.unknown,
            }
            for contents in report.files
        ],
        "kv_cache": weights_kv.facts(report),
        "notes": report.notes,
        "damaged": report.damaged,
    }


def show(report: Report, console: Console) -> None:
    formats = (
        ", ".join(sorted({contents.format for contents in report.files})) or "nothing readable"
    )
    console.print(f"{report.path}: {formats}, {len(report.files)} file(s)", highlight=False)
    table = Table(box=None, pad_edge=False)
    for column in ("dtype", "tensors", "parameters", "bytes", "share"):
        table.add_column(column, justify="left" if column == "dtype" else "right")
    sums = report.by_dtype()
    total = sum(entry.num_bytes for entry in sums) or 1
    for entry in sums:
        share = f"{100 * entry.num_bytes / total:.1f} %"
        counts = (entry.num_tensors, entry.num_parameters, entry.num_bytes)
        table.add_row(entry.dtype, *(f"{count:,}" for count in counts), share)
    if sums:
        console.print(table)
    folder = report.path if report.path.is_dir() else report.path.parent
    for line in weights_kv.lines(weights_kv.facts(report), folder) if sums else ():
        console.print(line, highlight=False)
    for contents in report.files:
        for line in contents.unknown[:10]:
            console.print(f"unknown: {line}", highlight=False)
    for line in report.notes:
        console.print(f"note: {line}", highlight=False)
    for line in report.damaged:
        console.print(f"damaged: {line}", highlight=False)


@app.command
def inspect(
    path: Path, *, as_json_: Annotated[bool, cyclopts.Parameter(name="--json", negative=())] = False
) -> int:
    """Prints tensors, parameters and bytes per stored dtype; exit status 2 when a file is damaged.

    Parameters
    ----------
    path: Path
        A weights file (safetensors, GGUF, ONNX, torch, CTranslate2, TensorRT plan) or a folder.
    as_json_: bool
        Machine-readable output.
    """
    report = inspect_path(path)
    if as_json_:
        print(json.dumps(as_json(report), indent=1))
    else:
        show(report, Console(soft_wrap=True))
    return 2 if report.damaged else 0


def main(arguments: list[str]) -> int:
    return call(app, arguments)
