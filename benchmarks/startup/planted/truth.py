"""What a planted stage really spent, by the worker's own clock, written to a side file.

A stage runs from the end of the one before to its own end, so the stages tile the start from the
first statement on. Its seconds are split by what the kernel counts for the thread (time on a
processor, time waiting for one); the rest is the cause that was planted.
"""

import json
import os
import time

SIDE_FILE = os.environ["PLANTED_TRUTH"]


def thread_times():
    """(on a processor, waiting for one): nanoseconds of this thread so far."""
    with open("/proc/thread-self/schedstat") as file:
        cpu, queue, _ = file.read().split()
    return int(cpu), int(queue)


class Truth:
    """Writes one row per stage; CLOCK_MONOTONIC ns, seconds by cause."""

    def __init__(self):
        self._since_ns = time.monotonic_ns()
        self._times = thread_times()

    def row(self, name, planted, absorbs_cpu=False, by=None, file=None):
        """Ends a stage. `planted`: the cause of the time neither on nor waiting for a processor;
        `absorbs_cpu`: the processor time belongs to it too (copying within a read call).
        `by`: (pid, seconds on a processor) of a child that did the work meanwhile."""
        now_ns, times = time.monotonic_ns(), thread_times()
        wall = (now_ns - self._since_ns) / 1e9
        cpu, queue = ((b - a) / 1e9 for a, b in zip(self._times, times))
        causes = {"cpu": cpu, "run_queue": queue}
        rest = max(0.0, wall - cpu - queue)
        pid, child = os.getpid(), None
        if by is not None:
            child, child_cpu = by
            causes["cpu"] += child_cpu
            rest = max(0.0, rest - child_cpu)
        if absorbs_cpu:
            rest += causes.pop("cpu")
        causes[planted] = causes.get(planted, 0.0) + rest
        row = {"name": name, "start_ns": self._since_ns, "end_ns": now_ns, "pid": pid}
        with open(SIDE_FILE, "a") as side:
            side.write(json.dumps({**row, "causes": causes, "file": file, "child": child}) + "\n")
        self._since_ns, self._times = time.monotonic_ns(), thread_times()
