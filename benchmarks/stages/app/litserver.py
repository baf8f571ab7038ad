"""The same no-op under LitServe: `python litserver.py PORT whole|stream`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import litserve


class Whole(litserve.LitAPI):
    def setup(self, device: str) -> None:
        pass

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        return body


class Chunks(litserve.LitAPI):
    def setup(self, device: str) -> None:
        pass

    def predict(self, body: dict[str, Any]) -> Iterator[str]:
        for _ in range(body["chunks"]):
            yield "0123456789abcdef"

    def encode_response(self, output: Iterator[str]) -> Iterator[str]:
        yield from output


if __name__ == "__main__":
    port, kind, is_fast = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "fast"
    api = Whole() if kind == "whole" else Chunks(stream=True)
    litserve.LitServer(api, accelerator="cpu", timeout=60, fast_queue=is_fast).run(
        host="127.0.0.1", port=port, log_level="error", generate_client_file=False
    )
