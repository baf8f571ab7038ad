"""What a worker is told by whoever starts it: one JSON document in PREROLL_WORKER."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from preroll.errors import InputError

VARIABLE = "PREROLL_WORKER"


@dataclass(frozen=True)
class Settings:
    """`frame_s`: playing time of one chunk of a paced stream, None for streams without a pace.
    `calls`: the stages that `Stage.stage` may reach, through the door's socket `internal`."""

    stage: str = "stage"
    replica: str = "stage-1"
    max_concurrency: int = 1
    idle_timeout_s: float = 30.0
    frame_s: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    calls: Sequence[str] = ()
    internal: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_concurrency", "idle_timeout_s", "frame_s"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise InputError(f"{VARIABLE}: {name} = {value!r}; allowed: a number above 0")

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Unknown keys are ignored, so that two versions can meet. Raises InputError."""
        try:
            document = json.loads(text)
            known = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
            return cls(**known)
        except (ValueError, TypeError) as error:
            raise InputError(f"{VARIABLE}: {error}") from None
