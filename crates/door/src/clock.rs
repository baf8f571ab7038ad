//! The two clocks: monotonic for every duration, wall for what people and clients read.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    static RECENT_NS: Cell<u64> = const { Cell::new(0) };
}

fn read_ns(id: ClockId) -> u64 {
    let t = clock_gettime(id);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// `CLOCK_MONOTONIC` of this boot, nanoseconds.
pub fn now_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// As [`now_ns`], and what [`recent_ns`] says from here on. Each turn of a connection begins with it.
pub fn refresh_ns() -> u64 {
    let now = now_ns();
    RECENT_NS.set(now);
    now
}

/// The time of the last [`refresh_ns`] of this thread: when the turn of a connection began that now
/// runs, and never older than the door's tick. A request notes more than ten times, and reading the
/// clock for each is a fiftieth of what it costs.
pub fn recent_ns() -> u64 {
    match RECENT_NS.get() {
        0 => now_ns(),
        recent => recent,
    }
}

/// Unix time, nanoseconds: for logs only.
pub fn wall_ns() -> u64 {
    read_ns(ClockId::Realtime)
}
