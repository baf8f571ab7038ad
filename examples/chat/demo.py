"""The guided tour of `make demo`: a real model is started, served, overloaded, killed and woken.

Every number printed was measured in this run. DEMO_EXIT=1 ends the service at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

from client import Answer, burst, chat
from rich.console import Console
from rich.table import Table
from service import DemoError, Service

STATE = Path("build/demo/state")
URL = "http://127.0.0.1:8321"
MODEL, QUIET = "smollm2", "smollm2-quiet"
BURST = 48
console = Console(highlight=False)


def scene(number: int, title: str) -> None:
    console.print()
    console.rule(f"[bold]{number}. {title}", align="left")


def ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:,.0f} ms"


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise DemoError(what)


def starts(service: Service) -> None:
    scene(1, "Two starts, and where their time went")
    for which in ("first", "second"):
        with console.status(f"{which} start: spawn, load, warm-up …"):
            service.start()
            took = service.wait_ready()
        console.print(f"{which} start: the endpoint took requests {took:.2f} s after the command")
        if which == "first":
            service.stop()
    console.print(service.preroll("starts", "--state", str(service.state), "--last", "2"))


def one_chat(service: Service) -> None:
    scene(2, "One chat, streamed through the door")
    prompt = "In one sentence, why is the sky blue?"
    first = chat(service.url, MODEL, prompt)
    again = chat(service.url, MODEL, prompt)
    expect(first.status == again.status == 200, f"chat failed: {first.error or again.error}")
    console.print(f"[italic]{first.text.strip()}[/]")
    console.print(f"TTFT {ms(first.ttft_s)} new prompt, {ms(again.ttft_s)} prefix cached")
    request = first.headers.get("x-request-id", "")
    console.print(service.preroll("why", request, "--state", str(service.state)))


def eight_chats(service: Service) -> None:
    scene(3, "Eight chats at once")
    begun = time.perf_counter()
    answers = burst(service.url, MODEL, 8, 32)
    took = time.perf_counter() - begun
    expect(all(a.status == 200 and not a.error for a in answers), "one of eight chats failed")
    chunks = sum(a.chunks for a in answers)
    console.print(
        f"{chunks} chunks in {took:.2f} s ({chunks / took:.0f}/s), TTFT {spread(answers)}"
    )


def spread(answers: list[Answer]) -> str:
    times = sorted(a.ttft_s for a in answers if a.ttft_s is not None)
    if not times:
        return "–"
    return f"min {ms(times[0])}, median {ms(statistics.median(times))}, max {ms(times[-1])}"


def overload(service: Service) -> None:
    scene(4, f"{BURST} chats at once: the same engine, with and without the door's queue")
    engine = f"unix:{service.state}/run/{service.replicas('chat')[0]['id']}.http"
    table = Table(box=None, pad_edge=False)
    for column in ("", "answered", "refused", "failed", "TTFT of the answered", "told to come in"):
        table.add_column(column)
    for name, url in (("through Preroll", service.url), ("straight at the engine", engine)):
        with console.status(f"{BURST} chats {name} …"):
            answers = burst(url, MODEL, BURST, 24)
        good = [a for a in answers if a.status == 200 and not a.error]
        refused = [a for a in answers if a.status in (429, 503)]
        failed = [a for a in answers if a not in good and a not in refused]
        # What an overloaded engine does by itself is for the table; the door must not do it.
        expect(url == engine or not failed, f"{name}: {failed[0].error if failed else ''}")
        back = sorted(int(a.headers.get("retry-after-ms", 0)) for a in refused)
        told = f"{back[0] / 1000:.1f} to {back[-1] / 1000:.1f} s" if back else "–"
        counts = [str(len(group)) for group in (good, refused, failed)]
        table.add_row(name, *counts, spread(good), told)
    console.print(table)


def control_dies(service: Service) -> None:
    scene(5, "kill -9 of control, in the middle of a stream")
    answers: list[Answer] = []
    flowing = threading.Event()
    arguments = (service.url, MODEL, "Count from one to fifty.", 128, flowing)
    stream = threading.Thread(target=lambda: answers.append(chat(*arguments)))
    stream.start()
    expect(flowing.wait(60), "the stream did not begin")
    before = service.replicas("chat")[0]
    service.kill_control()
    console.print("control is dead; the stream goes on")
    begun = time.perf_counter()
    service.start()
    while service.ps().get("control_pid") is None:
        expect(time.perf_counter() - begun < 60, "control did not come back")
        time.sleep(0.05)
    stream.join()
    after = service.replicas("chat")[0]
    expect(answers[0].status == 200 and not answers[0].error, f"cut: {answers[0].error}")
    expect(after["id"] == before["id"] and after["pid"] == before["pid"], "replica was replaced")
    console.print(
        f"the stream ended whole ({answers[0].chunks} chunks); the new control adopted "
        f"{after['id']}, pid {after['pid']}, without a start"
    )


def to_zero_and_back(service: Service) -> None:
    scene(6, "Zero, and the first request back: 8:02 a.m.")
    expect(not service.replicas("quiet"), "the quiet endpoint should not be running yet")
    for which in ("first", "second"):
        with console.status(f"{which} request to an endpoint with no process …"):
            answer = chat(service.url, QUIET, "Good morning!", 16)
        expect(answer.status == 200 and not answer.error, f"cold request: {answer.error}")
        held = int(answer.headers.get("x-preroll-queue-ms", 0)) / 1000
        console.print(
            f"{which} cold request: held {ms(held)} while it started, TTFT {ms(answer.ttft_s)}"
        )
        with console.status("nobody asks: back to zero …"):
            begun = time.perf_counter()
            while service.replicas("quiet"):
                expect(time.perf_counter() - begun < 60, "the quiet endpoint did not go to zero")
                time.sleep(0.2)
    console.print("nobody asked for a while: zero processes again")


SCENES = (starts, one_chat, eight_chats, overload, control_dies, to_zero_and_back)


def farewell(service: Service) -> None:
    console.print()
    if os.environ.get("DEMO_EXIT") == "1":
        service.stop()
        console.print("demo done; the service is stopped")
        return
    body = f'{{"model": "{MODEL}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    console.print(f"The service goes on at {URL}/v1 (OpenAI-compatible). Try:")
    console.print(
        f"  curl {URL}/v1/chat/completions -H 'content-type: application/json' -d '{body}'",
        soft_wrap=True,
    )
    console.print(f"  preroll ps --state {STATE} · preroll top · preroll stop --state {STATE}")


def end(service: Service) -> None:
    """Ends what runs from the demo's state directory: of this tour, or of an earlier one."""
    if (STATE / "holders").exists():
        service.stop()


def interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, interrupted)
    service = Service(STATE, URL)
    try:
        end(service)
        shutil.rmtree(STATE.parent, ignore_errors=True)
        for play in SCENES:
            play(service)
        farewell(service)
    except DemoError as error:
        console.print(f"[bold red]demo failed:[/] {error}", soft_wrap=True)
        end(service)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted: what runs is stopped")
        end(service)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
