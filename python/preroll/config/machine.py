"""What an app needs of this machine: checked by `serve`, shown as warnings by `check`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from preroll.config.schema import App, Stage
from preroll.config.secrets import resolve_secret
from preroll.config.units import format_size
from preroll.errors import InputError

NVIDIA = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to give: logical CPUs that may be used, memory in bytes, devices."""

    cpus: int
    memory_bytes: int
    gpus: int


def this_machine() -> Machine:
    import psutil

    cpus = len(os.sched_getaffinity(0))
    return Machine(cpus, psutil.virtual_memory().total, _num_gpus())


def _num_gpus() -> int:
    """Devices of the NVIDIA driver, those that CUDA_VISIBLE_DEVICES hides left out."""
    present = len(list(NVIDIA.iterdir())) if NVIDIA.is_dir() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    return min(present, len([v for v in visible.split(",") if v.strip() not in ("", "-1")]))


def misfits(app: App, machine: Machine) -> list[str]:
    """What this machine cannot do for the app, one sentence each, naming key, value, allowed."""
    found = [*_of_serve(app)]
    for name, stage in app.stages.items():
        found += _of_stage(name, stage, app, machine)
    wanted = sum(_gpus_at_once(stage) for stage in app.stages.values())
    if wanted > machine.gpus and not any(".gpus:" in m for m in found):
        found.append(
            f"stages: {wanted} GPUs in all at their least; this machine has {machine.gpus}"
        )
    return found


def _gpus_at_once(stage: Stage) -> int:
    return stage.gpus * stage.scaling.min_replicas


def _of_serve(app: App) -> Iterator[str]:
    """Secrets and files that are not here."""
    serve = app.serve
    references = {f"keys {key.id!r}": key.key for key in serve.keys if key.key}
    if serve.admin_token:
        references["admin_token"] = serve.admin_token
    for where, reference in references.items():
        try:
            resolve_secret(reference, app.directory)
        except InputError as error:
            yield f"serve.{where}: {error}"
    for name, file in (("cert", serve.tls.cert), ("key", serve.tls.key)) if serve.tls else ():
        if not (app.directory / file).is_file():
            yield f"serve.tls.{name}: there is no file {app.directory / file}"


def _of_stage(name: str, stage: Stage, app: App, machine: Machine) -> Iterator[str]:
    from preroll.engines.base import get_engine

    where = f"stage.{name}"
    if stage.gpus > machine.gpus:
        yield f"{where}.gpus: {stage.gpus}; this machine has {machine.gpus}"
    if stage.gpu_memory_bytes and not machine.gpus:
        yield f"{where}.gpu_memory: this machine has no GPU"
    if stage.cpus is not None and stage.cpus > machine.cpus:
        yield f"{where}.cpus: {stage.cpus:g}; this machine has {machine.cpus}"
    if stage.memory_bytes is not None and stage.memory_bytes > machine.memory_bytes:
        has = format_size(machine.memory_bytes >> 20 << 20)
        yield f"{where}.memory: {format_size(stage.memory_bytes)}; this machine has {has}"
    try:
        get_engine(stage.engine).launch(stage, app.directory, "tcp:127.0.0.1:1")
    except InputError as error:
        yield f"{where}: {error}"
