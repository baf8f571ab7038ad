"""Asking a fork server for a process: a fork that gets a holder of its own (docs/protocol.md)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

from preroll.backends.base import HolderRefusedError
from preroll.backends.holder_start import START_TIMEOUT_S, read_to_end
from preroll.errors import InputError, UnavailableError

MAX_REPLY_BYTES = 1 << 20


async def fork_holder(program: Path, spec_path: Path, server: Path) -> None:
    """Returns when the fork's holder runs and has let its child go.

    Raises UnavailableError when the server does not answer, HolderRefusedError when it may not
    fork, InputError with the holder's complaint.
    """
    read_end, write_end = os.pipe()
    request = {"op": "start", "spec": str(spec_path), "holder": str(program)}
    try:
        await asyncio.to_thread(ask_fork_server, server, request, START_TIMEOUT_S, write_end)
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    try:
        complaint = await read_to_end(read_end)
    except TimeoutError as error:
        raise UnavailableError(
            f"the holder for {spec_path} was not up within {START_TIMEOUT_S:g} s of its fork"
        ) from error
    if complaint:
        raise InputError(complaint.decode(errors="replace").strip())


def ask_fork_server(
    server: Path, request: dict[str, Any], timeout_s: float, descriptor: int | None = None
) -> dict[str, Any]:
    """One request, with a descriptor passed along; blocks. Raises as `fork_holder`.

    A server that still imports answers when it is done.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(server))
            data = json.dumps(request).encode() + b"\n"
            socket.send_fds(connection, [data], [] if descriptor is None else [descriptor])
            text = b""
            while not text.endswith(b"\n") and len(text) < MAX_REPLY_BYTES:
                piece = connection.recv(1 << 16)
                if not piece:
                    raise UnavailableError(f"the fork server at {server} closed the connection")
                text += piece
            reply: dict[str, Any] = json.loads(text)
        except (OSError, ValueError) as error:
            raise UnavailableError(f"the fork server at {server}: {error}") from error
    if not reply.get("ok"):
        raise HolderRefusedError(f"the fork server refused: {reply.get('error')}")
    return reply
