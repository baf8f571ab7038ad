//! The stage queue: one rule a test, then random histories against the invariants.

mod bench;
mod health;
mod history;
mod pipelines;
mod rules;
mod sessions;

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::*;
use crate::tables::{Address, ReplicaState, ReplicaTable, StageTable, StartTable};
use crate::wait::{Refusal, RefusalKind};

const MS: u64 = 1_000_000;

fn replica(id: &str, slots: usize) -> ReplicaTable {
    ReplicaTable {
        id: id.to_owned(),
        address: Address::Unix(format!("/run/{id}").into()),
        slots,
        state: ReplicaState::Ready,
        keepalive_ms: 4000,
        host: None,
        model: None,
        authorization: None,
    }
}

fn table(replicas: &[ReplicaTable]) -> StageTable {
    let json =
        r#"{"max_queue": 10, "max_wait_ms": 2000, "max_sessions": 2, "default_service_ms": 100}"#;
    StageTable {
        replicas: replicas.to_vec(),
        ..serde_json::from_str(json).unwrap()
    }
}

/// A stage whose events are kept.
fn stage(table: &StageTable) -> (Stage, Rc<RefCell<Vec<StageEvent>>>) {
    let events = Rc::new(RefCell::new(Vec::new()));
    let kept = events.clone();
    let sink: EventSink = Rc::new(move |event| kept.borrow_mut().push(event));
    (Stage::new("chat", table, 7, sink, 0), events)
}

fn poll(ticket: &mut Ticket, now_ns: u64) -> Poll<Result<Permit, Refusal>> {
    ticket.poll(Waker::noop(), now_ns)
}

/// Submits what must get a slot at once.
fn admit(stage: &Stage, ask: Ask, now_ns: u64) -> Permit {
    let mut ticket = stage.submit(ask, now_ns).expect("not refused");
    granted(&mut ticket, now_ns)
}

fn granted(ticket: &mut Ticket, now_ns: u64) -> Permit {
    match poll(ticket, now_ns) {
        Poll::Ready(Ok(permit)) => permit,
        other => panic!("not granted: {other:?}"),
    }
}

fn refused(ticket: &mut Ticket, now_ns: u64) -> Refusal {
    match poll(ticket, now_ns) {
        Poll::Ready(Err(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn priority(priority: i32) -> Ask {
    Ask {
        priority,
        ..Ask::default()
    }
}
