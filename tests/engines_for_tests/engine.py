"""A small engine with bad manners on request: an OpenAI-like SSE server on the standard library.

Run it as `engine.py --listen unix:/path | tcp:HOST:PORT [options]`; see `options`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--tokens", type=int, default=5)
    parser.add_argument("--interval", type=float, default=0.0, help="seconds between tokens")
    parser.add_argument("--listen-after", type=float, default=0.0)
    parser.add_argument("--healthy-after", type=float, default=0.0)
    parser.add_argument("--exit-at-once", type=int, default=None, metavar="CODE")
    parser.add_argument("--die-after", type=float, default=None, help="seconds after listening")
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--health-only", action="store_true", help="traffic never gets an answer")
    parser.add_argument("--fail-traffic", action="store_true", help="traffic gets a 500")
    parser.add_argument("--setsid-child", action="store_true", help="leave a child in a session")
    parser.add_argument("--say", action="append", default=[], help="a line to print at start")
    parser.add_argument("--last-words", default="RuntimeError: no such device")
    parser.add_argument("--name", default="test")
    parser.add_argument("--journal", help="file that gets the id of each request that begins")
    return parser.parse_args()


class Engine:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.begun = time.monotonic()
        self.answered = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self.one(reader, writer):
                pass
        writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split("\r\n")[0].split(" ")
        fields = dict(
            line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line
        )
        body = await reader.readexactly(int(fields.get("content-length", "0")))
        if path == "/health":
            is_healthy = time.monotonic() - self.begun >= self.args.healthy_after
            await self.answer(writer, 200 if is_healthy else 503, {"ok": is_healthy})
        elif path == "/pid":
            await self.answer(writer, 200, {"pid": os.getpid(), "answered": self.answered})
        elif path == "/crash":
            os._exit(7)
        elif self.begins(fields) and self.args.health_only:
            await asyncio.Event().wait()
        elif self.args.fail_traffic:
            await self.answer(writer, 500, {"error": {"message": "device lost"}})
        elif method == "POST" and json.loads(body or b"{}").get("stream"):
            await self.stream(writer, json.loads(body))
        else:
            self.answered += 1
            await self.answer(writer, 200, {"name": self.args.name, "pid": os.getpid()})
        return fields.get("connection") != "close"

    def begins(self, fields: dict[str, str]) -> bool:
        """Notes a request in the journal, in one write: engines share the file."""
        if self.args.journal and "x-request-id" in fields:
            file = os.open(self.args.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(file, fields["x-request-id"].encode() + b"\n")
            os.close(file)
        return True

    async def answer(self, writer: asyncio.StreamWriter, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n".encode()
            + data
        )
        await writer.drain()

    async def stream(self, writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        tokens = int(str(body.get("max_tokens", self.args.tokens)))
        for number in range(tokens):
            delta = {"content": f"{number} "}
            event = f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n"
            writer.write(f"{len(event):x}\r\n{event}\r\n".encode())
            await writer.drain()
            await asyncio.sleep(self.args.interval)
        end = "data: [DONE]\n\n"
        self.answered += 1
        writer.write(f"{len(end):x}\r\n{end}\r\n0\r\n\r\n".encode())
        await writer.drain()


async def serve(args: argparse.Namespace) -> None:
    await asyncio.sleep(args.listen_after)
    engine = Engine(args)
    kind, _, rest = args.listen.partition(":")
    if kind == "unix":
        server = await asyncio.start_unix_server(engine.handle, rest)
    else:
        host, _, port = rest.rpartition(":")
        server = await asyncio.start_server(engine.handle, host, int(port))
    print("listening", flush=True)
    stop = asyncio.Event()
    if not args.ignore_sigterm:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), args.die_after)
    server.close()
    if args.die_after is not None and not stop.is_set():
        print(args.last_words, file=sys.stderr, flush=True)
        os._exit(3)
    os._exit(0)


def leave_a_child() -> None:
    """One in a session of its own, that ignores SIGTERM."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
        os._exit(0)


def main() -> None:
    args = options()
    for line in args.say:
        print(line, flush=True)
    if args.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.setsid_child:
        leave_a_child()
    if args.exit_at_once is not None:
        print("loading device", flush=True)
        print(args.last_words, file=sys.stderr, flush=True)
        sys.exit(args.exit_at_once)
    asyncio.run(serve(args))


if __name__ == "__main__":
    main()
