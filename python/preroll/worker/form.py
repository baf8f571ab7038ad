"""Forms: multipart/form-data and application/x-www-form-urlencoded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from email.message import Message
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl

from preroll.errors import InputError

MAX_PARTS = 1000


@dataclass(frozen=True)
class Upload:
    """A file of a form."""

    filename: str
    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Form:
    """Fields and files by name, each in the order in which they came."""

    fields: dict[str, list[str]]
    files: dict[str, list[Upload]]

    def get(self, name: str, default: Any = None) -> Any:
        """The last text of that name."""
        return self.fields[name][-1] if name in self.fields else default

    def file(self, name: str) -> Upload:
        """The last file of that name. Raises InputError when there is none."""
        if name not in self.files:
            known = ", ".join(self.files) or "none"
            raise InputError(f"the form has no file {name!r}; its files: {known}")
        return self.files[name][-1]


def parse_urlencoded(body: bytes) -> Form:
    fields: dict[str, list[str]] = {}
    for name, value in parse_qsl(body.decode("latin-1"), keep_blank_values=True):
        fields.setdefault(name, []).append(value)
    return Form(fields, {})


def parse_multipart(body: bytes, content_type: str) -> Form:
    """Raises InputError for a form that is cut or has no boundary."""
    boundary = _parameters(content_type).get("boundary")
    if not boundary:
        raise InputError(f"content-type {content_type!r} names no boundary")
    # A boundary is a whole line; the first may be the body's first bytes.
    mark = re.compile(rb"\r\n--" + re.escape(boundary.encode("latin-1")) + rb"(?:[ \t]*\r\n|(--))")
    body = b"\r\n" + body
    marks = list(mark.finditer(body))
    end = next((i for i, found in enumerate(marks) if found[1]), None)
    if end is None:
        raise InputError("the multipart body is cut: its closing boundary is missing")
    if end > MAX_PARTS:
        raise InputError(f"the form has {end} parts; allowed: {MAX_PARTS}")
    fields: dict[str, list[str]] = {}
    files: dict[str, list[Upload]] = {}
    for opening, closing in pairwise(marks[: end + 1]):
        head, gap, data = body[opening.end() : closing.start()].partition(b"\r\n\r\n")
        if not gap:
            raise InputError("a part of the form has no head")
        _add_part(fields, files, _headers(head), data)
    return Form(fields, files)


def _add_part(
    fields: dict[str, list[str]],
    files: dict[str, list[Upload]],
    head: dict[str, str],
    data: bytes,
) -> None:
    disposition = _parameters(head.get("content-disposition", ""))
    name = disposition.get("name")
    if name is None:
        raise InputError("a part of the form has no name in its content-disposition")
    if "filename" in disposition:
        kind = head.get("content-type", "application/octet-stream")
        files.setdefault(name, []).append(Upload(disposition["filename"], kind, data))
        return
    try:
        fields.setdefault(name, []).append(data.decode())
    except UnicodeDecodeError:
        raise InputError(f"the form's field {name!r} is no UTF-8") from None


def _headers(head: bytes) -> dict[str, str]:
    found = {}
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip().lower()] = value.strip()
    return found


def _parameters(value: str) -> dict[str, str]:
    """The parameters of a header such as `form-data; name="a"`."""
    message = Message()
    message["x"] = value
    return {
        name.lower(): text if isinstance(text, str) else text[2]
        for name, text in message.get_params([], header="x", unquote=True)[1:]
    }
