"""Which state directory a command means."""

from __future__ import annotations

from pathlib import Path

from preroll.errors import InputError
from preroll.serve.statedir import StateDir, default_state, owner


def state_of(app: str | None, state: Path | None) -> StateDir:
    """The directory given, that of the app (a file or a name), or the only one there is.

    Raises InputError, naming the candidates, when that is not one.
    """
    if state is not None:
        return StateDir(state)
    base = default_state("x").parent
    if app is not None:
        return StateDir(base / (Path(app).stem if app.endswith(".toml") else app))
    found = [StateDir(p) for p in sorted(base.iterdir())] if base.is_dir() else []
    found = [s for s in found if s.holders.is_dir()]
    served = [s for s in found if owner(s) is not None] or found
    if len(served) == 1:
        return served[0]
    names = ", ".join(s.root.name for s in served)
    if not served:
        raise InputError(f"nothing has been served from {base}; give --state DIR")
    raise InputError(f"several apps are served: {names}; name one, or give --state DIR")
