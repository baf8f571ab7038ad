//! One connection on the control socket: lines in, lines out, both bounded, never waited for.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use serde::Serialize;

use crate::poll::Poll;
use crate::ring::Ring;

/// A longer request is refused by closing: an upgrade's environment fits well.
const MAX_REQUEST: usize = 4 << 20;
/// Lines are taken from the ring only while less than this waits to be sent.
const MAX_PENDING: usize = 64 * 1024;

/// What the connection is busy with; its next request waits until that is done.
#[derive(Debug)]
pub enum Job {
    Idle,
    Lines(Cursor),
    /// Answers when nothing of the tree is left.
    Settled,
}

/// A reader of the ring: it is left behind, never waited for.
#[derive(Debug)]
pub struct Cursor {
    pub next: u64,
    pub left: u64,
    pub follow: bool,
    pub dropped: u64,
}

#[derive(Serialize)]
struct LineReply<'a> {
    n: u64,
    t_ns: u64,
    stream: &'a str,
    text: std::borrow::Cow<'a, str>,
    partial: bool,
}

pub struct Conn {
    stream: UnixStream,
    token: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    wants_write: bool,
    pub job: Job,
    pub is_closed: bool,
}

impl Conn {
    pub fn new(stream: UnixStream, poll: &mut Poll) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        let token = poll.add(&stream)?;
        Ok(Self {
            stream,
            token,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            wants_write: false,
            job: Job::Idle,
            is_closed: false,
        })
    }

    pub fn token(&self) -> u64 {
        self.token
    }

    /// Takes what the peer has sent.
    pub fn receive(&mut self) {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.is_closed = true,
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => self.is_closed = true,
            }
            self.is_closed |= self.input.len() > MAX_REQUEST;
            if self.is_closed {
                return;
            }
        }
    }

    /// The next whole request.
    pub fn next_request(&mut self) -> Option<Vec<u8>> {
        let end = memchr::memchr(b'\n', &self.input)?;
        let rest = self.input.split_off(end + 1);
        Some(std::mem::replace(&mut self.input, rest))
    }

    pub fn reply(&mut self, value: &impl Serialize) {
        // Writing to a Vec cannot fail, and every reply has string keys.
        let _ = serde_json::to_writer(&mut self.output, value);
        self.output.push(b'\n');
    }

    /// Queues lines for the peer; true when the request is answered up to its last reply.
    pub fn pump(&mut self, ring: &Ring, has_ended: bool) -> bool {
        let Job::Lines(cursor) = &mut self.job else {
            return false;
        };
        if cursor.next < ring.first() {
            cursor.dropped += ring.first() - cursor.next;
            cursor.next = ring.first();
        }
        while cursor.left > 0 && self.output.len() < MAX_PENDING {
            let Some(line) = ring.get(cursor.next) else {
                break;
            };
            let reply = LineReply {
                n: cursor.next,
                t_ns: line.t_ns,
                stream: line.stream.name(),
                text: String::from_utf8_lossy(&line.text),
                partial: line.partial,
            };
            let _ = serde_json::to_writer(&mut self.output, &reply);
            self.output.push(b'\n');
            cursor.next += 1;
            cursor.left -= 1;
        }
        let is_at_end = cursor.next >= ring.next() && (has_ended || !cursor.follow);
        cursor.left == 0 || is_at_end
    }

    /// Sends what the peer takes now; the rest waits for room.
    pub fn send(&mut self, poll: &Poll) {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.is_closed = true;
                    return;
                }
            }
        }
        self.output.drain(..self.sent);
        self.sent = 0;
        let is_pending = !self.output.is_empty();
        if is_pending != self.wants_write {
            self.wants_write = is_pending;
            self.is_closed |= poll
                .want_write(&self.stream, self.token, is_pending)
                .is_err();
        }
    }

    pub fn is_sent(&self) -> bool {
        self.output.is_empty()
    }
}
