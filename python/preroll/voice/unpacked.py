"""`python -m preroll.voice.unpacked MODEL FOLDER`: a Piper voice that loads in half the time.

Its weights go into a file of their own beside the graph, which ONNX Runtime maps instead of parsing
and copying it. The graph is not rewritten: that would tie the file to one kind of processor, and a
sentence is said no faster afterwards.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from preroll.errors import PrerollError
from preroll.voice import onnx
from preroll.voice.synthesizer import find_voice

USAGE = "usage: python -m preroll.voice.unpacked MODEL FOLDER"
GRAPH, WEIGHTS = "voice.onnx", "voice.weights"
SMALLEST_BYTES = "1024"


def unpack(model: Path, folder: Path) -> None:
    """Writes graph, weights and settings of a voice into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    options = onnx.Runtime.SessionOptions()
    options.graph_optimization_level = onnx.Runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(folder / GRAPH)
    name = "session.optimized_model_external_initializers"
    options.add_session_config_entry(f"{name}_file_name", WEIGHTS)
    options.add_session_config_entry(f"{name}_min_size_in_bytes", SMALLEST_BYTES)
    onnx.session(model, options=options)
    shutil.copy(f"{model}.json", folder / f"{GRAPH}.json")


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        sys.stderr.write(f"{USAGE}\n")
        return 2
    try:
        unpack(find_voice(arguments[0]), Path(arguments[1]))
    except PrerollError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
