//! The handle of a stage's queue.

use std::rc::Rc;
use std::task::Waker;

use super::admission::Arrival;
use super::fleet::Fleet;
use super::permit::SessionPermit;
use super::score::{LeastExpectedWait, Score};
use super::state::{Inner, MS, State};
use super::ticket::Ticket;
use super::{Ask, EventSink, StageSnapshot};
use crate::tables::StageTable;
use crate::wait::{Refusal, RefusalKind};

/// One stage: its line, its replicas, its learnt times. A clone is the same stage.
#[derive(Clone)]
pub struct Stage(Rc<Inner>);

impl Stage {
    /// `seed` makes picks and jitter repeatable; `sink` takes the stage's events, outside of any
    /// borrow.
    pub fn new(name: &str, table: &StageTable, seed: u64, sink: EventSink, now_ns: u64) -> Stage {
        Stage::with_score(name, table, seed, sink, now_ns, Box::new(LeastExpectedWait))
    }

    /// As [`Stage::new`], with another way to compare replicas.
    pub fn with_score(
        name: &str,
        table: &StageTable,
        seed: u64,
        sink: EventSink,
        now_ns: u64,
        score: Box<dyn Score>,
    ) -> Stage {
        let state = State::new(table, Fleet::new(score, seed), seed, now_ns);
        let stage = Stage(Rc::new(Inner {
            name: name.into(),
            state: state.into(),
            sink,
        }));
        stage.apply(table, now_ns);
        stage
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Takes new tables over. Admitted requests go on, also on replicas that left; queued ones stay
    /// queued as long as something can serve them.
    pub fn apply(&self, table: &StageTable, now_ns: u64) {
        self.0.with(now_ns, |state| {
            let (slots, before) = (state.fleet.slots(), state.servable());
            state.estimator.set_default(table.default_service_ms * MS);
            state.table = table.clone();
            state.is_closed = false;
            state.fleet.apply(&table.replicas);
            if state.fleet.slots() != slots {
                state.slots_changed();
            }
            state.readiness_changed(&self.0, before);
        });
    }

    /// The stage left the tables: queued requests are refused, admitted ones go on.
    pub fn close(&self, now_ns: u64) {
        self.0.with(now_ns, |state| {
            let before = state.servable();
            state.fleet.apply(&[]);
            state.is_closed = true;
            state.readiness_changed(&self.0, before);
        });
    }

    /// Asks for a slot.
    ///
    /// # Errors
    /// The refusal to answer with, at once: the expected wait fits neither deadline nor bound, the
    /// queue is full, or nothing can serve.
    pub fn submit(&self, ask: Ask, now_ns: u64) -> Result<Ticket, Refusal> {
        let entry = self.0.with(now_ns, |state| {
            state.counts.arrivals += 1;
            state.counts.last_activity_ns = state.now_ns;
            let arrival = Arrival {
                ask,
                arrived_ns: state.now_ns,
                attempt: 1,
            };
            state.submit(&self.0, arrival)
        })?;
        Ok(Ticket::new(self.0.clone(), entry))
    }

    /// Opens a session on the serving replica with the fewest, or on the one that served the
    /// conversation `session` last; it takes no slot and never queues.
    ///
    /// # Errors
    /// The refusal to answer with: `max_sessions` are open, or nothing is ready.
    pub fn open_session(
        &self,
        session: Option<u64>,
        now_ns: u64,
    ) -> Result<SessionPermit, Refusal> {
        let (replica, session_move) = self.0.with(now_ns, |state| {
            state.counts.last_activity_ns = state.now_ns;
            let servable = state.servable();
            let expected = state.expected_wait_ns(0);
            if state.sessions >= state.table.max_sessions {
                state.counts.sessions_refused += 1;
                let detail = "all sessions of the stage are in use";
                return Err(state.tell(RefusalKind::Overload, expected, 0, detail));
            }
            let Some(replica) = state.fleet.pick_for_session(session) else {
                state.counts.sessions_refused += 1;
                state.demand(servable);
                let detail = "no replica is ready";
                return Err(state.tell(RefusalKind::Unavailable, expected, 0, detail));
            };
            state.sessions += 1;
            state.counts.sessions_opened += 1;
            let session_move = state.fleet.settle(session, &replica);
            Ok((replica, session_move))
        })?;
        Ok(SessionPermit::new(self.0.clone(), replica, session_move))
    }

    /// What to tell a client that is refused for a reason of its own (an engine's 429 or 503, a
    /// broken replica).
    pub fn refuse(&self, kind: RefusalKind, detail: &'static str, now_ns: u64) -> Refusal {
        self.0.with(now_ns, |state| {
            let expected = state.expected_wait_ns(state.line.len());
            state.tell(kind, expected, 0, detail)
        })
    }

    /// Refuses those whose time is over and asks ejected replicas again; returns when it must run
    /// next.
    pub fn tick(&self, now_ns: u64) -> Option<u64> {
        self.0.with(now_ns, |state| {
            state.dispatch(&self.0);
            let next = state.next_timer_ns();
            state.timer_ns = next.unwrap_or(u64::MAX);
            next
        })
    }

    /// Wakes `waker`, once, when [`Stage::tick`] must run earlier than it last said.
    pub fn on_timer_change(&self, waker: Waker) {
        self.0.state.borrow_mut().timer = Some(waker);
    }

    /// Expected wait of a request that came now, ns; None: nothing can serve.
    pub fn expected_wait_ns(&self, now_ns: u64) -> Option<u64> {
        self.0
            .with(now_ns, |state| state.expected_wait_ns(state.line.len()))
    }

    /// A replica is ready and not ejected, or may be tried again: without traffic nobody would
    /// find out.
    pub fn is_ready(&self, now_ns: u64) -> bool {
        self.0
            .with(now_ns, |state| !state.is_closed && state.fleet.is_serving())
    }

    /// Slots of the replicas that serve.
    pub fn slots(&self) -> usize {
        self.0.state.borrow().fleet.slots()
    }

    /// The numbers of now.
    pub fn snapshot(&self, now_ns: u64) -> StageSnapshot {
        self.0.with(now_ns, |state| StageSnapshot::of(state))
    }
}
