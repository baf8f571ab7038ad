"""A pipeline of stages that call each other, and how tests ask it."""

from __future__ import annotations

import http.client
import json
from typing import Any

from served import TIMEOUT_S, Served

SOURCE = '''
import asyncio
import os
import time

import preroll


def facts(ctx):
    return {
        "stage": "", "id": ctx.request_id, "left_s": ctx.remaining_s, "session": ctx.session,
        "priority": ctx.header(b"x-preroll-priority"), "trace": ctx.traceparent,
    }


class Last(preroll.Stage):
    """Answers what it was told; sleeps, fails or streams as it is asked."""

    async def __call__(self, body: dict, ctx: preroll.Context):
        if body.get("fail"):
            raise preroll.OverloadedError("no room")
        if body.get("wrong"):
            raise preroll.NotFoundError("no such voice")
        if body.get("die"):
            os._exit(9)
        if body.get("sleep_s"):
            try:
                await asyncio.sleep(body["sleep_s"])
            except asyncio.CancelledError:
                print("last: cancelled", flush=True)
                raise
        return {"path": [facts(ctx)]}

    async def stream(self, body: dict, ctx: preroll.Context):
        for number in range(body.get("count", 3)):
            if number == body.get("die_at"):
                os._exit(9)
            yield f"{number}\\n".encode()
            await asyncio.sleep(body.get("every_s", 0))
            while "gate" in body and os.path.getsize(body["gate"]) <= number:
                await asyncio.sleep(0.005)

    async def session(self, socket: preroll.Session, ctx: preroll.Context):
        async for message in socket:
            await socket.send(f"{ctx.session}:{message}")


class Middle(preroll.Stage):
    """Calls the next stage, synchronously: in a thread."""

    def load(self):
        self.next = self.stage(self.options["next"]).blocking

    def __call__(self, body: dict, ctx: preroll.Context):
        told = facts(ctx)
        time.sleep(body.get("spend_s", 0))
        if body.get("chunks"):
            return b"".join(self.next.stream({**body, "stream": True})).decode()
        headers = {"X-Preroll-Priority": "-2"} if body.get("lower") else None
        answer = self.next.post(body, headers=headers).json()
        return {"path": [told, *answer["path"]]}


class First(preroll.Stage):
    """Calls the next stage; streams it, or holds a session with it."""

    async def load(self):
        self.next = self.stage(self.options["next"])

    async def __call__(self, body: dict, ctx: preroll.Context):
        told = facts(ctx)
        if body.get("undeclared"):
            self.stage(body["undeclared"])
        if body.get("handle"):
            try:
                await self.next.post(body)
            except preroll.CallError as error:
                return {"status": error.answer.status, "message": str(error)}
        answer = (await self.next.post(body)).json()
        return {"path": [told, *answer["path"]]}

    async def stream(self, body: dict, ctx: preroll.Context):
        async for chunk in self.next.stream(body):
            yield b">" + chunk

    async def session(self, socket: preroll.Session):
        async with self.next.connect() as other:
            async for message in socket:
                await other.send(message)
                await socket.send(await other.recv())
'''


def stage(name: str, target: str, calls: str | None = None, **keys: str) -> str:
    """TOML of one stage of `app.py`; `keys` are further keys as TOML text."""
    lines = [f"[stage.{name}]", 'engine = "python"', f'class = "app:{target}"']
    if calls is not None:
        lines += [f'calls = ["{calls}"]', f'options = {{ next = "{calls}" }}']
    lines += [f"{key} = {value}" for key, value in keys.items()]
    lines += ["[[route]]", f'path = "/{name}/*"', f'stage = "{name}"']
    return "\n".join(lines) + "\n"


def three(**keys: str) -> str:
    """first → middle → last."""
    return (
        stage("first", "First", "middle", **keys)
        + stage("middle", "Middle", "last", **keys)
        + stage("last", "Last", **keys)
    )


def ask(
    service: Served, path: str, body: Any, headers: dict[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=TIMEOUT_S)
    try:
        fields = {"content-type": "application/json", **(headers or {})}
        connection.request("POST", path, json.dumps(body), fields)
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return response.status, response.read(), names
    finally:
        connection.close()
