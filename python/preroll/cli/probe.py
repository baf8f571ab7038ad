"""`preroll probe`: questions about a server that load alone does not answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

from preroll.cli.call import call
from preroll.cli.load_inputs import ask_once, header_pairs, model_of
from preroll.cli.load_options import numbers, seconds
from preroll.cli.probe_colocation import colocate
from preroll.cli.probe_warm import warm
from preroll.errors import UnavailableError
from preroll.instruments import determinism, ingress
from preroll.instruments.load.requests import Ask, Server, parse_url, template
from preroll.instruments.load.text import prompts as built_in

HELP = f"""{__doc__}

    preroll probe determinism http://127.0.0.1:9001
    preroll probe ingress http://127.0.0.1:8080 --past http://127.0.0.1:9001
    preroll probe warm app.toml chat --against compiled.toml
"""


def main(arguments: list[str]) -> int:
    return call(probe_app(), arguments)


def probe_app() -> cyclopts.App:
    app = cyclopts.App(name="preroll probe", help=HELP, help_format="plaintext", version_flags=[])
    app.command(same, name="determinism")
    app.command(through, name="ingress")
    app.command(warm, name="warm")
    app.command(colocate, name="colocation")
    return app


def same(
    url: str,
    /,
    *,
    against: Annotated[str | None, Parameter(help="another server, compared alone")] = None,
    model: Annotated[str | None, Parameter(help="asked of /v1/models when left out")] = None,
    against_model: Annotated[str | None, Parameter(help="its name at the other server")] = None,
    levels: Annotated[str, Parameter(help="requests in flight, comma-separated")] = "2,8,32",
    answers: Annotated[int, Parameter(help="answers per level")] = 200,
    num_prompts: Annotated[int, Parameter(help="how many prompts are mixed")] = 4,
    max_tokens: Annotated[int, Parameter(help="tokens of an answer at most")] = 64,
    timeout: Annotated[str, Parameter(help="when a request is given up")] = "120s",
    header: Annotated[tuple[str, ...], Parameter(negative=(), help="`name: value`")] = (),
    key_env: Annotated[str | None, Parameter(help="variable with the API key")] = None,
) -> int:
    """The same answers alone and under load? Temperature 0, compared as text.

    Exit status 0 when nothing diverged, 1 when something did.

    Parameters
    ----------
    url: str
        A chat server.
    """
    # What is said is compared, not how fast: some servers close connections they announce to keep.
    server, headers = replace(parse_url(url), reuse=False), header_pairs(header, key_env)
    name = model if model is not None else model_of(server, "chat")
    settings = determinism.Settings(
        levels=numbers(levels),
        answers=answers,
        max_tokens=max_tokens,
        timeout_s=seconds(timeout, "--timeout") or 120.0,
        model=name,
    )
    other = None
    if against is not None:
        second = replace(parse_url(against), reuse=False)
        other = (second, against_model if against_model is not None else model_of(second, "chat"))

    def margin(prompt: str, position: int) -> float | None:
        return _margin(server, settings, headers, prompt, position)

    found = determinism.probe(
        server, built_in(num_prompts, 24), settings, headers, margin=margin, against=other
    )
    print(determinism.text(found, f"determinism of {url}"))
    return 0 if found.verdict() == "no divergence was seen" else 1


def through(
    url: str,
    /,
    *,
    past: str,
    model: str | None = None,
    connections: str = "1,8,64",
    requests: int = 200,
    max_tokens: int = 32,
    new_connections: Annotated[bool, Parameter(negative=())] = False,
    out: Path | None = None,
) -> int:
    """Is a front door in the way? The same work through it and past it, interleaved.

    Parameters
    ----------
    url: str
        The front door.
    past: str
        One of the servers behind it.
    model: str
        Asked of /v1/models when left out.
    connections: str
        Requests in flight, comma-separated.
    requests: int
        Requests per level and side.
    max_tokens: int
        Tokens of an answer at most.
    new_connections: bool
        A connection for every request past the door: some servers close what they announce to keep.
    out: Path
        Also write the result as JSON to this file.
    """
    door, server = parse_url(url), replace(parse_url(past), reuse=not new_connections)
    name = model if model is not None else model_of(door, "chat")
    ask = Ask(model=name, max_tokens=max_tokens)
    found = ingress.probe(door, server, ask, numbers(connections), requests)
    print(ingress.text(found, f"{url} in front of {past}"))
    if out is not None:
        out.write_text(json.dumps(ingress.to_json(found), indent=1) + "\n")
    return 0


def _margin(
    server: Server,
    settings: determinism.Settings,
    headers: Mapping[str, str],
    prompt: str,
    position: int,
) -> float | None:
    """The logprob margin of the answer alone; None where the server gives no logprobs."""
    extra = {"temperature": 0, "seed": 0, "logprobs": True, "top_logprobs": 2}
    ask = Ask(
        model=settings.model,
        max_tokens=settings.max_tokens,
        stream=False,
        headers=headers,
        extra=extra,
    )
    request = template(server, ask, prompt)
    try:
        answer: Any = json.loads(ask_once(server, request, settings.timeout_s)[1])
        return determinism.margin_at(answer["choices"][0]["logprobs"]["content"], position)
    except (UnavailableError, ValueError, KeyError, IndexError, TypeError):
        return None
