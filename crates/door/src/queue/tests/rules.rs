//! Order, admission, refusals, deadlines, withdrawal, KV.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use super::*;

#[test]
fn requests_of_one_class_are_served_in_order() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let permit = admit(&stage, Ask::default(), 0);
    let mut tickets: Vec<_> = (0..3)
        .map(|_| stage.submit(Ask::default(), 1).unwrap())
        .collect();
    let mut permit = Some(permit);
    for ticket in &mut tickets {
        assert!(poll(ticket, 2).is_pending());
        permit.take().unwrap().finish(Outcome::Completed, 3);
        permit = Some(granted(ticket, 3));
    }
}

#[test]
fn a_higher_priority_goes_first_but_displaces_no_one_admitted() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, priority(-5), 0);
    let mut low = stage.submit(priority(0), 1).unwrap();
    let mut high = stage.submit(priority(5), 2).unwrap();
    assert_eq!(running.replica().in_flight(), 1);
    running.finish(Outcome::Completed, 3);
    assert!(poll(&mut low, 3).is_pending());
    let permit = granted(&mut high, 3);
    permit.finish(Outcome::Completed, 4);
    drop(granted(&mut low, 4));
}

#[test]
fn a_call_for_a_held_slot_goes_ahead_of_new_arrivals_of_its_class() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let mut first = stage.submit(Ask::default(), 1).unwrap();
    let mut above = stage.submit(priority(1), 1).unwrap();
    let mut held = stage
        .submit(
            Ask {
                holds_parent: true,
                ..Ask::default()
            },
            2,
        )
        .unwrap();
    running.finish(Outcome::Completed, 3);
    let permit = granted(&mut above, 3);
    permit.finish(Outcome::Completed, 4);
    let permit = granted(&mut held, 4);
    assert!(poll(&mut first, 4).is_pending());
    permit.finish(Outcome::Completed, 5);
    drop(granted(&mut first, 5));
}

#[test]
fn calls_for_held_slots_are_queued_beyond_a_full_queue() {
    let (stage, _) = stage(&StageTable {
        max_queue: 1,
        ..table(&[replica("a", 1)])
    });
    let _running = admit(&stage, Ask::default(), 0);
    let _queued = stage.submit(Ask::default(), 1).unwrap();
    assert_eq!(stage.submit(Ask::default(), 1).unwrap_err().status(), 429);
    let held = Ask {
        holds_parent: true,
        ..Ask::default()
    };
    let _held = stage
        .submit(held.clone(), 1)
        .expect("a parent waits for it");
    assert_eq!(
        stage.submit(held, 1).unwrap_err().status(),
        429,
        "but not without bound"
    );
}

#[test]
fn an_expected_wait_beyond_the_bound_is_refused_at_once_with_the_truth() {
    let (stage, events) = stage(&StageTable {
        max_queue: 100,
        ..table(&[replica("a", 1)])
    });
    let _running = admit(&stage, Ask::default(), 0);
    let mut tickets = Vec::new();
    let refusal = loop {
        match stage.submit(Ask::default(), 0) {
            Ok(ticket) => tickets.push(ticket),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(tickets.len(), 20, "20 × 100 ms fit into 2 s");
    assert_eq!(refusal.kind, RefusalKind::Overload);
    assert_eq!(refusal.expected_wait_ns, Some(2100 * MS));
    assert!(refusal.retry_after_ms >= 2100);
    assert_eq!(*events.borrow(), [StageEvent::Overload]);
}

#[test]
fn a_deadline_that_the_expected_wait_exceeds_is_refused_at_once() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let _running = admit(&stage, Ask::default(), 0);
    let ask = Ask {
        first_byte_deadline_ns: Some(60 * MS),
        ..Ask::default()
    };
    assert_eq!(stage.submit(ask, 10 * MS).unwrap_err().status(), 429);
    let ask = Ask {
        deadline_ns: Some(10 * MS),
        ..Ask::default()
    };
    let refusal = stage.submit(ask, 10 * MS).unwrap_err();
    assert_eq!((refusal.status(), refusal.should_retry()), (504, false));
}

#[test]
fn expired_work_is_refused_and_never_dispatched() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let ask = Ask {
        deadline_ns: Some(200 * MS),
        ..Ask::default()
    };
    let mut late = stage.submit(ask, 0).unwrap();
    let mut next = stage.submit(Ask::default(), 0).unwrap();
    running.finish(Outcome::Completed, 300 * MS);
    assert_eq!(refused(&mut late, 300 * MS).status(), 504);
    drop(granted(&mut next, 300 * MS));
}

#[test]
fn a_grant_looked_at_after_the_deadline_is_given_back() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let ask = Ask {
        deadline_ns: Some(200 * MS),
        ..Ask::default()
    };
    let mut ticket = stage.submit(ask, 0).unwrap();
    running.finish(Outcome::Completed, 199 * MS);
    assert!(ticket.is_granted());
    assert_eq!(refused(&mut ticket, 201 * MS).status(), 504);
    let snapshot = stage.snapshot(201 * MS);
    assert_eq!((snapshot.in_flight, snapshot.finished_total), (0, 1));
}

#[test]
fn the_bound_on_waiting_ends_in_429() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let _running = admit(&stage, Ask::default(), 0);
    let mut ticket = stage.submit(Ask::default(), 0).unwrap();
    assert_eq!(ticket.expires_ns(), 2000 * MS);
    assert_eq!(stage.tick(0), Some(2000 * MS));
    assert!(poll(&mut ticket, 1999 * MS).is_pending());
    let refusal = refused(&mut ticket, 2000 * MS);
    assert_eq!((refusal.status(), refusal.waited_ns), (429, 2000 * MS));
    assert_eq!(stage.snapshot(2000 * MS).queued, 0);
}

#[test]
fn a_withdrawn_request_is_skipped() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let gone = stage.submit(Ask::default(), 0).unwrap();
    let mut next = stage.submit(Ask::default(), 0).unwrap();
    drop(gone);
    assert_eq!(stage.snapshot(1).queued, 1);
    running.finish(Outcome::Completed, 2);
    drop(granted(&mut next, 2));
}

#[test]
fn dropping_a_granted_ticket_frees_its_slot_for_the_next() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let granted_one = stage.submit(Ask::default(), 0).unwrap();
    let mut next = stage.submit(Ask::default(), 0).unwrap();
    running.finish(Outcome::Completed, 1);
    assert!(granted_one.is_granted());
    drop(granted_one);
    drop(granted(&mut next, 1));
    assert_eq!(stage.snapshot(1).in_flight, 0);
}

#[test]
fn a_slot_is_freed_exactly_once() {
    let (stage, _) = stage(&table(&[replica("a", 2)]));
    let one = admit(&stage, Ask::default(), 0);
    let two = admit(&stage, Ask::default(), 0);
    one.finish(Outcome::Completed, 1);
    assert_eq!(two.replica().in_flight(), 1);
    let replica = two.replica().clone();
    drop(two);
    assert_eq!(replica.in_flight(), 0);
}

#[test]
fn the_waker_is_woken_when_a_slot_comes_free_and_when_time_is_up() {
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let woken = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(woken.clone());
    let mut first = stage.submit(Ask::default(), 0).unwrap();
    let mut second = stage.submit(Ask::default(), 0).unwrap();
    assert!(first.poll(&waker, 0).is_pending() && second.poll(&waker, 0).is_pending());
    running.finish(Outcome::Completed, 1);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    stage.tick(2000 * MS);
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    drop(granted(&mut first, 2000 * MS));
    assert_eq!(refused(&mut second, 2000 * MS).status(), 429);
}

#[test]
fn the_timer_is_woken_only_when_it_moves_nearer() {
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let woken = Arc::new(Count(AtomicU32::new(0)));
    stage.on_timer_change(Waker::from(woken.clone()));
    assert_eq!(stage.tick(0), None);
    let _running = admit(&stage, Ask::default(), 0);
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    let _queued = stage.submit(Ask::default(), 5).unwrap();
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    stage.on_timer_change(Waker::from(woken.clone()));
    assert_eq!(stage.tick(5), Some(2000 * MS + 5));
    let _later = stage.submit(Ask::default(), 6).unwrap();
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let _nearer = stage
        .submit(
            Ask {
                deadline_ns: Some(400 * MS),
                ..Ask::default()
            },
            7,
        )
        .unwrap();
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
}

#[test]
fn the_kv_budget_holds_the_line_in_order() {
    let mut tables = table(&[replica("a", 8)]);
    tables.kv_tokens = Some(100);
    let (stage, _) = stage(&tables);
    let tokens = |tokens| Ask {
        tokens,
        ..Ask::default()
    };
    let small = admit(&stage, tokens(60), 0);
    let mut large = stage.submit(tokens(80), 1).unwrap();
    let mut tiny = stage.submit(tokens(10), 2).unwrap();
    assert!(poll(&mut large, 2).is_pending(), "60 + 80 exceed 100");
    assert!(
        poll(&mut tiny, 2).is_pending(),
        "it fits, but does not overtake"
    );
    small.finish(Outcome::Completed, 3);
    let large = granted(&mut large, 3);
    let tiny = granted(&mut tiny, 3);
    drop((large, tiny));
    drop(admit(&stage, tokens(1000), 4)); // More than the budget: it runs alone.
}

#[test]
fn expected_wait_is_told_and_its_error_kept() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let mut ticket = stage.submit(Ask::default(), 0).unwrap();
    assert_eq!(ticket.expected_wait_ns(), 100 * MS);
    assert_eq!(stage.expected_wait_ns(0), Some(200 * MS));
    running.finish(Outcome::Completed, 150 * MS);
    let permit = granted(&mut ticket, 150 * MS);
    assert_eq!(
        (permit.waited_ns(), permit.expected_wait_ns()),
        (150 * MS, 100 * MS)
    );
    // The first request was right (0 and 0), the second 50 ms short.
    assert_eq!(stage.snapshot(150 * MS).expected_wait_error_ms, Some(25.0));
    assert_eq!(stage.snapshot(150 * MS).expected_wait_bias_ms, Some(-25.0));
}

#[test]
fn the_concurrency_integral_counts_those_in_flight_and_queued() {
    let (stage, _) = stage(&table(&[replica("a", 1)]));
    let running = admit(&stage, Ask::default(), 0);
    let ticket = stage.submit(Ask::default(), 10).unwrap();
    drop(stage.snapshot(30));
    drop(ticket);
    running.finish(Outcome::Completed, 100);
    assert_eq!(stage.snapshot(500).concurrency_ns, 100 + 20);
}
