//! Waiting: the estimate against simulated queues, and what refused clients are told.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn busy(slots: usize, in_flight: usize, ahead: usize, age_ms: u64) -> Busy {
    Busy {
        slots,
        in_flight,
        ahead,
        mean_age_ns: (age_ms * MS) as f64,
    }
}

#[test]
fn a_free_slot_means_no_wait() {
    let estimator = Estimator::new(1000 * MS);
    assert_eq!(estimator.wait_ns(busy(4, 3, 0, 0)), 0);
    assert_eq!(estimator.wait_ns(busy(4, 2, 1, 0)), 0);
}

#[test]
fn the_default_holds_until_there_is_a_sample() {
    let mut estimator = Estimator::new(1000 * MS);
    assert_eq!(estimator.wait_ns(busy(2, 2, 3, 0)), 4 * 500 * MS);
    estimator.served(100 * MS);
    assert_eq!(estimator.wait_ns(busy(2, 2, 3, 0)), 4 * 50 * MS);
}

#[test]
fn regular_service_in_progress_is_counted_down() {
    let mut estimator = Estimator::new(1);
    (0..20).for_each(|_| estimator.served(100 * MS));
    assert_eq!(estimator.wait_ns(busy(1, 1, 0, 60)) / MS, 40);
    assert_eq!(estimator.wait_ns(busy(1, 1, 2, 60)) / MS, 240);
}

#[test]
fn a_late_service_never_promises_zero() {
    let mut estimator = Estimator::new(1);
    (0..20).for_each(|_| estimator.served(100 * MS));
    assert_eq!(estimator.wait_ns(busy(1, 1, 0, 500)) / MS, 5);
}

#[test]
fn the_measured_drain_rate_replaces_service_over_slots() {
    let mut estimator = Estimator::new(1000 * MS);
    (0..20).for_each(|i| estimator.drained(i * 10 * MS));
    assert_eq!(estimator.turn_ns(4) as u64, 10 * MS);
    estimator.slots_changed();
    assert_eq!(estimator.turn_ns(4) as u64, 250 * MS);
}

#[test]
fn an_idle_stretch_is_no_drain_sample() {
    let mut estimator = Estimator::new(1000 * MS);
    for i in 0..20 {
        estimator.drained(i * 1000 * MS);
        estimator.drained(i * 1000 * MS + 10 * MS);
        estimator.idle();
    }
    assert_eq!(estimator.turn_ns(1) as u64, 10 * MS);
}

#[test]
fn the_estimate_is_close_on_a_regular_queue() {
    // Deterministic service of 80 ms on one slot, arrivals every 70 ms: the queue grows, waits are
    // known exactly.
    let mut estimator = Estimator::new(10 * MS);
    let (mut free_at, mut starts, mut errors) = (0u64, Vec::new(), Vec::new());
    for i in 0..200u64 {
        let now = i * 70 * MS;
        let waiting = starts.iter().filter(|&&start| start > now).count();
        let begun = starts
            .iter()
            .rev()
            .find(|&&start| start <= now && start + 80 * MS > now);
        let age = begun.map_or(0, |start| (now - start) / MS);
        let expected = estimator.wait_ns(busy(1, begun.iter().count(), waiting, age));
        let start = free_at.max(now);
        free_at = start + 80 * MS;
        starts.push(start);
        estimator.served(80 * MS);
        if i > 20 {
            errors.push(expected.abs_diff(start - now));
        }
    }
    assert!(errors.iter().all(|&error| error <= 2 * MS), "{errors:?}");
}

#[test]
fn the_error_is_tracked_with_its_sign() {
    let mut estimator = Estimator::new(1);
    estimator.predicted(100, 60);
    estimator.predicted(100, 180);
    assert_eq!(estimator.bias_ns(), Some(-20.0));
    assert_eq!(estimator.error_ns(), Some(60.0));
}

#[test]
fn a_start_counts_down_and_a_late_one_stays_honest() {
    assert_eq!(start_remaining_ns(1000, None, 5), 1000);
    assert_eq!(start_remaining_ns(1000, Some(100), 600), 500);
    assert_eq!(start_remaining_ns(1000, Some(100), 5000), 100);
}

#[test]
fn successive_refusals_are_told_later_times() {
    let mut tail = VirtualTail::new(1);
    let told: Vec<_> = (0..20)
        .map(|_| tail.next_ms(0, 1000 * MS, 500 * MS))
        .collect();
    assert!(told[0] >= 1000 && told[19] >= 10_000, "{told:?}");
    let distinct: std::collections::BTreeSet<_> = told.iter().collect();
    assert!(distinct.len() >= 19, "{told:?}");
}

#[test]
fn the_tail_drains_with_time() {
    let mut tail = VirtualTail::new(1);
    (0..20).for_each(|_| assert!(tail.next_ms(0, 0, 1000 * MS) > 0));
    let told = tail.next_ms(20_000 * MS, 0, 1000 * MS);
    assert!(told <= 1200 + 100, "{told}");
}

#[test]
fn refusals_say_what_to_do() {
    let mut refusal = Refusal {
        kind: RefusalKind::Overload,
        expected_wait_ns: Some(90_000 * MS + 1),
        retry_after_ms: 59_001,
        waited_ns: 0,
        detail: "the queue of stage \"chat\" is full",
        cause: None,
    };
    assert_eq!((refusal.status(), refusal.retry_after_s()), (429, 60));
    assert_eq!(refusal.expected_wait_s().unwrap(), "90.001");
    assert!(refusal.message().contains("retry after 60 s"));
    refusal.cause = Some("out of memory".into());
    assert!(refusal.message().contains("full: out of memory; expected"));
    refusal.kind = RefusalKind::Deadline;
    assert!(!refusal.should_retry());
    assert_eq!(refusal.status(), 504);
}

proptest! {
    #[test]
    fn retry_after_stays_within_its_bounds(
        seed: u64,
        steps in proptest::collection::vec((0u64..1 << 62, 0u64..1 << 62, 0u64..1 << 62), 1..50),
    ) {
        let mut tail = VirtualTail::new(seed);
        let mut now = 0u64;
        for (step, expected, turn) in steps {
            now = (now + step) % (1 << 62);
            let told = tail.next_ms(now, expected, turn);
            prop_assert!((1..=60_000).contains(&told), "{}", told);
        }
    }

    #[test]
    fn waits_grow_with_the_queue(
        samples in proptest::collection::vec(1u64..1 << 40, 0..30), slots in 1usize..100,
    ) {
        let mut estimator = Estimator::new(1_000_000);
        samples.iter().for_each(|&sample| estimator.served(sample));
        let waits: Vec<_> = (0..10).map(|n| estimator.wait_ns(busy(slots, slots, n, 0))).collect();
        prop_assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]), "{:?}", waits);
    }
}
