"""`python -m preroll.voice.unpacked MODEL FOLDER`: a Piper voice that is loaded and heard sooner.

Its graph is taken apart before the decoder, so that a sentence is heard before all of it is made.
Weights go into files of their own beside the graphs: ONNX Runtime maps them instead of parsing and
copying them. The graphs are not rewritten: that would tie the files to one kind of processor,
and a sentence is said no faster afterwards. Needs the package `onnx`, here and nowhere else.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from preroll.errors import InputError, PrerollError
from preroll.voice import onnx
from preroll.voice.pcm import Samples
from preroll.voice.piper_voice import KEY, Decoder, Piper, decoder_of
from preroll.voice.synthesizer import find_voice

USAGE = "usage: python -m preroll.voice.unpacked MODEL FOLDER"
GRAPH = "voice.onnx"
SMALLEST_BYTES = "1024"
DECODER = "/dec/conv_pre/Conv"
"""The first node of the decoder, as Piper's own export names it."""
CONTEXTS = (6, 8, 10, 12, 16, 24, 32)
EXACT = 1e-4
"""Of full scale: a part and the whole differ by less, which is less than a bit of 16."""
PEAK = 0.9
SENTENCES = (
    "Yes.",
    "That is a good question,",
    "Okay, let us begin.",
    "One, two, three, four, five.",
    "I would look at it closely, then ask somebody who knows, and at last decide.",
)


def unpack(model: Path, folder: Path) -> None:
    """Writes graphs, weights and settings of a voice into a folder. Raises InputError."""
    if decoder_of(model).is_file():
        raise InputError(f"{model} is taken apart already; give the voice as it was installed")
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.loads(Path(f"{model}.json").read_text())
    # In the same file system: what is there is whole, or was there before.
    with tempfile.TemporaryDirectory(dir=folder) as name:
        made, first, second = (Path(name) / one for one in (GRAPH, "first.onnx", "second.onnx"))
        is_apart = take_apart(model, first, second)
        map_weights(first if is_apart else model, made)
        if is_apart:
            map_weights(second, decoder_of(made))
            settings[KEY] = {}
            Path(f"{made}.json").write_text(json.dumps(settings))
            settings[KEY] = measured(made)
        Path(f"{made}.json").write_text(json.dumps(settings))
        first.unlink(missing_ok=True)
        second.unlink(missing_ok=True)
        decoder_of(folder / GRAPH).unlink(missing_ok=True)
        # The graph last: `make` looks at it.
        for path in sorted(Path(name).iterdir(), key=lambda path: path.name == GRAPH):
            path.replace(folder / path.name)


def take_apart(model: Path, first: Path, second: Path) -> bool:
    """Writes what makes the latent of a sentence, and what makes audio of it. False, and nothing is
    written, for a voice that another export has made, and where the decoder is told more than the
    latent: who speaks, of several."""
    if importlib.util.find_spec("onnx") is None:
        raise InputError("the package 'onnx' is not installed; pip install onnx")
    library: Any = importlib.import_module("onnx")
    utils: Any = importlib.import_module("onnx.utils")
    whole = library.load(model)
    cut = next((node.input[0] for node in whole.graph.node if node.name == DECODER), None)
    given = [one.name for one in whole.graph.input]
    if cut is None:
        return False
    parts = utils.Extractor(library.shape_inference.infer_shapes(whole))
    decoder = parts.extract_model([cut], [whole.graph.output[0].name])
    if is_told_more(decoder.graph):
        return False
    library.save(decoder, second)
    library.save(parts.extract_model(given, [cut]), first)
    return True


def is_told_more(graph: Any) -> bool:
    """Whether a part of a graph takes what neither its inputs nor its own nodes give."""
    given = {one.name for one in (*graph.input, *graph.initializer)}
    given |= {name for node in graph.node for name in node.output}
    return any(name and name not in given for node in graph.node for name in node.input)


def map_weights(model: Path, made: Path) -> None:
    options = onnx.Runtime.SessionOptions()
    options.graph_optimization_level = onnx.Runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(made)
    name = "session.optimized_model_external_initializers"
    options.add_session_config_entry(f"{name}_file_name", f"{made.stem}.weights")
    options.add_session_config_entry(f"{name}_min_size_in_bytes", SMALLEST_BYTES)
    onnx.session(model, options=options)


def measured(made: Path) -> dict[str, Any]:
    """The decoder's context and the voice's gain, from sentences said whole."""
    voice = Piper(made, threads=1)
    latents = [latent for text in SENTENCES for _, latent in voice.latents(text)]
    session = voice.decoder.session if voice.decoder else None
    whole = Decoder(session)
    audio = [whole.samples(latent, 0, latent.shape[1]) for latent in latents]
    peak = max(float(np.abs(samples).max()) for samples in audio)
    exact = (c for c in CONTEXTS if is_exact(Decoder(session, c), latents[-1], audio[-1]))
    context = next(exact, None)
    if context is None:
        raise InputError(f"{made}: no {CONTEXTS[-1]} frames of context make a part like the whole")
    return {"context": context, "gain": round(PEAK / max(peak, 1e-3), 3)}


def is_exact(decoder: Decoder, latent: Samples, whole: Samples) -> bool:
    parts = [part.samples for part in decoder.parts(latent)]
    return float(np.abs(np.concatenate(parts) - np.clip(whole, -1.0, 1.0)).max()) < EXACT


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
