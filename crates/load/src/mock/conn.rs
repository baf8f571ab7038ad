//! One connection of the mock: bytes in, bytes out, the answer that is under way.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::behaviour::Asked;
use super::request::{Body, Head};
use super::stream::Stream;
use crate::net;

/// The answer to one request.
pub enum Reply {
    Stream(Box<Stream>),
    /// A finished response that goes out at its time.
    Document(Vec<u8>),
}

/// A request that is complete and waits for a server of the station.
pub struct Waiting {
    pub asked: Asked,
    pub path: String,
    pub received: u64,
    pub close: bool,
}

pub struct Conn {
    pub fd: OwnedFd,
    pub input: Vec<u8>,
    pub head: Option<Head>,
    pub body: Option<Body>,
    pub reply: Option<Reply>,
    pub waiting: Option<Waiting>,
    pub serving: bool,
    pub close: bool,
    pub watching_write: bool,
    pub out: Vec<u8>,
    sent: usize,
}

impl Conn {
    pub fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            input: Vec::new(),
            head: None,
            body: None,
            reply: None,
            waiting: None,
            serving: false,
            close: false,
            watching_write: false,
            out: Vec::with_capacity(1024),
            sent: 0,
        }
    }

    pub fn is_busy(&self) -> bool {
        self.reply.is_some() || self.waiting.is_some()
    }

    pub fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends what the peer takes; true when everything is out, an error when the peer is gone.
    pub fn flush(&mut self) -> Result<bool, Errno> {
        while self.sent < self.out.len() {
            match net::send(&self.fd, &self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.out.shrink_to(64 << 10);
        self.sent = 0;
        Ok(true)
    }
}
