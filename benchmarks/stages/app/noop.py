"""What costs nothing to compute: what is measured is the way to it and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from preroll import Stage


class NoOp(Stage):
    async def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        for _ in range(body["chunks"]):
            yield b"0123456789abcdef"


class Plain(Stage):
    """As LitServe's: synchronous code, which here runs in a thread."""

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        return body
