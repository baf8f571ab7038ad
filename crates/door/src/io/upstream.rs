//! One connection to a replica: the door's own HTTP/1.1, driven by whoever waits for its answer.
//!
//! The connection is no task of its own. It is polled by the request that uses it and dropped with
//! it, so leaving a request closes its socket in the same turn of the loop, and a chunk costs one
//! wake. Between reads it holds no memory but what came and was not passed on.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::header::UPGRADE;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::answer::{self, Answer, BadAnswer, Rest};
use super::sending::{SendBody, Sending, Unsent};
use super::sock::{SharedSock, Sock};
use super::turn::after_the_others;
use super::unix::UnixSock;
use crate::queue::Replica;
use crate::tables::Address;

/// A machine that does not answer a SYN for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The most that is read at once.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    /// Where bytes are read to, the same for all connections.
    static ROOM: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// Opens a socket to a replica.
///
/// # Errors
/// Whatever the kernel says, or a time-out after 3 s.
pub async fn connect(address: &Address) -> io::Result<Sock> {
    let open = async {
        Ok(match address {
            Address::Unix(path) => Sock::Unix(UnixSock::new(UnixStream::connect(path).await?)?),
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Sock::Tcp(stream)
            }
        })
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, open).await {
        Ok(opened) => opened,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// A usable connection to one replica. Boxed: it changes hands often.
pub struct Upstream(Box<Parts>);

struct Parts {
    sock: Sock,
    sending: Sending,
    /// Read from the socket, and not passed on yet.
    held: BytesMut,
    rest: Rest,
    /// The request is of a kind whose answer has no body.
    is_head: bool,
    /// It asks for another protocol.
    asks_upgrade: bool,
    /// Another request may follow, as far as is known.
    is_open: bool,
    idle_since_ns: u64,
    /// Counted while it lives.
    _count: Count,
}

/// Counts a live connection.
struct Count(Rc<Replica>);

impl Count {
    fn new(replica: Rc<Replica>) -> Count {
        replica.connections.set(replica.connections.get() + 1);
        Count(replica)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
    }
}

/// A request that got no response.
#[derive(Debug)]
pub struct Unanswered {
    /// Not one byte of it left: it provably never ran.
    pub never_ran: bool,
    /// The client's body broke off: no fault of the replica's.
    pub is_broken_off: bool,
    pub reason: String,
}

impl Upstream {
    /// Speaks HTTP/1.1 on `sock`, a socket of `replica`.
    pub fn new(sock: Sock, replica: Rc<Replica>) -> Upstream {
        Upstream(Box::new(Parts {
            sock,
            sending: Sending::nothing(),
            held: BytesMut::new(),
            rest: Rest::Nothing,
            is_head: false,
            asks_upgrade: false,
            is_open: true,
            idle_since_ns: 0,
            _count: Count::new(replica),
        }))
    }

    /// Whether the exchange is over and another may follow.
    pub fn is_ready(&self) -> bool {
        let Parts {
            is_open,
            held,
            sending,
            ..
        } = &*self.0;
        *is_open && self.is_over() && held.is_empty() && sending.is_whole()
    }

    /// Whether the answer is whole.
    pub fn is_over(&self) -> bool {
        matches!(self.0.rest, Rest::Nothing)
    }

    /// Whether what comes next is data in chunks.
    pub fn has_chunks(&self) -> bool {
        matches!(self.0.rest, Rest::Chunks(_))
    }

    /// Whether the client's body broke off.
    pub fn is_broken_off(&self) -> bool {
        self.0.sending.is_broken_off()
    }

    /// How long what is left of the body is, where that is known.
    pub fn length(&self) -> Option<u64> {
        match self.0.rest {
            Rest::Nothing => Some(0),
            Rest::Length(left) => Some(left),
            _ => None,
        }
    }

    /// Since when it lies in the pool.
    pub fn idle_since_ns(&self) -> u64 {
        self.0.idle_since_ns
    }

    /// It lies in the pool from `now` on.
    pub fn rest(&mut self, now: u64) {
        self.0.idle_since_ns = now;
    }

    /// Looks whether the other side has closed it, or said what nobody asked; nobody is woken for it
    /// any more.
    pub fn settle(&mut self) {
        let is_silent = self.0.is_silent(&mut Context::from_waker(Waker::noop()));
        self.0.is_open &= is_silent;
    }

    /// Sends `request` and waits for the response head; `give_up` is asked on every wake.
    ///
    /// # Errors
    /// [`Unanswered`], or the reason of `give_up`.
    pub async fn exchange<G>(
        &mut self,
        request: Request<SendBody>,
        mut give_up: impl FnMut() -> Option<G>,
    ) -> Result<Result<Response<()>, Unanswered>, G> {
        let parts = &mut *self.0;
        parts.is_head = request.method() == Method::HEAD;
        parts.asks_upgrade = request.headers().contains_key(UPGRADE);
        parts.sending = Sending::new(request);
        after_the_others().await;
        let answered = poll_fn(|cx| match parts.poll_answer(cx) {
            Poll::Ready(Ok(head)) => Poll::Ready(Ok(Ok(head))),
            Poll::Ready(Err(error)) => Poll::Ready(Ok(Err(parts.unanswered(&error)))),
            Poll::Pending => give_up().map_or(Poll::Pending, |reason| Poll::Ready(Err(reason))),
        })
        .await;
        // It is written to the client next.
        after_the_others().await;
        answered
    }

    /// Reads once of a body in chunks; `each` gets every chunk, or as much of it as came. False: there
    /// are no more of them.
    ///
    /// # Errors
    /// As [`Upstream::poll_frame`].
    pub fn poll_chunks(
        &mut self,
        cx: &mut Context<'_>,
        mut each: impl FnMut(&[u8]),
    ) -> Poll<io::Result<bool>> {
        let parts = &mut *self.0;
        parts.send_on(cx)?;
        if !matches!(parts.rest, Rest::Chunks(_)) {
            return Poll::Ready(Ok(false));
        }
        if !parts.held.is_empty() {
            let held = std::mem::take(&mut parts.held);
            return Poll::Ready(parts.walk(&held, &mut each).map(|()| true));
        }
        ROOM.with_borrow_mut(|room| {
            let mut read = ReadBuf::new(room);
            ready!(Pin::new(&mut parts.sock).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            Poll::Ready(parts.walk(read.filled(), &mut each).map(|()| true))
        })
    }

    /// The next data of the body, or the fields behind it; None: it is over. What is left of the
    /// request is sent meanwhile.
    ///
    /// # Errors
    /// The socket's; `UnexpectedEof` before the end, `InvalidData` where the framing is broken, and
    /// whatever the client's body broke off with.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let parts = &mut *self.0;
        parts.send_on(cx)?;
        loop {
            if let Rest::Nothing = parts.rest {
                return Poll::Ready(None);
            }
            if parts.held.is_empty() && ready!(parts.fill(cx))? == 0 {
                return Poll::Ready(parts.closed().err().map(Err));
            }
            if let Some(frame) = parts.next_frame()? {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
    }

    /// After a 101: the raw socket and what the replica said already.
    pub fn into_raw(self) -> (SharedSock, Bytes) {
        (SharedSock::new(self.0.sock), self.0.held.freeze())
    }
}

impl Parts {
    /// Sends, and reads the head of the answer; heads that only announce it are passed over.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Response<()>>> {
        // As long as not a byte has left, what there is to be read answers something else.
        if !self.sending.is_begun() && !self.is_silent(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        self.send_on(cx)?;
        if let (false, Some(error)) = (self.sending.is_begun(), self.sending.error()) {
            return Poll::Ready(Err(error.kind().into()));
        }
        loop {
            while let Some(answer) = answer::take(&mut self.held, self.is_head).map_err(invalid)? {
                let status = answer.head.status();
                if status == StatusCode::SWITCHING_PROTOCOLS && !self.asks_upgrade {
                    let reason = "it switched to a protocol that nobody asked for";
                    return Poll::Ready(Err(invalid(BadAnswer(reason))));
                }
                if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                    return Poll::Ready(Ok(self.begin_body(answer)));
                }
            }
            if ready!(self.fill(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Whether the other side is open and says nothing.
    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let read = Pin::new(&mut self.sock).poll_read(cx, &mut ReadBuf::new(&mut byte));
        read.is_pending()
    }

    fn begin_body(&mut self, answer: Answer) -> Response<()> {
        self.rest = answer.rest;
        self.is_open = answer.keeps_alive;
        answer.head
    }

    fn unanswered(&self, error: &io::Error) -> Unanswered {
        Unanswered {
            never_ran: !self.sending.is_begun(),
            is_broken_off: self.sending.is_broken_off(),
            reason: self.sending.error().unwrap_or(error).to_string(),
        }
    }

    fn send_on(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let sent = self.sending.go_on(&mut self.sock, cx);
        sent.map_err(|Unsent| io::Error::other("the request's body broke off"))
    }

    /// Reads once into `held`; how much came (0 is the end).
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ROOM.with_borrow_mut(|room| {
            let mut read = ReadBuf::new(room);
            ready!(Pin::new(&mut self.sock).poll_read(cx, &mut read))?;
            self.held.extend_from_slice(read.filled());
            Poll::Ready(Ok(read.filled().len()))
        })
    }

    /// The other side has closed: the end of a body that ends so, and of no other.
    fn closed(&mut self) -> io::Result<()> {
        self.is_open = false;
        match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::UntilClose => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Gives every chunk in `bytes` to `each`; what lies behind the last one is held.
    fn walk(&mut self, mut bytes: &[u8], each: &mut impl FnMut(&[u8])) -> io::Result<()> {
        while let (Rest::Chunks(walk), false) = (&mut self.rest, bytes.is_empty()) {
            let step = walk.next(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
            if !step.data.is_empty() {
                each(&bytes[step.data]);
            }
            bytes = &bytes[step.used..];
            if step.is_over {
                self.rest = Rest::Trailers(std::mem::take(walk), Vec::new());
            }
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    /// What of `held` comes next, if it is enough for a frame.
    fn next_frame(&mut self) -> io::Result<Option<Frame<Bytes>>> {
        match &mut self.rest {
            Rest::Nothing => Ok(None),
            Rest::UntilClose => Ok(Some(Frame::data(std::mem::take(&mut self.held).freeze()))),
            Rest::Length(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX);
                *left = left.saturating_sub(self.held.len() as u64);
                if *left == 0 {
                    self.rest = Rest::Nothing;
                }
                Ok(Some(Frame::data(taken(&mut self.held, n).freeze())))
            }
            Rest::Chunks(walk) => {
                let step = walk
                    .next(&self.held)
                    .map_err(|_| io::ErrorKind::InvalidData)?;
                if step.is_over {
                    self.rest = Rest::Trailers(std::mem::take(walk), Vec::new());
                }
                let mut data = taken(&mut self.held, step.used);
                data.advance(step.data.start);
                Ok((!step.data.is_empty()).then(|| Frame::data(data.freeze())))
            }
            Rest::Trailers(walk, lines) => {
                let n = walk
                    .walk(&self.held)
                    .map_err(|_| io::ErrorKind::InvalidData)?;
                lines.extend_from_slice(&taken(&mut self.held, n));
                if !walk.is_done() {
                    return Ok(None);
                }
                let lines = std::mem::take(lines);
                self.rest = Rest::Nothing;
                let fields = answer::trailers(&lines).map_err(invalid)?;
                Ok((!fields.is_empty()).then(|| Frame::trailers(fields)))
            }
        }
    }
}

/// The first `n` bytes, or all there are. What is empty then holds no memory.
fn taken(held: &mut BytesMut, n: usize) -> BytesMut {
    match n < held.len() {
        true => held.split_to(n),
        false => std::mem::take(held),
    }
}

fn invalid(error: BadAnswer) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.0)
}
