"""Does a server answer the same alone and under load? Temperature 0, answers compared as text.

First alone, many times (it must agree with itself), then under levels of mixed load: each of
several prompts is compared with its own answer alone. What diverged is asked again alone: when that
agrees, load changed the numerics (or worse); the margin between the two best tokens at the first
difference tells which. A wide margin is no rounding: it suggests corruption.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from preroll.errors import RefusedError
from preroll.instruments.intervals import Interval, design_effect, share_interval
from preroll.instruments.load.client import Client
from preroll.instruments.load.requests import Ask, Server, template

Json = dict[str, Any]
NUM_ALONE = 10
# Rounding decides between tokens whose log probabilities differ by hundredths of a nat.
WIDE_MARGIN = 0.5
Margin = Callable[[str, int], float | None]


@dataclass(frozen=True, slots=True)
class Divergence:
    """An answer that differs: which prompt, and after how many characters."""

    prompt: int
    position: int


@dataclass(frozen=True, slots=True)
class Level:
    """Answers under one level of load; `share` of them differ from the answer alone."""

    in_flight: int
    answers: int
    share: Interval
    divergences: tuple[Divergence, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """`agrees_alone` False ends the probe: load cannot be blamed. `replays_agree`: what diverged,
    asked again alone, gave the answer of before."""

    prompts: int
    agrees_alone: bool
    levels: tuple[Level, ...] = ()
    replays_agree: bool | None = None
    margins: tuple[float, ...] = ()
    against: Level | None = None

    def verdict(self) -> str:
        if not self.agrees_alone:
            return "not deterministic even alone"
        if self.against is not None and self.against.divergences:
            return "the two servers answer differently alone"
        if not any(level.divergences for level in self.levels):
            return "no divergence was seen"
        if self.replays_agree is False:
            return "diverged, and does not return to its answer alone: state was corrupted"
        if self.margins and statistics.median(self.margins) > WIDE_MARGIN:
            return (
                "diverged where one token was clearly best: corruption is more likely than rounding"
            )
        return "diverged under load, and agrees again alone: numerics depend on the batch"


@dataclass(frozen=True, slots=True)
class Settings:
    levels: tuple[int, ...] = (2, 8, 32)
    answers: int = 200
    max_tokens: int = 64
    timeout_s: float = 120.0
    model: str = ""


def probe(
    server: Server,
    prompts: Sequence[str],
    settings: Settings,
    headers: Mapping[str, str],
    margin: Margin | None = None,
    against: tuple[Server, str] | None = None,
) -> Report:
    """Runs the probe. `margin(prompt, position)` asks for the logprob margin at a character.

    `against` is a second server and its model's name. Raises RefusedError when too many requests
    fail to say anything.
    """
    asker = _Asker(server, prompts, settings, headers)
    alone = asker.ask(1, NUM_ALONE * len(prompts))
    references = _references(alone, len(prompts))
    if references is None:
        return Report(len(prompts), agrees_alone=False)
    other = None
    if against is not None:
        theirs = _Asker(against[0], prompts, _with_model(settings, against[1]), headers)
        other = _level(1, theirs.ask(1, len(prompts)), references)
    levels = tuple(
        _level(n, asker.ask(n, max(settings.answers, 2 * n)), references) for n in settings.levels
    )
    seen = [d for level in levels for d in level.divergences]
    replays = None
    if seen:
        again = _references(asker.ask(1, 2 * len(prompts)), len(prompts))
        replays = again == references
    return Report(
        prompts=len(prompts),
        agrees_alone=True,
        levels=levels,
        replays_agree=replays,
        margins=_margins(seen, prompts, margin),
        against=other,
    )


def _with_model(settings: Settings, model: str) -> Settings:
    return Settings(settings.levels, settings.answers, settings.max_tokens, model=model)


@dataclass(frozen=True, slots=True)
class _Asker:
    server: Server
    prompts: Sequence[str]
    settings: Settings
    headers: Mapping[str, str]

    def ask(self, in_flight: int, count: int) -> list[tuple[int, str]]:
        """(prompt, answer) of `count` requests in the order in which they ended."""
        extra = {"temperature": 0, "seed": 0}
        tokens, model = self.settings.max_tokens, self.settings.model
        ask = Ask(model=model, max_tokens=tokens, headers=self.headers, extra=extra)
        spec = {
            "version": 1,
            **self.server.spec(),
            "requests": [template(self.server, ask, prompt) for prompt in self.prompts],
            "load": {"mode": "closed", "connections": in_flight},
            "stop": {"requests": count},
            "timeout_s": self.settings.timeout_s,
            "keep_text": True,
        }
        with Client(spec) as client:
            records = [line for line in client if line["type"] == "request"]
        good = [r for r in records if r["failure"] is None]
        if len(good) < 0.9 * count:
            why = Counter(r["failure"]["kind"] for r in records if r["failure"])
            raise RefusedError(
                f"{count - len(good)} of {count} requests failed at {in_flight} in flight "
                f"({dict(why)}): answers cannot be compared; lower --levels"
            )
        return [(r["template"], r["text"]) for r in good]


def _references(answers: Sequence[tuple[int, str]], num_prompts: int) -> list[str] | None:
    """Each prompt's answer, None when a prompt has several."""
    by_prompt: dict[int, set[str]] = {}
    for prompt, text in answers:
        by_prompt.setdefault(prompt, set()).add(text)
    if any(len(texts) > 1 for texts in by_prompt.values()) or len(by_prompt) < num_prompts:
        return None
    return [by_prompt[i].pop() for i in range(num_prompts)]


def _level(in_flight: int, answers: Sequence[tuple[int, str]], references: Sequence[str]) -> Level:
    differs = [text != references[prompt] for prompt, text in answers]
    divergences = tuple(
        Divergence(prompt, common_prefix(text, references[prompt]))
        for prompt, text in answers
        if text != references[prompt]
    )
    effect = design_effect(differs)
    share = share_interval(sum(differs), len(differs), design_effect=effect)
    return Level(in_flight, len(answers), share, divergences)


def common_prefix(first: str, second: str) -> int:
    """How many characters two texts share from their start."""
    for position, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return position
    return min(len(first), len(second))


def _margins(
    seen: Sequence[Divergence], prompts: Sequence[str], margin: Margin | None
) -> tuple[float, ...]:
    if margin is None:
        return ()
    # A few distinct places say as much as every repetition of them.
    places = list(dict.fromkeys((d.prompt, d.position) for d in seen))[:8]
    found = (margin(prompts[prompt], position) for prompt, position in places)
    return tuple(m for m in found if m is not None)


def margin_at(logprobs: Sequence[Mapping[str, Any]], position: int) -> float | None:
    """The margin of the token that covers a character, from a chat answer's `logprobs.content`."""
    end = 0
    for entry in logprobs:
        end += len(entry["token"])
        if position < end:
            best = sorted((t["logprob"] for t in entry.get("top_logprobs", ())), reverse=True)
            return float(best[0] - best[1]) if len(best) > 1 else None
    return None


def text(report: Report, title: str) -> str:
    lines = [f"# {title}", "", f"**{report.verdict()}**", ""]
    lines.append(f"- {report.prompts} prompts, {NUM_ALONE} answers each alone")
    if report.against is not None:
        lines.append("- against the other server, alone: " + _sentence(report.against))
    if report.levels:
        lines += ["", "| in flight | answers | differ | 95 % interval | first difference at |"]
        lines.append("|---|---|---|---|---|")
        lines += [_row(level) for level in report.levels]
    if report.margins:
        margin = statistics.median(report.margins)
        lines += ["", f"Median logprob margin at the first difference: {margin:.3f} nats."]
    return "\n".join(lines) + "\n"


def _sentence(level: Level) -> str:
    return f"{len(level.divergences)} of {level.answers} answers differ"


def _row(level: Level) -> str:
    positions = sorted(d.position for d in level.divergences)
    where = f"character {positions[len(positions) // 2]} (median)" if positions else "–"
    s = level.share
    bounds = f"[{s.low:.1%}, {s.high:.1%}]"
    return f"| {level.in_flight} | {level.answers} | {s.value:.1%} | {bounds} | {where} |"
