"""The app file: types, parsing, checks. Importing it imports pydantic; the help path does not."""

from preroll.config.load import load_app, parse_app
from preroll.config.problems import AppFileError, Problem
from preroll.config.schema import (
    App,
    Key,
    Limits,
    Queue,
    Route,
    Scale,
    Serve,
    Stage,
    Warmup,
)

__all__ = [
    "App",
    "AppFileError",
    "Key",
    "Limits",
    "Problem",
    "Queue",
    "Route",
    "Scale",
    "Serve",
    "Stage",
    "Warmup",
    "load_app",
    "parse_app",
]
