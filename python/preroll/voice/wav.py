"""The head of a WAV file whose length is not known yet.

A stream cannot go back and fill in its sizes. Zero makes strict readers see an empty file, and
0xFFFFFFFF is no whole number of samples and a negative one to readers with signed sizes. The
largest size that is even, positive and consistent in both places is read by all of them as "until
the end of the file".
"""

from __future__ import annotations

import struct

HEAD_BYTES = 44
UNKNOWN_DATA_BYTES = (2**31 - 1 - HEAD_BYTES) & ~1


def head(rate_hz: int, data_bytes: int | None = None) -> bytes:
    """44 bytes: RIFF, `fmt ` (PCM, mono, 16 bits), `data`. `data_bytes` None: not known yet."""
    size = UNKNOWN_DATA_BYTES if data_bytes is None else data_bytes
    riff = b"RIFF" + struct.pack("<I", size + HEAD_BYTES - 8) + b"WAVE"
    fmt = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    return riff + fmt + b"data" + struct.pack("<I", size)
