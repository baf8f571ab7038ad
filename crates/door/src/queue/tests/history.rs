//! Random histories: whatever happens, the books balance and the order holds.

use proptest::prelude::*;

use super::*;

/// One step of a history; numbers choose among what exists at the time.
#[derive(Debug, Clone)]
enum Step {
    Submit {
        priority: i32,
        holds_parent: bool,
        tokens: u64,
        deadline_ms: Option<u64>,
    },
    Poll(usize),
    Withdraw(usize),
    FirstByte(usize),
    Finish(usize, Outcome),
    Retry(usize, Fault),
    Drop(usize),
    Session,
    EndSession(usize),
    Apply {
        slots: Vec<usize>,
        draining: usize,
        kv_tokens: Option<u64>,
        has_start: bool,
    },
    Tick,
    Wait(u64),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Connect),
        Just(Fault::Broken),
        Just(Fault::Stalled)
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Completed),
        1 => Just(Outcome::Errored),
        1 => Just(Outcome::Rejected),
        1 => Just(Outcome::ClientGone),
        2 => fault().prop_map(Outcome::Failed),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let submit = (
        -2..3i32,
        any::<bool>(),
        0..50u64,
        proptest::option::of(1..500u64),
    );
    let apply = (
        proptest::collection::vec(1..4usize, 0..4),
        0..4usize,
        any::<bool>(),
        any::<bool>(),
    );
    prop_oneof![
        8 => submit.prop_map(|(priority, holds_parent, tokens, deadline_ms)| {
            Step::Submit { priority, holds_parent, tokens, deadline_ms }
        }),
        6 => (0..99usize).prop_map(Step::Poll),
        2 => (0..99usize).prop_map(Step::Withdraw),
        1 => (0..99usize).prop_map(Step::FirstByte),
        5 => (0..99usize, outcome()).prop_map(|(n, outcome)| Step::Finish(n, outcome)),
        1 => (0..99usize, fault()).prop_map(|(n, fault)| Step::Retry(n, fault)),
        1 => (0..99usize).prop_map(Step::Drop),
        1 => Just(Step::Session),
        1 => (0..99usize).prop_map(Step::EndSession),
        1 => apply.prop_map(|(slots, draining, has_budget, has_start)| {
            Step::Apply { slots, draining, kv_tokens: has_budget.then_some(60), has_start }
        }),
        1 => Just(Step::Tick),
        4 => (1..200u64).prop_map(Step::Wait),
    ]
}

/// A waiting request as the test knows it.
struct Waiting {
    ticket: Ticket,
    order: (std::cmp::Reverse<i32>, bool, u64),
    is_retry: bool,
    deadline_ns: u64,
}

struct World {
    stage: Stage,
    table: StageTable,
    now: u64,
    number: u64,
    waiting: Vec<Waiting>,
    permits: Vec<(Permit, u64)>,
    sessions: Vec<SessionPermit>,
    submitted: u64,
}

impl World {
    fn new() -> World {
        let table = StageTable {
            max_queue: 8,
            ..table(&[replica("r0", 2), replica("r1", 1)])
        };
        World {
            stage: stage(&table).0,
            table,
            now: 0,
            number: 0,
            waiting: Vec::new(),
            permits: Vec::new(),
            sessions: Vec::new(),
            submitted: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait(ms) => self.now += ms * MS,
            Step::Tick => drop(self.stage.tick(self.now)),
            Step::Submit {
                priority,
                holds_parent,
                tokens,
                deadline_ms,
            } => {
                let deadline_ns = deadline_ms.map(|ms| self.now + ms * MS);
                let ask = Ask {
                    priority,
                    holds_parent,
                    tokens,
                    deadline_ns,
                    ..Ask::default()
                };
                self.submit(ask);
            }
            Step::Apply {
                slots,
                draining,
                kv_tokens,
                has_start,
            } => {
                self.apply(&slots, draining, kv_tokens, has_start);
            }
            Step::Session => self
                .sessions
                .extend(self.stage.open_session(None, self.now)),
            Step::EndSession(n) if n < self.sessions.len() => drop(self.sessions.swap_remove(n)),
            Step::Poll(_) | Step::Withdraw(_) if self.waiting.is_empty() => {}
            Step::Poll(n) => self.poll(n % self.waiting.len()),
            Step::Withdraw(n) => drop(self.waiting.remove(n % self.waiting.len())),
            Step::EndSession(_) => {}
            _ if self.permits.is_empty() => {}
            Step::FirstByte(n) => {
                let at = n % self.permits.len();
                self.permits[at].0.first_byte(self.now);
            }
            Step::Finish(n, outcome) => self.take(n).0.finish(outcome, self.now),
            Step::Drop(n) => drop(self.take(n)),
            Step::Retry(n, fault) => self.retry(n, fault),
        }
    }

    fn take(&mut self, n: usize) -> (Permit, u64) {
        self.permits.swap_remove(n % self.permits.len())
    }

    fn submit(&mut self, ask: Ask) {
        self.number += 1;
        self.submitted += 1;
        let order = (
            std::cmp::Reverse(ask.priority),
            !ask.holds_parent,
            self.number,
        );
        let deadline_ns = ask.nearest_deadline_ns();
        if let Ok(ticket) = self.stage.submit(ask, self.now) {
            self.waiting.push(Waiting {
                ticket,
                order,
                is_retry: false,
                deadline_ns,
            });
        }
    }

    fn retry(&mut self, n: usize, fault: Fault) {
        let (permit, deadline_ns) = self.take(n);
        if let Ok(ticket) = permit.retry(fault, self.now) {
            let order = (std::cmp::Reverse(i32::MAX), false, 0);
            self.waiting.push(Waiting {
                ticket,
                order,
                is_retry: true,
                deadline_ns,
            });
        }
    }

    fn poll(&mut self, at: usize) {
        match poll(&mut self.waiting[at].ticket, self.now) {
            Poll::Pending => {}
            Poll::Ready(verdict) => {
                let waiting = self.waiting.remove(at);
                if let Ok(permit) = verdict {
                    assert!(
                        waiting.deadline_ns > self.now,
                        "expired work was dispatched"
                    );
                    self.permits.push((permit, waiting.deadline_ns));
                }
            }
        }
    }

    fn apply(&mut self, slots: &[usize], draining: usize, kv_tokens: Option<u64>, start: bool) {
        let replicas = slots.iter().enumerate().map(|(i, &slots)| ReplicaTable {
            state: if i == draining {
                ReplicaState::Draining
            } else {
                ReplicaState::Ready
            },
            ..replica(&format!("r{i}"), slots)
        });
        self.table.replicas = replicas.collect();
        self.table.kv_tokens = kv_tokens;
        self.table.start = start.then_some(StartTable {
            expected_ms: 50,
            started_ns: None,
        });
        self.stage.apply(&self.table, self.now);
    }

    /// What must hold after every step.
    fn check(&self) {
        let snapshot = self.stage.snapshot(self.now);
        let granted = self
            .waiting
            .iter()
            .filter(|w| w.ticket.is_granted())
            .count();
        assert_eq!(snapshot.in_flight, self.permits.len() + granted);
        assert!(snapshot.queued <= self.waiting.len() - granted);
        assert!(snapshot.queued <= 2 * 8 + 3 + self.waiting.iter().filter(|w| w.is_retry).count());
        assert_eq!(snapshot.sessions, self.sessions.len());
        assert!(snapshot.sessions <= 2);
        let books = snapshot.queued as u64
            + snapshot.in_flight as u64
            + snapshot.finished_total
            + snapshot.refused_total
            + snapshot.cancelled_total;
        assert_eq!(snapshot.arrivals_total, books, "{snapshot:?}");
        assert_eq!(snapshot.arrivals_total, self.submitted);
        self.check_order();
    }

    /// Nobody waits whose class-mate that came later holds a slot it has not even taken up.
    fn check_order(&self) {
        let is_new = |w: &&Waiting| !w.is_retry;
        let (granted, queued): (Vec<_>, Vec<_>) = self
            .waiting
            .iter()
            .filter(is_new)
            .partition(|w| w.ticket.is_granted());
        for later in &granted {
            for earlier in &queued {
                let same_class =
                    (earlier.order.0, earlier.order.1) == (later.order.0, later.order.1);
                let is_out = earlier.ticket.expires_ns() <= self.now;
                let overtaken = same_class && earlier.order.2 < later.order.2;
                assert!(
                    !overtaken || is_out || self.is_settled(earlier),
                    "overtaken"
                );
            }
        }
    }

    fn is_settled(&self, waiting: &Waiting) -> bool {
        waiting.ticket.is_settled()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn the_books_balance_after_every_step(steps in proptest::collection::vec(step(), 1..150)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        // The end: everybody leaves, nothing is left behind.
        world.waiting.clear();
        world.permits.clear();
        world.sessions.clear();
        world.check();
        let snapshot = world.stage.snapshot(world.now);
        prop_assert_eq!((snapshot.queued, snapshot.in_flight, snapshot.sessions), (0, 0, 0));
        prop_assert!(snapshot.replicas.values().all(|r| r.in_flight == 0 && r.sessions == 0));
    }

    #[test]
    fn a_free_slot_never_idles_while_someone_waits(
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new();
        for step in steps {
            let is_kv = matches!(&step, Step::Apply { kv_tokens: Some(_), .. });
            world.step(step);
            if is_kv {
                world.table.kv_tokens = None;
                world.stage.apply(&world.table.clone(), world.now);
            }
            world.stage.tick(world.now);
            let snapshot = world.stage.snapshot(world.now);
            let draining = |id: &str| {
                world.table.replicas.iter().any(|r| r.id == id && r.state == ReplicaState::Draining)
            };
            let idle = snapshot.replicas.iter().any(|(id, r)| {
                !draining(id) && !r.ejected && r.in_flight == 0
            });
            prop_assert!(!idle || snapshot.queued == 0, "{:?}", snapshot);
        }
    }
}
