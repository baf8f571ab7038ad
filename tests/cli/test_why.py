"""`preroll why`: a request's life as a person reads it."""

from __future__ import annotations

from typing import Any

from preroll.cli.why import describe

LIFE: dict[str, Any] = {
    "id": "r1",
    "stage": "chat",
    "arrived_ns": 1_000_000_000,
    "queued_ns": 1_000_000_000,
    "admitted_ns": 1_250_000_000,
    "first_byte_ns": 1_300_000_000,
    "ended_ns": 3_000_000_000,
    "queue_ms": 250.0,
    "expected_wait_ms": 200.0,
    "replica": "chat-1",
    "attempts": 2,
    "status": 200,
    "outcome": "complete",
    "neighbours": 1,
    "neighbour_ids": ["r0"],
}


def test_a_life_is_told_in_its_order_from_its_arrival() -> None:
    lines = [" ".join(line.split()) for line in describe(LIFE)]
    assert lines == [
        "r1 stage chat, complete, status 200",
        "queued +0.0 ms told 200.0 ms, waited 250.0 ms",
        "admitted +250.0 ms to chat-1, attempt 2",
        "first byte +300.0 ms",
        "ended +2,000.0 ms complete",
        "neighbours 1 in flight while it was: r0",
    ]


def test_what_did_not_happen_is_not_told() -> None:
    life = LIFE | {
        "admitted_ns": None,
        "first_byte_ns": None,
        "ended_ns": None,
        "replica": None,
        "status": None,
        "outcome": "waiting",
    }
    names = [line.split()[0] for line in describe(life)[1:]]
    assert names == ["queued", "neighbours"]
