//! Readiness: epoll plus one timerfd, because epoll's own time-out is rounded up to milliseconds.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use rustix::time::{timerfd_create, timerfd_settime};

const TIMER: u64 = u64::MAX;
const BATCH: usize = 512;

/// One ready descriptor of a batch.
#[derive(Clone, Copy)]
pub struct Ready {
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
}

pub struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    events: Vec<Event>,
    armed_ns: i64,
}

impl Poller {
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // Edge-triggered: re-arming clears readiness, so an expiry costs no read.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), flags)?;
        Ok(Self {
            epoll,
            timer,
            events: Vec::with_capacity(BATCH),
            armed_ns: 0,
        })
    }

    pub fn add(&self, fd: impl AsFd, token: u64, write: bool) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(token),
            interest(write),
        )?)
    }

    pub fn modify(&self, fd: impl AsFd, token: u64, write: bool) -> io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            fd,
            EventData::new_u64(token),
            interest(write),
        )?)
    }

    /// Waits until something is ready or `deadline_ns` (monotonic) has come; fills `ready`.
    pub fn wait(
        &mut self,
        deadline_ns: Option<i64>,
        now_ns: i64,
        ready: &mut Vec<Ready>,
    ) -> io::Result<()> {
        ready.clear();
        let block = deadline_ns.is_none_or(|d| d > now_ns);
        if let (true, Some(deadline)) = (block, deadline_ns) {
            self.arm(deadline)?;
        }
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timeout = if block { None } else { Some(&zero) };
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut fired = false;
        for event in &self.events {
            let (flags, token) = (event.flags, event.data.u64());
            if token == TIMER {
                fired = true;
                continue;
            }
            let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            ready.push(Ready {
                token,
                readable: failed || flags.contains(EventFlags::IN),
                writable: failed || flags.contains(EventFlags::OUT),
            });
        }
        if fired {
            self.armed_ns = 0;
        }
        Ok(())
    }

    fn arm(&mut self, deadline_ns: i64) -> io::Result<()> {
        if self.armed_ns == deadline_ns {
            return Ok(());
        }
        let value = Timespec {
            tv_sec: deadline_ns / 1_000_000_000,
            tv_nsec: deadline_ns % 1_000_000_000,
        };
        let spec = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        self.armed_ns = deadline_ns;
        Ok(())
    }
}

fn interest(write: bool) -> EventFlags {
    if write {
        EventFlags::IN | EventFlags::OUT
    } else {
        EventFlags::IN
    }
}
