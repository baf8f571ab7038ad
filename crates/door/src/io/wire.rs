//! What hyper's client reads of a replica's socket: heads, and bodies that it had better decode.
//!
//! A chunked body goes past it ([`Wire::poll_chunks`]): for each chunk hyper would allocate, send itself a
//! message and take two turns, and only the framing is to be taken off. hyper is given the head up to
//! the blank line, and what ends the body: the last chunk and the trailers. Whatever is not plainly
//! such an answer is left to hyper from its first byte.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::chunked::{ChunkWalk, Step};
use super::sock::{SharedSock, Sock};

/// In a head without this word no body is chunked.
const CHUNKED: &[u8] = b"chunked";

/// What of the socket hyper reads now.
enum Intake {
    All,
    /// What comes first of an answer, and may hold the head of a chunked one.
    First,
    /// Such a head has passed: nothing, until it is known what hyper made of it.
    Nothing,
    /// A chunked body is read past it.
    Chunks(ChunkWalk),
}

/// A replica's socket and what went through it since the request began.
pub struct Wire {
    sock: SharedSock,
    intake: RefCell<Intake>,
    /// Read from the socket, and not passed on yet.
    held: RefCell<BytesMut>,
    written: Cell<u64>,
    read: Cell<u64>,
    /// Dead once hyper has taken all of the request's body.
    sending: RefCell<Weak<()>>,
    /// hyper has written all that it took.
    is_flushed: Cell<bool>,
}

/// hyper's end of the wire.
pub struct WireIo(pub Rc<Wire>);

impl Wire {
    pub fn new(sock: Sock) -> Rc<Wire> {
        Rc::new(Wire {
            sock: SharedSock::new(sock),
            intake: RefCell::new(Intake::All),
            held: RefCell::default(),
            written: Cell::new(0),
            read: Cell::new(0),
            sending: RefCell::default(),
            is_flushed: Cell::new(false),
        })
    }

    /// A request begins, with a body that is alive until hyper has taken all of it: what is read next
    /// is the head of its answer.
    pub fn begin(&self, sending: Weak<()>) {
        *self.sending.borrow_mut() = sending;
        self.written.set(0);
        self.read.set(0);
        *self.intake.borrow_mut() = Intake::First;
    }

    /// Whether not one byte went either way since the request began.
    pub fn is_untouched(&self) -> bool {
        self.written.get() == 0 && self.read.get() == 0
    }

    /// hyper wants more than what passed for a head. False: it was given all there is.
    pub fn pass_more(&self) -> bool {
        let mut intake = self.intake.borrow_mut();
        let is_held_back = matches!(*intake, Intake::Nothing);
        if is_held_back {
            *intake = Intake::All;
        }
        is_held_back
    }

    /// hyper has made an answer of what passed; `is_chunked`: plainly in chunks. Its data is then read by
    /// [`Wire::poll_chunks`], unless hyper was given more than the head, or still has of the request to
    /// send.
    pub fn begin_body(&self, is_chunked: bool) {
        let is_sent = self.sending.borrow().strong_count() == 0 && self.is_flushed.get();
        let mut intake = self.intake.borrow_mut();
        *intake = match *intake {
            Intake::Nothing if is_chunked && is_sent => Intake::Chunks(ChunkWalk::of_replica()),
            _ => Intake::All,
        };
    }

    /// Whether data is to be read by [`Wire::poll_chunks`].
    pub fn is_past_hyper(&self) -> bool {
        matches!(*self.intake.borrow(), Intake::Chunks(_))
    }

    /// Reads once of the chunked body; `each` gets every chunk, or as much of it as came. `room` is for
    /// the bytes. False: the body is over but for what hyper reads, its end and the trailers.
    ///
    /// # Errors
    /// The socket's; `UnexpectedEof` before the last chunk, `InvalidData` where the framing is broken.
    pub fn poll_chunks(
        &self,
        cx: &mut Context<'_>,
        room: &mut [u8],
        mut each: impl FnMut(&[u8]),
    ) -> Poll<io::Result<bool>> {
        if !self.is_past_hyper() {
            return Poll::Ready(Ok(false));
        }
        let mut read = ReadBuf::new(room);
        ready!(self.poll_some(cx, &mut read))?;
        let mut bytes = read.filled();
        if bytes.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        while !bytes.is_empty() && self.is_past_hyper() {
            let step = self.next_chunk(bytes)?;
            if !step.data.is_empty() {
                each(&bytes[step.data.clone()]);
            }
            bytes = &bytes[step.used..];
            if step.is_over {
                self.end_chunks(bytes);
            }
        }
        Poll::Ready(Ok(true))
    }

    /// One chunk, or as much of it as came; as [`Wire::poll_chunks`], None at the end. What is behind it
    /// is held.
    ///
    /// # Errors
    /// As [`Wire::poll_chunks`].
    pub fn poll_chunk(
        &self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<Option<Bytes>>> {
        while self.is_past_hyper() {
            if self.held.borrow().is_empty() {
                let mut read = ReadBuf::new(room);
                ready!(self.poll_some(cx, &mut read))?;
                if read.filled().is_empty() {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                self.held.borrow_mut().extend_from_slice(read.filled());
            }
            let mut held = self.held.take();
            let step = self.next_chunk(&held)?;
            let mut chunk = held.split_to(step.used);
            self.held.replace(held);
            if step.is_over {
                self.end_chunks(&[]);
            }
            if !step.data.is_empty() {
                chunk.advance(step.data.start);
                return Poll::Ready(Ok(Some(chunk.freeze())));
            }
        }
        Poll::Ready(Ok(None))
    }

    fn next_chunk(&self, bytes: &[u8]) -> io::Result<Step> {
        match &mut *self.intake.borrow_mut() {
            Intake::Chunks(walk) => walk
                .next(bytes)
                .map_err(|_| io::ErrorKind::InvalidData.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The line of the last chunk has passed: hyper reads one, `behind` and what is held.
    fn end_chunks(&self, behind: &[u8]) {
        let held = self.held.take();
        let parts = [b"0\r\n", behind, &held].concat();
        self.held.replace(BytesMut::from(&parts[..]));
        *self.intake.borrow_mut() = Intake::All;
    }

    /// What is held, else what the socket has.
    fn poll_some(&self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut held = self.held.borrow_mut();
        if held.is_empty() {
            let before = room.filled().len();
            ready!(self.sock.poll_read(cx, room))?;
            let got = (room.filled().len() - before) as u64;
            self.read.set(self.read.get() + got);
            return Poll::Ready(Ok(()));
        }
        let n = held.len().min(room.remaining());
        room.put_slice(&held[..n]);
        held.advance(n);
        if held.is_empty() {
            *held = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// The first piece of an answer; what lies behind the head of a chunked one is held back.
    fn poll_first(&self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<Intake>> {
        let before = out.filled().len();
        ready!(self.poll_some(cx, out))?;
        let Some(end) = end_of_chunked_head(&out.filled()[before..]) else {
            return Poll::Ready(Ok(Intake::All));
        };
        let behind = BytesMut::from(&out.filled()[before + end..]);
        self.held.replace(behind);
        out.set_filled(before + end);
        Poll::Ready(Ok(Intake::Nothing))
    }

    /// The socket, and what was read of it before.
    pub fn into_raw(&self, first: Bytes) -> (SharedSock, Bytes) {
        let held = self.held.take();
        let first = match held.is_empty() {
            true => first,
            false => [first, held.freeze()].concat().into(),
        };
        (self.sock.clone(), first)
    }

    fn count(&self, polled: &Poll<io::Result<usize>>) {
        self.is_flushed.set(false);
        if let Poll::Ready(Ok(n)) = polled {
            self.written.set(self.written.get() + *n as u64);
        }
    }
}

/// Where a head ends that may announce a chunked body: behind the first blank line, as hyper's parser
/// sees lines (with a return or without). None: it is not whole, or does not.
fn end_of_chunked_head(bytes: &[u8]) -> Option<usize> {
    let end = memchr::memchr_iter(b'\n', bytes).find_map(|at| match &bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })?;
    memchr::memmem::find(&bytes[..end], CHUNKED).map(|_| end)
}

impl AsyncRead for WireIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = &self.0;
        let next = match &*wire.intake.borrow() {
            Intake::All => return wire.poll_some(cx, out),
            Intake::First => ready!(wire.poll_first(cx, out))?,
            Intake::Nothing | Intake::Chunks(_) => return Poll::Pending,
        };
        *wire.intake.borrow_mut() = next;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WireIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = self.0.sock.poll_write(cx, buf);
        self.0.count(&polled);
        polled
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = self.0.sock.poll_write_gathered(cx, bufs);
        self.0.count(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper asks for it when nothing is left in its buffer; the socket has none.
        self.0.is_flushed.set(true);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.sock.poll_shutdown(cx)
    }
}
