"""The page: static files beside this module, under a policy that lets nothing else run."""

from __future__ import annotations

from pathlib import Path

from preroll.worker.answer import Response
from preroll.worker.errors import NotFoundError

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "cache-control": "no-cache",
}


def answer(name: str, is_on: bool = True) -> Response:
    """A file of the page; only names that are there can be asked for. Raises NotFoundError."""
    files = {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}
    path = files.get("index.html" if name == "index" else name) if is_on else None
    if path is None:
        raise NotFoundError(f"there is no file {name!r} of the page")
    return Response(path.read_bytes(), content_type=TYPES[path.suffix], headers=HEADERS)
