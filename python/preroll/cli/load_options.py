"""Options that `preroll load`, `preroll cliff` and `preroll probe` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from preroll.cli.load_inputs import header_pairs, model_of, prompts_from
from preroll.cli.options import duration_s
from preroll.errors import InputError
from preroll.instruments.load.plan import Plan
from preroll.instruments.load.requests import Ask, Live, Server, conversation, parse_url, template
from preroll.instruments.load.result import Targets
from preroll.instruments.load.traces import Arrival, read_trace


def seconds(text: str | None, name: str) -> float | None:
    """A duration of the command line. Raises InputError that names the option."""
    if text is None:
        return None
    return duration_s(name, text)


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers above 0, comma-separated. Raises InputError."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise InputError(f"'{text}'; allowed: whole numbers above 0, comma-separated")
    return found


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, slots=True)
class Trust:
    """For https: whose certificates are taken."""

    cacert: Annotated[Path | None, Parameter(help="PEM file of authorities for https")] = None
    insecure: Annotated[bool, Parameter(negative=(), help="take any certificate")] = False

    def server(self, url: str) -> Server:
        return parse_url(url, self.cacert, self.insecure)


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the server."""

    api: Annotated[
        str, Parameter(help="chat, completions, embeddings, speech, (live-)transcriptions, http")
    ] = "chat"
    model: Annotated[str | None, Parameter(help="asked of /v1/models when left out")] = None
    max_tokens: Annotated[int, Parameter(help="tokens of an answer at most")] = 64
    no_stream: Annotated[bool, Parameter(negative=(), help="ask for whole answers")] = False
    prompts: Annotated[
        Path | None, Parameter(help="one prompt a line; a public-domain text when left out")
    ] = None
    prompt_words: Annotated[int, Parameter(help="length of built-in prompts")] = 64
    method: Annotated[str, Parameter(help="for --api http")] = "POST"
    body: Annotated[Path | None, Parameter(help="body for --api http")] = None
    file: Annotated[Path | None, Parameter(help="audio for transcriptions")] = None
    frame: Annotated[str, Parameter(help="live audio is sent in frames of")] = "20ms"
    event: Annotated[str | None, Parameter(help="playing time of a content event")] = None
    multi_turn: Annotated[
        bool, Parameter(negative=(), help="the calls of a run are one conversation")
    ] = False
    header: Annotated[Sequence[str], Parameter(help="`name: value`, may repeat")] = ()
    key_env: Annotated[str | None, Parameter(help="variable that holds the API key")] = None
    new_connections: Annotated[
        bool, Parameter(negative=(), help="a new connection for every request")
    ] = False

    def to(self, server: Server) -> Server:
        """The server as it is to be asked."""
        return dataclasses.replace(server, reuse=False) if self.new_connections else server

    def ask(self, server: Server) -> Ask:
        return Ask(
            api=self.api,
            model=self.model if self.model is not None else model_of(server, self.api),
            max_tokens=self.max_tokens,
            stream=not self.no_stream,
            headers=header_pairs(self.header, self.key_env),
            method=self.method,
            body="" if self.body is None else self.body.read_text(),
            live=Live(frame_ms=(seconds(self.frame, "--frame") or 0.02) * 1000),
            event_ms=None if self.event is None else (seconds(self.event, "--event") or 0.0) * 1000,
        )

    def templates(
        self, server: Server, trace: Sequence[Arrival] | None = None
    ) -> list[dict[str, Any]]:
        asked = prompts_from(self.ask(server), self.prompts, self.prompt_words, trace)
        if self.multi_turn:
            if self.api != "chat" or trace is not None:
                raise InputError("--multi-turn: allowed: --api chat, without --replay")
            pairs = list(asked)
            return conversation(server, pairs[0][0], [words for _, words in pairs])
        return [template(server, a, words, self.file) for a, words in asked]


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, slots=True)
class Promise:
    """What counts as a failure, besides an error."""

    slo_ttft: Annotated[str | None, Parameter(help="time to first content")] = None
    slo_gap: Annotated[str | None, Parameter(help="longest gap of a stream (a stall)")] = None
    slo_e2e: Annotated[str | None, Parameter(help="end-to-end time (a deadline)")] = None
    slo_audible: Annotated[str | None, Parameter(help="time to the first audible sample")] = None
    slo_pace: Annotated[
        str | None, Parameter(help="playing may stand still so long in all (speech, --event)")
    ] = None
    slo_tail: Annotated[str | None, Parameter(help="last audio sent to last message")] = None

    def targets(self) -> Targets:
        def ms(value: str | None, name: str) -> float | None:
            found = seconds(value, name)
            return None if found is None else found * 1000

        return Targets(
            ttft_ms=ms(self.slo_ttft, "--slo-ttft"),
            gap_ms=ms(self.slo_gap, "--slo-gap"),
            e2e_ms=ms(self.slo_e2e, "--slo-e2e"),
            audible_ms=ms(self.slo_audible, "--slo-audible"),
            still_ms=ms(self.slo_pace, "--slo-pace"),
            tail_ms=ms(self.slo_tail, "--slo-tail"),
        )


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How fast: one of --connections, --rate and --replay."""

    connections: Annotated[int | None, Parameter(help="closed loop: requests at once")] = None
    rate: Annotated[float | None, Parameter(help="open loop: runs per second")] = None
    replay: Annotated[
        Path | None, Parameter(help="arrivals of a CSV trace or of the door's access log")
    ] = None
    speed: Annotated[float, Parameter(help="replay so many times as fast")] = 1.0
    arrivals: Annotated[str, Parameter(help="poisson, constant or gamma")] = "poisson"
    cv: Annotated[float, Parameter(help="coefficient of variation of gamma arrivals")] = 1.0
    ramp_to: Annotated[float | None, Parameter(help="connections or rate after --ramp")] = None
    ramp: Annotated[str | None, Parameter(help="how long the linear ramp takes")] = None
    requests: Annotated[int | None, Parameter(help="runs to measure")] = None
    duration: Annotated[
        str | None, Parameter(help="how long to measure; 30s when nothing else ends the run")
    ] = None
    warmup: Annotated[
        int | None, Parameter(help="runs sent first and left out; the connections by default")
    ] = None
    calls: Annotated[int, Parameter(help="requests of a run, one after the other")] = 1
    think: Annotated[str | None, Parameter(help="a closed-loop user's pause")] = None
    timeout: Annotated[str, Parameter(help="when a request is given up")] = "60s"
    seed: Annotated[int, Parameter(help="of the arrival process")] = 0

    def trace(self) -> list[Arrival] | None:
        if self.replay is None:
            return None
        if self.speed <= 0:
            raise InputError(f"--speed {self.speed:g}; allowed: above 0")
        return read_trace(self.replay, self.requests, self.speed)

    def plan(self, trace: Sequence[Arrival] | None) -> Plan:
        return Plan(
            connections=self.connections,
            rate=self.rate,
            replay_s=None if trace is None else tuple(a.at_s for a in trace),
            arrivals=self.arrivals,
            cv=self.cv,
            ramp_to=self.ramp_to,
            ramp_s=seconds(self.ramp, "--ramp") or 0.0,
            requests=None if trace is not None else self.requests,
            seconds=seconds(self.duration, "--duration"),
            warmup=self.warmup,
            calls=self.calls,
            think_s=seconds(self.think, "--think") or 0.0,
            timeout_s=seconds(self.timeout, "--timeout") or 60.0,
            seed=self.seed,
        )
