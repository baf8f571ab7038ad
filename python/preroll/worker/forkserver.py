"""`python -m preroll.worker.forkserver --uds PATH -- MODULE…`: imports once, forks replicas.

One thread, nothing but imports done: what a fork copies must be clean. Each start forks twice: the
first child ends at once, so that the second belongs to nobody here. That one forks the replica,
becomes its holder (by exec), and so owns it as any holder owns its child.

On its socket: `{"op": "state"}` says whether it may fork and why not; `{"op": "start", "spec",
"holder"}`, with the pipe for the holder's complaints passed along, starts one replica.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

# What every replica needs, imported here for all of them.
import preroll.worker.process  # noqa: F401
from preroll.worker import (
    forkserver_child,
    forkserver_guard,
    forkserver_threads,
    reporting,
    serving,
)

USAGE = "usage: python -m preroll.worker.forkserver --uds PATH -- MODULE…"
MAX_REQUEST_BYTES = 64 << 10
# Whoever connects and says nothing must not keep others waiting for longer.
REQUEST_TIMEOUT_S = 5.0
DETACHED = ("PREROLL_HOLDER", "PREROLL_HOLDER_DIR", "PREROLL_GENERATION")


def main(arguments: list[str]) -> int:
    if len(arguments) < 3 or arguments[0] != "--uds" or arguments[2] != "--":
        reporting.say(USAGE)
        return 2
    # Listening before the imports: whoever asks meanwhile waits for them. Bound under another name
    # first, so that a socket that is there is one that listens.
    listener = serving.unix_socket(f"{arguments[1]}.new")
    Path(f"{arguments[1]}.new").rename(arguments[1])
    before = forkserver_guard.descriptors()
    gc.disable()  # an import allocates much and frees nothing: a tenth of its time
    state = prepare(arguments[3:], before)
    for reason in state["unfit"]:
        reporting.say(f"cannot fork: {reason}")
    reporting.say(f"fork server ready: {len(arguments) - 3} imports in {state['imports_s']:.2f} s")
    gc.collect()
    gc.freeze()  # what is here stays: a collection in a child must not copy its pages
    gc.enable()
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            serve(connection, state)


def prepare(modules: list[str], before: frozenset[int]) -> dict[str, Any]:
    """Imports; `unfit` has every reason why no replica may be forked from what that left."""
    began_s = time.monotonic()
    unfit: list[str] = []
    with forkserver_threads.kept_from_starting():
        warm_up_stack()
        for name in modules:
            try:
                importlib.import_module(name)
            except BaseException as error:
                unfit.append(f"import {name}: {type(error).__name__}: {error}")
    unfit += forkserver_guard.survivors(before)
    return {"unfit": unfit, "imports_s": time.monotonic() - began_s, "pid": os.getpid()}


def warm_up_stack() -> None:
    """The worker's own server and its parsers, where they are installed."""
    for name in ("uvicorn", "uvicorn.protocols.http.auto", "uvicorn.lifespan.off", "uvloop"):
        with suppress(ImportError):
            importlib.import_module(name)


def serve(connection: socket.socket, state: dict[str, Any]) -> None:
    """One request, one answer."""
    connection.settimeout(REQUEST_TIMEOUT_S)
    text, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 1)
    try:
        request = json.loads(text)
        if request["op"] == "start" and not state["unfit"]:
            start(Path(request["spec"]), request["holder"], descriptors[0])
            reply: dict[str, Any] = {"ok": True}
        elif request["op"] == "start":
            reply = {"ok": False, "error": "; ".join(state["unfit"])}
        else:
            reply = {"ok": True, **state}
    except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
        reply = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    connection.sendall(json.dumps(reply).encode() + b"\n")


def start(spec: Path, holder: str, complaints: int) -> None:
    """Forks the process that becomes the holder of one replica. Raises OSError."""
    go_between = os.fork()
    if go_between == 0:
        status = 1
        try:
            if os.fork() == 0:
                become_holder(spec, holder, complaints)
            status = 0
        finally:
            os._exit(status)
    os.waitpid(go_between, 0)


def become_holder(spec: Path, holder: str, complaints: int) -> None:
    """Forks the replica and executes the holder program; never returns."""
    try:
        os.setsid()
        os.chdir("/")
        out, replica_out = os.pipe()
        err, replica_err = os.pipe()
        waits, go = os.pipe()
        spawned_ns = time.monotonic_ns()
        parent = os.getpid()
        replica = os.fork()
        if replica == 0:
            forkserver_child.run(spec, parent, waits, (replica_out, replica_err))
        null = os.open(os.devnull, os.O_RDWR)
        for source, target in ((null, 0), (null, 1), (complaints, 2)):
            os.dup2(source, target)
        # The holder lets go of its stderr to say that it runs: this copy must end with the exec.
        os.set_inheritable(complaints, False)
        for descriptor in (out, err, go):
            os.set_inheritable(descriptor, True)
        child = f"{replica}:{out}:{err}:{go}:{spawned_ns}"
        env = {name: value for name, value in os.environ.items() if name not in DETACHED}
        os.execve(holder, [holder, str(spec), "--forked", child], env)
    except BaseException as error:
        os.write(complaints, f"preroll-holder: {holder}: {error}\n".encode())
    finally:
        os._exit(127)


if __name__ == "__main__":
    # As a module of its own name, too: what is pickled or looked up by it must be one thing.
    sys.modules.setdefault("preroll.worker.forkserver", sys.modules["__main__"])
    sys.exit(main(sys.argv[1:]))
