"""The devices of hardware.toml, and this machine as measured."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from preroll.errors import InputError

PER_NODE = 8
"""Devices that share one fast link: the most that one replica is planned on."""
MOST_NODES = 1024


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator. Bytes, bytes/s, FLOP/s (dense); None is a rate the device lacks."""

    key: str
    name: str
    memory: float
    memory_bandwidth: float
    flops_bf16: float
    link_bandwidth: float
    host_bandwidth: float
    source: str
    flops_fp8: float | None = None
    flops_fp4: float | None = None

    def flops(self, precision: str) -> float:
        """Peak rate at which weights of `precision` multiply; widened where units are missing."""
        if precision in ("fp4", "mxfp4") and self.flops_fp4 is not None:
            return self.flops_fp4
        if precision == "fp8" and self.flops_fp8 is not None:
            return self.flops_fp8
        return self.flops_bf16


@dataclass(frozen=True, slots=True)
class TierRate:
    """Where bytes come from: `shared` is one path per replica, else one per device."""

    key: str
    name: str
    bandwidth: float
    shared: bool
    source: str


@cache
def _tables() -> dict[str, dict[str, dict[str, str | float | bool]]]:
    with (files("preroll.planning") / "hardware.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def devices() -> dict[str, Device]:
    return {k: Device(key=k, **v) for k, v in _tables()["device"].items()}  # type: ignore[arg-type]


@cache
def tiers() -> tuple[TierRate, ...]:
    return tuple(
        TierRate(key=k, **v)  # type: ignore[arg-type]
        for k, v in _tables()["tier"].items()
    )


def hosts() -> dict[str, dict[str, str | float | bool]]:
    """Machines without an accelerator that were measured: name, memory, bandwidth, source."""
    return _tables()["host"]


def parse_on(text: str) -> tuple[int, Device]:
    """`8xH100`, `H100`, `1xrtx-pro-6000` → (count, device) of one node; InputError lists what is
    known."""
    nodes, count, device = parse_fleet(text)
    if nodes > 1:
        raise InputError(f"{text!r} is {nodes} nodes; one replica has 1 to {PER_NODE} devices")
    return count, device


def parse_fleet(text: str) -> tuple[int, int, Device]:
    """`16xH100` → (nodes, devices per replica, device): up to one node is one replica, and more is
    one replica per node of 8. InputError for what fills no node."""
    match = re.fullmatch(r"\s*(?:(\d{1,6})\s*[x×*]\s*)?([A-Za-z][\w \-]*?)\s*", text)
    key = re.sub(r"[ _]+", "-", match[2].lower()) if match else ""
    known = devices()
    if match is None or key not in known:
        raise InputError(
            f"--on is {text!r}; write COUNTxDEVICE, such as 8xH100; devices: {', '.join(known)}"
        )
    number = int(match[1] or 1)
    if 1 <= number <= PER_NODE:
        return 1, number, known[key]
    nodes, rest = divmod(number, PER_NODE)
    if rest or not 1 <= nodes <= MOST_NODES:
        raise InputError(
            f"--on asks for {number} devices; a replica has 1 to {PER_NODE} of one node, and a"
            f" fleet whole nodes of {PER_NODE}: 16, 24, … {MOST_NODES * PER_NODE}"
        )
    return nodes, PER_NODE, known[key]
