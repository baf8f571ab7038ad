"""Requests of each API as templates of the load client."""

from __future__ import annotations

import json
import secrets
import wave
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from preroll.errors import InputError

Json = dict[str, Any]
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "speech": "/v1/audio/speech",
    "transcriptions": "/v1/audio/transcriptions",
    "live-transcriptions": "/v1/audio/transcriptions/stream",
}
APIS = (*PATHS, "http")
SPEECH_RATE_HZ = 24_000
HISTORY = "__HISTORY"
"""Where the client puts what was said before."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server's certificate is checked: against the system's authorities or `ca_file`."""

    server_name: str
    ca_file: str | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """Where requests go: `address` for the client, `host` for the header, `path` when given.
    Without `reuse` every request has a connection of its own."""

    address: str
    host: str
    path: str
    tls: Tls | None = None
    reuse: bool = True

    def spec(self) -> Json:
        """The target's part of the client's specification."""
        target: Json = {"target": self.address, "host": self.host, "reuse": self.reuse}
        if self.tls is not None:
            target["tls"] = asdict(self.tls)
        return target

    @property
    def is_loopback(self) -> bool:
        return self.address.startswith("unix:") or self.host.rpartition(":")[0] in (
            "127.0.0.1",
            "localhost",
            "[::1]",
        )


def parse_url(url: str, ca_file: Path | None = None, insecure: bool = False) -> Server:
    """`http://HOST:PORT[/path]`, https, ws, wss, or `unix:/socket`. Raises InputError for anything
    else."""
    if url.startswith("unix:"):
        return Server(url, "localhost", "")
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        raise InputError(f"URL '{url}'; allowed: http(s)://HOST:PORT[/path] or unix:/path")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    is_tls = parts.scheme in ("https", "wss")
    where = f"{host}:{parts.port or (443 if is_tls else 80)}"
    ca = None if ca_file is None else str(ca_file)
    tls = Tls(parts.hostname, ca, insecure) if is_tls else None
    query = f"?{parts.query}" if parts.query else ""
    path = "" if parts.path == "/" else parts.path + query
    return Server(f"tcp:{where}", where, path, tls)


def parse_address(address: str, keepalive_ms: int) -> Server:
    """An address as the door's tables have it: "unix:/path" or "tcp:HOST:PORT"; engines that say
    0 end connections that they announced to keep."""
    found = parse_url(address if address.startswith("unix:") else f"http://{address[4:]}")
    return replace(found, reuse=keepalive_ms > 0)


@dataclass(frozen=True, slots=True)
class Live:
    """A WebSocket that audio is sent on at its own pace, in frames of `frame_ms`. `last` is sent
    behind the audio, a message with `done` ends the exchange (None: the server's close does), and
    messages with one of `content` are content (all, when empty)."""

    frame_ms: float = 20.0
    first: str | None = None
    last: str | None = '{"type": "end"}'
    done: str | None = '"done"'
    content: tuple[str, ...] = ('"partial"', '"final"')


LIVE = Live()


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request asks for. `event_ms`: each content event stands for so much playing."""

    api: str = "chat"
    model: str = ""
    max_tokens: int = 64
    stream: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    method: str = "POST"
    body: str = ""
    live: Live = LIVE
    event_ms: float | None = None


def template(server: Server, ask: Ask, prompt: str, file: Path | None = None) -> Json:
    """One request. `file`: the audio of a transcription. Raises InputError for an unknown API."""
    if ask.api not in APIS:
        raise InputError(f"--api '{ask.api}'; allowed: {', '.join(APIS)}")
    path = server.path or PATHS.get(ask.api, "/")
    if ask.api == "transcriptions":
        return _upload(path, ask, file)
    if ask.api == "live-transcriptions":
        return _live(path, ask, file)
    if ask.api == "http":
        headers = {"content-type": "application/json"} if ask.body else {}
        headers |= dict(ask.headers)
        return {"method": ask.method, "path": path, "headers": headers, "body": ask.body}
    headers = {"content-type": "application/json", **ask.headers}
    request: Json = {"path": path, "headers": headers, "body": json.dumps(_body(ask, prompt))}
    if ask.api == "speech":
        request["audio"] = {"rate": SPEECH_RATE_HZ}
    elif ask.event_ms is not None:
        request["event_ms"] = ask.event_ms
    return request


def conversation(server: Server, ask: Ask, prompts: Sequence[str]) -> list[Json]:
    """A conversation's calls, one per prompt: each carries what was said before it."""
    turns = []
    for prompt in prompts:
        request = template(server, ask, prompt)
        message = json.dumps({"role": "user", "content": prompt})
        body = request["body"].replace(f"[{message}]", f"[{HISTORY}{message}]")
        turns.append(request | {"turn": message, "body": body})
    return turns


def _live(path: str, ask: Ask, file: Path | None) -> Json:
    """The audio of a WAV file, or of a file of raw 16 kHz samples, as it would be spoken."""
    if file is None:
        raise InputError("--api live-transcriptions needs --file AUDIO.wav")
    rate_hz, channels, samples = _samples(file)
    mark = "&" if "?" in path else "?"
    live = ask.live
    script = {
        "frame_bytes": round(rate_hz * live.frame_ms / 1000) * 2 * channels,
        "frame_ms": live.frame_ms,
        "first": live.first,
        "last": live.last,
        "done": live.done,
        "content": list(live.content),
    }
    declared = f"{path}{mark}rate={rate_hz}" if "rate=" not in path else path
    headers = dict(ask.headers)
    return {"path": declared, "headers": headers, "payload": samples, "websocket": script}


def _samples(file: Path) -> tuple[int, int, bytes]:
    """(rate in Hz, channels, s16le samples). Raises InputError."""
    try:
        if file.suffix.lower() != ".wav":
            return 16_000, 1, file.read_bytes()
        with wave.open(str(file), "rb") as wav:
            if wav.getsampwidth() != 2:
                raise InputError(f"--file {file}: {8 * wav.getsampwidth()} bits; allowed: 16")
            frames = wav.readframes(wav.getnframes())
            return wav.getframerate(), wav.getnchannels(), frames
    except OSError as error:
        raise InputError(f"--file {file}: {error.strerror}") from None
    except (wave.Error, EOFError) as error:
        raise InputError(f"--file {file}: no WAV file: {error}") from None


def _body(ask: Ask, prompt: str) -> Json:
    body: Json = {"model": ask.model}
    match ask.api:
        case "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        case "completions":
            body["prompt"] = prompt
        case _:
            body["input"] = prompt
    if ask.api == "speech":
        body |= {"voice": "default", "response_format": "pcm"}
    if ask.api in ("chat", "completions"):
        body |= {"max_tokens": ask.max_tokens, "stream": ask.stream}
        if ask.stream:
            body["stream_options"] = {"include_usage": True}
    return body | dict(ask.extra)


def _upload(path: str, ask: Ask, file: Path | None) -> Json:
    if file is None:
        raise InputError("--api transcriptions needs --file AUDIO")
    try:
        audio = file.read_bytes()
    except OSError as error:
        raise InputError(f"--file {file}: {error.strerror}") from None
    boundary = f"preroll-{secrets.token_hex(8)}"
    head = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="model"\r\n\r\n{ask.model}\r\n'
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{file.name}"\r\n'
        "content-type: application/octet-stream\r\n\r\n"
    )
    payload = head.encode() + audio + f"\r\n--{boundary}--\r\n".encode()
    kind = f"multipart/form-data; boundary={boundary}"
    return {"path": path, "headers": {"content-type": kind, **ask.headers}, "payload": payload}


def spill(templates: Sequence[Json], folder: Path) -> list[Json]:
    """Writes binary payloads to files, which the client reads instead."""
    out = []
    for index, item in enumerate(templates):
        if "payload" in item:
            file = folder / f"body-{index}.bin"
            file.write_bytes(item["payload"])
            item = {k: v for k, v in item.items() if k != "payload"}
            if "websocket" in item:
                item["websocket"] = item["websocket"] | {"audio_file": str(file)}
            else:
                item["body_file"] = str(file)
        out.append(item)
    return out
