//! The two clocks: monotonic for every duration, wall for what people and clients read.

use rustix::time::{ClockId, clock_gettime};

fn read_ns(id: ClockId) -> u64 {
    let t = clock_gettime(id);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// `CLOCK_MONOTONIC` of this boot, nanoseconds.
pub fn now_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Unix time, nanoseconds: for logs only.
pub fn wall_ns() -> u64 {
    read_ns(ClockId::Realtime)
}
