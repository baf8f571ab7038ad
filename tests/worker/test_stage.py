"""What a stage's methods take and return, through the real server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preroll import (
    Context,
    DeadlineError,
    Form,
    InputError,
    NotFoundError,
    OverloadedError,
    Response,
    Session,
    Stage,
    UnavailableError,
    route,
)
from preroll.testing import HEALTH, serve
from preroll.worker.form import parse_multipart

ERRORS: dict[str, tuple[type[Exception], int]] = {
    "input": (InputError, 400),
    "missing": (NotFoundError, 404),
    "overload": (OverloadedError, 429),
    "bug": (KeyError, 500),
    "away": (UnavailableError, 503),
    "deadline": (DeadlineError, 504),
}


class Everything(Stage):
    def load(self) -> None:
        self.seen = [f"load {self.options.get('size')}"]

    async def compile(self) -> None:
        self.seen.append("compile")

    def warm(self) -> None:
        self.seen.append("warm")

    async def __call__(self, body: Any, ctx: Context) -> Any:
        if isinstance(body, dict) and "raise" in body:
            raise ERRORS[body["raise"]][0]("the secret path")
        return body

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[dict[str, int]]:
        for i in range(body["n"]):
            yield {"i": i}

    async def session(self, socket: Session) -> None:
        async for message in socket:
            await socket.send(message)

    @route("GET", "/seen")
    def history(self) -> list[str]:
        return self.seen

    @route("POST", "/words")
    def words(self, body: str) -> Iterator[str]:
        yield from body.split()

    @route("POST", "/form")
    def form(self, form: Form) -> dict[str, Any]:
        file = form.file("audio")
        return {"text": form.get("text"), "file": [file.filename, len(file.data)]}

    @route("POST", "/sum")
    async def sum(self, body: AsyncIterator[bytes]) -> int:
        return sum([len(part) async for part in body])

    @route("GET", "/voices/{name}/{rest...}")
    def voice(self, query: dict[str, str], ctx: Context) -> Response:
        body = {**ctx.path_values, **query}
        return Response(body, status=203, headers={"x-voice": ctx.path_values["name"]})

    @route("POST", "/wav", content_type="audio/wav")
    def wav(self) -> Iterator[bytes]:
        yield b"RIFF"
        yield b"data"

    @route("POST", "/odd")
    def odd(self) -> Any:
        return object()

    @route("POST", "/header")
    def header(self, value: str) -> Response:
        return Response("ok", headers={"x-value": value})

    @route("DELETE", "/thing")
    async def delete(self) -> Response:
        return Response(None, status=204)

    @route("POST", "/facts")
    async def facts(self, ctx: Context) -> list[Any]:
        return [ctx.priority, ctx.session, ctx.request_id, ctx.remaining_s]

    @route("POST", "/broken")
    async def broken(self) -> AsyncIterator[dict[str, int]]:
        yield {"i": 0}
        raise ValueError("no more")


@pytest.fixture(scope="module")
def stage() -> Iterator[Any]:
    with serve(Everything, options={"size": 3}) as served:
        yield served


def test_hooks_run_in_order_and_see_the_options(stage: Any) -> None:
    assert stage.get("/seen").json() == ["load 3", "compile", "warm"]
    assert stage.get(HEALTH).json() == {"phase": "ready"}


@pytest.mark.parametrize("value", [{"a": [1, None, "ä"]}, [1.5], "text", 3, None, True])
def test_json_comes_back_as_json(stage: Any, value: Any) -> None:
    answer = stage.request("POST", "/anything", b"", {"content-type": "application/json"})
    assert answer.status == 400
    assert stage.post([value]).json() == [value]


def test_bytes_come_back_as_bytes(stage: Any) -> None:
    answer = stage.post(b"\x00\xff")
    assert (answer.body, answer.headers["content-type"]) == (
        b"\x00\xff",
        "application/octet-stream",
    )


def test_a_request_that_asks_for_a_stream_gets_one(stage: Any) -> None:
    assert stage.events({"n": 3, "stream": True}) == [{"i": 0}, {"i": 1}, {"i": 2}]
    assert stage.events({"n": 2}, accept="text/event-stream") == [{"i": 0}, {"i": 1}]
    assert stage.post({"n": 3, "stream": False}).json() == {"n": 3, "stream": False}


def test_a_session_echoes_text_and_bytes(stage: Any) -> None:
    with stage.connect() as socket:
        for message in ("hello", b"\x00\x01", "x" * 100_000):
            socket.send(message)
            assert socket.recv(10) == message


def test_routes_take_forms_bodies_in_parts_and_values_of_their_path(stage: Any) -> None:
    body = (
        b'--b\r\ncontent-disposition: form-data; name="text"\r\n\r\nhi\r\n--b\r\n'
        b'Content-Disposition: form-data; name="audio"; filename="a.wav"\r\n'
        b"Content-Type: audio/wav\r\n\r\n\r\n--bc\r\n\r\n--b--\r\n"
    )
    kind = {"content-type": 'multipart/form-data; boundary="b"'}
    assert stage.request("POST", "/form", body, kind).json() == {
        "text": "hi",
        "file": ["a.wav", 8],
    }
    assert stage.request("POST", "/form", body[:-10], kind).status == 400
    assert stage.request("POST", "/form", b"{}").status == 415
    assert stage.request("POST", "/sum", b"x" * 3_000_000).json() == 3_000_000
    answer = stage.get("/voices/anna/a/b?x=1")
    assert answer.json() == {"name": "anna", "rest": "a/b", "x": "1"}
    assert (answer.status, answer.headers["x-voice"]) == (203, "anna")
    assert stage.post("a b c", "/words").text == "abc"
    answer = stage.post(None, "/wav")
    assert (answer.body, answer.headers["content-type"]) == (b"RIFFdata", "audio/wav")


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_the_stage_has_its_status_and_tells_no_secret(stage: Any, name: str) -> None:
    status = ERRORS[name][1]
    answer = stage.post({"raise": name})
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (status, status)
    # What is raised on purpose is meant for the client; a bug's message is not.
    assert ("secret" in error["message"]) == (name != "bug")
    assert answer.headers.get("x-should-retry") == ("false" if status == 504 else None)
    assert stage.post({"n": "fine"}).status == 200


def test_a_wrong_type_is_the_stages_error_and_says_what_is_allowed(stage: Any) -> None:
    answer = stage.post(None, "/odd")
    assert answer.status == 500
    assert "Everything.odd returned object; allowed: dict" in answer.json()["error"]["message"]


def test_a_header_that_http_forbids_is_the_stages_error(stage: Any) -> None:
    assert stage.post("fine", "/header").headers["x-value"] == "fine"
    for value in ("a\r\nx-other: b", "\x00", "\u20ac"):
        assert stage.post(value, "/header").status == 500, value


def test_an_answer_without_a_body_has_none(stage: Any) -> None:
    answer = stage.request("DELETE", "/thing")
    assert (answer.status, answer.body) == (204, b"")


@pytest.mark.parametrize(("text", "priority"), [("-3", -3), ("7", 7), ("--5", 0), ("x", 0)])
def test_the_context_tells_what_the_door_says(stage: Any, text: str, priority: int) -> None:
    headers = {"x_preroll_priority": text, "x_preroll_session": "s", "x_request_id": "id"}
    found = stage.post(b"", "/facts", **headers, x_preroll_deadline_ms="5000").json()
    assert found[:3] == [priority, "s", "id"]
    assert 0 < found[3] <= 5
    assert stage.post(b"", "/facts").json() == [0, None, "", None]


def test_the_workers_own_paths_are_not_for_clients_of_the_door(stage: Any) -> None:
    assert stage.get(HEALTH).status == 200
    assert stage.request("GET", HEALTH, headers={"x-request-id": "a"}).status == 404


def test_a_stream_that_breaks_says_so_and_does_not_end_cleanly(stage: Any) -> None:
    import http.client

    seen = b""
    with pytest.raises(http.client.IncompleteRead), stage.stream(None, "/broken") as chunks:
        for chunk in chunks:
            seen += chunk
    assert b'data: {"i":0}' in seen and b"event: error" in seen and b"ValueError" in seen


def test_what_is_not_there_is_refused_with_what_is(stage: Any) -> None:
    answer = stage.get("/anything")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert stage.post({}, "/seen").headers["allow"] == "GET"
    assert stage.request("POST", "/", b"<", {"content-type": "text/xml"}).status == 200


def test_a_client_that_leaves_cancels_async_code_within_50_ms() -> None:
    class Slow(Stage):
        cancelled_s = 0.0

        async def stream(self, body: Any, ctx: Context) -> AsyncIterator[bytes]:
            yield b"begun"
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                assert ctx.cancelled
                self.cancelled_s = time.monotonic()
                raise

    with serve(Slow) as served:
        with served.stream(b"") as chunks:
            assert next(chunks) == b"begun"
        left_s = time.monotonic()
        while not served.stage.cancelled_s:
            assert time.monotonic() < left_s + 10
            time.sleep(0.002)


names = st.text(st.characters(codec="utf-8", exclude_characters='"\\\r\n;'), min_size=1, max_size=8)


@given(
    st.lists(st.tuples(names, st.binary(max_size=40), st.booleans()), max_size=6),
    st.text("abcXYZ019'-_", min_size=1, max_size=20),
)
def test_a_form_comes_back_as_it_was_sent(
    parts: list[tuple[str, bytes, bool]], boundary: str
) -> None:
    mark = f"--{boundary}".encode()
    body = b""
    fields: dict[str, list[str]] = {}
    files: dict[str, list[bytes]] = {}
    for name, data, is_file in parts:
        data = data.replace(b"--", b"__") if is_file else data.hex().encode()
        extra = '; filename="f.bin"' if is_file else ""
        head = f'Content-Disposition: form-data; name="{name}"{extra}\r\n\r\n'.encode()
        body += mark + b"\r\n" + head + data + b"\r\n"
        if is_file:
            files.setdefault(name, []).append(data)
        else:
            fields.setdefault(name, []).append(data.decode())
    form = parse_multipart(body + mark + b"--\r\n", f"multipart/form-data; boundary={boundary}")
    if parts:
        assert form.fields == fields
        assert {name: [one.data for one in found] for name, found in form.files.items()} == files


@given(st.binary(max_size=200), st.sampled_from(["b", '"b"', "", "b; x=1"]))
def test_no_body_makes_a_form_fail_otherwise_than_by_an_input_error(
    body: bytes, boundary: str
) -> None:
    with contextlib.suppress(InputError):
        parse_multipart(body, f"multipart/form-data; boundary={boundary}")
    with contextlib.suppress(InputError):
        parse_multipart(b"--b\r\n" + body + b"\r\n--b--", "multipart/form-data; boundary=b")
