"""Several listeners at once: each checks that it hears its own text, and that it never runs dry.

python examples/token_codec/client.py [--url http://127.0.0.1:8333] [--listeners 6] [--tokens 150]
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from decoder import FRAME_S, SAMPLE_RATE, Decoder, spoken

FRAME_BYTES = int(SAMPLE_RATE * FRAME_S) * 2


@dataclass
class Listener:
    """`first_s`: seconds to the first frame; `underruns`: times at which playing had to stop."""

    text: str
    num_tokens: int
    first_s: float = 0.0
    underruns: int = 0
    audio: bytearray = field(default_factory=bytearray)

    def listen(self, host: str, port: int) -> None:
        connection = http.client.HTTPConnection(host, port, timeout=60)
        body = json.dumps({"text": self.text, "tokens": self.num_tokens})
        begun_s = time.monotonic()
        connection.request("POST", "/speak", body, {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"/speak answered {response.status}: {response.read().decode()}")
        playing_since_s = 0.0
        while piece := response.read1(1 << 16):
            now_s = time.monotonic()
            if not self.audio:
                playing_since_s, self.first_s = now_s, now_s - begun_s
            elif now_s - playing_since_s > len(self.audio) // FRAME_BYTES * FRAME_S:
                self.underruns += 1
                playing_since_s = now_s - len(self.audio) // FRAME_BYTES * FRAME_S
            self.audio += piece
        connection.close()

    def is_own(self, decoder: Decoder) -> bool:
        return bytes(self.audio) == spoken(self.text, self.num_tokens, decoder)


def together(url: str, listeners: list[Listener]) -> None:
    """All listen at the same time."""
    parts = urlsplit(url)
    place = (parts.hostname or "127.0.0.1", parts.port or 80)
    threads = [threading.Thread(target=one.listen, args=place) for one in listeners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8333")
    parser.add_argument("--listeners", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=150)
    options = parser.parse_args()
    listeners = [
        Listener(f"This is what number {i} says. " * (i + 1), options.tokens)
        for i in range(options.listeners)
    ]
    together(options.url, listeners)
    decoder = Decoder()
    for one in listeners:
        own = "its own text" if one.is_own(decoder) else "NOT ITS OWN TEXT"
        played_s = len(one.audio) / FRAME_BYTES * FRAME_S
        print(
            f"first frame after {one.first_s * 1e3:4.0f} ms, {played_s:.1f} s of audio,"
            f" {one.underruns} underruns, {own}"
        )
    return 0 if all(one.is_own(decoder) and not one.underruns for one in listeners) else 1


if __name__ == "__main__":
    sys.exit(main())
