"""A profile as a Perfetto trace: TrackEvent packets, the few fields of them written here.

Field numbers are those of Perfetto's public protos (trace.proto, trace_packet.proto,
track_descriptor.proto, track_event.proto, debug_annotation.proto).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preroll.instruments.startup.base import Profile
from preroll.instruments.startup.profile_file import coarse
from preroll.instruments.startup.text import NAMES, shorten

SLICE_BEGIN, SLICE_END, INSTANT = 1, 2, 3
CLOCK_MONOTONIC = 3
SEQUENCE = 1
STATE_CLEARED = 1

CHAIN, LABELS, IMPORTS, OUTPUT = 1, 2, 3, 4
TRACKS = {
    CHAIN: "critical path, by cause",
    LABELS: "what the output says",
    IMPORTS: "imports on the critical path",
    OUTPUT: "lines of output",
}
MAX_NAME = 200


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    return message(field, value.encode("utf-8", "replace"))


def packet(content: bytes, t_ns: int = 0) -> bytes:
    """A TracePacket in the file: timestamp 8 with clock 58, trusted sequence 10."""
    stamp = number(8, t_ns) + number(58, CLOCK_MONOTONIC) if t_ns else b""
    return message(1, stamp + number(10, SEQUENCE) + content)


def track(uuid: int, name: str) -> bytes:
    """TrackDescriptor (60): uuid 1, name 2."""
    return packet(message(60, number(1, uuid) + text(2, name)))


def event(
    kind: int, uuid: int, t_ns: int, name: str = "", facts: Mapping[str, str | int] | None = None
) -> bytes:
    """TrackEvent (11): type 9, track 11, name 23, annotations 4 (name 10, string 6, int 4)."""
    content = number(9, kind) + number(11, uuid)
    if name:
        content += text(23, shorten(name, MAX_NAME))
    for key, value in (facts or {}).items():
        shown = text(6, value) if isinstance(value, str) else number(4, value)
        content += message(4, text(10, key) + shown)
    return packet(message(11, content), t_ns)


def trace(profile: Profile) -> bytes:
    """The whole file; times are the holder's, CLOCK_MONOTONIC of that boot."""
    return b"".join(_packets(profile))


def _packets(profile: Profile) -> Iterator[bytes]:
    # A first packet that clears state: the reader knows that the sequence begins here.
    yield packet(number(13, STATE_CLEARED))
    for uuid, name in TRACKS.items():
        yield track(uuid, name)
    zero = max(profile.spawned_ns, 1)
    for label in profile.labels:
        facts = {cause: f"{seconds:.6f} s" for cause, seconds in label.causes.items()}
        if label.lie:
            facts["disagrees"] = label.lie
        yield event(SLICE_BEGIN, LABELS, zero + round(label.start_s * 1e9), label.name, facts)
        yield event(SLICE_END, LABELS, zero + round(label.end_s * 1e9))
    for t_s, said in profile.lines:
        yield event(INSTANT, OUTPUT, zero + round(t_s * 1e9), said)
    yield from _chain(profile, zero - profile.spawned_ns)


def _chain(profile: Profile, shift_ns: int) -> Iterator[bytes]:
    module, since_ns = None, 0
    for one in coarse(profile.slices):
        facts: dict[str, str | int] = {"pid": one.pid, "tid": one.tid, "depth": one.depth}
        if one.file:
            facts["file"] = one.file
        if one.stack:
            facts["function"] = f"{one.stack[0].name} ({one.stack[0].file}:{one.stack[0].line})"
        if one.cold_bytes:
            facts["bytes from storage"] = one.cold_bytes
        start_ns, end_ns = one.start_ns + shift_ns, one.end_ns + shift_ns
        yield event(SLICE_BEGIN, CHAIN, start_ns, NAMES[one.cause], facts)
        yield event(SLICE_END, CHAIN, end_ns)
        if one.module != module:
            if module:
                yield event(SLICE_END, IMPORTS, start_ns)
            if one.module:
                yield event(SLICE_BEGIN, IMPORTS, start_ns, one.module)
            module = one.module
        since_ns = end_ns
    if module:
        yield event(SLICE_END, IMPORTS, since_ns)
