//! What the parts of one client connection share: the socket, its one timer, and why it must end.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use bytes::Bytes;

use super::alarms::Alarm;
use super::head::Reject;
use super::sock::{SharedSock, Sock};
use crate::websocket::Tunnel;

/// Which listener a connection came by: it decides what its requests may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Public,
    /// Calls from stages: `x-preroll-parent` is believed.
    Internal,
    /// The admin socket, for the owner of its directory alone.
    Admin,
    /// The admin port: Host and Origin are checked, and a token unless it is on loopback.
    AdminPort,
}

impl Origin {
    pub fn is_admin(self) -> bool {
        matches!(self, Origin::Admin | Origin::AdminPort)
    }

    pub fn name(self) -> &'static str {
        match self {
            Origin::Public => "public",
            Origin::Internal => "internal",
            Origin::Admin => "admin",
            Origin::AdminPort => "admin-tcp",
        }
    }
}

/// What a connection is waiting for; each wait has its own bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing with a bound.
    Nothing,
    /// The first byte of a request on a connection kept alive.
    Idle,
    /// The rest of a request head.
    Head,
    /// More of a request body.
    Body,
    /// The next byte from the replica.
    Upstream,
    /// The first byte for the client, within the client's own time-out.
    FirstByte,
    /// The end of the response, within an explicit deadline.
    Whole,
}

/// One client connection, shared by its gate, its service and its task. All on one thread.
pub struct Link {
    pub origin: Origin,
    pub peer: String,
    pub sock: SharedSock,
    /// The task's; whoever ends a wait from outside wakes it.
    pub waker: RefCell<Waker>,
    alarm: Alarm,
    waiting: Cell<Waiting>,
    expired: Cell<Option<Waiting>>,
    /// Why the gate refuses what the client sends.
    pub reject: RefCell<Option<Reject>>,
    /// The current request's body, where it came whole with the head; hyper saw none.
    pub body: RefCell<Option<Bytes>>,
    /// The response to the current request was handed over whole: the gate may pass the next
    /// request.
    pub response_done: Cell<bool>,
    /// The gate passed the current request whole.
    pub request_done: Cell<bool>,
    /// The response to the current request has begun: its status can no longer be changed.
    pub is_answering: Cell<bool>,
    /// Set with a 101: what goes on when hyper has written it.
    pub tunnel: RefCell<Option<Tunnel>>,
    /// How often hyper wrote all it had.
    pub flushes: Cell<u64>,
    /// The body passed its bound.
    pub is_body_over: Cell<bool>,
    /// Bytes of the client's that came, for slow bodies.
    pub bytes_in: Cell<u64>,
}

impl Link {
    pub fn new(sock: Sock, origin: Origin, peer: String, alarm: Alarm) -> Link {
        Link {
            origin,
            peer,
            sock: SharedSock::new(sock),
            waker: RefCell::new(Waker::noop().clone()),
            alarm,
            waiting: Cell::new(Waiting::Nothing),
            expired: Cell::new(None),
            reject: RefCell::new(None),
            body: RefCell::new(None),
            response_done: Cell::new(false),
            request_done: Cell::new(false),
            is_answering: Cell::new(false),
            tunnel: RefCell::new(None),
            flushes: Cell::new(0),
            is_body_over: Cell::new(false),
            bytes_in: Cell::new(0),
        }
    }

    /// Begins a wait that ends at `deadline_ns`; it replaces the one before.
    pub fn wait_for(&self, waiting: Waiting, deadline_ns: u64) {
        self.waiting.set(waiting);
        self.alarm.set(deadline_ns);
        self.expired.set(None);
    }

    pub fn waiting(&self) -> Waiting {
        self.waiting.get()
    }

    /// The wait that passed its bound, until the next one begins.
    pub fn expired(&self) -> Option<Waiting> {
        self.expired.get()
    }

    /// Its place among the alarms.
    pub fn place(&self) -> usize {
        self.alarm.place()
    }

    /// Its wait is over: marks and wakes the connection.
    pub fn expire(&self) {
        self.expired.set(Some(self.waiting.get()));
        self.wake();
    }

    pub fn wake(&self) {
        self.waker.borrow().wake_by_ref();
    }
}
