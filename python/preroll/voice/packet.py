"""Audio and what belongs to it, between the voice service and a model stage, as one body.

u32 little endian: bytes of the head · the head, JSON · samples, s16le, mono
"""

from __future__ import annotations

import json
import struct
from typing import Any

from preroll.errors import InputError
from preroll.voice.pcm import Samples, to_float, to_s16le

MEDIA_TYPE = "application/vnd.preroll.audio"
MAX_HEAD_BYTES = 1 << 20


def pack(head: dict[str, Any], samples: Samples) -> bytes:
    text = json.dumps(head, separators=(",", ":")).encode()
    return struct.pack("<I", len(text)) + text + to_s16le(samples)


def unpack(body: bytes) -> tuple[dict[str, Any], Samples]:
    """Raises InputError for a body that is no packet."""
    reader = Reader()
    samples = reader.push(body)
    return reader.finish(), samples


class Reader:
    """A packet that comes in pieces: samples as they come, the head as soon as it is whole."""

    def __init__(self) -> None:
        self.head: dict[str, Any] | None = None
        self.head_bytes = 0
        self._rest = b""

    def push(self, data: bytes) -> Samples:
        """The whole samples of what has come. Raises InputError for what is no packet."""
        data = self._rest + data
        if self.head is None:
            size = struct.unpack_from("<I", data)[0] if len(data) >= 4 else 0
            if size > MAX_HEAD_BYTES:
                raise InputError(f"no audio packet: a head of {size} bytes")
            if len(data) < 4 or len(data) < 4 + size:
                self._rest = data
                return to_float(b"")
            self.head_bytes = 4 + size
            self.head, data = _head(data[4 : 4 + size]), data[4 + size :]
        whole = len(data) & ~1
        self._rest = data[whole:]
        return to_float(data[:whole])

    def finish(self) -> dict[str, Any]:
        """The head. Raises InputError for a packet that is cut off."""
        if self.head is None:
            raise InputError(f"{len(self._rest)} bytes that are no audio packet: it is cut off")
        if self._rest:
            raise InputError("the samples of the audio packet end with half a sample")
        return self.head


def _head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except ValueError as error:
        raise InputError(f"the head of the audio packet is no JSON: {error}") from None
    if not isinstance(head, dict):
        raise InputError("the head of the audio packet is no JSON object")
    return head
