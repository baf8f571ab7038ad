//! The state behind a stage's handle, and the bookkeeping that every operation shares.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use super::fleet::Fleet;
use super::line::Line;
use super::replica::{Change, Replica};
use super::{EventSink, StageEvent};
use crate::tables::StageTable;
use crate::wait::{Busy, Estimator, Refusal, RefusalKind, VirtualTail, start_remaining_ns};

pub(super) const MS: u64 = 1_000_000;
/// At most one demand event in this time: control may have missed one, and must not drown.
const DEMAND_EVERY_NS: u64 = 1_000_000_000;
/// What a client is told where nobody knows.
const UNKNOWN_WAIT_NS: u64 = 1_000_000_000;

/// What can serve a request that comes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Servable {
    /// A replica is up.
    Now,
    /// Every ready replica has failed; one is asked again, or has answered, after this.
    AfterProbe {
        wait_ns: u64,
    },
    /// None is ready; a start takes this.
    AfterStart {
        wait_ns: u64,
    },
    Never,
}

/// What must happen once the state is no longer borrowed.
#[derive(Default)]
pub(super) struct Effects {
    pub wakers: Vec<Waker>,
    pub events: Vec<StageEvent>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub arrivals: u64,
    pub finished: u64,
    pub refused: u64,
    /// Withdrawn by the client before they were admitted, or before the grant was taken up.
    pub cancelled: u64,
    pub sessions_opened: u64,
    pub sessions_refused: u64,
    pub last_activity_ns: u64,
    pub concurrency_ns: u128,
}

pub(super) struct State {
    pub table: StageTable,
    pub fleet: Fleet,
    pub line: Line,
    pub estimator: Estimator,
    pub tail: VirtualTail,
    pub counts: Counts,
    pub in_flight: usize,
    pub sessions: usize,
    pub is_closed: bool,
    pub next_seq: u64,
    pub effects: Effects,
    pub timer: Option<Waker>,
    pub timer_ns: u64,
    pub now_ns: u64,
    admitted_sum_ns: u128,
    known_slots: usize,
    demand_ns: Option<u64>,
    is_overloaded: bool,
}

/// The shared part of a stage.
pub(super) struct Inner {
    pub name: Rc<str>,
    pub state: RefCell<State>,
    pub sink: EventSink,
}

impl Inner {
    /// Runs `change` on the state at `now_ns`, then its effects outside of the borrow.
    pub(super) fn with<R>(&self, now_ns: u64, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, effects) = {
            let mut state = self.state.borrow_mut();
            state.advance(now_ns);
            let result = change(&mut state);
            state.rearm();
            (result, std::mem::take(&mut state.effects))
        };
        effects.wakers.into_iter().for_each(Waker::wake);
        effects
            .events
            .into_iter()
            .for_each(|event| (self.sink)(event));
        result
    }
}

impl State {
    pub(super) fn new(table: &StageTable, fleet: Fleet, seed: u64, now_ns: u64) -> State {
        State {
            table: table.clone(),
            fleet,
            line: Line::default(),
            estimator: Estimator::new(table.default_service_ms * MS),
            tail: VirtualTail::new(seed),
            counts: Counts {
                last_activity_ns: now_ns,
                ..Counts::default()
            },
            in_flight: 0,
            sessions: 0,
            is_closed: false,
            next_seq: 0,
            effects: Effects::default(),
            timer: None,
            timer_ns: u64::MAX,
            now_ns,
            admitted_sum_ns: 0,
            known_slots: 0,
            demand_ns: None,
            is_overloaded: false,
        }
    }

    /// Time goes on (never back); the integral of requests over time grows.
    fn advance(&mut self, now_ns: u64) {
        let step_ns = now_ns.saturating_sub(self.now_ns);
        let present = self.in_flight + self.line.len();
        self.counts.concurrency_ns += present as u128 * u128::from(step_ns);
        self.now_ns += step_ns;
        self.fleet.wake_up(self.now_ns);
    }

    /// When `tick` must run next.
    pub(super) fn next_timer_ns(&self) -> Option<u64> {
        let expiry = self.line.next_expiry_ns().filter(|&at| at != u64::MAX);
        let probe = self.fleet.next_probe_ns().filter(|_| !self.line.is_empty());
        [expiry, probe].into_iter().flatten().min()
    }

    /// Wakes whoever sleeps towards a timer that has moved nearer.
    fn rearm(&mut self) {
        if self.timer.is_some() && self.next_timer_ns().is_some_and(|at| at < self.timer_ns) {
            self.effects.wakers.extend(self.timer.take());
        }
    }

    pub(super) fn servable(&self) -> Servable {
        if self.is_closed {
            return Servable::Never;
        }
        if self.fleet.is_up() {
            return Servable::Now;
        }
        if self.fleet.is_serving() {
            let service_ns = self.estimator.service_ns() as u64;
            let wait_ns = if self.fleet.is_probing() {
                service_ns
            } else {
                0
            };
            return Servable::AfterProbe { wait_ns };
        }
        if let Some(until) = self.fleet.next_probe_ns() {
            return Servable::AfterProbe {
                wait_ns: until.saturating_sub(self.now_ns),
            };
        }
        match self.table.start {
            None => Servable::Never,
            Some(start) => Servable::AfterStart {
                wait_ns: start_remaining_ns(start.expected_ms * MS, start.started_ns, self.now_ns),
            },
        }
    }

    /// Expected wait behind `ahead` queued ones, ns; None: nothing can serve.
    pub(super) fn expected_wait_ns(&self, ahead: usize) -> Option<u64> {
        let slots = self.fleet.slots();
        let (first_ns, slots, in_flight) = match self.servable() {
            Servable::Never => return None,
            Servable::Now => (0, slots, self.fleet.in_flight().min(slots)),
            Servable::AfterProbe { wait_ns } => (wait_ns, self.known_slots, 0),
            // Nobody knows how many slots will come: those that were, or enough.
            Servable::AfterStart { wait_ns } if self.known_slots == 0 => return Some(wait_ns),
            Servable::AfterStart { wait_ns } => (wait_ns, self.known_slots, 0),
        };
        let busy = Busy {
            slots,
            in_flight,
            ahead,
            mean_age_ns: self.mean_age_ns(),
        };
        Some(first_ns.saturating_add(self.estimator.wait_ns(busy)))
    }

    fn mean_age_ns(&self) -> f64 {
        let ages = u128::from(self.now_ns) * self.in_flight as u128;
        ages.saturating_sub(self.admitted_sum_ns) as f64 / self.in_flight.max(1) as f64
    }

    pub(super) fn refuse(
        &mut self,
        kind: RefusalKind,
        expected_wait_ns: Option<u64>,
        waited_ns: u64,
        detail: &'static str,
    ) -> Refusal {
        self.counts.refused += 1;
        self.tell(kind, expected_wait_ns, waited_ns, detail)
    }

    /// As `refuse`, for a request that counts otherwise.
    pub(super) fn tell(
        &mut self,
        kind: RefusalKind,
        expected_wait_ns: Option<u64>,
        waited_ns: u64,
        detail: &'static str,
    ) -> Refusal {
        if kind == RefusalKind::Overload && !self.is_overloaded {
            self.is_overloaded = true;
            self.effects.events.push(StageEvent::Overload);
        }
        let told_ns = expected_wait_ns.unwrap_or(UNKNOWN_WAIT_NS);
        // While nothing serves, those slots that did will come back: their turns space the retries.
        let slots = self.fleet.slots().max(self.known_slots).max(1);
        let turn_ns = self.estimator.turn_ns(slots) as u64;
        let cause = match kind {
            RefusalKind::Unavailable => self.table.cause.clone(),
            RefusalKind::Overload | RefusalKind::Deadline => None,
        };
        let retry_after_ms = self.tail.next_ms(self.now_ns, told_ns, turn_ns);
        Refusal {
            kind,
            expected_wait_ns,
            retry_after_ms,
            waited_ns,
            detail,
            cause,
        }
    }

    /// Asks control for a start where only a start would help and none runs.
    pub(super) fn demand(&mut self, servable: Servable) {
        let would_help = matches!(servable, Servable::AfterStart { .. });
        let runs = self
            .table
            .start
            .is_some_and(|start| start.started_ns.is_some());
        let is_due = self
            .demand_ns
            .is_none_or(|last| self.now_ns - last >= DEMAND_EVERY_NS);
        if would_help && !runs && is_due {
            self.demand_ns = Some(self.now_ns);
            self.effects.events.push(StageEvent::Demand {
                waiting: self.line.len(),
            });
        }
    }

    /// One request takes a slot of `replica`; true when it is a probe.
    pub(super) fn occupy(&mut self, replica: &Rc<Replica>, tokens: u64) -> bool {
        self.in_flight += 1;
        self.admitted_sum_ns += u128::from(self.now_ns);
        let is_probe = replica.take(tokens);
        self.fleet.refresh(replica);
        is_probe
    }

    pub(super) fn vacate(&mut self, replica: &Rc<Replica>, tokens: u64, admitted_ns: u64) {
        self.in_flight -= 1;
        self.admitted_sum_ns -= u128::from(admitted_ns);
        self.counts.last_activity_ns = self.now_ns;
        replica.give_back(tokens);
    }

    /// After a change of a replica's health or occupancy.
    pub(super) fn replica_changed(&mut self, replica: &Rc<Replica>, change: Option<Change>) {
        self.fleet.refresh(replica);
        let id = || replica.id().to_owned();
        match change {
            Some(_) if replica.is_gone() => {}
            None => {}
            Some(Change::Down(reason)) => {
                self.effects.events.push(StageEvent::ReplicaDown {
                    replica: id(),
                    reason,
                });
                self.slots_changed();
            }
            Some(Change::Up(reason)) => {
                self.effects.events.push(StageEvent::ReplicaUp {
                    replica: id(),
                    reason,
                });
                self.slots_changed();
            }
        }
    }

    pub(super) fn slots_changed(&mut self) {
        self.estimator.slots_changed();
        let slots = self.fleet.slots();
        if slots > 0 {
            self.known_slots = slots;
            self.demand_ns = None;
        }
    }

    /// The queue has run empty: episodes end.
    pub(super) fn line_is_empty(&mut self) {
        self.estimator.idle();
        self.is_overloaded = false;
    }
}
