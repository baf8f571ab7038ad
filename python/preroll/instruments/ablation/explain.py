"""One hooked run of each arm, beside the pairs, that shows which imports grew."""

from __future__ import annotations

import os
from pathlib import Path

from preroll.errors import PrerollError
from preroll.instruments.ablation import moved
from preroll.instruments.ablation.launch import Launcher
from preroll.instruments.ablation.raw import Arm
from preroll.instruments.ablation.state import Keeper
from preroll.instruments.startup import Options, Outcome, Profile, record


async def imports(launcher: Launcher, keeper: Keeper, folder: Path) -> list[moved.Moved] | str:
    """Imports that grew; or why that cannot be said. The state is that of the pairs."""
    profiles = {}
    for arm in Arm:
        keeper.prepare()
        try:
            profile = await _profile(launcher, arm, folder / f"explain-{arm}")
        except PrerollError as error:
            return f"which imports grew is not known: {error}"
        if profile.outcome is not Outcome.READY:
            return f"which imports grew is not known: a hooked run {profile.outcome}"
        profiles[arm] = profile
    if not any(profile.imports for profile in profiles.values()):
        return "no imports were seen: no Python, or one that ignores PYTHONPATH"
    return moved.imports(profiles[Arm.CONTROL], profiles[Arm.VARIANT])


async def _profile(launcher: Launcher, arm: Arm, folder: Path) -> Profile:
    subject, applied = launcher.subject, launcher.applied(arm, folder)
    gone = [name for name in os.environ if name not in applied.env]
    without = ("env", *(f"--unset={name}" for name in gone)) if gone else ()
    return await record(
        Options(
            command=(*without, *applied.argv),
            ready=subject.ready,
            timeout_s=subject.timeout_s,
            env=applied.env,
            cwd=subject.cwd,
            recorder="off",
            pty=subject.pty,
        )
    )
