//! The loop: one thread that waits for output, ends, requests and its own clock.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::clock::{MS, now_ns};
use crate::conn::{Conn, Job};
use crate::holder::Holder;
use crate::poll::Poll;
use crate::request::{self, Next};

/// Followers get lines at most this often: one write for many lines. Less than the wait between
/// two batched reads, so that it needs no wake-up of its own.
const FOLLOW_WAIT_NS: u64 = 15 * MS;
/// More connections than that are closed at once.
const MAX_CONNS: usize = 256;

/// Signals as readable descriptors.
pub struct Signals {
    child: UnixStream,
    end: UnixStream,
}

impl Signals {
    /// From here on SIGHUP is ignored, and SIGTERM and SIGINT mean: stop the tree, then end.
    pub fn install() -> std::io::Result<Self> {
        let (child, child_writer) = UnixStream::pair()?;
        let (end, end_writer) = UnixStream::pair()?;
        for stream in [&child, &end] {
            stream.set_nonblocking(true)?;
        }
        signal_hook::low_level::pipe::register(SIGCHLD, child_writer)?;
        signal_hook::low_level::pipe::register(SIGTERM, end_writer.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGINT, end_writer)?;
        // A handler and not SIG_IGN: the child would inherit that.
        signal_hook::flag::register(SIGHUP, std::sync::Arc::default())?;
        Ok(Self { child, end })
    }
}

pub struct Server {
    poll: Poll,
    listener: UnixListener,
    signals: Signals,
    tokens: [u64; 3],
    conns: Vec<Conn>,
    holder: Holder,
    followed_ns: u64,
    lines_seen: u64,
    num_end_signals: u32,
    is_over: bool,
}

impl Server {
    pub fn new(
        listener: UnixListener,
        signals: Signals,
        mut holder: Holder,
    ) -> std::io::Result<Self> {
        let mut poll = Poll::new()?;
        listener.set_nonblocking(true)?;
        let tokens = [
            poll.add(&listener)?,
            poll.add(&signals.child)?,
            poll.add(&signals.end)?,
        ];
        holder.start(&mut poll);
        Ok(Self {
            poll,
            listener,
            signals,
            tokens,
            conns: Vec::new(),
            holder,
            followed_ns: 0,
            lines_seen: 0,
            num_end_signals: 0,
            is_over: false,
        })
    }

    pub fn run(mut self) -> std::io::Result<()> {
        while !self.is_over {
            if let Some(rest_ns) = self.holder.output.rest_ns.take() {
                std::thread::sleep(std::time::Duration::from_nanos(rest_ns));
            }
            let timeout = self.due_ns().map(|due| due.saturating_sub(now_ns()));
            let ready = self.poll.wait(timeout)?;
            let now = now_ns();
            for event in ready {
                self.dispatch(event.token, event.is_readable, now);
            }
            self.holder.tick(&mut self.poll, now);
            self.serve(now);
        }
        self.holder.close();
        Ok(())
    }

    fn due_ns(&self) -> Option<u64> {
        let follow = self.has_news().then_some(self.followed_ns + FOLLOW_WAIT_NS);
        self.holder.due_ns().into_iter().chain(follow).min()
    }

    /// Lines came since the followers were served.
    fn has_news(&self) -> bool {
        let is_followed = self
            .conns
            .iter()
            .any(|conn| matches!(conn.job, Job::Lines(_)));
        is_followed && self.holder.output.ring.next() != self.lines_seen
    }

    fn dispatch(&mut self, token: u64, is_readable: bool, now: u64) {
        if self.holder.output.read(token, now) {
            return;
        }
        match self.tokens.iter().position(|&own| own == token) {
            Some(0) => self.accept(),
            Some(1) => {
                drain(&self.signals.child);
                self.holder.reap();
            }
            Some(_) => {
                drain(&self.signals.end);
                self.end();
            }
            None => {
                if let Some(conn) = self.conns.iter_mut().find(|conn| conn.token() == token) {
                    if is_readable {
                        conn.receive();
                    }
                    Self::answer(conn, &mut self.holder, &mut self.poll, &mut self.is_over);
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.conns.len() >= MAX_CONNS {
                continue;
            }
            if let Ok(conn) = Conn::new(stream, &mut self.poll) {
                self.conns.push(conn);
            }
        }
    }

    /// SIGTERM: stops the tree; a second one does not wait for it.
    fn end(&mut self) {
        self.num_end_signals += 1;
        if self.num_end_signals == 1 {
            self.holder.stop(None);
        } else {
            self.holder.kill();
        }
    }

    /// Serves jobs that time or the child has brought on, and forgets closed connections.
    fn serve(&mut self, now: u64) {
        let is_due = self.has_news() && now >= self.followed_ns + FOLLOW_WAIT_NS;
        if is_due {
            self.followed_ns = now;
            self.lines_seen = self.holder.output.ring.next();
        }
        if is_due || self.holder.has_exited() {
            for conn in &mut self.conns {
                Self::answer(conn, &mut self.holder, &mut self.poll, &mut self.is_over);
            }
        }
        self.conns.retain(|conn| !conn.is_closed);
        let is_told = self.conns.iter().all(|conn| conn.is_sent());
        if self.num_end_signals > 0 && self.holder.has_exited() && is_told {
            self.is_over = true;
        }
    }

    /// Answers what can be answered now, as far as the peer takes it.
    fn answer(conn: &mut Conn, holder: &mut Holder, poll: &mut Poll, is_over: &mut bool) {
        while !conn.is_closed {
            while request::advance(conn, holder) {
                let Some(line) = conn.next_request() else {
                    break;
                };
                *is_over |= request::handle(&line, conn, holder, poll) == Next::End;
            }
            if conn.is_sent() {
                return;
            }
            conn.send(poll);
            if !conn.is_sent() {
                return;
            }
        }
    }
}

/// Empties a descriptor that only says that something happened.
fn drain(stream: impl AsFd) {
    let mut sink = [0u8; 64];
    while rustix::io::read(&stream, &mut sink).is_ok_and(|count| count > 0) {}
}
