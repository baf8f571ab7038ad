//! One clock for everything: CLOCK_MONOTONIC in nanoseconds.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since boot, monotonic.
pub fn now_ns() -> i64 {
    read(ClockId::Monotonic)
}

/// CPU time of this process (all threads), in nanoseconds.
pub fn cpu_ns() -> i64 {
    read(ClockId::ProcessCPUTime)
}

fn read(id: ClockId) -> i64 {
    let t = clock_gettime(id);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Milliseconds of a configuration value as nanoseconds.
pub fn ms(value: f64) -> i64 {
    (value * 1e6).round() as i64
}
