//! A pseudo-terminal for programs that print differently when nobody seems to look.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::Winsize;

/// Wide, so that progress bars do not wrap.
const SIZE: Winsize = Winsize {
    ws_row: 50,
    ws_col: 200,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// The holder's side and the child's side.
pub fn open() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, Mode::empty())?;
    rustix::termios::tcsetwinsize(&slave, SIZE)?;
    Ok((master, slave))
}
