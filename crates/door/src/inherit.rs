//! Listening sockets passed by the holder from descriptor 3 on (LISTEN_FDS, LISTEN_FDNAMES,
//! LISTEN_PID).
//!
//! The one module with unsafe code: taking ownership of a descriptor by its number cannot be said
//! safely.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The first inherited descriptor, by convention.
const FIRST: i32 = 3;
/// More than anyone passes; a wrong LISTEN_FDS must not make us close the world.
const MOST: i32 = 16;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The inherited sockets with their names; empty when there are none or when they were taken
/// already.
///
/// # Errors
/// LISTEN_FDS that is not a number from 0 to 16, or that counts a descriptor that is not open.
pub fn take() -> Result<Vec<(String, OwnedFd)>, String> {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let fds = var("LISTEN_FDS");
    let is_ours = var("LISTEN_PID") == std::process::id().to_string();
    if fds.is_empty() || !is_ours || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let count = fds.parse::<i32>().ok().filter(|n| (0..=MOST).contains(n));
    let count = count.ok_or_else(|| format!("LISTEN_FDS={fds:?}: must be from 0 to {MOST}"))?;
    let names = var("LISTEN_FDNAMES");
    let mut names = names.split(':');
    let mut sockets = Vec::new();
    for number in FIRST..FIRST + count {
        // SAFETY: by the protocol the descriptor is ours alone; TAKEN makes this the only owner in
        // the process.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        if fcntl_getfd(&fd).is_err() {
            std::mem::forget(fd);
            return Err(format!("LISTEN_FDS={fds}: descriptor {number} is not open"));
        }
        fcntl_setfd(&fd, FdFlags::CLOEXEC).map_err(|error| error.to_string())?;
        sockets.push((names.next().unwrap_or_default().to_owned(), fd));
    }
    Ok(sockets)
}
