"""ONNX Runtime, imported by this module alone: without its telemetry.

Its import would start a thread and a database of events to be sent, under the user's home. That is
nobody's wish in a server of speech, costs a start 50 ms, and keeps a fork server from forking.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime  # reads the variable when it is imported

Runtime: Any = onnxruntime


def session(path: Path, threads: int = 1, options: Any = None) -> Any:
    """A model on the processor. `options`: an `onnxruntime.SessionOptions` to begin with."""
    options = options or Runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Threads that spin between two calls take what the other stages need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return Runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
