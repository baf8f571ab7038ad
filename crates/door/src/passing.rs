//! Chunks on their way to the client past hyper: read, counted and written in one turn.
//!
//! hyper writes the head and what comes with it, and the end. In between it takes the body for one that
//! has nothing to give; what its own way costs is a frame's memory, a queue of buffers and a second
//! turn of its machine for each chunk.

use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};

use crate::io::link::Link;
use crate::io::upstream::Upstream;

const END: &[u8] = b"\r\n";

thread_local! {
    /// Chunks of one turn as the client gets them, the same memory for all connections.
    static OUT: RefCell<Vec<u8>> = RefCell::default();
}

/// Where it went wrong.
pub enum Broken {
    Replica,
    Client(io::Error),
}

/// The client's side of one answer.
pub struct Passing {
    /// Whether the client is told the length of each chunk, on a socket that takes bytes as they are.
    takes_chunks: bool,
    /// hyper held something when this was the count of flushes.
    held_at: u64,
    unsent: BytesMut,
}

impl Passing {
    pub fn new(takes_chunks: bool, link: &Link) -> Passing {
        Passing {
            takes_chunks,
            held_at: link.flushes.get(),
            unsent: BytesMut::new(),
        }
    }

    /// hyper is given something to write, and has to write it first.
    pub fn held(&mut self, link: &Link) {
        self.held_at = link.flushes.get();
    }

    /// Whether chunks can go past hyper now.
    pub fn is_open(&self, link: &Link) -> bool {
        self.takes_chunks && link.flushes.get() != self.held_at
    }

    /// Writes what the client has not taken yet.
    pub fn poll_unsent(&mut self, link: &Link, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let n = ready!(link.sock.poll_write(cx, &self.unsent))?;
            self.unsent.advance(n);
        }
        self.unsent = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// Reads once and writes it, or as much of it as the client takes. `each` sees every chunk, or as
    /// much of it as came.
    pub fn poll_pass(
        &mut self,
        upstream: &mut Upstream,
        link: &Link,
        cx: &mut Context<'_>,
        mut each: impl FnMut(&[u8]),
    ) -> Poll<Result<(), Broken>> {
        OUT.with_borrow_mut(|out| {
            out.clear();
            let read = upstream.poll_chunks(cx, |data| {
                each(data);
                frame(out, data);
            });
            ready!(read).map_err(|_| Broken::Replica)?;
            if out.is_empty() {
                return Poll::Ready(Ok(())); // A part of some framing came, or the end.
            }
            let written = match link.sock.poll_write(cx, out) {
                Poll::Ready(written) => written.map_err(Broken::Client)?,
                Poll::Pending => 0,
            };
            self.unsent.extend_from_slice(&out[written..]);
            Poll::Ready(Ok(()))
        })
    }
}

/// Adds `data` as one chunk.
fn frame(out: &mut Vec<u8>, data: &[u8]) {
    let mut digits = [0; size_of::<usize>() * 2];
    let (mut at, mut left) = (digits.len(), data.len());
    while left > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[left % 16];
        left /= 16;
    }
    for part in [&digits[at..], END, data, END] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_says_how_long_it_is() {
        for (len, size) in [(1, "1"), (15, "f"), (16, "10"), (65536, "10000")] {
            let data = vec![b'x'; len];
            let mut out = b"before".to_vec();
            frame(&mut out, &data);
            let expected = [b"before", size.as_bytes(), END, &data, END].concat();
            assert_eq!(out, expected);
        }
    }
}
