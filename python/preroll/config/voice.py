"""The `[voice]` table: speech endpoints over three stages, made into a stage and its routes."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from preroll.config.problems import Problem
from preroll.config.schema import VoiceTable

STAGE = "voice"
CLASS = "preroll.voice.service:Voice"
PATHS = ("/v1/audio/*", "/v1/talk", "/voice/*")
OPTIONS = (
    *("stt", "llm", "tts", "instructions", "max_input_chars", "max_audio_s"),
    *("max_answer_tokens", "max_history_chars", "lead_s", "page", "extra"),
    "preemptive_generation",
)


def expand(data: dict[str, Any]) -> tuple[list[Problem], dict[str, Any]]:
    """The data with the stage and the routes that its `[voice]` table stands for. A table that is
    wrong by itself is left to the checks of the types."""
    stages, routes = data.get("stage", {}), data.get("route", [])
    if not isinstance(stages, dict) or not isinstance(routes, list):
        return [], data
    try:
        table = VoiceTable.model_validate(data["voice"]) if "voice" in data else None
    except ValidationError:
        return [], data
    if table is None:
        return [], data
    if STAGE in stages:
        message = f"the [voice] table makes a stage {STAGE!r}; give the other stage another name"
        return [Problem(("stage", STAGE), message, True)], data
    problems = [
        Problem(("voice", role), f"there is no stage {name!r}; allowed: {', '.join(stages)}")
        for role, name in (("stt", table.stt), ("llm", table.llm), ("tts", table.tts))
        if name not in stages
    ]
    if problems:
        return problems, data
    taken = {route.get("path") for route in routes if isinstance(route, dict)}
    added = [{"path": path, "stage": STAGE} for path in PATHS if path not in taken]
    made = {"stage": {**stages, STAGE: _stage(table, stages)}, "route": [*routes, *added]}
    return [], {**data, **made}


def _stage(table: VoiceTable, stages: dict[str, Any]) -> dict[str, Any]:
    options = {name: getattr(table, name) for name in OPTIONS}
    llm = stages[table.llm]
    models = llm.get("models") if isinstance(llm, dict) else None
    named = models[0] if isinstance(models, list) and models else table.llm
    options["model"] = table.model or named
    return {
        "engine": "python",
        "class": CLASS,
        # Its numpy multiplies no matrices; a BLAS thread for each processor would only spin.
        "env": {"OPENBLAS_NUM_THREADS": "1"},
        "calls": list(dict.fromkeys((table.stt, table.llm, table.tts))),
        "max_concurrency": table.max_concurrency,
        "max_sessions": table.max_sessions,
        "imports": list(table.imports),
        "options": {name: value for name, value in options.items() if value is not None},
    }
