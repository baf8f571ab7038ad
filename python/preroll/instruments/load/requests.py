"""Requests of each API as templates of the load client."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
}
APIS = (*PATHS, "http")


@dataclass(frozen=True, slots=True)
class Server:
    """Where requests go: `address` for the client, `host` for the header, `path` when given."""

    address: str
    host: str
    path: str

    @property
    def is_loopback(self) -> bool:
        return self.address.startswith("unix:") or self.host.rpartition(":")[0] in (
            "127.0.0.1",
            "localhost",
            "[::1]",
        )


def parse_url(url: str) -> Server:
    """`http://HOST:PORT[/path]` or `unix:/socket`. Raises InputError for anything else."""
    if url.startswith("unix:"):
        return Server(url, "localhost", "")
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme == "https":
        raise InputError(
            f"URL '{url}': TLS is not measured; allowed: http and unix:/path; put the client "
            "beside the server, or end TLS in a local proxy and say so with the result"
        )
    if parts.scheme != "http" or not parts.hostname:
        raise InputError(f"URL '{url}'; allowed: http://HOST:PORT[/path] or unix:/path")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = f"{host}:{parts.port or 80}"
    query = f"?{parts.query}" if parts.query else ""
    path = "" if parts.path == "/" else parts.path + query
    return Server(f"tcp:{where}", where, path)


def parse_address(address: str) -> Server:
    """An address as the door's tables have it: "unix:/path" or "tcp:HOST:PORT"."""
    return parse_url(address if address.startswith("unix:") else f"http://{address[4:]}")


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request asks for."""

    api: str = "chat"
    model: str = ""
    max_tokens: int = 64
    stream: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    method: str = "POST"
    body: str = ""


def template(server: Server, ask: Ask, prompt: str, file: Path | None = None) -> Json:
    """One request. `file`: the audio of a transcription. Raises InputError for an unknown API."""
    if ask.api not in APIS:
        raise InputError(f"--api '{ask.api}'; allowed: {', '.join(APIS)}")
    path = server.path or PATHS.get(ask.api, "/")
    if ask.api == "transcriptions":
        return _upload(path, ask, file)
    if ask.api == "http":
        headers = {"content-type": "application/json"} if ask.body else {}
        headers |= dict(ask.headers)
        return {"method": ask.method, "path": path, "headers": headers, "body": ask.body}
    headers = {"content-type": "application/json", **ask.headers}
    return {"path": path, "headers": headers, "body": json.dumps(_body(ask, prompt))}


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
            item = {k: v for k, v in item.items() if k != "payload"} | {"body_file": str(file)}
        out.append(item)
    return out
