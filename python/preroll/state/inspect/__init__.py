"""What is in a weights file, asked of the file and not of its name."""

from preroll.state.inspect.report import inspect_path

__all__ = ["inspect_path"]
