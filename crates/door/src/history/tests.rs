//! History: a life as it is told, neighbours, bounds.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn rc(text: &str) -> Rc<str> {
    text.into()
}

#[test]
fn a_life_is_told_in_order() {
    let history = History::new(10);
    let life = history.begin("r1", &rc("chat"), MS);
    life.set_priority(3);
    life.queued(20 * MS, MS);
    assert_eq!(history.why("r1", 6 * MS).unwrap().queue_ms, 5.0);
    assert!(!life.is_admitted());
    life.admitted(&rc("chat-1"), 2, 11 * MS);
    assert!(life.is_admitted() && history.live("r1").unwrap().priority() == 3);
    life.first_byte(21 * MS);
    life.first_byte(25 * MS);
    life.end(200, "complete", 101 * MS);
    life.end(502, "failed", 200 * MS);
    let view = history.why("r1", 999 * MS).unwrap();
    assert_eq!(
        (view.queue_ms, view.expected_wait_ms, view.total_ms),
        (10.0, 20.0, 100.0)
    );
    assert_eq!(
        (view.first_byte_ms, view.status, view.outcome),
        (Some(20.0), Some(200), "complete")
    );
    assert_eq!(
        (view.replica.as_deref(), view.attempts, view.priority),
        (Some("chat-1"), 2, 3)
    );
    assert!(history.live("r1").is_none() && history.num_live() == 0);
    assert_eq!(history.recent(5, 0).len(), 1);
}

#[test]
fn neighbours_are_those_on_the_same_replica_at_the_same_time() {
    let history = History::new(10);
    let stage = rc("chat");
    let live = |id: &str, replica: &str, from: u64, to: Option<u64>| {
        let life = history.begin(id, &stage, from);
        life.admitted(&rc(replica), 1, from);
        to.into_iter().for_each(|to| life.end(200, "complete", to));
    };
    live("me", "a", 100, Some(200));
    live("before", "a", 50, Some(100));
    live("overlaps", "a", 50, Some(101));
    live("elsewhere", "b", 100, Some(200));
    live("still", "a", 150, None);
    live("after", "a", 200, None);
    let queued = history.begin("queued", &stage, 150);
    queued.queued(1, 150);
    let view = history.why("me", 300).unwrap();
    let mut ids = view.neighbour_ids.clone();
    ids.sort();
    assert_eq!(
        (view.neighbours, ids),
        (2, vec!["overlaps".to_owned(), "still".to_owned()])
    );
}

#[test]
fn memory_is_bounded() {
    let history = History::new(100);
    let stage = rc("chat");
    for i in 0..10_000 {
        history
            .begin(&format!("{i}{}", "é".repeat(500)), &stage, i)
            .end(200, "complete", i + 1);
    }
    let book = history.0.borrow();
    assert_eq!((book.ended.len(), book.live.len()), (100, 0));
    assert!(book.ended.iter().all(|life| life.id.len() <= MAX_ID_BYTES));
    drop(book);
    assert_eq!(history.recent(1000, 0).len(), 100);
    assert!(history.why("1", 0).is_none());
}

#[test]
fn two_requests_of_one_id_do_not_mix() {
    let history = History::new(10);
    let first = history.begin("same", &rc("chat"), 1);
    let second = history.begin("same", &rc("chat"), 2);
    first.end(200, "complete", 3);
    assert_eq!(
        history.why("same", 4).unwrap().arrived_ns,
        2,
        "the living one"
    );
    second.end(500, "failed", 5);
    assert_eq!(history.why("same", 6).unwrap().status, Some(500));
    assert_eq!(history.num_live(), 0);
}

proptest! {
    #[test]
    fn nobody_is_lost(steps in proptest::collection::vec((0..5u8, any::<bool>()), 0..100)) {
        let history = History::new(8);
        let stage = rc("s");
        let mut alive = Vec::new();
        for (now, (id, ends)) in steps.into_iter().enumerate() {
            if ends && !alive.is_empty() {
                let life: Rc<Life> = alive.remove(id as usize % alive.len());
                life.end(200, "complete", now as u64);
            } else {
                alive.push(history.begin(&id.to_string(), &stage, now as u64));
            }
            prop_assert_eq!(history.num_live(), alive.len());
        }
    }
}
