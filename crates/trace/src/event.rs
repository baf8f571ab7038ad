//! The events that both recorders reduce to. Times are CLOCK_MONOTONIC nanoseconds.

/// A thread id of the kernel (the kernel's "pid").
pub type Tid = i32;

/// The kernel's thread of a processor that has nothing to do.
pub const IDLE: Tid = 0;

/// A file as the kernel names it in tracepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Device number in the kernel's encoding (major << 20 | minor).
    pub device: u32,
    /// Inode number.
    pub inode: u64,
}

/// How a thread left the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Still runnable: preempted.
    Runnable,
    /// Interruptible sleep.
    Sleep,
    /// Uninterruptible sleep: disk, page lock.
    Disk,
    /// Dead or stopped.
    Gone,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `tid` got the CPU.
    SwitchIn,
    /// `tid` left the CPU.
    SwitchOut(Left),
    /// `tid` was made runnable by the thread `by` (0: interrupt or idle).
    Waking { by: Tid },
    /// `tid` was created by the thread `parent`.
    Fork { parent: Tid },
    /// `tid` ended.
    Exit,
    /// `tid` entered system call `number` with its first two arguments.
    Enter { number: i32, arg0: i64, arg1: i64 },
    /// `tid` left its system call.
    Leave,
    /// `tid` took a page fault on a file, or reads it.
    Touches(FileId),
    /// `tid` brought `bytes` of a file into the page cache: cold bytes.
    Fetches { file: FileId, bytes: u64 },
}

/// One event of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub t_ns: u64,
    /// Whose.
    pub tid: Tid,
    /// On which CPU.
    pub cpu: u16,
    /// What.
    pub kind: Kind,
}
