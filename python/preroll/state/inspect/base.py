"""The contract of a weights reader: from a file's header to its tensors, no data loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from preroll.errors import InputError

# A header larger than this is an attack or garbage: the largest published ones are under 10 MB.
MAX_HEADER_BYTES = 256 * 1024 * 1024


class DamagedFileError(InputError):
    """The file is not what its header or name says; the message names how, and what to do."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: `num_bytes` as stored, `num_parameters` logical values (0-d counts as 1).

    `location` identifies the stored bytes (file, offset): two names with one location are tied.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    location: tuple[str, int] | None = None

    @property
    def num_parameters(self) -> int:
        product = 1
        for size in self.shape:
            product *= size
        return product


@dataclass(slots=True)
class Contents:
    """What one file holds. `notes` say what is odd; `unknown` says what cannot be known and why."""

    path: Path
    format: str
    tensors: list[Tensor] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    metadata: dict[str, str | int | float] = field(default_factory=dict)


Reader = Callable[[Path], Contents]


def truncated(path: Path, needed: int, what: str) -> DamagedFileError:
    """The error of a file that ends before something that its header promises."""
    size = path.stat().st_size
    return DamagedFileError(
        f"{path}: truncated: {what} ends at byte {needed:,}, the file has {size:,}; "
        f"fetch it again ({needed - size:,} bytes are missing)"
    )
