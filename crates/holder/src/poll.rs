//! epoll: each descriptor gets a token that is never used again.

use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

pub struct Poll {
    epoll: OwnedFd,
    next_token: u64,
    events: Vec<epoll::Event>,
}

/// Something happened to the descriptor of this token.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    pub token: u64,
    pub is_readable: bool,
}

impl Poll {
    pub fn new() -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            next_token: 0,
            events: Vec::with_capacity(64),
        })
    }

    /// Watches for readability until the descriptor is closed.
    pub fn add(&mut self, fd: impl AsFd) -> rustix::io::Result<u64> {
        let token = self.next_token;
        self.next_token += 1;
        epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(token),
            epoll::EventFlags::IN,
        )?;
        Ok(token)
    }

    /// Watches for room to write as well, or no longer.
    pub fn want_write(&self, fd: impl AsFd, token: u64, want: bool) -> rustix::io::Result<()> {
        let write = if want {
            epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::empty()
        };
        let flags = epoll::EventFlags::IN | write;
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), flags)
    }

    /// Waits until something is ready or the time is over.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> rustix::io::Result<Vec<Ready>> {
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        self.events.clear();
        match epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            timeout.as_ref(),
        ) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let quiet = epoll::EventFlags::OUT;
        let ready = self.events.iter().map(|event| {
            let (data, flags) = (event.data, event.flags);
            Ready {
                token: data.u64(),
                is_readable: !quiet.contains(flags),
            }
        });
        Ok(ready.collect())
    }
}
