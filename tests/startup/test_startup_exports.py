"""A profile on files: JSON that reads back, a page that needs nothing, traces that balance."""

from __future__ import annotations

import itertools
import json
import random
import shlex
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from preroll.errors import InputError
from preroll.instruments.startup import (
    Cause,
    Outcome,
    Profile,
    Segment,
    inodes,
    picture,
    profile_file,
)
from preroll.instruments.startup import diff as differ
from preroll.instruments.startup import functions as sampled
from preroll.instruments.startup.base import (
    FileCost,
    Function,
    Gap,
    ImportCost,
    Lever,
    ProcessTime,
    Slice,
)
from preroll.instruments.startup.levers import find
from preroll.instruments.startup.page import html
from preroll.instruments.startup.perfetto import trace
from preroll.instruments.startup.picture import short
from preroll.instruments.startup.speedscope import document
from preroll.instruments.startup.sums import by_cause
from preroll.instruments.startup.text import report

SPAWNED_NS = 5_000_000_000
EVIL = "<script>alert(1)</script> & 'quotes' \x1b[31m"
BODY = Function("<module>", "/env/lib/python3.11/site-packages/app/main.py", 1)
CALLED = Function(EVIL, "/srv/app/lib/model.py", 12)
STACKS = (None, (BODY,), (CALLED, BODY))


def profile_of(slices: list[Slice]) -> Profile:
    total_s = (slices[-1].end_ns - slices[0].start_ns) / 1e9
    half = total_s / 2
    causes = {Cause.CPU.value: half}
    return Profile(
        command=("python", "-c", EVIL),
        outcome=Outcome.READY,
        message="ready",
        mode="tracefs",
        reason="tracepoints",
        total_s=total_s,
        date="2026-11-29T12:00:00+00:00",
        causes=by_cause(slices),
        labels=(
            Segment(EVIL, 0.0, half, causes, "load", "says 'loading': 100% asleep"),
            Segment("second", half, total_s, causes),
        ),
        functions=sampled.times(slices),
        imports={"torch": ImportCost("torch", "app", 3, 3.73, 0.7, {"tf": 3.03}, 2, 1, 9, 0.1)},
        gap=Gap(0.0, half, EVIL, causes),
        files=(FileCost("/weights", 1.5, 10**9),),
        processes=(
            ProcessTime(7, "python", 0.0, half, causes),
            ProcessTime(8, EVIL, half, total_s, causes),
        ),
        levers=(Lever("try it", "it was slow", 1.0, "preroll ablate …"),),
        notes=("a note",),
        lines=((0.1, "first"), (half, EVIL)),
        slices=tuple(slices),
        cpu_s=1.0,
        spawned_ns=SPAWNED_NS,
    )


def some_slices(count: int, seed: int = 1) -> list[Slice]:
    dice, now, found = random.Random(seed), SPAWNED_NS, []
    for _ in range(count):
        end = now + dice.randrange(1, 2_000_000)
        cause = dice.choice(list(Cause))
        module = dice.choice([None, *(f"m{dice.randrange(2000)}" for _ in "ab"), "torch.nn"])
        stack = dice.choice(STACKS) if cause is Cause.CPU else None
        found.append(Slice(now, end, cause, 7, dice.choice([7, 8]), 0, None, 5, module, stack))
        now = end
    return found


@pytest.fixture
def profile() -> Profile:
    return profile_of(some_slices(300))


def test_what_was_written_reads_back_the_same(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    profile_file.write(profile, path)
    assert profile_file.read(path) == profile


def test_a_million_slices_become_few_with_the_same_sums() -> None:
    slices = some_slices(20_000)
    small = profile_file.coarse(slices, 500)
    assert len(small) <= 3 * 500
    assert by_cause(small) == by_cause(slices)
    assert sum(one.cold_bytes for one in small) == sum(one.cold_bytes for one in slices)
    assert small[0].start_ns == slices[0].start_ns
    assert small[-1].end_ns == slices[-1].end_ns
    for before, after in itertools.pairwise(small):
        assert before.end_ns == after.start_ns


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": "preroll profile 1"}', "\xff", "no"]
)
def test_a_file_of_another_kind_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match="not a profile"):
        profile_file.read(path)
    with pytest.raises(InputError, match="cannot be read"):
        profile_file.read(tmp_path / "missing")


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_is_self_contained_and_runs_nothing(profile: Profile) -> None:
    page = html(profile)
    found = Page()
    found.feed(page)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in found.tags}
    assert not [a for _, a in found.tags if {"src", "href", "onload", "onclick"} & set(a)]
    assert "http://" not in page and "https://" not in page
    svg = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    kinds = {element.get("class") for element in svg.iter("rect")}
    assert "path" in kinds
    assert any(e.get("fill") == "url(#hatched)" for e in svg.iter("rect"))
    texts = [element.text for element in svg.iter("text")]
    assert "ready" in texts and "first line" in texts


def test_a_lane_is_named_after_what_an_interpreter_runs() -> None:
    assert short("/usr/bin/python3 /opt/bin/vllm serve model") == "vllm serve model"
    assert short("python -P -m a.worker --model /x/y.gguf") == "a.worker --model y.gguf"
    assert short("/usr/bin/sleep 3") == "sleep 3"


def test_the_text_report_sums_to_the_total_and_says_what_a_removal_would_do(
    profile: Profile,
) -> None:
    lines = report(profile)
    rows = [line.split(" s ")[0].split()[-1] for line in lines[3:] if "%  " in line][:13]
    assert round(sum(map(float, rows)), 3) == round(profile.total_s, 3)
    assert any("inclusive 3.73 s, exclusive 0.70 s; 3.03 s would move to tf" in x for x in lines)
    assert any("! says 'loading': 100% asleep" in line for line in lines)


def test_functions_are_named_with_their_own_time_and_that_of_what_they_call(
    profile: Profile,
) -> None:
    own = {one.name: one.own_s for one in profile.functions}
    whole = {one.name: one.whole_s for one in profile.functions}
    assert whole["<module>"] == pytest.approx(own["<module>"] + own[EVIL])
    assert whole[EVIL] == own[EVIL] > 0
    assert sum(own.values()) <= profile.causes[Cause.CPU]
    lines = report(profile)
    assert any(f"{own['<module>']:.3f} s" in x and "<module> (app/main.py:1)" in x for x in lines)
    assert any("% of its CPU in" in x for x in lines)
    assert "app/main.py:1" in html(profile)
    frames = {one["name"] for one in document(profile)["shared"]["frames"]}
    assert "<module> (app/main.py:1)" in frames and any("lib/model.py:12" in x for x in frames)


def test_a_profile_from_before_functions_were_sampled_is_still_read(
    profile: Profile, tmp_path: Path
) -> None:
    path = tmp_path / "old.json"
    data = profile_file.to_json(profile)
    del data["functions"], data["frames"], data["stacks"]
    data["slices"] = [row[:9] for row in data["slices"]]
    path.write_text(json.dumps(data))
    old = profile_file.read(path)
    assert old.functions == () and all(one.stack is None for one in old.slices)
    assert old.causes == profile.causes
    report(old), html(old), document(old)


def test_the_line_that_tests_a_cold_file_is_one_that_a_shell_takes(profile: Profile) -> None:
    slow = replace(profile, command=("sh", "-c", "echo 'a b' {port}"), imports={})
    (lever,) = (x for x in find(slow, None) if "cold files" in x.title)
    words = shlex.split(lever.ablate or "")
    program, flag, script = shlex.split(words[words.index("--cmd") + 1])
    assert (program, flag) == ("sh", "-c")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "a b {port}\n"


def test_a_file_without_a_name_is_told_by_its_device() -> None:
    assert inodes.shown(f"inode 3:{254 << 20}") == (
        "block device 254:0 (a file system's own blocks)"
    )
    assert inodes.shown(f"inode {8 << 20 | 2}:77") == "inode 77 of device 8:2"


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.5, 0.8])
def test_a_long_name_stays_in_the_picture_and_its_lie_is_whole(
    profile: Profile, share: float
) -> None:
    lie = "says 'compiling': 62% asleep"
    start_s, end_s = (profile.total_s * part for part in (share, share + 0.2))
    label = Segment("word " * 40, start_s, end_s, {Cause.CPU: 1.0}, lie=lie)
    svg = ET.fromstring(picture.timeline(replace(profile, labels=(label,))))
    (text,) = (x for x in svg.iter("text") if (x.text or "").startswith("word"))
    assert (text.text or "").endswith(lie)
    width = picture.LETTER * len(text.text or "")
    x = float(text.get("x") or 0)
    left = x - width if text.get("text-anchor") == "end" else x
    assert left + 1 >= picture.TIMES_WIDTH and left + width <= picture.WIDTH + 1


def test_a_lever_is_not_found_in_what_comes_after_a_report(profile: Profile) -> None:
    def titles(name: str) -> list[str]:
        label = Segment(name, 0.0, profile.total_s, {Cause.CPU: profile.total_s})
        return [lever.title for lever in find(replace(profile, labels=(label,)), None)]

    assert any("warm up" in x for x in titles("warming up"))
    assert any("straight to the device" in x for x in titles("loading weights"))
    after = titles("after 'loading weights, warm-up and compiling done'")
    assert not [x for x in after if "warm up" in x or "device" in x or "compiled" in x]


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: number, and varint or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2
            length = varint()
            yield key >> 3, data[at : at + length]
            at += length


def test_the_perfetto_trace_has_balanced_slices_in_order_on_named_tracks(profile: Profile) -> None:
    opened: dict[int, int] = {}
    tracks, last = {}, {}
    for number, packet in fields(trace(profile)):
        assert number == 1 and isinstance(packet, bytes)
        parts = dict(fields(packet))
        assert parts[10] == 1
        if isinstance(descriptor := parts.get(60), bytes):
            found = dict(fields(descriptor))
            tracks[found[1]] = found[2]
        if isinstance(content := parts.get(11), bytes):
            event = dict(fields(content))
            track, kind = event[11], event[9]
            assert track in tracks
            assert parts[8] >= last.get(track, 0)  # type: ignore[operator]
            last[track] = parts[8]
            opened[track] = opened.get(track, 0) + {1: 1, 2: -1, 3: 0}[kind]  # type: ignore[index]
            assert opened[track] in (0, 1)
    assert b"critical path, by cause" in tracks.values()
    assert set(opened.values()) == {0}
    assert f"{CALLED.file}:12)".encode() in trace(profile)


def test_the_speedscope_file_opens_and_closes_frames_like_brackets(profile: Profile) -> None:
    made = json.loads(json.dumps(document(profile)))
    lane, stack, now = made["profiles"][0], [], 0.0
    for event in lane["events"]:
        assert event["at"] >= now
        now = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        else:
            assert stack.pop() == event["frame"]
    assert stack == []
    assert now == lane["endValue"] == profile.total_s
    assert {"import torch.nn", "on CPU"} <= {one["name"] for one in made["shared"]["frames"]}


def test_a_diff_names_what_grew_and_says_that_one_run_is_no_verdict(profile: Profile) -> None:
    slower = replace(
        profile,
        total_s=profile.total_s + 1,
        causes={**profile.causes, Cause.SLEEP: profile.causes[Cause.SLEEP] + 1},
    )
    lines = differ.report(profile, slower)
    assert "+1.000 s" in lines[0]
    assert any("sleep" in line and "+1.000 s" in line for line in lines)
    assert "preroll ablate" in lines[-1]
    assert differ.growth(profile, slower) == pytest.approx(1 / profile.total_s)


def test_labels_that_differ_in_numbers_only_are_compared(profile: Profile) -> None:
    def labelled(name: str) -> Profile:
        return replace(profile, labels=(replace(profile.labels[0], name=name),))

    first, second = (
        differ.segments(labelled(f"loaded in {s} s on port {p}")) for s, p in ((1.5, 80), (2, 81))
    )
    assert first.keys() == second.keys()
