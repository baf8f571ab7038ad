//! One replica as the queue sees it: its slots in use, its health, and what it has been learnt to
//! cost.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Fault, Outcome};
use crate::tables::{ReplicaState, ReplicaTable};
use crate::wait::Ewma;

/// So many broken answers in a row eject; a failed connect does at once.
const EJECT_AFTER: u32 = 3;
const BACKOFF_FIRST_NS: u64 = 100_000_000;
const BACKOFF_MAX_NS: u64 = 5_000_000_000;

/// Whether requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Up,
    /// Nothing is sent until then.
    Ejected {
        until_ns: u64,
    },
    /// One request at a time may find out.
    HalfOpen {
        is_probing: bool,
    },
}

/// A change of health worth an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Down(&'static str),
    Up(&'static str),
}

static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// One incarnation of a replica: another address under the same id is another one.
#[derive(Debug)]
pub struct Replica {
    key: u64,
    id: String,
    table: RefCell<Rc<ReplicaTable>>,
    is_gone: Cell<bool>,
    health: Cell<Health>,
    failures: Cell<u32>,
    errors: Cell<u32>,
    ejections: Cell<u32>,
    service: RefCell<Ewma>,
    pub(super) in_flight: Cell<usize>,
    /// Sent, no byte back yet.
    pub(super) pending: Cell<usize>,
    pub(super) sessions: Cell<usize>,
    pub(super) kv_used: Cell<u64>,
    /// Where it stands in the set of those with a free slot.
    pub(super) open_at: Cell<Option<usize>>,
    /// Upstream connections, idle ones too: set by the pool, shown in the snapshot.
    pub connections: Cell<u64>,
}

impl Replica {
    pub fn new(table: ReplicaTable) -> Rc<Replica> {
        Rc::new(Replica {
            key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            id: table.id.clone(),
            table: RefCell::new(Rc::new(table)),
            is_gone: Cell::new(false),
            health: Cell::new(Health::Up),
            failures: Cell::new(0),
            errors: Cell::new(0),
            ejections: Cell::new(0),
            service: RefCell::default(),
            in_flight: Cell::new(0),
            pending: Cell::new(0),
            sessions: Cell::new(0),
            kv_used: Cell::new(0),
            open_at: Cell::new(None),
            connections: Cell::new(0),
        })
    }

    /// Never used again by another incarnation, of any stage: the key of a pool.
    pub fn key(&self) -> u64 {
        self.key
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The table in force.
    pub fn table(&self) -> Rc<ReplicaTable> {
        self.table.borrow().clone()
    }

    /// Requests that hold one of its slots.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// It left the tables: finish what runs, keep no idle connection.
    pub fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    /// Nothing is sent to it now, because it failed.
    pub fn is_ejected(&self) -> bool {
        matches!(self.health.get(), Health::Ejected { .. })
    }

    pub(super) fn set_table(&self, table: &ReplicaTable) {
        if **self.table.borrow() != *table {
            *self.table.borrow_mut() = Rc::new(table.clone());
        }
    }

    pub(super) fn leave(&self) {
        self.is_gone.set(true);
    }

    /// In the tables and not draining.
    pub(super) fn is_member(&self) -> bool {
        !self.is_gone.get() && self.table.borrow().state == ReplicaState::Ready
    }

    /// A member that requests are sent to.
    pub(super) fn is_serving(&self) -> bool {
        self.is_member() && !self.is_ejected()
    }

    /// A member that has not failed since it last answered.
    pub(super) fn is_up(&self) -> bool {
        self.is_member() && self.health.get() == Health::Up
    }

    /// One request is finding out whether it answers again.
    pub(super) fn is_probing(&self) -> bool {
        self.is_member() && self.health.get() == Health::HalfOpen { is_probing: true }
    }

    pub(super) fn slots(&self) -> usize {
        self.table.borrow().slots
    }

    /// How many more requests it takes now.
    pub(super) fn free_slots(&self) -> usize {
        let free = self.slots().saturating_sub(self.in_flight.get());
        match self.health.get() {
            _ if !self.is_member() => 0,
            Health::Up => free,
            Health::Ejected { .. } | Health::HalfOpen { is_probing: true } => 0,
            Health::HalfOpen { is_probing: false } => free.min(1),
        }
    }

    /// Whether its KV budget has room; a request larger than the budget runs alone.
    pub(super) fn has_room(&self, tokens: u64, budget: Option<u64>) -> bool {
        let fits = |budget| self.kv_used.get().saturating_add(tokens) <= budget;
        self.in_flight.get() == 0 || budget.is_none_or(fits)
    }

    /// Takes a slot; true when the request is the probe of a half-open replica.
    pub(super) fn take(&self, tokens: u64) -> bool {
        self.in_flight.set(self.in_flight.get() + 1);
        self.pending.set(self.pending.get() + 1);
        self.kv_used.set(self.kv_used.get() + tokens);
        let is_probe = self.health.get() == Health::HalfOpen { is_probing: false };
        if is_probe {
            self.health.set(Health::HalfOpen { is_probing: true });
        }
        is_probe
    }

    pub(super) fn give_back(&self, tokens: u64) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.kv_used.set(self.kv_used.get() - tokens);
    }

    /// What the end of a request says about the replica.
    pub(super) fn learn(&self, outcome: Outcome, is_probe: bool, now_ns: u64) -> Option<Change> {
        match outcome {
            Outcome::Completed => self.alive(true),
            Outcome::Rejected => self.alive(false),
            Outcome::Errored => {
                self.errors.set(self.errors.get().saturating_add(1));
                self.alive(false)
            }
            Outcome::ClientGone => {
                if is_probe && self.health.get() == (Health::HalfOpen { is_probing: true }) {
                    self.health.set(Health::HalfOpen { is_probing: false });
                }
                None
            }
            Outcome::Failed(fault) => self.failed(fault, now_ns),
        }
    }

    /// It answered.
    pub(super) fn alive(&self, is_good: bool) -> Option<Change> {
        self.failures.set(0);
        if is_good {
            self.errors.set(0);
        }
        let was_half_open = matches!(self.health.get(), Health::HalfOpen { .. });
        if was_half_open {
            self.health.set(Health::Up);
            self.ejections.set(0);
        }
        was_half_open.then_some(Change::Up("answered again"))
    }

    fn failed(&self, fault: Fault, now_ns: u64) -> Option<Change> {
        self.failures.set(self.failures.get().saturating_add(1));
        let (is_fatal, reason) = match fault {
            Fault::Connect => (true, "connect failed"),
            Fault::Broken => (false, "connections broke"),
            Fault::Stalled => (false, "answers stalled"),
        };
        match self.health.get() {
            Health::Ejected { .. } => None,
            Health::Up if !is_fatal && self.failures.get() < EJECT_AFTER => None,
            health => {
                let doublings = self.ejections.get().min(16);
                let backoff_ns = (BACKOFF_FIRST_NS << doublings).min(BACKOFF_MAX_NS);
                self.ejections.set(doublings + 1);
                self.health.set(Health::Ejected {
                    until_ns: now_ns.saturating_add(backoff_ns),
                });
                (health == Health::Up).then_some(Change::Down(reason))
            }
        }
    }

    /// When it may be asked again, while ejected.
    pub(super) fn ejected_until_ns(&self) -> Option<u64> {
        match self.health.get() {
            Health::Ejected { until_ns } if self.is_member() => Some(until_ns),
            _ => None,
        }
    }

    /// Lets one request through when the back-off is over.
    pub(super) fn wake_up(&self, now_ns: u64) -> bool {
        let is_due = self.ejected_until_ns().is_some_and(|until| until <= now_ns);
        if is_due {
            self.health.set(Health::HalfOpen { is_probing: false });
        }
        is_due
    }

    pub(super) fn served(&self, service_ns: u64) {
        self.service.borrow_mut().add(service_ns as f64);
    }

    /// Its own mean service time, ns; None without samples.
    pub fn service_ns(&self) -> Option<f64> {
        self.service.borrow().mean()
    }

    /// Failures and error answers in a row: a replica that fails fast must not look fast.
    pub fn trouble(&self) -> u32 {
        self.failures.get().saturating_add(self.errors.get())
    }

    /// Requests sent that no byte has come back for.
    pub fn pending(&self) -> usize {
        self.pending.get()
    }
}
