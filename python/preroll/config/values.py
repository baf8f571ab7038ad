"""Checks of single values: each returns the value as it is used, or a ValueError that says what
is allowed. They run inside the types of `schema`."""

from __future__ import annotations

import json
import re
import shlex
from urllib.parse import urlsplit

from preroll.config.units import DURATION_ALLOWED, parse_duration

SECRET = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+", re.DOTALL)
ASGI = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
STAGE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


def secret_reference(value: str) -> str:
    if not SECRET.fullmatch(value):
        # The value is not repeated: it may be the secret itself.
        raise ValueError("a secret is given by reference; allowed: env:NAME or file:PATH")
    return value


def http_path(value: str) -> str:
    if not value.startswith("/") or any(c.isspace() or ord(c) < 32 for c in value):
        raise ValueError("allowed: a path that starts with / and has no spaces")
    if "*" in value.removesuffix("/*") or "?" in value or "#" in value:
        raise ValueError("allowed: a plain path, or a prefix that ends in /*")
    return value


def words(value: object) -> object:
    """A command: an array of words, or one string split as a shell would."""
    if isinstance(value, str):
        try:
            split = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"cannot be split into words ({error}); allowed: an array") from None
        if not split:
            raise ValueError("an empty command; allowed: a program and its arguments")
        return tuple(split)
    if isinstance(value, list) and not value:
        raise ValueError("an empty command; allowed: a program and its arguments")
    return tuples(value)


def strings(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(f'allowed: an array of strings, such as ["{value}"]')
    return tuples(value)


def tuples(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def asgi_target(value: str) -> str:
    if not ASGI.fullmatch(value):
        raise ValueError('allowed: "module:attribute", such as "myapp.main:app"')
    return value


def class_target(value: str) -> str:
    if not ASGI.fullmatch(value):
        raise ValueError('allowed: "module:Class", such as "app:Codec"')
    return value


def module_names(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if not MODULE.fullmatch(name):
            raise ValueError(f"{name!r} is no module; allowed: names as in an import")
    return value


def json_table(value: dict[str, object]) -> dict[str, object]:
    """A table that can be passed on as JSON: TOML also has dates, infinities and NaN."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error}; allowed: text, numbers, booleans, arrays, tables") from None
    return value


def server_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"not a URL ({error}); allowed: http://HOST:PORT") from None
    if parts.scheme != "http" or not parts.hostname or port == 0:
        raise ValueError("allowed: http://HOST:PORT")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        raise ValueError("allowed: http://HOST:PORT without path, query or user")
    return value.rstrip("/")


def host_port(value: str) -> str:
    match = HOST_PORT.fullmatch(value)
    if not match or int(match[2]) > 65535:
        raise ValueError('allowed: "HOST:PORT", such as "127.0.0.1:8080"')
    return value


def listen(value: object) -> object:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        if not value:
            raise ValueError("nothing to listen on; allowed: at least one HOST:PORT")
        return tuple(host_port(v) if isinstance(v, str) else v for v in value)
    return value


def idle_timeout(value: object) -> object:
    if value == "auto":
        return None
    try:
        return parse_duration(value)
    except ValueError:
        raise ValueError(f'allowed: "auto" or {DURATION_ALLOWED}') from None


def prewarm(value: object) -> object:
    from preroll.config.schedule import parse_schedule

    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        return items
    for item in items:
        if isinstance(item, str):
            parse_schedule(item)
    return tuple(items)


def named_tables(value: object) -> object:
    """Gives each stage's table its name; a name must do as a file name and in a metric label."""
    if not isinstance(value, dict):
        return value
    for name in value:
        if not STAGE_NAME.fullmatch(name):
            raise ValueError(
                f"bad stage name {name!r}; allowed: at most 63 lower-case letters, digits, - and _"
            )
    return {k: {**v, "(name)": k} if isinstance(v, dict) else v for k, v in value.items()}


def measured_limit(value: object) -> object:
    """A stage's table; `max_concurrency = "measured"` becomes no number and a note of its own."""
    if isinstance(value, dict) and value.get("max_concurrency") == "measured":
        kept = {key: one for key, one in value.items() if key != "max_concurrency"}
        return {**kept, "(measured)": True}
    return value
