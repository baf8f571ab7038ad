"""What a long conversation's history costs a turn (adds to build/bench/voice_levers.json).

The time to the language model's first token, for each turn of a conversation of short questions and
answers: forgetting one turn at a time, as is usual, against forgetting half at once.
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/voice"))

from voice_app import VoiceApp  # noqa: E402

from preroll.voice import history  # noqa: E402
from preroll.voice.settings import INSTRUCTIONS  # noqa: E402

OUT = ROOT / "build/bench/voice_levers.json"
ANSWER = (
    "That is what it is. I would look at it closely, then ask somebody who knows {} of them, and"
    " at last decide. It is a friendly thing to do so, and it takes a moment."
)
SLOW_MS = 1500.0
CASES = {
    "one_of_6000": (0.999, 6000, 32),
    "half_of_6000": (0.5, 6000, 42),
    "half_of_2000": (0.5, 2000, 32),
}


def first_token_ms(app: VoiceApp, messages: list[dict[str, str]]) -> float:
    body = {"model": "smollm2", "messages": messages, "max_tokens": 1}
    connection = http.client.HTTPConnection("127.0.0.1", app.port)
    began_s = time.perf_counter()
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        sys.exit(f"the language model answered {answer.status}")
    return 1e3 * (time.perf_counter() - began_s)


def conversation(app: VoiceApp, name: str) -> dict[str, float]:
    """Of the turns since the history is full: the median, the worst, and how many are slow."""
    kept, chars, turns = CASES[name]
    said, after, is_full = history.History(chars), [], False
    with mock.patch.object(history, "KEPT", kept):
        for turn in range(turns):
            said.add_user(
                f"Question {turn}: please tell me what you would do about number {7 * turn}?"
            )
            took_ms = first_token_ms(app, said.messages(f"{INSTRUCTIONS} ({name})"))
            if is_full:
                after.append(took_ms)
            is_full |= said.add_answer([history.Piece(ANSWER.format(3 * turn), 3.0)])
    usual = statistics.median(after)
    slow = sum(ms > SLOW_MS for ms in after) / len(after)
    print(
        f"{name:14} median {usual:7.0f} ms  worst {max(after):7.0f} ms  slow {slow:.0%}", flush=True
    )
    return {
        f"history_first_token_ms_p50_{name}": round(usual),
        f"history_first_token_ms_max_{name}": round(max(after)),
        f"history_slow_share_{name}": round(slow, 3),
    }


def main() -> None:
    figures = json.loads(OUT.read_text()) if OUT.exists() else {}
    with tempfile.TemporaryDirectory() as name, VoiceApp(Path(name) / "state") as app:
        for case in CASES:
            figures |= conversation(app, case)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
