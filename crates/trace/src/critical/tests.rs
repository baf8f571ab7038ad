use super::*;
use proptest::prelude::*;

fn asleep(call: Call, by: Tid) -> Doing {
    Doing::Asleep {
        call: Some(call),
        disk: false,
        by,
    }
}

const RUNNING: Doing = Doing::Running {
    cpu: 0,
    reading: false,
};

type Life<'a> = (Tid, Option<(Tid, u64)>, &'a [(u64, u64, Doing)]);

fn timeline(threads: &[Life]) -> Timeline {
    let mut timeline = Timeline::default();
    for (tid, born, spans) in threads {
        for &(start_ns, end_ns, doing) in *spans {
            let span = Span {
                start_ns,
                end_ns,
                doing,
                file: None,
                cold_bytes: 0,
            };
            timeline.push(*tid, span);
        }
        timeline.threads.entry(*tid).or_default().born = *born;
    }
    timeline
}

fn bill(timeline: &Timeline, tid: Tid, from: u64, to: u64) -> Vec<(u64, u64, Tid, Cause)> {
    let process_of = HashMap::new();
    let slices = Walker::new(timeline, &process_of).explain(tid, from, to);
    slices
        .iter()
        .map(|s| (s.start_ns, s.end_ns, s.tid, s.cause))
        .collect()
}

#[test]
fn waiting_for_a_child_is_explained_by_the_child() {
    let t = timeline(&[
        (
            1,
            None,
            &[
                (0, 10, RUNNING),
                (10, 90, asleep(Call::Wait, 2)),
                (90, 100, RUNNING),
            ],
        ),
        (
            2,
            Some((1, 5)),
            &[
                (5, 12, Doing::Runnable),
                (12, 60, RUNNING),
                (60, 90, asleep(Call::Sleep, 0)),
            ],
        ),
    ]);
    let expected = vec![
        (0, 10, 1, Cause::Cpu),
        (10, 12, 2, Cause::RunQueue),
        (12, 60, 2, Cause::Cpu),
        (60, 90, 2, Cause::Sleep),
        (90, 100, 1, Cause::Cpu),
    ];
    assert_eq!(bill(&t, 1, 0, 100), expected);
}

#[test]
fn before_a_thread_existed_its_creator_is_billed() {
    let t = timeline(&[
        (
            1,
            None,
            &[(0, 40, RUNNING), (40, 100, asleep(Call::Wait, 0))],
        ),
        (2, Some((1, 40)), &[(40, 100, RUNNING)]),
    ]);
    assert_eq!(
        bill(&t, 2, 0, 100),
        vec![(0, 40, 1, Cause::Cpu), (40, 100, 2, Cause::Cpu)]
    );
}

#[test]
fn a_lock_is_a_lock_while_its_holder_sleeps_and_cpu_while_it_works() {
    let t = timeline(&[
        (1, None, &[(0, 100, asleep(Call::Futex, 2))]),
        (
            2,
            None,
            &[
                (0, 30, RUNNING),
                (30, 90, asleep(Call::Sleep, 0)),
                (90, 100, RUNNING),
            ],
        ),
    ]);
    let expected = vec![
        (0, 30, 2, Cause::Cpu),
        (30, 90, 1, Cause::Lock),
        (90, 100, 2, Cause::Cpu),
    ];
    assert_eq!(bill(&t, 1, 0, 100), expected);
}

#[test]
fn a_wait_in_several_polls_is_explained_by_who_ended_the_last() {
    let polls = |by| {
        [
            (0, 40, asleep(Call::Poll, 0)),
            (40, 41, RUNNING),
            (41, 80, asleep(Call::Poll, by)),
            (80, 90, RUNNING),
        ]
    };
    let served = polls(2);
    let t = timeline(&[(1, None, &served), (2, None, &[(0, 80, RUNNING)])]);
    let expected = vec![
        (0, 40, 2, Cause::Cpu),
        (40, 41, 1, Cause::Cpu),
        (41, 80, 2, Cause::Cpu),
        (80, 90, 1, Cause::Cpu),
    ];
    assert_eq!(bill(&t, 1, 0, 90), expected);
    let never = polls(0);
    let t = timeline(&[(1, None, &never), (2, None, &[(0, 80, RUNNING)])]);
    assert_eq!(bill(&t, 1, 0, 40), vec![(0, 40, 1, Cause::Network)]);
    const CROWDED_NS: u64 = 10 * BETWEEN_POLLS_NS;
    let late = [
        (0, 40, asleep(Call::Poll, 0)),
        (40, CROWDED_NS, Doing::Runnable),
        (CROWDED_NS, CROWDED_NS + 9, asleep(Call::Poll, 2)),
    ];
    let t = timeline(&[(1, None, &late), (2, None, &[(0, CROWDED_NS, RUNNING)])]);
    assert_eq!(bill(&t, 1, 0, 40), vec![(0, 40, 2, Cause::Cpu)]);
}

#[test]
fn two_threads_that_wake_each_other_end_in_a_named_cause() {
    let t = timeline(&[
        (1, None, &[(0, 100, asleep(Call::Futex, 2))]),
        (2, None, &[(0, 100, asleep(Call::Futex, 1))]),
    ]);
    assert_eq!(bill(&t, 1, 0, 100), vec![(0, 100, 1, Cause::Lock)]);
}

#[test]
fn a_lock_that_times_out_is_explained_by_the_sibling_that_ran() {
    let t = timeline(&[
        (1, None, &[(0, 100, asleep(Call::Futex, 0))]),
        (
            2,
            None,
            &[(0, 20, asleep(Call::Sleep, 0)), (20, 100, RUNNING)],
        ),
        (9, None, &[(0, 100, RUNNING)]),
    ]);
    let scaled = |t: Timeline| {
        let mut t = t;
        for span in t.threads.values_mut().flat_map(|thread| &mut thread.spans) {
            span.start_ns *= WORTH_A_LOOK_NS;
            span.end_ns *= WORTH_A_LOOK_NS;
        }
        t
    };
    let (t, unit) = (scaled(t), WORTH_A_LOOK_NS);
    let process_of = HashMap::from([(1, 1), (2, 1), (9, 9)]);
    let slices = Walker::new(&t, &process_of).explain(1, 0, 100 * unit);
    let bill: Vec<_> = slices
        .iter()
        .map(|s| (s.end_ns / unit, s.tid, s.cause))
        .collect();
    assert_eq!(bill, vec![(20, 1, Cause::Lock), (100, 2, Cause::Cpu)]);
}

#[test]
fn a_wait_that_has_not_ended_is_explained_by_the_child_that_lives() {
    let t = timeline(&[
        (1, None, &[(0, 100, asleep(Call::Wait, 0))]),
        (2, Some((1, 0)), &[(0, 30, RUNNING)]),
        (3, Some((1, 5)), &[(5, 100, RUNNING)]),
    ]);
    let found = bill(&t, 1, 0, 100);
    assert_eq!(found.last(), Some(&(5, 100, 3, Cause::Cpu)));
    assert!(found.iter().all(|(_, _, tid, _)| *tid != 2), "{found:?}");
}

#[test]
fn a_poll_that_times_out_is_explained_by_the_grandchild_that_worked() {
    let unit = WORTH_A_LOOK_NS;
    let polls = [(0, 100 * unit, asleep(Call::Poll, 0))];
    let t = timeline(&[
        (1, None, &polls),
        (2, Some((1, 0)), &polls),
        (
            3,
            Some((2, 0)),
            &[
                (0, 60 * unit, RUNNING),
                (60 * unit, 100 * unit, asleep(Call::Sleep, 0)),
            ],
        ),
    ]);
    let expected = vec![
        (0, 60 * unit, 3, Cause::Cpu),
        (60 * unit, 100 * unit, 3, Cause::Sleep),
    ];
    assert_eq!(bill(&t, 1, 0, 100 * unit), expected);
    let alone = timeline(&[(1, None, &polls)]);
    assert_eq!(bill(&alone, 1, 0, 100 * unit)[0].3, Cause::Network);
}

#[test]
fn what_nobody_saw_is_unknown_not_spread() {
    let t = timeline(&[(1, None, &[(20, 30, RUNNING)])]);
    let expected = vec![
        (0, 20, 1, Cause::Unknown),
        (20, 30, 1, Cause::Cpu),
        (30, 50, 1, Cause::Unknown),
    ];
    assert_eq!(bill(&t, 1, 0, 50), expected);
}

fn any_doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        Just(RUNNING),
        Just(Doing::Runnable),
        (0..4i32).prop_map(|by| asleep(Call::Futex, by)),
        (0..4i32).prop_map(|by| asleep(Call::Wait, by)),
        Just(Doing::Asleep {
            call: None,
            disk: true,
            by: 0
        }),
    ]
}

proptest! {
    #[test]
    fn slices_tile_the_interval_whatever_the_timeline(
        lives in proptest::collection::vec(
            (proptest::collection::vec((1u64..50, any_doing()), 0..12), proptest::option::of((0..4i32, 0u64..80))),
            1..4,
        ),
        from in 0u64..50, length in 0u64..200,
    ) {
        let mut t = Timeline::default();
        for (tid, (spans, born)) in lives.iter().enumerate() {
            let mut now = born.map_or(0, |b| b.1);
            for &(length, doing) in spans {
                let span = Span { start_ns: now, end_ns: now + length, doing, file: None, cold_bytes: 0 };
                t.push(tid as Tid, span);
                now += length;
            }
            t.threads.entry(tid as Tid).or_default().born = *born;
        }
        let process_of = (0..4).map(|tid| (tid, tid / 2)).collect();
        let slices = Walker::new(&t, &process_of).explain(0, from, from + length);
        let mut now = from;
        for slice in &slices {
            prop_assert_eq!(slice.start_ns, now);
            prop_assert!(slice.end_ns > slice.start_ns);
            now = slice.end_ns;
        }
        prop_assert_eq!(now, from + length);
    }
}
