"""What `preroll load` and `preroll cliff` read before they send anything."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from preroll.errors import InputError, UnavailableError
from preroll.instruments.load.requests import Ask, Server, Tls
from preroll.instruments.load.text import prompt, prompts
from preroll.instruments.load.traces import Arrival

TIMEOUT_S = 5.0
NUM_BUILT_IN = 64


def header_pairs(headers: Sequence[str], key_env: str | None) -> dict[str, str]:
    """`name: value` lines and the key of an environment variable as headers."""
    pairs = {}
    for line in headers:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InputError(f"--header '{line}'; allowed: 'name: value'")
        pairs[name.strip().lower()] = value.strip()
    if key_env is not None:
        key = os.environ.get(key_env)
        if not key:
            raise InputError(f"--key-env {key_env}: that variable is not set")
        pairs["authorization"] = f"Bearer {key}"
    return pairs


def model_of(server: Server, api: str) -> str:
    """The first model that the server lists; empty for plain HTTP.

    Raises UnavailableError when nothing answers, InputError when no model is listed.
    """
    if api in ("http", "live-transcriptions"):
        return ""
    status, body = get(server, "/v1/models")
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError):
        what = f"GET /v1/models answered {status} without a model"
        raise InputError(f"{what}; say which with --model NAME") from None


def get(server: Server, path: str) -> tuple[int, bytes]:
    """One GET. Raises UnavailableError when the server cannot be reached."""
    return ask_once(server, {"method": "GET", "path": path}, TIMEOUT_S)


def ask_once(server: Server, request: Mapping[str, Any], timeout_s: float) -> tuple[int, bytes]:
    """One request (a template of the load client). Raises UnavailableError when nothing answers."""
    connection: http.client.HTTPConnection
    if server.tls is not None:
        context = _context(server.tls)
        connection = http.client.HTTPSConnection(server.host, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(server.host, timeout=timeout_s)
    if server.address.startswith("unix:"):
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(timeout_s)
    try:
        if connection.sock is not None:
            connection.sock.connect(server.address.removeprefix("unix:"))
        body, headers = request.get("body"), request.get("headers", {})
        connection.request(request.get("method", "POST"), request["path"], body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"{server.address}: {error}; is the server running?") from None
    finally:
        connection.close()


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def prompts_from(
    ask: Ask, path: Path | None, num_words: int, trace: Sequence[Arrival] | None
) -> Iterator[tuple[Ask, str]]:
    """Each request's question: lines of a file, or built-in text in the sizes of the trace."""
    if ask.api in ("http", "transcriptions", "live-transcriptions"):
        yield from ((ask, "") for _ in range(1 if trace is None else len(trace)))
        return
    texts = prompts(NUM_BUILT_IN, num_words) if path is None else _lines(path)
    if trace is None:
        yield from ((ask, text) for text in texts)
        return
    for index, arrival in enumerate(trace):
        tokens = arrival.output_tokens or ask.max_tokens
        words = arrival.input_tokens
        # About four words make five tokens in English; the server's own count is what is reported.
        text = texts[index % len(texts)] if words is None else prompt(words * 4 // 5, index * 7)
        yield replace(ask, max_tokens=tokens), text


def _lines(path: Path) -> list[str]:
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--prompts {path}: {error}") from None
    if not lines:
        raise InputError(f"--prompts {path}: empty; one prompt a line is needed")
    return [json.loads(line) if line.startswith('"') else line for line in lines]
