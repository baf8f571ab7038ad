//! Which threads have a processor, or want one, by the scheduler's events of each processor.

use std::collections::{HashMap, HashSet};

use crate::event::{Event, Kind, Left, Tid};

/// Events of one processor are in order; the clocks of two differ by microseconds, so a thread that
/// moved may seem to have come before it left. It leaves where it came: no two clocks are compared.
#[derive(Debug, Default)]
pub struct Running {
    on: HashSet<(Tid, usize)>,
    /// When each thread left a processor, was woken or made last, and whether it wants one.
    left: HashMap<Tid, (u64, bool)>,
}

impl Running {
    /// Takes new events of one processor.
    pub fn take(&mut self, cpu: usize, events: &[Event]) {
        for event in events {
            match event.kind {
                Kind::SwitchIn => {
                    self.on.insert((event.tid, cpu));
                }
                Kind::SwitchOut(why) => {
                    self.on.remove(&(event.tid, cpu));
                    self.left(event, why == Left::Runnable);
                }
                // The kernel does not always say that it got one.
                Kind::Waking { .. } | Kind::Fork { .. } => self.left(event, true),
                _ => {}
            }
        }
    }

    fn left(&mut self, event: &Event, wants: bool) {
        let last = self.left.entry(event.tid).or_default();
        *last = (*last).max((event.t_ns, wants));
    }

    /// The threads, once all new events are taken.
    pub fn threads(&mut self) -> HashSet<Tid> {
        self.left.retain(|_, (_, wants)| *wants);
        let on = self.on.iter().map(|(tid, _)| *tid);
        on.chain(self.left.keys().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(t_ns: u64, cpu: u16, kind: Kind) -> Event {
        Event {
            t_ns,
            cpu,
            tid: 7,
            kind,
        }
    }

    fn after(steps: &[(usize, u64, Kind)]) -> bool {
        let mut running = Running::default();
        for (cpu, t_ns, kind) in steps {
            running.take(*cpu, &[event(*t_ns, *cpu as u16, *kind)]);
        }
        running.threads().contains(&7)
    }

    #[test]
    fn a_thread_that_comes_to_another_processor_before_it_left_runs() {
        let asleep = || Kind::SwitchOut(Left::Sleep);
        assert!(after(&[
            (0, 10, Kind::SwitchIn),
            (0, 100, asleep()),
            (1, 99, Kind::SwitchIn)
        ]));
        assert!(after(&[
            (1, 99, Kind::SwitchIn),
            (0, 10, Kind::SwitchIn),
            (0, 100, asleep())
        ]));
        assert!(!after(&[(0, 10, Kind::SwitchIn), (0, 100, asleep())]));
    }

    #[test]
    fn a_thread_that_wants_a_processor_counts_until_it_sleeps() {
        let wants = || Kind::SwitchOut(Left::Runnable);
        assert!(after(&[(0, 10, Kind::SwitchIn), (0, 20, wants())]));
        let steps = [
            (0, 10, Kind::SwitchIn),
            (0, 20, wants()),
            (1, 30, Kind::SwitchIn),
            (1, 40, Kind::SwitchOut(Left::Sleep)),
        ];
        assert!(!after(&steps));
        assert!(after(&[(0, 10, Kind::Fork { parent: 3 })]));
        assert!(after(&[
            (0, 20, Kind::SwitchOut(Left::Sleep)),
            (1, 30, Kind::Waking { by: 3 })
        ]));
    }
}
