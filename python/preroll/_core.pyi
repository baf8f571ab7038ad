"""The compiled part; see crates/py."""

from collections.abc import Callable, Sequence

DEBUG_BUILD: bool

class Simulation:
    """One simulation. `config` is JSON (crates/sim/src/config.rs); ValueError says what is wrong.

    A trace is five little-endian buffers: arrival times (u64 ns, rising), prompt tokens, output
    tokens (u32), and for prefix caches offsets into block ids (u32; n + 1 of them, or none) and
    the ids.
    """

    def __init__(
        self, config: str, traces: Sequence[tuple[bytes, bytes, bytes, bytes, bytes]]
    ) -> None: ...
    def run(self, decide: Callable[..., int] | None = None) -> str:
        """Runs to the end and gives the report as JSON.

        The GIL is released except while `decide(endpoint, now_s, ready, starting, in_flight,
        queued, arrivals, concurrency, idle_s, gaps_s, start_s)` answers with a number of replicas.
        """
