"""Triton Inference Server: its log lines, for profiles. It is not an engine of the app file."""

from __future__ import annotations

import re

from preroll.core import Wait
from preroll.engines.base import Mark

# Its lines: "loading: MODEL:1", "TRITONBACKEND_ModelInitialize: …", "successfully loaded 'MODEL'",
# "Started HTTPService at …".
MARKS = (
    Mark(re.compile(r"Pinned memory pool is created|CUDA memory pool"), then=Wait.INIT),
    Mark(re.compile(r"\bloading: \S+"), then=Wait.LOAD, repeats=True),
    Mark(re.compile(r"TRITONBACKEND_ModelInitialize"), then=Wait.LOAD, repeats=True),
    Mark(re.compile(r"TRITONBACKEND_ModelInstanceInitialize"), then=Wait.LOAD, repeats=True),
    Mark(re.compile(r"[Ww]arming up"), then=Wait.WARM, repeats=True),
    Mark(re.compile(r"successfully loaded '"), then=Wait.INIT, ended=Wait.LOAD, repeats=True),
    Mark(re.compile(r"Started (GRPCInferenceService|HTTPService|Metrics Service)"), Wait.INIT),
)
