//! The gate between a client's socket and hyper: it passes one unambiguous request at a time.
//!
//! It refuses heads with two readings (see [`super::head`]), finds the end of each request by
//! itself, and holds back what follows until the response is done. So hyper never has bytes of a
//! later request in its buffer, and always watches the socket while a response is pending: a client
//! that leaves is seen at once, pipelining or not.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::chunked::ChunkWalk;
use super::head::{self, Framing, Head, Reject};
use super::link::{Link, Waiting};
use crate::clock::recent_ns;

/// One read of the socket while a head is awaited; heads are mostly smaller.
const READ_BYTES: usize = 16 << 10;
/// What an upload must bring within `body_timeout_ms`: far below any codec's rate.
const PROGRESS_BYTES: u64 = 16 << 10;
/// A connection kept alive may be silent this long between requests.
pub const IDLE_NS: u64 = 300_000_000_000;

thread_local! {
    /// Read here first, so that a waiting connection holds no buffer of its own.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

enum Phase {
    /// A head is awaited or incomplete.
    Head,
    /// The rest of the checked head in `held` goes to hyper.
    PassHead(usize, Framing),
    Length(u64),
    Chunked(ChunkWalk),
    /// The request is with hyper; the response is awaited.
    Done,
    Refused,
}

/// Bounds on what a client may send; from the tables.
#[derive(Debug, Clone, Copy)]
pub struct GateLimits {
    pub head_bytes: usize,
    pub head_timeout_ns: u64,
    pub body_timeout_ns: u64,
}

/// The reading and writing end that hyper's server connection is given.
pub struct Gate {
    link: Rc<Link>,
    limits: GateLimits,
    phase: Phase,
    held: BytesMut,
    /// How much of `held` was searched for the head's end.
    searched: usize,
}

impl Gate {
    pub fn new(link: Rc<Link>, limits: GateLimits) -> Gate {
        link.wait_for(Waiting::Head, recent_ns() + limits.head_timeout_ns);
        Gate {
            link,
            limits,
            phase: Phase::Head,
            held: BytesMut::new(),
            searched: 0,
        }
    }

    /// Bytes that came after the request: the first of an upgraded connection.
    pub fn into_held(self) -> BytesMut {
        self.held
    }

    fn refuse(&mut self, reject: Reject) {
        *self.link.reject.borrow_mut() = Some(reject);
        self.link.wake();
        self.phase = Phase::Refused;
    }

    /// Reads once into `held`; how much came (0 is the end).
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            ready!(self.link.sock.poll_read(cx, &mut buf))?;
            self.held.extend_from_slice(buf.filled());
            Poll::Ready(Ok(buf.filled().len()))
        })
    }

    /// Looks for a whole head in `held`.
    fn check_head(&mut self) {
        let blank = self
            .held
            .iter()
            .take_while(|b| matches!(b, b'\r' | b'\n'))
            .count();
        if blank > 4 {
            return self.refuse(malformed("blank lines before the request"));
        }
        self.held.advance(blank);
        if self.held.is_empty() {
            return;
        }
        let from = self.searched.saturating_sub(3);
        if self.searched > 0 && memchr::memmem::find(&self.held[from..], b"\n\r\n").is_none() {
            self.searched = self.held.len();
            return self.check_head_size(self.held.len());
        }
        match head::read(&self.held) {
            Ok(Some(head)) => {
                self.begin_request();
                self.phase = Phase::PassHead(head.len, self.take_body(&head));
                self.check_head_size(head.len);
            }
            Ok(None) => {
                self.searched = self.held.len();
                self.check_head_size(self.held.len());
            }
            Err(reject) => self.refuse(reject),
        }
    }

    fn check_head_size(&mut self, len: usize) {
        if len > self.limits.head_bytes {
            self.refuse(Reject {
                status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                message: "the request head is larger than limits.head_bytes",
            });
        }
    }

    fn begin_request(&mut self) {
        self.searched = 0;
        self.link.response_done.set(false);
        self.link.request_done.set(false);
        self.link.is_body_over.set(false);
        self.link.wait_for(Waiting::Nothing, u64::MAX);
    }

    /// Keeps a body that came whole with its head: what is left for hyper to find.
    ///
    /// hyper would make a channel for it and take another turn to fill it. It is shown a length of
    /// zeros instead; the replica is told the true one (see `sending`).
    fn take_body(&mut self, head: &Head) -> Framing {
        let Framing::Length(length @ 1..) = head.framing else {
            return head.framing;
        };
        let end = usize::try_from(length).map_or(usize::MAX, |len| head.len.saturating_add(len));
        if self.link.origin.is_admin() || end > self.held.len() {
            return head.framing;
        }
        let body = Bytes::copy_from_slice(&self.held[head.len..end]);
        let num_behind = self.held.len() - end;
        self.held.copy_within(end.., head.len);
        self.held.truncate(head.len + num_behind);
        self.held[head.length_at.0..head.length_at.1].fill(b'0');
        *self.link.body.borrow_mut() = Some(body);
        Framing::Length(0)
    }

    fn end_request(&mut self) {
        self.phase = Phase::Done;
        self.link.request_done.set(true);
        if self.link.waiting() == Waiting::Body {
            self.link.wait_for(Waiting::Nothing, u64::MAX);
        }
    }

    fn next_request(&mut self) {
        self.phase = Phase::Head;
        self.link.is_answering.set(false);
        self.link.body.take();
        let now = recent_ns();
        if self.held.is_empty() {
            // An empty buffer gives its memory back: thousands of clients wait here.
            self.held = BytesMut::new();
            self.link.wait_for(Waiting::Idle, now + IDLE_NS);
        } else {
            self.link
                .wait_for(Waiting::Head, now + self.limits.head_timeout_ns);
        }
    }

    /// Whether the first head is whole; false: the end came before.
    ///
    /// # Errors
    /// The socket's.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            match self.phase {
                Phase::Head => {
                    if !ready!(self.read_head(cx))? {
                        return Poll::Ready(Ok(false));
                    }
                }
                Phase::Refused => return Poll::Pending,
                _ => return Poll::Ready(Ok(true)),
            }
        }
    }

    fn read_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.searched < self.held.len() {
            self.check_head();
            if !matches!(self.phase, Phase::Head) {
                return Poll::Ready(Ok(true));
            }
        }
        let got = ready!(self.fill(cx))?;
        self.link
            .bytes_in
            .set(self.link.bytes_in.get() + got as u64);
        if got > 0 && self.link.waiting() == Waiting::Idle {
            let deadline = recent_ns() + self.limits.head_timeout_ns;
            self.link.wait_for(Waiting::Head, deadline);
        }
        Poll::Ready(Ok(got > 0))
    }

    fn pass_held(&mut self, out: &mut ReadBuf<'_>, most: usize) -> usize {
        let n = self.held.len().min(out.remaining()).min(most);
        out.put_slice(&self.held[..n]);
        self.held.advance(n);
        n
    }

    fn pass_length(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
        left: u64,
    ) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        if self.held.is_empty() {
            let read = self.read_length(cx, out, left);
            if read.is_pending() {
                self.await_body();
            }
            ready!(read)?;
        } else {
            self.pass_held(out, usize::try_from(left).unwrap_or(usize::MAX));
        }
        let got = out.filled().len() - before;
        self.phase = Phase::Length(left - got as u64);
        self.count_body(got);
        if left == got as u64 {
            self.end_request();
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from the socket into `out`, no more than `left`.
    fn read_length(
        &self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
        left: u64,
    ) -> Poll<io::Result<()>> {
        let sock = &self.link.sock;
        if left >= out.remaining() as u64 {
            // Most of a large upload goes from the socket to hyper's buffer without a copy.
            return sock.poll_read(cx, out);
        }
        let mut part = ReadBuf::new(out.initialize_unfilled_to(left as usize));
        ready!(sock.poll_read(cx, &mut part))?;
        let got = part.filled().len();
        out.advance(got);
        Poll::Ready(Ok(()))
    }

    fn pass_chunked(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            let read = self.fill(cx);
            if read.is_pending() {
                self.await_body();
            }
            if ready!(read)? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        let Phase::Chunked(walk) = &mut self.phase else {
            return Poll::Ready(Ok(()));
        };
        let most = self.held.len().min(out.remaining());
        let Ok(n) = walk.walk(&self.held[..most]) else {
            self.refuse(malformed("the chunked body is not valid"));
            return Poll::Pending;
        };
        let is_done = walk.is_done();
        self.pass_held(out, n);
        self.count_body(n);
        if is_done {
            self.end_request();
        }
        Poll::Ready(Ok(()))
    }

    /// The client owes more of the body: unless the wait runs already, it begins now.
    fn await_body(&self) {
        if matches!(self.link.waiting(), Waiting::Nothing | Waiting::Upstream) {
            self.link
                .wait_for(Waiting::Body, recent_ns() + self.limits.body_timeout_ns);
        }
    }

    fn count_body(&self, bytes: usize) {
        let before = self.link.bytes_in.get();
        self.link.bytes_in.set(before + bytes as u64);
        // Less than this within the time-out is no progress: a byte a minute would hold slot and
        // memory for ever.
        let is_progress = (before + bytes as u64) / PROGRESS_BYTES != before / PROGRESS_BYTES;
        if is_progress && self.link.waiting() == Waiting::Body {
            self.link.wait_for(Waiting::Nothing, u64::MAX);
        }
    }

    /// While the response is pending: watch for the end, keep what a pipelining client sends,
    /// within bounds.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.held.len() > self.limits.head_bytes {
                // Full: the rest waits in the kernel, whose window closes.
                return Poll::Pending;
            }
            if ready!(self.fill(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

fn malformed(message: &'static str) -> Reject {
    Reject {
        status: StatusCode::BAD_REQUEST,
        message,
    }
}

impl AsyncRead for Gate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let gate = &mut *self;
        loop {
            match gate.phase {
                Phase::Head => {
                    if !ready!(gate.read_head(cx))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Phase::PassHead(left, framing) => {
                    let n = gate.pass_held(out, left);
                    gate.phase = match framing {
                        _ if n < left => Phase::PassHead(left - n, framing),
                        Framing::Length(body) => Phase::Length(body),
                        Framing::Chunked => Phase::Chunked(ChunkWalk::default()),
                    };
                    if matches!(gate.phase, Phase::Length(0)) {
                        gate.end_request();
                    }
                    return Poll::Ready(Ok(()));
                }
                Phase::Length(left) => return gate.pass_length(cx, out, left),
                Phase::Chunked(_) => return gate.pass_chunked(cx, out),
                Phase::Done => return gate.watch(cx),
                Phase::Refused => return Poll::Pending,
            }
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.link.sock.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.link.sock.poll_write_gathered(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        ready!(gate.link.sock.poll_flush(cx))?;
        gate.link.flushes.set(gate.link.flushes.get() + 1);
        // hyper flushes when it wrote all it had: with the body gone too, the response has left.
        if matches!(gate.phase, Phase::Done) && gate.link.response_done.get() {
            gate.next_request();
            if !gate.held.is_empty() {
                // hyper does not look again by itself after it was told that nothing is there.
                gate.link.wake();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.sock.poll_shutdown(cx)
    }
}
