"""Bytes over bandwidth: the floor of every fetch and load."""

from __future__ import annotations

from preroll.planning.formulas.check import number, positive


def floor_s(num_bytes: float, bandwidth: float, streams: int = 1) -> float:
    """Least time to move `num_bytes` over `streams` links of `bandwidth` bytes/s each: seconds.

    Valid: bytes >= 0, bandwidth > 0, streams >= 1 whose sum no shared link throttles. Ignores
    latency, protocol and deserialisation, so a real transfer is slower, never faster.
    Source: definition of bandwidth; 141.2 GB at 1 GB/s = 141 s is the mission's shard example.
    """
    size = number("bytes", num_bytes, 0.0)
    return size / (positive("bandwidth", bandwidth) * positive("streams", streams))


def shard_floor_s(num_bytes: float, shards: int, link_bandwidth: float) -> float:
    """Time for `shards` equal parts, each over its own link of `link_bandwidth` bytes/s: seconds.

    Valid: one link per shard (one PCIe slot per device). Ignores a host memory that cannot feed
    all links at once.
    """
    return floor_s(num_bytes, link_bandwidth, shards)


def floor_ratio(
    parameters_from: float, bytes_from: float, parameters_to: float, bytes_to: float
) -> float:
    """How many times the floor grows from one model to another: (P2·b2)/(P1·b1).

    `parameters_*`: counts; `bytes_*`: bytes per parameter. Valid on equal tiers only.
    """
    old = positive("parameters_from", parameters_from) * positive("bytes_from", bytes_from)
    return positive("parameters_to", parameters_to) * positive("bytes_to", bytes_to) / old
