//! A replica's response on its way to the client: each chunk leaves when it comes.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::account::{Account, Ending};
use crate::clock::recent_ns;
use crate::io::link::{Link, Waiting};
use crate::io::upstream::Upstream;
use crate::passing::{Broken, Passing};
use crate::pool::Backend;
use crate::queue::Fault;
use crate::reply::BodyError;

/// When a silent or late stream is cut.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Silence allowed between two reads.
    pub idle_ns: u64,
    /// When the whole must be over; `u64::MAX`: never.
    pub end_ns: u64,
}

impl Bounds {
    /// Begins the wait for the replica's next byte.
    pub fn arm(&self, link: &Link, now: u64) {
        let idle_end = now.saturating_add(self.idle_ns);
        if self.end_ns <= idle_end {
            link.wait_for(Waiting::Whole, self.end_ns);
        } else {
            link.wait_for(Waiting::Upstream, idle_end);
        }
    }
}

impl Bounds {
    /// As [`Bounds::arm`] for the answer's head, which the client may want sooner.
    pub fn arm_first(&self, link: &Link, now: u64, first_byte_ns: u64) {
        self.arm(link, now);
        if first_byte_ns < now.saturating_add(self.idle_ns).min(self.end_ns) {
            link.wait_for(Waiting::FirstByte, first_byte_ns);
        }
    }
}

/// However fast both sides are, others have their turn after so many reads (of 64 KiB at most).
const READS_A_TURN: usize = 4;
/// A client that does not read gets no longer than this to take what a broken stream ends with.
const LAST_WORDS_NS: u64 = 5_000_000_000;

enum State {
    Going,
    /// The error event was handed over at this count of flushes; the connection breaks when it has
    /// left.
    Breaking(u64),
    Broken,
    Over,
}

/// The body of a proxied response, with the connection that it comes by and the slot that it holds.
pub struct Relay {
    upstream: Option<Upstream>,
    /// Of the whole body, where it was announced.
    length: Option<u64>,
    passing: Passing,
    backend: Rc<Backend>,
    account: Box<Account>,
    link: Rc<Link>,
    bounds: Bounds,
    state: State,
}

impl Relay {
    /// `takes_chunks`: the client's answer is chunked, so that chunks may go to it past hyper.
    pub fn new(
        upstream: Upstream,
        backend: Rc<Backend>,
        account: Box<Account>,
        link: Rc<Link>,
        bounds: Bounds,
        takes_chunks: bool,
    ) -> Relay {
        let is_over = upstream.is_over();
        let mut relay = Relay {
            length: upstream.length(),
            upstream: Some(upstream),
            passing: Passing::new(takes_chunks && !link.sock.is_tls(), &link),
            backend,
            account,
            link,
            bounds,
            state: State::Going,
        };
        if is_over {
            relay.complete();
        }
        relay
    }

    pub fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Over)
    }

    pub fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.state {
            State::Going => {}
            State::Breaking(at) if self.link.flushes.get() > at => {
                self.state = State::Broken;
                return Poll::Ready(Some(Err("the replica's answer broke off".into())));
            }
            State::Breaking(_) => return Poll::Pending,
            State::Broken | State::Over => return Poll::Ready(None),
        }
        if let Some(frame) = ready!(self.poll_past(cx)) {
            return Poll::Ready(Some(frame));
        }
        self.poll_next(cx)
    }

    /// Passes chunks past hyper, until there are no more of them now. None: what comes next is hyper's.
    fn poll_past(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let now = recent_ns();
        let (account, link) = (&mut self.account, &self.link);
        for _ in 0..READS_A_TURN {
            let Some(upstream) = self.upstream.as_mut() else {
                return Poll::Ready(None);
            };
            // A client that does not read is the connection's affair, as it is when hyper waits.
            if let Err(error) = ready!(self.passing.poll_unsent(link, cx)) {
                self.state = State::Broken;
                return Poll::Ready(Some(Err(error.into())));
            }
            if !upstream.has_chunks() || !self.passing.is_open(link) {
                return Poll::Ready(None);
            }
            let each = |piece: &[u8]| account.passed(piece, now, false);
            match self.passing.poll_pass(upstream, link, cx, each) {
                Poll::Ready(Ok(())) => self.bounds.arm(link, now),
                Poll::Ready(Err(Broken::Client(error))) => {
                    self.state = State::Broken;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Ready(Err(Broken::Replica)) => return self.broken_off(),
                Poll::Pending => return self.unless_late(),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(upstream) = &mut self.upstream else {
            return Poll::Ready(None);
        };
        match upstream.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let is_last = upstream.is_over();
                self.pass(&frame, is_last);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.complete();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => self.broken_off(),
            Poll::Pending => self.unless_late(),
        }
    }

    fn broken_off(&mut self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.upstream.as_ref().is_some_and(Upstream::is_broken_off) {
            return self.broken(Ending::ClientGone, "the request's body broke off");
        }
        let ending = Ending::Failed(Fault::Broken);
        self.broken(ending, "the replica's answer broke off")
    }

    /// Waits for the replica's next byte, within bounds.
    fn unless_late(&mut self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.link.expired() {
            Some(Waiting::Upstream) => {
                self.broken(Ending::Failed(Fault::Stalled), "the replica fell silent")
            }
            Some(Waiting::Whole) => self.broken(Ending::Deadline, "the request's deadline passed"),
            None if self.link.waiting() == Waiting::Nothing => {
                // The client's upload moved on: from here the replica is waited for again.
                self.bounds.arm(&self.link, recent_ns());
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }

    fn pass(&mut self, frame: &Frame<Bytes>, is_last: bool) {
        let now = recent_ns();
        if let Some(data) = frame.data_ref() {
            self.account.passed(data, now, is_last);
        }
        self.passing.held(&self.link);
        if is_last {
            self.complete();
        } else {
            self.bounds.arm(&self.link, now);
        }
    }

    /// The answer is whole: the slot is free, the connection can serve the next request.
    fn complete(&mut self) {
        self.state = State::Over;
        self.link.wait_for(Waiting::Nothing, u64::MAX);
        self.account.end(Ending::Complete);
        if let Some(upstream) = self.upstream.take() {
            self.backend.give_back(upstream);
        }
    }

    /// Never a clean end: an event stream gets an error event, and the last chunk does not come.
    fn broken(
        &mut self,
        ending: Ending,
        message: &str,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.upstream = None;
        self.link
            .wait_for(Waiting::Upstream, recent_ns() + LAST_WORDS_NS);
        let last_words = self.account.last_words(message);
        self.account.end(ending);
        // With a length announced, nothing can be added to what was promised.
        match last_words.filter(|_| self.length.is_none()) {
            Some(event) => {
                self.state = State::Breaking(self.link.flushes.get());
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
            None => {
                // What came before it must still leave: the break waits for the flush.
                self.state = State::Breaking(self.link.flushes.get());
                Poll::Pending
            }
        }
    }
}
