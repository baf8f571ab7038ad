//! Pipelines at their limits, exhaustively: every order of events of a small pipeline is walked on
//! the real queues, and in every state that is reached something can go on until all is done.

use std::collections::HashSet;

use super::*;

/// Who calls whom: `calls[stage]` are called one after the other while the caller's slot is held.
struct Pipeline {
    slots: Vec<usize>,
    calls: Vec<Vec<usize>>,
    /// The stage that each client asks.
    clients: Vec<usize>,
}

/// One request at one stage: its place, and the slot it holds once it has it.
enum Hop {
    Waits(Ticket),
    Holds { permit: Permit, next_call: usize },
}

/// One client's request: the stages that it is in, the deepest last; empty before and after.
struct Client {
    hops: Vec<(usize, Hop)>,
    has_begun: bool,
}

/// The pipeline under way. Time stands still: nothing here is let through by a time-out.
struct World<'a> {
    pipeline: &'a Pipeline,
    stages: Vec<Stage>,
    clients: Vec<Client>,
}

impl World<'_> {
    fn new(pipeline: &Pipeline) -> World<'_> {
        let stages = pipeline.slots.iter().map(|&slots| {
            let table = StageTable {
                max_queue: 1,
                ..table(&[replica("a", slots)])
            };
            stage(&table).0
        });
        let clients = pipeline.clients.iter().map(|_| Client {
            hops: Vec::new(),
            has_begun: false,
        });
        World {
            stages: stages.collect(),
            clients: clients.collect(),
            pipeline,
        }
    }

    fn submit(&mut self, client: usize, stage: usize, holds_parent: bool) {
        let ask = Ask {
            holds_parent,
            ..Ask::default()
        };
        match self.stages[stage].submit(ask, 1) {
            Ok(ticket) => self.clients[client].hops.push((stage, Hop::Waits(ticket))),
            // A newcomer is told to come back; a call for a held slot always has its place.
            Err(refusal) => assert!(!holds_parent, "a call was refused: {refusal:?}"),
        }
    }

    /// Lets one client go one step on; false: it cannot, because it waits.
    fn step(&mut self, client: usize) -> bool {
        if !self.clients[client].has_begun {
            self.clients[client].has_begun = true;
            self.submit(client, self.pipeline.clients[client], false);
            return true;
        }
        let Some((stage, hop)) = self.clients[client].hops.pop() else {
            return false;
        };
        match hop {
            Hop::Waits(mut ticket) => match poll(&mut ticket, 1) {
                Poll::Ready(granted) => {
                    let permit = granted.expect("nothing expires");
                    let hop = Hop::Holds {
                        permit,
                        next_call: 0,
                    };
                    self.clients[client].hops.push((stage, hop));
                    true
                }
                Poll::Pending => {
                    let hop = Hop::Waits(ticket);
                    self.clients[client].hops.push((stage, hop));
                    false
                }
            },
            Hop::Holds { permit, next_call } => {
                let called = self.pipeline.calls[stage].get(next_call).copied();
                let Some(called) = called else {
                    permit.finish(Outcome::Completed, 1);
                    return true;
                };
                let hop = Hop::Holds {
                    permit,
                    next_call: next_call + 1,
                };
                self.clients[client].hops.push((stage, hop));
                self.submit(client, called, true);
                true
            }
        }
    }

    /// The client leaves: all that it holds and waits for is dropped, the deepest first.
    fn leave(&mut self, client: usize) -> bool {
        let hops = &mut self.clients[client].hops;
        let had_any = !hops.is_empty();
        while hops.pop().is_some() {}
        had_any
    }

    /// What tells one state from another: where each request is, and in which order they wait.
    fn state(&self) -> String {
        let places = self.clients.iter().map(|client| {
            let hops = client.hops.iter().map(|(stage, hop)| match hop {
                Hop::Waits(ticket) if ticket.is_granted() => format!("{stage}g"),
                Hop::Waits(ticket) => format!("{stage}w{}", sequence(ticket)),
                Hop::Holds { next_call, .. } => format!("{stage}h{next_call}"),
            });
            format!("{}{}", client.has_begun, hops.collect::<String>())
        });
        relative(&places.collect::<Vec<_>>().join("|"))
    }
}

/// Who came first, as the queue knows it.
fn sequence(ticket: &Ticket) -> u64 {
    let text = format!("{ticket:?}");
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().expect("a ticket names its number")
}

/// Sequence numbers as ranks: two states that differ in nothing else are one.
fn relative(state: &str) -> String {
    let numbers = |text: &str| -> Vec<u64> {
        text.split('w')
            .skip(1)
            .filter_map(|rest| {
                let end = rest
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(rest.len());
                rest[..end].parse().ok()
            })
            .collect()
    };
    let mut known = numbers(state);
    known.sort_unstable();
    known.dedup();
    let mut text = state.to_owned();
    for (rank, number) in known.iter().enumerate().rev() {
        text = text.replace(&format!("w{number}"), &format!("w#{rank}"));
    }
    text
}

/// An event: client `n` goes one step on, or leaves.
#[derive(Clone, Copy)]
enum Event {
    Step(usize),
    Leave(usize),
}

fn replay<'a>(pipeline: &'a Pipeline, events: &[Event]) -> Option<World<'a>> {
    let mut world = World::new(pipeline);
    for event in events {
        let moved = match *event {
            Event::Step(client) => world.step(client),
            Event::Leave(client) => world.leave(client),
        };
        if !moved {
            return None;
        }
    }
    Some(world)
}

/// Walks every order of events; returns how many states there are and one in which requests are
/// left and none can go on.
fn walk(pipeline: &Pipeline, may_leave: bool) -> (usize, Option<String>) {
    let mut seen = HashSet::new();
    let mut paths = vec![Vec::new()];
    while let Some(path) = paths.pop() {
        let Some(world) = replay(pipeline, &path) else {
            continue;
        };
        if !seen.insert(world.state()) {
            continue;
        }
        let clients = 0..pipeline.clients.len();
        let mut can_go_on = false;
        for client in clients.clone() {
            let longer = [&path[..], &[Event::Step(client)]].concat();
            if replay(pipeline, &longer).is_some() {
                can_go_on = true;
                paths.push(longer);
            }
        }
        let is_anyone_left = world.clients.iter().any(|client| !client.hops.is_empty());
        if is_anyone_left && !can_go_on {
            return (seen.len(), Some(world.state()));
        }
        if !is_anyone_left && !can_go_on {
            let busy = world.stages.iter().map(|stage| stage.snapshot(1).in_flight);
            assert_eq!(busy.sum::<usize>(), 0, "a slot was lost");
        }
        if may_leave {
            paths.extend(clients.map(|client| [&path[..], &[Event::Leave(client)]].concat()));
        }
    }
    (seen.len(), None)
}

#[test]
fn a_pipeline_at_its_limits_never_waits_for_itself() {
    let chain = vec![vec![1], vec![2], vec![]];
    // One that calls two, which both call a fourth; the first calls the last directly besides.
    let diamond = vec![vec![1, 2, 3], vec![3], vec![3], vec![]];
    let cases = [
        (vec![1, 1, 1], chain.clone(), vec![0, 0, 0]),
        (vec![1, 1, 1], chain.clone(), vec![0, 1, 2]),
        (vec![2, 1, 1], chain, vec![0, 0, 1]),
        (vec![1, 1, 1, 1], diamond.clone(), vec![0, 0, 3]),
        (vec![2, 1, 1, 1], diamond, vec![0, 0, 2]),
    ];
    let mut states = 0;
    for (slots, calls, clients) in cases {
        let pipeline = Pipeline {
            slots,
            calls,
            clients,
        };
        for may_leave in [false, true] {
            let (count, stuck) = walk(&pipeline, may_leave);
            assert_eq!(stuck, None, "{:?}", pipeline.clients);
            states += count;
        }
    }
    assert!(states > 1000, "{states} states are no proof");
}

#[test]
fn the_walk_finds_the_deadlock_of_a_cycle() {
    let cycle = Pipeline {
        slots: vec![1, 1],
        calls: vec![vec![1], vec![0]],
        clients: vec![0],
    };
    let (_, stuck) = walk(&cycle, false);
    assert!(
        stuck.is_some(),
        "a stage that calls itself by another waits for its own slot"
    );
}
