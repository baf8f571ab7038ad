"""A stage that needs what takes long to import."""

from __future__ import annotations

from typing import Any

import numpy
import pandas
import scipy.optimize
import scipy.signal
import scipy.stats
import sympy

from preroll import Stage


class Heavy(Stage):
    async def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        return {m.__name__: m.__version__ for m in (numpy, pandas, scipy, sympy)}
