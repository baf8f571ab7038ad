//! Who sends next: runs of one or more calls, started by users (closed) or by a schedule (open).

use std::rc::Rc;

use fastrand::Rng;

use super::schedule::Schedule;
use super::spec::{Load, Pick, Spec};

/// One call of one run.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub run: u64,
    pub call: u32,
    pub template: usize,
    pub tag: String,
    pub warmup: bool,
    pub intended_ns: i64,
    /// The messages of a conversation so far, each as JSON and with a comma behind it.
    pub history: Rc<String>,
}

/// Where arrivals come from.
enum Source {
    Users {
        target: usize,
        active: usize,
        ramp: Option<(usize, usize, f64)>,
    },
    Schedule(Schedule),
    Replay {
        at_ns: Vec<i64>,
        requests: Vec<usize>,
        next: usize,
    },
}

pub struct Workload {
    source: Source,
    pub think_ns: i64,
    calls_per_run: u32,
    num_templates: usize,
    pick: Pick,
    rng: Rng,
    next_run: u64,
    pub tag: String,
}

impl Workload {
    pub fn new(spec: &Spec) -> Self {
        let mut think_ns = 0;
        let source = match &spec.load {
            Load::Closed {
                connections,
                think_ms,
                ramp_to,
                ramp_s,
            } => {
                think_ns = crate::clock::ms(*think_ms);
                let ramp = ramp_to.map(|to| (*connections, to, *ramp_s));
                Source::Users {
                    target: *connections,
                    active: 0,
                    ramp,
                }
            }
            Load::Open {
                rate,
                arrivals,
                cv,
                ramp_to,
                ramp_s,
            } => {
                let ramp = ramp_to.map(|to| (to, *ramp_s));
                Source::Schedule(Schedule::new(*rate, *arrivals, *cv, ramp, spec.seed))
            }
            Load::Replay { at_s, requests } => Source::Replay {
                at_ns: at_s.iter().map(|s| (s * 1e9) as i64).collect(),
                requests: requests.clone(),
                next: 0,
            },
        };
        Self {
            source,
            think_ns,
            calls_per_run: spec.calls_per_run.max(1),
            num_templates: spec.requests.len(),
            pick: spec.pick,
            rng: Rng::with_seed(spec.seed ^ 0x5eed),
            next_run: 0,
            tag: String::new(),
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.source, Source::Users { .. })
    }

    pub fn set_target(&mut self, connections: usize) {
        if let Source::Users { target, ramp, .. } = &mut self.source {
            (*target, *ramp) = (connections, None);
        }
    }

    /// Whether the level is zero: nothing is meant to run.
    pub fn is_drained(&self) -> bool {
        matches!(self.source, Source::Users { target: 0, .. })
    }

    /// How many users have yet to start, `elapsed_s` after the start; they count as started.
    pub fn new_users(&mut self, elapsed_s: f64) -> usize {
        let Source::Users {
            target,
            active,
            ramp,
        } = &mut self.source
        else {
            return 0;
        };
        if let Some((from, to, seconds)) = ramp {
            let share = (elapsed_s / seconds.max(1e-9)).min(1.0);
            *target = (*from as f64 + (*to as f64 - *from as f64) * share).round() as usize;
        }
        let missing = target.saturating_sub(*active);
        *active += missing;
        missing
    }

    /// A user has ended a run: whether it goes on with another.
    pub fn user_continues(&mut self) -> bool {
        let Source::Users { target, active, .. } = &mut self.source else {
            return false;
        };
        if *active > *target {
            *active -= 1;
            return false;
        }
        true
    }

    /// The offset of the next scheduled arrival; None: there is none.
    pub fn next_arrival_ns(&mut self) -> Option<i64> {
        match &mut self.source {
            Source::Users { .. } => None,
            Source::Schedule(schedule) => Some(schedule.next_ns()),
            Source::Replay { at_ns, next, .. } => {
                *next += 1;
                at_ns.get(*next - 1).copied()
            }
        }
    }

    /// The first call of a new run.
    pub fn new_run(&mut self, intended_ns: i64) -> Job {
        let run = self.next_run;
        self.next_run += 1;
        let template = match &self.source {
            Source::Replay { requests, .. } if !requests.is_empty() => {
                requests[run as usize % requests.len()]
            }
            _ => self.template(run * u64::from(self.calls_per_run)),
        };
        Job {
            run,
            template,
            intended_ns,
            tag: self.tag.clone(),
            ..Job::default()
        }
    }

    /// The call that follows `job` in its run; None: the run is over.
    pub fn next_call(&mut self, job: &Job, intended_ns: i64) -> Option<Job> {
        let call = job.call + 1;
        if call >= self.calls_per_run {
            return None;
        }
        let template = self.template(job.run * u64::from(self.calls_per_run) + u64::from(call));
        Some(Job {
            call,
            template,
            intended_ns,
            tag: self.tag.clone(),
            ..job.clone()
        })
    }

    fn template(&mut self, number: u64) -> usize {
        match self.pick {
            Pick::Cycle => (number % self.num_templates as u64) as usize,
            Pick::Random => self.rng.usize(0..self.num_templates),
        }
    }
}
