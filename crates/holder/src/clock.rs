//! Monotonic time of this boot, the boot's identity, and a process's start time.

use rustix::time::{ClockId, clock_gettime};

pub const MS: u64 = 1_000_000;

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Identity of this boot; empty where the kernel does not tell.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// When a process started, in clock ticks since boot; with its pid it names it for good.
pub fn start_ticks(pid: i32) -> Option<u64> {
    crate::tree::Stat::read(pid).map(|stat| stat.start_ticks)
}
