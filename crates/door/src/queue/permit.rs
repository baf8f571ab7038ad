//! Permits: what an admitted request and an open session hold.

use std::rc::Rc;

use super::admission::Arrival;
use super::line::Entry;
use super::state::Inner;
use super::ticket::Ticket;
use super::{Ask, Fault, Move, Outcome, Replica};
use crate::wait::{Refusal, RefusalKind};

/// A request that never ran is tried this often in all.
const MAX_ATTEMPTS: u32 = 3;

/// How a request was admitted.
pub(super) struct Admission {
    pub is_probe: bool,
    pub session_move: Option<Move>,
    pub now_ns: u64,
}

/// One slot of one replica. Dropping it is [`Permit::finish`] with [`Outcome::ClientGone`] at the
/// latest time that the stage has seen; the slot comes free exactly once.
pub struct Permit {
    inner: Rc<Inner>,
    replica: Rc<Replica>,
    ask: Ask,
    arrived_ns: u64,
    admitted_ns: u64,
    expected_ns: u64,
    attempt: u32,
    session_move: Option<Move>,
    is_probe: bool,
    is_answered: bool,
    is_released: bool,
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({} of {})", self.replica.id(), self.inner.name)
    }
}

impl Permit {
    pub(super) fn new(
        inner: Rc<Inner>,
        replica: Rc<Replica>,
        entry: &Entry,
        admission: Admission,
    ) -> Permit {
        Permit {
            inner,
            replica,
            ask: entry.ask.clone(),
            arrived_ns: entry.arrived_ns,
            admitted_ns: admission.now_ns,
            expected_ns: entry.expected_ns,
            attempt: entry.attempt,
            session_move: admission.session_move,
            is_probe: admission.is_probe,
            is_answered: false,
            is_released: false,
        }
    }

    pub fn replica(&self) -> &Rc<Replica> {
        &self.replica
    }

    /// From arrival to this admission, ns.
    pub fn waited_ns(&self) -> u64 {
        self.admitted_ns - self.arrived_ns
    }

    /// What was expected at arrival, ns.
    pub fn expected_wait_ns(&self) -> u64 {
        self.expected_ns
    }

    /// Where its session went; None: it names none.
    pub fn session_move(&self) -> Option<Move> {
        self.session_move
    }

    pub fn admitted_ns(&self) -> u64 {
        self.admitted_ns
    }

    /// 1 at first.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    pub(super) fn ask(&self) -> &Ask {
        &self.ask
    }

    /// The response began: the request no longer counts as unanswered, and the replica is alive.
    pub fn first_byte(&mut self, now_ns: u64) {
        if self.is_answered {
            return;
        }
        self.answered();
        let inner = self.inner.clone();
        inner.with(now_ns, |state| {
            let change = self.replica.alive(false);
            if change.is_some() {
                state.replica_changed(&self.replica, change);
                state.dispatch(&inner);
            }
        });
    }

    fn answered(&mut self) {
        if !std::mem::replace(&mut self.is_answered, true) {
            self.replica.pending.set(self.replica.pending.get() - 1);
        }
    }

    /// Frees the slot and says how it went.
    pub fn finish(mut self, outcome: Outcome, now_ns: u64) {
        self.release(End::Ran(outcome), now_ns);
    }

    /// Puts a request that provably never ran back at the front of its class.
    ///
    /// # Errors
    /// The refusal to answer with: its deadline passed, nothing can serve, or it was tried often
    /// enough.
    pub fn retry(mut self, fault: Fault, now_ns: u64) -> Result<Ticket, Refusal> {
        self.release(End::Retried(fault), now_ns);
        let arrival = Arrival {
            ask: self.ask.clone(),
            arrived_ns: self.arrived_ns,
            attempt: self.attempt + 1,
        };
        let inner = self.inner.clone();
        let entry = inner.with(now_ns, |state| {
            if arrival.attempt > MAX_ATTEMPTS {
                let expected = state.expected_wait_ns(0);
                let waited_ns = state.now_ns - arrival.arrived_ns;
                let detail = "no replica could be reached";
                return Err(state.refuse(RefusalKind::Unavailable, expected, waited_ns, detail));
            }
            state.submit(&inner, arrival)
        })?;
        Ok(Ticket::new(inner, entry))
    }

    fn release(&mut self, end: End, now_ns: u64) {
        if std::mem::replace(&mut self.is_released, true) {
            return;
        }
        self.answered();
        let outcome = end.outcome();
        let inner = self.inner.clone();
        inner.with(now_ns, |state| {
            state.vacate(&self.replica, self.ask.tokens, self.admitted_ns);
            state.counts.finished += u64::from(matches!(end, End::Ran(_)));
            if outcome == Outcome::Completed {
                let service_ns = state.now_ns - self.admitted_ns;
                state.estimator.served(service_ns);
                self.replica.served(service_ns);
            }
            if !state.line.is_empty() {
                state.estimator.drained(state.now_ns);
            }
            let change = self.replica.learn(outcome, self.is_probe, state.now_ns);
            state.replica_changed(&self.replica, change);
            state.dispatch(&inner);
        });
    }

    /// Gives back a slot that was never used.
    pub(super) fn withdraw(mut self, now_ns: u64) {
        self.release(End::Unused, now_ns);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // No clock here: zero is before the latest time seen, which then stands.
        self.release(End::Ran(Outcome::ClientGone), 0);
    }
}

/// How a permit ends.
#[derive(Clone, Copy)]
enum End {
    Ran(Outcome),
    Retried(Fault),
    Unused,
}

impl End {
    fn outcome(self) -> Outcome {
        match self {
            End::Ran(outcome) => outcome,
            End::Retried(fault) => Outcome::Failed(fault),
            End::Unused => Outcome::ClientGone,
        }
    }
}

/// One open session (a WebSocket): it counts against `max_sessions` and takes no slot. Dropping it
/// ends it.
pub struct SessionPermit {
    inner: Rc<Inner>,
    replica: Rc<Replica>,
    session_move: Option<Move>,
    is_released: bool,
}

impl SessionPermit {
    pub(super) fn new(
        inner: Rc<Inner>,
        replica: Rc<Replica>,
        session_move: Option<Move>,
    ) -> SessionPermit {
        replica.sessions.set(replica.sessions.get() + 1);
        SessionPermit {
            inner,
            replica,
            session_move,
            is_released: false,
        }
    }

    pub fn replica(&self) -> &Rc<Replica> {
        &self.replica
    }

    /// Where its conversation went; None: it names none.
    pub fn session_move(&self) -> Option<Move> {
        self.session_move
    }

    /// Ends the session and says how it went.
    pub fn finish(mut self, outcome: Outcome, now_ns: u64) {
        self.release(outcome, now_ns);
    }

    fn release(&mut self, outcome: Outcome, now_ns: u64) {
        if std::mem::replace(&mut self.is_released, true) {
            return;
        }
        let inner = self.inner.clone();
        inner.with(now_ns, |state| {
            state.sessions -= 1;
            state.counts.last_activity_ns = state.now_ns;
            self.replica.sessions.set(self.replica.sessions.get() - 1);
            let change = self.replica.learn(outcome, false, state.now_ns);
            state.replica_changed(&self.replica, change);
            state.dispatch(&inner);
        });
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.release(Outcome::ClientGone, 0);
    }
}
