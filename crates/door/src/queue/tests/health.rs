//! Tables that change, starts, ejection and recovery, retries, picking.

use super::*;

fn start(expected_ms: u64, started_ns: Option<u64>) -> Option<StartTable> {
    Some(StartTable {
        expected_ms,
        started_ns,
    })
}

#[test]
fn without_replicas_and_without_a_start_it_is_503_at_once() {
    let (stage, events) = stage(&table(&[]));
    let refusal = stage.submit(Ask::default(), 0).unwrap_err();
    assert_eq!((refusal.status(), refusal.expected_wait_ns), (503, None));
    assert!(refusal.retry_after_ms >= 1000);
    assert!(events.borrow().is_empty() && !stage.is_ready(0));
}

#[test]
fn with_a_start_the_request_is_held_and_demanded() {
    let tables = StageTable {
        start: start(1200, None),
        ..table(&[])
    };
    let (stage, events) = stage(&tables);
    let mut ticket = stage.submit(Ask::default(), 0).unwrap();
    assert_eq!(ticket.expected_wait_ns(), 1200 * MS);
    assert_eq!(*events.borrow(), [StageEvent::Demand { waiting: 1 }]);
    let _second = stage.submit(Ask::default(), 500 * MS).unwrap();
    assert_eq!(events.borrow().len(), 1, "one event a second");
    assert!(
        poll(&mut ticket, 5000 * MS).is_pending(),
        "held beyond max_wait"
    );
    stage.apply(
        &StageTable {
            start: None,
            ..table(&[replica("a", 1)])
        },
        6000 * MS,
    );
    let permit = granted(&mut ticket, 6000 * MS);
    assert_eq!(permit.waited_ns(), 6000 * MS);
}

#[test]
fn a_running_start_counts_down_and_is_not_demanded() {
    let tables = StageTable {
        start: start(1200, Some(100 * MS)),
        ..table(&[])
    };
    let (stage, events) = stage(&tables);
    let ticket = stage.submit(Ask::default(), 700 * MS).unwrap();
    assert_eq!(ticket.expected_wait_ns(), 600 * MS);
    assert!(events.borrow().is_empty());
}

#[test]
fn a_start_that_misses_the_deadline_is_503_but_still_demanded() {
    let tables = StageTable {
        start: start(90_000, None),
        ..table(&[])
    };
    let (stage, events) = stage(&tables);
    let ask = Ask {
        first_byte_deadline_ns: Some(1000 * MS),
        ..Ask::default()
    };
    let refusal = stage.submit(ask, 0).unwrap_err();
    assert_eq!(
        (refusal.status(), refusal.expected_wait_ns),
        (503, Some(90_000 * MS))
    );
    assert!(refusal.retry_after_s() <= 60);
    assert_eq!(*events.borrow(), [StageEvent::Demand { waiting: 0 }]);
    assert_eq!(
        stage.submit(Ask::default(), 0).unwrap_err().status(),
        503,
        "90 s exceed the hold"
    );
}

#[test]
fn a_start_that_goes_away_ends_the_hold() {
    let (stage, _) = stage(&StageTable {
        start: start(1000, None),
        ..table(&[])
    });
    let mut ticket = stage.submit(Ask::default(), 0).unwrap();
    stage.apply(&table(&[]), 100);
    assert_eq!(refused(&mut ticket, 100).status(), 503);
}

#[test]
fn the_held_get_the_usual_bound_when_the_replica_is_there() {
    let tables = StageTable {
        start: start(1000, None),
        ..table(&[])
    };
    let (stage, _) = stage(&tables);
    let first = stage.submit(Ask::default(), 0).unwrap();
    let mut second = stage.submit(Ask::default(), 0).unwrap();
    let ready_ns = 59_999 * MS;
    stage.apply(
        &StageTable {
            start: None,
            ..table(&[replica("a", 1)])
        },
        ready_ns,
    );
    assert!(first.is_granted());
    assert!(poll(&mut second, ready_ns + 1999 * MS).is_pending());
    // Tables that come again change nothing.
    stage.apply(&table(&[replica("a", 1)]), ready_ns + 1999 * MS);
    assert_eq!(refused(&mut second, ready_ns + 2000 * MS).status(), 429);
}

#[test]
fn fewer_slots_admit_no_one_until_enough_have_left() {
    let (stage, _) = stage(&table(&[replica("a", 3)]));
    let permits: Vec<_> = (0..3).map(|_| admit(&stage, Ask::default(), 0)).collect();
    stage.apply(&table(&[replica("a", 1)]), 1);
    let mut ticket = stage.submit(Ask::default(), 2).unwrap();
    let mut permits = permits.into_iter();
    permits.next().unwrap().finish(Outcome::Completed, 3);
    permits.next().unwrap().finish(Outcome::Completed, 4);
    assert!(poll(&mut ticket, 4).is_pending());
    permits.next().unwrap().finish(Outcome::Completed, 5);
    drop(granted(&mut ticket, 5));
}

#[test]
fn more_slots_admit_at_once() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let _running = admit(&stage, Ask::default(), 0);
    let mut ticket = stage.submit(Ask::default(), 0).unwrap();
    stage.apply(&table(&[replica("a", 2)]), 1);
    drop(granted(&mut ticket, 1));
}

#[test]
fn draining_and_removed_replicas_finish_what_runs_and_take_nothing_new() {
    let (stage, _) = stage(&table(&[replica("a", 2), replica("b", 2)]));
    let permits: Vec<_> = (0..4).map(|_| admit(&stage, Ask::default(), 0)).collect();
    let draining = ReplicaTable {
        state: ReplicaState::Draining,
        ..replica("a", 2)
    };
    stage.apply(&table(&[draining]), 1);
    assert!(!stage.is_ready(1));
    let mut gone: Vec<_> = permits
        .iter()
        .map(|permit| permit.replica().clone())
        .collect();
    gone.retain(|replica| replica.is_gone());
    assert_eq!(gone.len(), 2);
    permits
        .into_iter()
        .for_each(|permit| permit.finish(Outcome::Completed, 2));
    assert_eq!(gone[0].in_flight(), 0);
    assert_eq!(stage.submit(Ask::default(), 3).unwrap_err().status(), 503);
    assert_eq!(stage.snapshot(3).in_flight, 0);
}

#[test]
fn another_address_under_the_same_id_is_another_replica() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let old = admit(&stage, Ask::default(), 0);
    let moved = ReplicaTable {
        address: Address::Unix("/run/other".into()),
        ..replica("a", 1)
    };
    stage.apply(&table(&[moved]), 1);
    let new = admit(&stage, Ask::default(), 1);
    assert_ne!(old.replica().key(), new.replica().key());
    assert!(old.replica().is_gone() && !new.replica().is_gone());
}

#[test]
fn a_closed_stage_refuses_the_queued_and_finishes_the_admitted() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let mut ticket = stage.submit(Ask::default(), 0).unwrap();
    stage.close(1);
    assert_eq!(refused(&mut ticket, 1).status(), 503);
    assert_eq!(stage.submit(Ask::default(), 1).unwrap_err().status(), 503);
    running.finish(Outcome::Completed, 2);
    assert_eq!(stage.snapshot(2).in_flight, 0);
}

#[test]
fn a_failed_connect_ejects_and_the_request_goes_elsewhere() {
    let (stage, events) = stage(&table(&[replica("a", 1), replica("b", 1)]));
    let permit = admit(&stage, Ask::default(), 0);
    let failed = permit.replica().id().to_owned();
    let mut ticket = permit.retry(Fault::Connect, 1).unwrap();
    let permit = granted(&mut ticket, 1);
    assert_ne!(permit.replica().id(), failed);
    assert_eq!(permit.attempt(), 2);
    let down = StageEvent::ReplicaDown {
        replica: failed,
        reason: "connect failed",
    };
    assert_eq!(*events.borrow(), [down]);
}

#[test]
fn a_retry_goes_before_those_who_came_first() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let mut queued = stage.submit(Ask::default(), 0).unwrap();
    let mut retried = running.retry(Fault::Connect, 1).unwrap();
    assert!(
        poll(&mut queued, 1).is_pending(),
        "the only replica is ejected"
    );
    let probe_ns = stage.tick(1).unwrap();
    stage.tick(probe_ns);
    let permit = granted(&mut retried, probe_ns);
    assert!(
        poll(&mut queued, probe_ns).is_pending(),
        "one probe at a time"
    );
    permit.finish(Outcome::Completed, probe_ns + 1);
    drop(granted(&mut queued, probe_ns + 1));
}

#[test]
fn attempts_are_bounded() {
    let replicas: Vec<_> = (0..9).map(|i| replica(&format!("r{i}"), 1)).collect();
    let (stage, _) = stage(&table(&replicas));
    let mut permit = admit(&stage, Ask::default(), 0);
    for _ in 0..2 {
        permit = granted(&mut permit.retry(Fault::Connect, 1).unwrap(), 1);
    }
    let refusal = permit.retry(Fault::Connect, 2).unwrap_err();
    assert_eq!(
        (refusal.status(), refusal.detail),
        (503, "no replica could be reached")
    );
}

#[test]
fn the_back_off_doubles_and_a_success_ends_it() {
    let (stage, events) = stage(&table(&[replica("a", 4)]));
    let mut now = 0;
    let mut backoffs = Vec::new();
    for _ in 0..8 {
        let permit = admit(&stage, Ask::default(), now);
        assert!(
            stage
                .submit(Ask::default(), now)
                .is_ok_and(|t| t.is_granted() == (now == 0))
        );
        permit.finish(Outcome::Failed(Fault::Connect), now);
        assert!(!stage.is_ready(now));
        let ticket = stage.submit(Ask::default(), now);
        let until = now
            + ticket
                .map_or_else(|r| r.expected_wait_ns, |t| Some(t.expected_wait_ns()))
                .unwrap();
        backoffs.push((until - now) / MS);
        now = until;
        assert!(stage.is_ready(now));
    }
    assert_eq!(backoffs, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    admit(&stage, Ask::default(), now).finish(Outcome::Completed, now + 1);
    let _all: Vec<_> = (0..4)
        .map(|_| admit(&stage, Ask::default(), now + 1))
        .collect();
    let up = StageEvent::ReplicaUp {
        replica: "a".into(),
        reason: "answered again",
    };
    assert_eq!(events.borrow().last(), Some(&up));
    assert_eq!(events.borrow().len(), 2, "one down, one up: {events:?}");
}

#[test]
fn while_the_only_replica_is_tried_again_it_is_503_not_429() {
    let (stage, _) = stage(&table(&[replica("a", 4)]));
    admit(&stage, Ask::default(), 0).finish(Outcome::Failed(Fault::Connect), 0);
    let _probe = admit(&stage, Ask::default(), 200 * MS);
    let mut ticket = stage.submit(Ask::default(), 200 * MS).unwrap();
    assert_eq!(
        ticket.expected_wait_ns(),
        100 * MS,
        "the probe's service time"
    );
    let refusal = refused(&mut ticket, 2200 * MS);
    assert_eq!(
        (refusal.status(), refusal.expected_wait_ns),
        (503, Some(100 * MS))
    );
}

#[test]
fn retries_in_an_outage_are_spaced_by_the_slots_that_will_be_back() {
    let (stage, _) = stage(&table(&[replica("a", 100)]));
    admit(&stage, Ask::default(), 0).finish(Outcome::Failed(Fault::Connect), 0);
    let refuse = || {
        stage
            .refuse(RefusalKind::Unavailable, "down", 0)
            .retry_after_ms
    };
    let told: Vec<_> = (0..100).map(|_| refuse()).collect();
    assert!(
        told.iter().all(|&ms| ms < 500),
        "100 turns of 1 ms: {told:?}"
    );
}

#[test]
fn broken_answers_eject_only_in_a_row() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let broken = Outcome::Failed(Fault::Broken);
    for outcome in [
        broken,
        broken,
        Outcome::Completed,
        broken,
        broken,
        Outcome::Rejected,
    ] {
        admit(&stage, Ask::default(), 0).finish(outcome, 0);
    }
    (0..3).for_each(|_| admit(&stage, Ask::default(), 0).finish(broken, 0));
    assert!(!stage.is_ready(0));
}

#[test]
fn clients_that_leave_and_engines_that_refuse_are_no_fault() {
    let (stage, events) = stage(&table(&[replica("a", 1)]));
    for outcome in [Outcome::ClientGone, Outcome::Rejected, Outcome::Errored].repeat(20) {
        admit(&stage, Ask::default(), 0).finish(outcome, 0);
    }
    assert!(stage.is_ready(0) && events.borrow().is_empty());
}

#[test]
fn a_probe_whose_client_leaves_lets_another_probe_through() {
    let (stage, _) = stage(&table(&[replica("a", 4)]));
    admit(&stage, Ask::default(), 0).finish(Outcome::Failed(Fault::Connect), 0);
    let probe = admit(&stage, Ask::default(), 200 * MS);
    let mut second = stage.submit(Ask::default(), 200 * MS).unwrap();
    assert!(poll(&mut second, 200 * MS).is_pending());
    drop(probe);
    let mut second = granted(&mut second, 200 * MS);
    let mut third = stage.submit(Ask::default(), 200 * MS).unwrap();
    assert!(poll(&mut third, 200 * MS).is_pending());
    second.first_byte(201 * MS);
    drop(granted(&mut third, 201 * MS)); // A first byte is proof enough.
}

#[test]
fn work_spreads_evenly_over_equal_replicas() {
    let replicas: Vec<_> = (0..4).map(|i| replica(&format!("r{i}"), 100)).collect();
    let (stage, _) = stage(&table(&replicas));
    let _permits: Vec<_> = (0..200).map(|_| admit(&stage, Ask::default(), 0)).collect();
    let counts: Vec<_> = stage
        .snapshot(0)
        .replicas
        .values()
        .map(|r| r.in_flight)
        .collect();
    assert!(
        counts.iter().all(|&count| (40..=60).contains(&count)),
        "{counts:?}"
    );
}

#[test]
fn a_replica_that_fails_fast_does_not_attract_the_traffic() {
    let (stage, _) = stage(&table(&[replica("bad", 100), replica("good", 100)]));
    let (mut bad, mut now) = (0, 0);
    let mut running = std::collections::VecDeque::new();
    for _ in 0..500 {
        now += 10 * MS;
        let mut permit = admit(&stage, Ask::default(), now);
        permit.first_byte(now);
        if permit.replica().id() == "bad" {
            bad += 1;
            permit.finish(Outcome::Errored, now);
        } else {
            running.push_back((now + 100 * MS, permit));
        }
        while running.front().is_some_and(|(end, _)| *end <= now) {
            running
                .pop_front()
                .unwrap()
                .1
                .finish(Outcome::Completed, now);
        }
    }
    assert!(bad < 50, "{bad} of 500");
}

#[test]
fn a_slower_replica_gets_less() {
    let (stage, _) = stage(&table(&[replica("slow", 10), replica("fast", 10)]));
    let mut now = 0;
    let mut running: Vec<(u64, Permit)> = Vec::new();
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..1000 {
        now += 20 * MS;
        let (done, rest) = running.into_iter().partition(|(end, _)| *end <= now);
        running = rest;
        let done: Vec<_> = done;
        done.into_iter()
            .for_each(|(end, permit)| permit.finish(Outcome::Completed, end.max(now)));
        let permit = admit(&stage, Ask::default(), now);
        let id = permit.replica().id().to_owned();
        let service = if id == "slow" { 300 } else { 100 };
        *counts.entry(id).or_insert(0) += 1;
        running.push((now + service * MS, permit));
    }
    assert!(counts["fast"] > 2 * counts["slow"], "{counts:?}");
}
