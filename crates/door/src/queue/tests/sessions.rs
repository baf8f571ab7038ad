//! Sessions: apart from slots, never queued.

use super::*;

#[test]
fn sessions_take_no_slots_and_never_queue() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let one = stage.open_session(0).unwrap();
    let _two = stage.open_session(0).unwrap();
    let refusal = stage.open_session(0).err().unwrap();
    assert_eq!(refusal.status(), 429);
    let permit = admit(&stage, Ask::default(), 0);
    drop(one);
    let _three = stage.open_session(0).expect("a session ended");
    assert_eq!(stage.snapshot(0).sessions, 2);
    permit.finish(Outcome::Completed, 1);
}

#[test]
fn sessions_spread_by_slots() {
    let tables = StageTable {
        max_sessions: 30,
        ..table(&[replica("a", 1), replica("b", 2)])
    };
    let (stage, _) = stage(&tables);
    let _open: Vec<_> = (0..30).map(|_| stage.open_session(0).unwrap()).collect();
    let snapshot = stage.snapshot(0);
    assert_eq!(snapshot.replicas["a"].sessions, 10);
    assert_eq!(snapshot.replicas["b"].sessions, 20);
}

#[test]
fn without_a_replica_a_session_is_refused_and_a_start_demanded() {
    let start = Some(StartTable {
        expected_ms: 700,
        started_ns: None,
    });
    let (stage, events) = stage(&StageTable {
        start,
        ..table(&[])
    });
    let refusal = stage.open_session(0).err().unwrap();
    assert_eq!(
        (refusal.status(), refusal.expected_wait_ns),
        (503, Some(700 * MS))
    );
    assert_eq!(*events.borrow(), [StageEvent::Demand { waiting: 0 }]);
}

#[test]
fn a_session_that_cannot_connect_ejects_the_replica() {
    let (stage, _) = stage(&table(&[replica("a", 1), replica("b", 1)]));
    let session = stage.open_session(0).unwrap();
    let failed = session.replica().id().to_owned();
    session.finish(Outcome::Failed(Fault::Connect), 0);
    assert_ne!(stage.open_session(0).unwrap().replica().id(), failed);
    assert_eq!(stage.snapshot(0).sessions, 0);
}
