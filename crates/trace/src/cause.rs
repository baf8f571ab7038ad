//! The causes that time is billed to, and which system call means which.

use serde::Serialize;

/// Why time passed. The order is the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// On the CPU.
    Cpu,
    /// Runnable, waiting for a CPU.
    RunQueue,
    /// The hypervisor ran somebody else.
    Stolen,
    /// Copying or waiting for bytes of a file in a read call.
    Read,
    /// Waiting for a page of a mapped file.
    FaultIo,
    /// Waiting for storage outside reads and faults: writes, fsync, metadata.
    Disk,
    /// Waiting on a socket or for readiness of descriptors that nobody in the tree served.
    Network,
    /// Waiting for a child whose own time could not be followed.
    Child,
    /// Waiting for a lock whose holder was not working.
    Lock,
    /// A timed sleep.
    Sleep,
    /// In a call into a device driver.
    Device,
    /// Waiting for another process through a pipe, whose time could not be followed.
    Pipe,
    /// Not explained.
    Unknown,
}

/// What a system call means when a thread blocks in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read,
    Write,
    Wait,
    /// A lock: futex, or a file's (fcntl, flock).
    Futex,
    Sleep,
    Poll,
    Socket,
    Ioctl,
    Storage,
    Other,
}

#[cfg(target_arch = "x86_64")]
fn class(number: i32) -> Call {
    match number {
        0 | 17 | 19 | 295 | 327 | 40 => Call::Read,
        1 | 18 | 20 | 296 | 328 => Call::Write,
        61 | 247 => Call::Wait,
        202 | 449 | 455 | 72 | 73 => Call::Futex,
        35 | 230 | 34 => Call::Sleep,
        7 | 23 | 232 | 270 | 271 | 281 | 441 => Call::Poll,
        42 | 43 | 45 | 47 | 288 | 299 | 44 | 46 => Call::Socket,
        16 => Call::Ioctl,
        2 | 74 | 75 | 257 | 262 | 332 | 217 | 187 | 26 => Call::Storage,
        _ => Call::Other,
    }
}

#[cfg(target_arch = "aarch64")]
fn class(number: i32) -> Call {
    match number {
        63 | 65 | 67 | 69 | 71 | 286 => Call::Read,
        64 | 66 | 68 | 70 | 287 => Call::Write,
        95 | 260 => Call::Wait,
        98 | 449 | 455 | 25 | 32 => Call::Futex,
        101 | 115 => Call::Sleep,
        22 | 72 | 73 | 441 => Call::Poll,
        202 | 203 | 206 | 207 | 211 | 212 | 242 | 243 => Call::Socket,
        29 => Call::Ioctl,
        56 | 61 | 79 | 82 | 83 | 213 | 227 | 291 => Call::Storage,
        _ => Call::Other,
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn class(_number: i32) -> Call {
    Call::Other
}

/// What system call `number` of this architecture means.
pub fn call(number: i32) -> Call {
    class(number)
}

/// What the kernel function that a thread sleeps in (/proc/PID/wchan) means: for when the system
/// call may not be read, as under Yama's restricted ptrace.
pub fn call_of_function(name: &str) -> Option<Call> {
    const MEANINGS: [(&str, Call); 16] = [
        ("nanosleep", Call::Sleep),
        ("futex", Call::Futex),
        ("locks_lock", Call::Futex),
        ("do_wait", Call::Wait),
        ("epoll", Call::Poll),
        ("poll_schedule", Call::Poll),
        ("do_select", Call::Poll),
        ("sigtimedwait", Call::Poll),
        ("pipe_read", Call::Read),
        ("pipe_write", Call::Write),
        ("tty_read", Call::Read),
        ("folio_wait", Call::Read),
        ("wait_on_page", Call::Read),
        ("csk_accept", Call::Socket),
        ("wait_woken", Call::Socket),
        ("unix_", Call::Socket),
    ];
    let found = MEANINGS.iter().find(|(part, _)| name.contains(part));
    found.map(|(_, call)| *call)
}

/// The cause of a sleep in `call` when nobody in the tree ended it.
///
/// `disk` is the uninterruptible state; without a system call it is a page fault.
pub fn of_sleep(call: Option<Call>, disk: bool) -> Cause {
    match (call, disk) {
        (None, true) => Cause::FaultIo,
        (Some(Call::Read), true) => Cause::Read,
        (Some(Call::Ioctl), _) => Cause::Device,
        (Some(_), true) => Cause::Disk,
        (Some(Call::Read | Call::Write), false) => Cause::Pipe,
        (Some(Call::Wait), false) => Cause::Child,
        (Some(Call::Futex), false) => Cause::Lock,
        (Some(Call::Sleep), false) => Cause::Sleep,
        (Some(Call::Poll | Call::Socket), false) => Cause::Network,
        (Some(Call::Storage), false) => Cause::Disk,
        (Some(Call::Other) | None, false) => Cause::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_function_tells_the_kind_of_wait() {
        assert_eq!(call_of_function("hrtimer_nanosleep"), Some(Call::Sleep));
        assert_eq!(call_of_function("futex_do_wait"), Some(Call::Futex));
        assert_eq!(call_of_function("do_wait"), Some(Call::Wait));
        assert_eq!(call_of_function("do_epoll_wait"), Some(Call::Poll));
        assert_eq!(call_of_function("anon_pipe_read"), Some(Call::Read));
        assert_eq!(call_of_function("0"), None);
    }
}
