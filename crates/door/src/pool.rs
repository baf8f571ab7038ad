//! Idle connections to replicas.
//!
//! A connection lies here for less time than the server keeps it, and is looked at before it is
//! used: a request is written only to a socket whose other end was open a moment ago.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use http::HeaderValue;

use crate::clock::recent_ns;
use crate::io::upstream::{Upstream, connect};
use crate::queue::Replica;
use crate::tables::{Address, ReplicaTable};

/// What of a replica goes into every request to it, and its idle connections.
pub struct Backend {
    pub replica: Rc<Replica>,
    pub table: Rc<ReplicaTable>,
    pub name: Rc<str>,
    /// `x-preroll-replica`.
    pub id: HeaderValue,
    pub host: Option<HeaderValue>,
    pub authorization: Option<HeaderValue>,
    idle: RefCell<Vec<Upstream>>,
}

fn header(text: &str) -> HeaderValue {
    // The tables were checked: these are printable ASCII.
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("?"))
}

impl Backend {
    fn new(replica: Rc<Replica>) -> Backend {
        let table = replica.table();
        let mut authorization = table.authorization.as_deref().map(header);
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Backend {
            name: replica.id().into(),
            id: header(replica.id()),
            host: table.host.as_deref().map(header),
            authorization,
            idle: RefCell::default(),
            table,
            replica,
        }
    }

    /// Whether it is reached by a Unix socket.
    pub fn is_unix(&self) -> bool {
        matches!(self.table.address, Address::Unix(_))
    }

    fn idle_limit_ns(&self) -> u64 {
        // A quarter is left for the way there and for the server's coarse timers.
        self.table.keepalive_ms * 750_000
    }

    /// An open idle connection, the one used last.
    pub fn reuse(&self) -> Option<Upstream> {
        let now = recent_ns();
        loop {
            let mut upstream = self.idle.borrow_mut().pop()?;
            let age = now.saturating_sub(upstream.idle_since_ns());
            // What the loop knows of the socket is as new as its last look at all of them: no
            // system call is needed.
            upstream.settle();
            if age < self.idle_limit_ns() && upstream.is_ready() {
                return Some(upstream);
            }
        }
    }

    /// A new connection.
    ///
    /// # Errors
    /// The kernel's, or a time-out.
    pub async fn connect(&self) -> io::Result<Upstream> {
        let sock = connect(&self.table.address).await?;
        Ok(Upstream::new(sock, self.replica.clone()))
    }

    /// Takes a connection back whose exchange is over; one that cannot be used again is closed.
    pub fn give_back(&self, mut upstream: Upstream) {
        if self.replica.is_gone() || !upstream.is_ready() {
            return;
        }
        upstream.rest(recent_ns());
        upstream.settle();
        self.idle.borrow_mut().push(upstream);
    }

    /// Closes what is too old or was closed by the other side.
    fn sweep(&self, now: u64) {
        let limit = if self.replica.is_gone() {
            0
        } else {
            self.idle_limit_ns()
        };
        let dead = |upstream: &mut Upstream| {
            // As in `reuse`: thousands lie here after a rush, and a system call for each would hold
            // every request up for milliseconds.
            upstream.settle();
            now.saturating_sub(upstream.idle_since_ns()) >= limit || !upstream.is_ready()
        };
        let closed: Vec<_> = self.idle.borrow_mut().extract_if(.., dead).collect();
        drop(closed);
    }
}

/// All backends, by the key of their replica.
#[derive(Default)]
pub struct Pool {
    backends: RefCell<HashMap<u64, Rc<Backend>>>,
    swept_ns: Cell<u64>,
}

/// Between two sweeps; much less than any keep-alive time.
const SWEEP_NS: u64 = 500_000_000;

impl Pool {
    /// The backend of a replica, as its table says now.
    pub fn backend(&self, replica: &Rc<Replica>) -> Rc<Backend> {
        let table = replica.table();
        let mut backends = self.backends.borrow_mut();
        match backends.get(&replica.key()) {
            Some(backend) if Rc::ptr_eq(&backend.table, &table) => backend.clone(),
            _ => {
                let backend = Rc::new(Backend::new(replica.clone()));
                backends.insert(replica.key(), backend.clone());
                backend
            }
        }
    }

    /// Called by the ticker.
    pub fn sweep(&self, now: u64) {
        if now.saturating_sub(self.swept_ns.get()) < SWEEP_NS {
            return;
        }
        self.swept_ns.set(now);
        let backends: Vec<_> = self.backends.borrow().values().cloned().collect();
        for backend in &backends {
            backend.sweep(now);
        }
        self.backends
            .borrow_mut()
            .retain(|_, backend| !backend.replica.is_gone());
    }
}
