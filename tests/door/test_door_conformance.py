"""HTTP/1.1 conformance, 33 kinds: method, target, version, Host, fields, lengths, chunk grammar."""

from __future__ import annotations

import pytest
from door_bench import Bench, replica, stage
from door_origin import plain
from door_wire import ConnectionEnded, Message, Wire

BIG = "x" * 70_000

CASES: list[tuple[str, bytes, set[int]]] = [
    ("a plain GET", b"GET / HTTP/1.1\r\nHost: d\r\n\r\n", {200}),
    ("absolute form", b"GET http://d/x HTTP/1.1\r\nHost: d\r\n\r\n", {200}),
    ("OPTIONS *", b"OPTIONS * HTTP/1.1\r\nHost: d\r\n\r\n", {200, 204, 404}),
    ("an unknown method", b"BREW / HTTP/1.1\r\nHost: d\r\n\r\n", {200, 405, 501}),
    ("a method with a space before", b" GET / HTTP/1.1\r\nHost: d\r\n\r\n", {400}),
    ("a method that is no token", b"G@T( / HTTP/1.1\r\nHost: d\r\n\r\n", {400}),
    ("CONNECT", b"CONNECT d:80 HTTP/1.1\r\nHost: d\r\n\r\n", {400, 405, 501}),
    ("no target", b"GET HTTP/1.1\r\nHost: d\r\n\r\n", {400}),
    ("a target with a space", b"GET /a b HTTP/1.1\r\nHost: d\r\n\r\n", {400}),
    ("a target with a control byte", b"GET /a\x01 HTTP/1.1\r\nHost: d\r\n\r\n", {400}),
    ("a target too long", f"GET /{BIG} HTTP/1.1\r\nHost: d\r\n\r\n".encode(), {400, 414, 431}),
    ("HTTP/1.0", b"GET / HTTP/1.0\r\nHost: d\r\n\r\n", {200}),
    ("HTTP/2.0", b"GET / HTTP/2.0\r\nHost: d\r\n\r\n", {400, 505}),
    ("HTTP/1.2", b"GET / HTTP/1.2\r\nHost: d\r\n\r\n", {200, 400, 505}),
    ("a version in lower case", b"GET / http/1.1\r\nHost: d\r\n\r\n", {400}),
    ("no version", b"GET /\r\nHost: d\r\n\r\n", {400}),
    ("no Host", b"GET / HTTP/1.1\r\n\r\n", {400}),
    ("two Hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", {400}),
    ("a Host that is none", b"GET / HTTP/1.1\r\nHost: a/b c\r\n\r\n", {400}),
    ("a space before the colon", b"GET / HTTP/1.1\r\nHost: d\r\nX : y\r\n\r\n", {400}),
    ("a folded field", b"GET / HTTP/1.1\r\nHost: d\r\nX: a\r\n b\r\n\r\n", {400}),
    ("a field without a name", b"GET / HTTP/1.1\r\nHost: d\r\n: y\r\n\r\n", {400}),
    ("a field too long", f"GET / HTTP/1.1\r\nHost: d\r\nX: {BIG}\r\n\r\n".encode(), {400, 431}),
    (
        "a length that is no number",
        b"POST / HTTP/1.1\r\nHost: d\r\nContent-Length: a\r\n\r\n",
        {400},
    ),
    ("a negative length", b"POST / HTTP/1.1\r\nHost: d\r\nContent-Length: -1\r\n\r\n", {400}),
    (
        "two lengths",
        b"POST / HTTP/1.1\r\nHost: d\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        {400},
    ),
    (
        "an unknown coding",
        b"POST / HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: cow\r\n\r\n",
        {400, 501},
    ),
    (
        "chunked twice",
        b"POST / HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        {400, 501},
    ),
    (
        "chunked in HTTP/1.0",
        b"POST / HTTP/1.0\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        {400},
    ),
    (
        "chunk extensions",
        b"POST / HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\n\r\n",
        {200, 400},
    ),
    (
        "a chunk size that is none",
        b"POST / HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhi\r\n0\r\n\r\n",
        {400},
    ),
    (
        "a chunk longer than its size",
        b"POST / HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiho\r\n0\r\n\r\n",
        {400},
    ),
    (
        "a chunk size beyond 64 bits",
        b"POST / HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"10000000000000000000\r\nhi\r\n0\r\n\r\n",
        {400},
    ),
]


def echo(request: Message, wire: Wire) -> None:
    wire.send(plain(body=b"" if request.method == "HEAD" else request.body))


def test_there_are_33_kinds() -> None:
    assert len({name for name, _, _ in CASES}) == 33


@pytest.mark.parametrize(("payload", "allowed"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_conformance(bench: Bench, payload: bytes, allowed: set[int]) -> None:
    door = bench.door({"any": stage(replica(bench.origin(echo)))})
    wire = door.connect()
    wire.send(payload)
    answer = wire.response()
    assert answer.status in allowed, answer
    if answer.status >= 400:
        # What could not be read has no certain end: the connection cannot go on.
        with pytest.raises(ConnectionEnded):
            wire.response()
    assert door.get("/x").status == 200
