//! Sessions: apart from slots, never queued.

use super::*;

#[test]
fn sessions_take_no_slots_and_never_queue() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let one = stage.open_session(None, 0).unwrap();
    let _two = stage.open_session(None, 0).unwrap();
    let refusal = stage.open_session(None, 0).err().unwrap();
    assert_eq!(refusal.status(), 429);
    let permit = admit(&stage, Ask::default(), 0);
    drop(one);
    let _three = stage.open_session(None, 0).expect("a session ended");
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
    let _open: Vec<_> = (0..30)
        .map(|_| stage.open_session(None, 0).unwrap())
        .collect();
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
    let refusal = stage.open_session(None, 0).err().unwrap();
    assert_eq!(
        (refusal.status(), refusal.expected_wait_ns),
        (503, Some(700 * MS))
    );
    assert_eq!(*events.borrow(), [StageEvent::Demand { waiting: 0 }]);
}

#[test]
fn a_session_that_cannot_connect_ejects_the_replica() {
    let (stage, _) = stage(&table(&[replica("a", 1), replica("b", 1)]));
    let session = stage.open_session(None, 0).unwrap();
    let failed = session.replica().id().to_owned();
    session.finish(Outcome::Failed(Fault::Connect), 0);
    assert_ne!(stage.open_session(None, 0).unwrap().replica().id(), failed);
    assert_eq!(stage.snapshot(0).sessions, 0);
}

fn in_session(session: u64) -> Ask {
    Ask {
        session: Some(session),
        ..Ask::default()
    }
}

/// One request of a session, served in 100 ms: its replica, seen from the request before.
fn turn(stage: &Stage, session: u64) -> (String, Option<Move>) {
    let now = stage.snapshot(0).last_activity_ns;
    let permit = admit(stage, in_session(session), now);
    let (id, seen) = (permit.replica().id().to_owned(), permit.session_move());
    permit.finish(Outcome::Completed, now + 100 * MS);
    (id, seen)
}

#[test]
fn a_sessions_requests_stay_on_one_replica_while_others_spread() {
    let (stage, _) = stage(&table(&[replica("a", 4), replica("b", 4), replica("c", 4)]));
    let mut homes = std::collections::BTreeSet::new();
    for session in 0..30 {
        let (home, seen) = turn(&stage, session);
        assert_eq!(seen, Some(Move::New));
        for _ in 0..20 {
            assert_eq!(turn(&stage, session), (home.clone(), Some(Move::Kept)));
        }
        homes.insert(home);
    }
    assert_eq!(homes.len(), 3, "sessions spread over the replicas");
    assert_eq!(admit(&stage, Ask::default(), 0).session_move(), None);
}

#[test]
fn a_home_is_left_when_it_is_overloaded_and_not_before() {
    let (stage, _) = stage(&table(&[replica("a", 4), replica("b", 4)]));
    let (home, _) = turn(&stage, 1);
    let mut running = Vec::new();
    let mut stayed = 0;
    loop {
        let permit = admit(&stage, in_session(1), 0);
        let is_home = permit.replica().id() == home;
        running.push(permit);
        if !is_home {
            break;
        }
        stayed += 1;
    }
    assert!((1..4).contains(&stayed), "{stayed} before the first left");
    let last = running.last().unwrap();
    assert_eq!(last.session_move(), Some(Move::Moved));
}

#[test]
fn a_session_whose_replica_is_gone_moves_and_stays_where_it_went() {
    let (stage, _) = stage(&table(&[replica("a", 2), replica("b", 2)]));
    let (home, _) = turn(&stage, 1);
    let other = if home == "a" { "b" } else { "a" };
    stage.apply(&table(&[replica(other, 2)]), 0);
    assert_eq!(turn(&stage, 1), (other.to_owned(), Some(Move::Moved)));
    stage.apply(&table(&[replica(other, 2), replica(&home, 2)]), 0);
    for _ in 0..10 {
        assert_eq!(turn(&stage, 1), (other.to_owned(), Some(Move::Kept)));
    }
}

#[test]
fn a_websocket_opens_where_its_conversation_was_served() {
    let tables = StageTable {
        max_sessions: 30,
        ..table(&[replica("a", 2), replica("b", 2)])
    };
    let (stage, _) = stage(&tables);
    let (home, _) = turn(&stage, 1);
    let first = stage.open_session(Some(1), 0).unwrap();
    assert_eq!(first.replica().id(), home);
    assert_eq!(first.session_move(), Some(Move::Kept));
    let snapshot = stage.snapshot(0);
    assert_eq!(snapshot.sessions_opened_total, 1);
    let _more: Vec<_> = (0..29)
        .map(|_| stage.open_session(Some(1), 0).unwrap())
        .collect();
    assert!(stage.open_session(Some(1), 0).is_err());
    let snapshot = stage.snapshot(0);
    assert_eq!(
        (
            snapshot.sessions_opened_total,
            snapshot.sessions_refused_total
        ),
        (30, 1)
    );
    let other = if home == "a" { "b" } else { "a" };
    assert!(
        snapshot.replicas[other].sessions >= 9,
        "one conversation does not fill one replica: {snapshot:?}"
    );
}

#[test]
fn why_nothing_serves_is_told_where_control_said_it() {
    let (stage, _) = stage(&StageTable {
        cause: Some("CUDA out of memory".into()),
        ..table(&[])
    });
    let refusal = stage.submit(Ask::default(), 0).unwrap_err();
    assert_eq!(refusal.status(), 503);
    assert!(refusal.message().contains("CUDA out of memory"));
    let refusal = stage.open_session(None, 0).err().unwrap();
    assert!(refusal.message().contains("CUDA out of memory"));
    let replicas = StageTable {
        max_queue: 0,
        cause: Some("CUDA out of memory".into()),
        ..table(&[replica("a", 1)])
    };
    stage.apply(&replicas, 0);
    let _running = admit(&stage, Ask::default(), 0);
    let refusal = stage.submit(Ask::default(), 0).unwrap_err();
    assert_eq!((refusal.status(), refusal.cause), (429, None));
}
