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
    size = struct.unpack_from("<I", body)[0] if len(body) >= 4 else MAX_HEAD_BYTES + 1
    if size > MAX_HEAD_BYTES or 4 + size > len(body):
        raise InputError(f"{len(body)} bytes that are no audio packet: the head is cut off")
    try:
        head = json.loads(body[4 : 4 + size])
    except ValueError as error:
        raise InputError(f"the head of the audio packet is no JSON: {error}") from None
    if not isinstance(head, dict):
        raise InputError("the head of the audio packet is no JSON object")
    pcm = body[4 + size :]
    if len(pcm) % 2:
        raise InputError(f"{len(pcm)} bytes of samples are half a sample too many")
    return head, to_float(pcm)
