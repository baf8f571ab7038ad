"""The step time of a batching replica, from the plan's speed model, as the simulator takes it."""

from __future__ import annotations

from dataclasses import dataclass

from preroll.planning import models
from preroll.planning.calibration import Point, speed_model
from preroll.planning.catalogue import parse_on
from preroll.planning.deployment import Deployment

BATCHES = (1.0, 4.0, 16.0, 64.0, 128.0, 256.0)
CONTEXTS = (512.0, 2048.0, 8192.0)
OUTPUT = 256.0
PROMPT = 2048.0
Row = tuple[tuple[float, float, float], float]


@dataclass(frozen=True, slots=True)
class StepModel:
    """A step takes `step_s + seq_s·sequences + kv_token_s·KV tokens + prefill_token_s·prompt
    tokens`; seconds and tokens. `worst`: largest relative error against the speed model."""

    step_s: float
    seq_s: float
    kv_token_s: float
    prefill_token_s: float
    kv_tokens: int
    worst: float


def step_model(model: str, on: str) -> StepModel:
    """Fits the three decode coefficients to the speed model's TPOT over batches and contexts.

    Relative least squares with coefficients >= 0. The cost of a prompt token is the modelled time
    to first token of one `PROMPT`-token request. KV tokens are what a tightly set engine holds.
    Raises InputError for unknown models and devices.
    """
    count, device = parse_on(on)
    deployment = Deployment(models.find(model), device, count)
    held = deployment.sequences(CONTEXTS[1]) * CONTEXTS[1]
    rows = []
    for context in CONTEXTS:
        for batch in BATCHES:
            if batch * (context + OUTPUT) <= held or batch == 1:
                point = Point(deployment, batch, context, OUTPUT)
                seconds = speed_model().estimate("tpot", point).value_s
                rows.append(((1.0, batch, batch * (context + OUTPUT / 2)), seconds))
    fitted = fit(rows)
    worst = max(abs(_dot(fitted, x) / y - 1) for x, y in rows)
    first_s = speed_model().estimate("ttft", Point(deployment, 1.0, PROMPT, OUTPUT)).value_s
    return StepModel(*fitted, first_s / PROMPT, int(held), worst)


def fit(rows: list[Row]) -> tuple[float, float, float]:
    """Relative least squares of y on three columns; a coefficient that would be negative is 0."""
    used = [0, 1, 2]
    while True:
        solved = _solve(rows, used)
        worst = min(range(len(used)), key=lambda i: solved[i])
        if solved[worst] >= 0:
            found = dict(zip(used, solved, strict=True))
            return found.get(0, 0.0), found.get(1, 0.0), found.get(2, 0.0)
        del used[worst]


def _solve(rows: list[Row], used: list[int]) -> list[float]:
    """Normal equations of the used columns, by elimination; columns are scaled to 1 first."""
    scale = [max(x[i] / y for x, y in rows) for i in used]
    scaled = [[x[i] / y / s for i, s in zip(used, scale, strict=True)] for x, y in rows]
    n = len(used)
    table = [
        [sum(r[i] * r[j] for r in scaled) for j in range(n)] + [sum(r[i] for r in scaled)]
        for i in range(n)
    ]
    for i in range(n):
        for k in range(i + 1, n):
            factor = table[k][i] / table[i][i]
            table[k] = [a - factor * b for a, b in zip(table[k], table[i], strict=True)]
    solved = [0.0] * n
    for i in reversed(range(n)):
        rest = sum(table[i][j] * solved[j] for j in range(i + 1, n))
        solved[i] = (table[i][n] - rest) / table[i][i]
    return [value / s for value, s in zip(solved, scale, strict=True)]


def _dot(a: tuple[float, float, float], b: tuple[float, float, float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
