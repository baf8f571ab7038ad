//! Admission: at once, queued, or refused; and who is next when a slot comes free.

use std::cell::{Cell, RefCell};
use std::mem::discriminant;
use std::rc::Rc;

use super::line::{Class, Entry};
use super::permit::{Admission, Permit};
use super::state::{Inner, MS, Servable, State};
use super::{Ask, Replica};
use crate::wait::{Refusal, RefusalKind};

/// What is known of a request when it comes to the line.
pub(super) struct Arrival {
    pub ask: Ask,
    pub arrived_ns: u64,
    /// 1 at first; more after a failed connect.
    pub attempt: u32,
}

impl State {
    /// Admits, queues or refuses a newcomer.
    pub(super) fn submit(
        &mut self,
        inner: &Rc<Inner>,
        arrival: Arrival,
    ) -> Result<Rc<Entry>, Refusal> {
        self.expire();
        if arrival.ask.nearest_deadline_ns() <= self.now_ns {
            return Err(self.too_late(self.now_ns - arrival.arrived_ns));
        }
        let class = Class::of(&arrival.ask, arrival.attempt);
        let ahead = self.line.ahead_of(class);
        let pick = if ahead == 0 {
            self.pick(&arrival.ask)
        } else {
            None
        };
        if let Some(replica) = pick {
            let entry = self.entry(arrival, class, 0, u64::MAX);
            self.grant(inner, &entry, replica);
            return Ok(entry);
        }
        let servable = self.servable();
        let expected_ns = self.check(servable, &arrival, class, ahead)?;
        let expires_ns = self
            .limit_ns(servable, &arrival.ask)
            .saturating_add(self.now_ns);
        let expires_ns = expires_ns.min(arrival.ask.nearest_deadline_ns());
        let entry = self.entry(arrival, class, expected_ns, expires_ns);
        self.line.push(entry.clone());
        self.demand(servable);
        Ok(entry)
    }

    /// The expected wait of a request that may queue, or the refusal of one that may not.
    fn check(
        &mut self,
        servable: Servable,
        arrival: &Arrival,
        class: Class,
        ahead: usize,
    ) -> Result<u64, Refusal> {
        let waited_ns = self.now_ns - arrival.arrived_ns;
        let expected = self.expected_wait_ns(ahead);
        let Some(expected_ns) = expected else {
            return Err(self.refuse(
                RefusalKind::Unavailable,
                None,
                waited_ns,
                "no replica is ready and none can be started",
            ));
        };
        let budget_ns = arrival.ask.nearest_deadline_ns() - self.now_ns;
        let limit_ns = self.limit_ns(servable, &arrival.ask);
        let detail = if self.is_full(class) {
            "the queue is full"
        } else if expected_ns > budget_ns {
            "the expected wait exceeds the request's deadline"
        } else if expected_ns > limit_ns {
            "the expected wait exceeds the stage's bound"
        } else {
            return Ok(expected_ns);
        };
        self.demand(servable);
        Err(self.refuse(overload_kind(servable), expected, waited_ns, detail))
    }

    /// New arrivals share `max_queue`. Calls for held slots may take as much again: they are as
    /// many as slots at most, and refusing them for newcomers would waste what their parents hold.
    /// A retry always has its place.
    fn is_full(&self, class: Class) -> bool {
        let bound = self.table.max_queue * if class.is_new() { 1 } else { 2 };
        !class.is_retry() && self.line.len() >= bound.max(usize::from(!class.is_new()))
    }

    /// How long a request may be queued, deadlines apart.
    fn limit_ns(&self, servable: Servable, ask: &Ask) -> u64 {
        let has_deadline = ask.nearest_deadline_ns() != u64::MAX;
        match servable {
            Servable::AfterStart { .. } if has_deadline => u64::MAX,
            Servable::AfterStart { .. } => self.table.start_hold_ms * MS,
            _ => self.table.max_wait_ms * MS,
        }
    }

    fn entry(
        &mut self,
        arrival: Arrival,
        class: Class,
        expected_ns: u64,
        expires_ns: u64,
    ) -> Rc<Entry> {
        self.next_seq += 1;
        Rc::new(Entry {
            class,
            seq: self.next_seq,
            arrived_ns: arrival.arrived_ns,
            attempt: arrival.attempt,
            ask: arrival.ask,
            expected_ns,
            expires_ns: Cell::new(expires_ns),
            verdict: RefCell::new(None),
            waker: RefCell::new(None),
        })
    }

    fn pick(&mut self, ask: &Ask) -> Option<Rc<Replica>> {
        if self.is_closed {
            return None;
        }
        self.fleet
            .pick(ask, self.table.kv_tokens, self.estimator.service_ns())
    }

    fn grant(&mut self, inner: &Rc<Inner>, entry: &Rc<Entry>, replica: Rc<Replica>) {
        let is_probe = self.occupy(&replica, entry.ask.tokens);
        let session_move = self.fleet.settle(entry.ask.session, &replica);
        let admission = Admission {
            is_probe,
            session_move,
            now_ns: self.now_ns,
        };
        let permit = Permit::new(inner.clone(), replica, entry, admission);
        let waited_ns = self.now_ns - entry.arrived_ns;
        if entry.attempt == 1 {
            self.estimator.predicted(entry.expected_ns, waited_ns);
        }
        self.settle(entry, Ok(permit));
    }

    fn settle(&mut self, entry: &Entry, verdict: super::line::Verdict) {
        *entry.verdict.borrow_mut() = Some(verdict);
        self.effects.wakers.extend(entry.waker.borrow_mut().take());
    }

    /// Gives free slots to those at the front.
    pub(super) fn dispatch(&mut self, inner: &Rc<Inner>) {
        self.expire();
        while let Some(entry) = self.line.first().cloned() {
            let Some(replica) = self.pick(&entry.ask) else {
                return;
            };
            self.line.remove(&entry);
            self.grant(inner, &entry, replica);
        }
        self.line_is_empty();
    }

    /// Refuses those whose time is over.
    pub(super) fn expire(&mut self) {
        while let Some(entry) = self.line.pop_expired(self.now_ns) {
            let waited_ns = self.now_ns - entry.arrived_ns;
            let refusal = if entry.deadline_ns() <= self.now_ns {
                self.too_late(waited_ns)
            } else {
                let servable = self.servable();
                let expected = self.expected_wait_ns(self.line.ahead_of(entry.class));
                let detail = "waited in the queue up to the stage's bound";
                self.refuse(overload_kind(servable), expected, waited_ns, detail)
            };
            self.settle(&entry, Err(refusal));
        }
    }

    pub(super) fn too_late(&mut self, waited_ns: u64) -> Refusal {
        let detail = "the request's deadline passed before it was admitted";
        self.refuse(RefusalKind::Deadline, None, waited_ns, detail)
    }

    /// After tables or health changed: who waits for a start may go on waiting, who waits for
    /// nothing may not.
    pub(super) fn readiness_changed(&mut self, inner: &Rc<Inner>, before: Servable) {
        self.expire();
        let servable = self.servable();
        if servable == Servable::Never {
            for entry in self.line.drain() {
                let waited_ns = self.now_ns - entry.arrived_ns;
                let detail = "no replica is left and none can be started";
                let refusal = self.refuse(RefusalKind::Unavailable, None, waited_ns, detail);
                self.settle(&entry, Err(refusal));
            }
        }
        self.dispatch(inner);
        if discriminant(&before) != discriminant(&servable) {
            self.extend(servable);
        }
        if !self.line.is_empty() {
            self.demand(servable);
        }
    }

    fn extend(&mut self, servable: Servable) {
        let (now_ns, max_wait_ns) = (self.now_ns, self.table.max_wait_ms * MS);
        let hold_ns = self.table.start_hold_ms * MS;
        self.line.extend(|entry| {
            let has_deadline = entry.deadline_ns() != u64::MAX;
            let until_ns = match servable {
                Servable::AfterStart { .. } if has_deadline => u64::MAX,
                Servable::AfterStart { .. } => entry.arrived_ns.saturating_add(hold_ns),
                _ => now_ns.saturating_add(max_wait_ns),
            };
            until_ns.min(entry.deadline_ns())
        });
    }
}

/// Too much work where something serves; else nothing to do it.
fn overload_kind(servable: Servable) -> RefusalKind {
    match servable {
        Servable::Now => RefusalKind::Overload,
        _ => RefusalKind::Unavailable,
    }
}
