//! The child's output: read without ever waiting, stamped, kept, logged.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::clock::MS;
use crate::log::Log;
use crate::pace::Pace;
use crate::poll::Poll;
use crate::ring::{Ring, Stream};
use crate::split::{Piece, Splitter};

const READ_BYTES: usize = 64 * 1024;
/// The log is written in batches: at most this much of it is lost with a killed holder.
const LOG_WAIT_NS: u64 = 200 * MS;

struct Source {
    token: u64,
    fd: OwnedFd,
    stream: Stream,
    splitter: Splitter,
}

pub struct Output {
    pub ring: Ring,
    pub log: Log,
    sources: Vec<Source>,
    buffer: Box<[u8]>,
    log_due_ns: Option<u64>,
    /// None: every line is stamped as it comes, whatever that costs.
    pace: Option<Pace>,
    /// The child is left alone for so long, until its next lines are read together.
    pub rest_ns: Option<u64>,
}

impl Output {
    pub fn new(ring: Ring, log: Log, has_exact_stamps: bool) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self {
            ring,
            log,
            sources: Vec::new(),
            buffer,
            log_due_ns: None,
            pace: (!has_exact_stamps).then(Pace::default),
            rest_ns: None,
        }
    }

    pub fn add(&mut self, poll: &mut Poll, fd: OwnedFd, stream: Stream) -> rustix::io::Result<()> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let token = poll.add(&fd)?;
        self.sources.push(Source {
            token,
            fd,
            stream,
            splitter: Splitter::default(),
        });
        Ok(())
    }

    /// Reads once from the source of this token; false when the token is not one of a source.
    pub fn read(&mut self, token: u64, now_ns: u64) -> bool {
        let Some(index) = self.sources.iter().position(|source| source.token == token) else {
            return false;
        };
        if self.read_once(index, now_ns) == Read::Ended {
            self.sources.remove(index);
        }
        true
    }

    /// The child is gone: takes what is still in the pipes and closes them.
    pub fn drain(&mut self, now_ns: u64) {
        while !self.sources.is_empty() {
            while self.read_once(0, now_ns) == Read::Some {}
            self.finish(0);
            self.sources.remove(0);
        }
        self.rest_ns = None;
        self.log.flush(now_ns);
    }

    fn read_once(&mut self, index: usize, now_ns: u64) -> Read {
        let read = rustix::io::read(&self.sources[index].fd, &mut self.buffer[..]);
        match read {
            Ok(count) if count > 0 => {
                self.take(index, count, now_ns);
                Read::Some
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            // A terminal whose last user has left gives EIO.
            Ok(_) | Err(_) => {
                self.finish(index);
                Read::Ended
            }
        }
    }

    fn take(&mut self, index: usize, count: usize, now_ns: u64) {
        self.rest_ns = self
            .pace
            .as_mut()
            .and_then(|pace| pace.wait_ns(now_ns, count));
        let Self {
            ring,
            log,
            sources,
            buffer,
            ..
        } = self;
        let Source {
            stream, splitter, ..
        } = &mut sources[index];
        splitter.feed(&buffer[..count], now_ns, &mut keep(ring, log, *stream));
        self.log_due_ns.get_or_insert(now_ns + LOG_WAIT_NS);
    }

    fn finish(&mut self, index: usize) {
        let Self {
            ring, log, sources, ..
        } = self;
        let Source {
            stream, splitter, ..
        } = &mut sources[index];
        splitter.finish(&mut keep(ring, log, *stream));
        self.log_due_ns.get_or_insert(0);
    }

    /// Passes on unfinished lines and writes the log, each when it is due.
    pub fn tick(&mut self, now_ns: u64) {
        let Self {
            ring, log, sources, ..
        } = self;
        for Source {
            stream, splitter, ..
        } in sources
        {
            splitter.expire(now_ns, &mut keep(ring, log, *stream));
        }
        if self.log_due_ns.is_some_and(|due| due <= now_ns) {
            self.log.flush(now_ns);
            self.log_due_ns = None;
        }
        if !self.log.is_empty() {
            self.log_due_ns.get_or_insert(now_ns + LOG_WAIT_NS);
        }
    }

    pub fn due_ns(&self) -> Option<u64> {
        let lines = self
            .sources
            .iter()
            .filter_map(|source| source.splitter.due_ns());
        lines.chain(self.log_due_ns).min()
    }
}

#[derive(PartialEq, Eq)]
enum Read {
    Some,
    Nothing,
    Ended,
}

fn keep(ring: &mut Ring, log: &mut Log, stream: Stream) -> impl FnMut(Piece<'_>) {
    move |piece| {
        log.push(stream, piece);
        ring.push(stream, piece);
    }
}
