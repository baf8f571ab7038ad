"""Preroll: a serving runtime for model pipelines."""

__version__ = "0.1.0"
