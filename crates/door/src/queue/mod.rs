//! The stage queue: who waits, who is admitted, to which replica, and who is refused with which
//! truth.
//!
//! Pure: no IO and no clock. Every call takes `now_ns` (CLOCK_MONOTONIC); wakers tell the IO side
//! when to look again. Single-threaded: a [`Stage`] is a cheap handle to shared state. Wakers are
//! woken and events are delivered outside of any borrow, so a callback may call back in.
//!
//! The life of a request: [`Stage::submit`] → [`Ticket`] (polled; dropping it withdraws the
//! request) → [`Permit`] (holds one slot of one [`Replica`]; dropping it frees the slot exactly
//! once) → [`Permit::finish`], or [`Permit::retry`] when the request provably never ran.

mod admission;
mod fleet;
mod homes;
mod line;
mod permit;
mod replica;
mod score;
mod snapshot;
mod stage;
mod state;
mod ticket;

#[cfg(test)]
mod tests;

pub use homes::Move;
pub use permit::{Permit, SessionPermit};
pub use replica::Replica;
pub use score::{Cost, LeastExpectedWait, Score};
pub use snapshot::{ReplicaSnapshot, StageSnapshot};
pub use stage::Stage;
pub use ticket::Ticket;

/// One request's wish for a slot.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Higher goes first; FIFO within one value. A call for a held slot carries its parent's.
    pub priority: i32,
    /// The request is a call made for a slot that its parent holds: ahead of new arrivals of its
    /// class.
    pub holds_parent: bool,
    /// Tokens of KV that it may take (prompt and answer); 0 where there is no budget.
    pub tokens: u64,
    /// A hash of the conversation's name: its next request is cheapest where the last one ran.
    pub session: Option<u64>,
    /// When the client stops waiting for the first byte (now + its time-out header).
    pub first_byte_deadline_ns: Option<u64>,
    /// When the whole must be over.
    pub deadline_ns: Option<u64>,
}

impl Ask {
    /// The nearer of the two deadlines; `u64::MAX`: none.
    pub fn nearest_deadline_ns(&self) -> u64 {
        let first_byte = self.first_byte_deadline_ns.unwrap_or(u64::MAX);
        first_byte.min(self.deadline_ns.unwrap_or(u64::MAX))
    }
}

/// How a request that held a slot ended; it decides what is learnt from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The replica answered in full, not by a 5xx or its own 429: a sample of service time.
    Completed,
    /// The replica answered by a 5xx other than 503: no sample and no ejection, but it looks
    /// dearer.
    Errored,
    /// The replica's own 429 or 503: neither a fault nor a sample.
    Rejected,
    /// The client left, or its deadline cut the answer: no fault of the replica.
    ClientGone,
    /// The replica broke.
    Failed(Fault),
}

/// How a replica broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No connection: the request never ran. Ejects at once.
    Connect,
    /// The connection ended or spoke no HTTP before the answer was complete. Ejects when repeated.
    Broken,
    /// Silence beyond the stream's idle time-out. Ejects when repeated.
    Stalled,
}

/// What the admin listener's `/events` tells control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageEvent {
    /// A request came, nothing is ready and no start runs; at most once a second.
    Demand { waiting: usize },
    ReplicaDown {
        replica: String,
        reason: &'static str,
    },
    ReplicaUp {
        replica: String,
        reason: &'static str,
    },
    /// A first refusal for overload in an episode (an episode ends when the queue has been empty).
    Overload,
}

/// Takes the events of one stage.
pub type EventSink = std::rc::Rc<dyn Fn(StageEvent)>;
