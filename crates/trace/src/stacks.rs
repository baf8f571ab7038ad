//! Samples of the Python functions that running threads are in.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::event::Tid;
use crate::python::{Closed, Function, Functions, Interpreter};

/// A process is looked into for an interpreter when it was found running for the second time, and
/// where there was none less often: most that have none never will, but a shell may become one.
const FIRST_LOOK: u32 = 1;
const MAX_PATIENCE: u32 = 8;
const MAX_SAMPLES: usize = 1 << 20;

/// What is known of one process.
#[derive(Debug)]
enum Process {
    Open(Box<Interpreter>),
    /// It is looked into again after so many samples, after `patience` then.
    Later {
        left: u32,
        patience: u32,
    },
}

impl Default for Process {
    fn default() -> Self {
        Self::Later {
            left: FIRST_LOOK,
            patience: FIRST_LOOK,
        }
    }
}

/// Everything that was sampled so far.
#[derive(Debug, Default)]
pub struct Stacks {
    processes: HashMap<Tid, Process>,
    functions: Functions,
    numbers: HashMap<Vec<u32>, u32>,
    samples: Vec<(u64, Tid, u32)>,
    is_refused: bool,
}

/// The samples as they are told: functions, stacks of them (innermost first), and which thread was
/// found in which stack when (ns, thread, stack).
#[derive(Debug, Default, Serialize)]
pub struct Stacked {
    pub functions: Vec<Function>,
    pub stacks: Vec<Vec<u32>>,
    pub samples: Vec<(u64, Tid, u32)>,
    /// A process of Python could not be looked into, for want of rights.
    pub is_refused: bool,
}

impl Stacks {
    /// Looks at what `running` threads (with their processes) are in now, at `t_ns`.
    pub fn sample(&mut self, t_ns: u64, running: impl IntoIterator<Item = (Tid, Tid)>) {
        for (tid, pid) in running {
            if let Some(stack) = self.look(tid, pid, t_ns)
                && self.samples.len() < MAX_SAMPLES
            {
                let next = self.numbers.len() as u32;
                let number = *self.numbers.entry(stack).or_insert(next);
                self.samples.push((t_ns, tid, number));
            }
        }
    }

    fn look(&mut self, tid: Tid, pid: Tid, t_ns: u64) -> Option<Vec<u32>> {
        let process = self.processes.entry(pid).or_default();
        if let Process::Later { left, patience } = process {
            if *left > 0 {
                *left -= 1;
                return None;
            }
            let patience = (*patience * 2).min(MAX_PATIENCE);
            match Interpreter::open(pid) {
                Ok(found) => *process = Process::Open(Box::new(found)),
                Err(why) => {
                    self.is_refused |= why == Closed::Refused;
                    *process = Process::Later {
                        left: patience,
                        patience,
                    };
                }
            }
        }
        let Process::Open(interpreter) = process else {
            return None;
        };
        let stack = interpreter.stack(tid, t_ns, &mut self.functions);
        if stack.is_none() && !interpreter.lives() {
            *process = Process::default();
        }
        stack
    }

    /// The samples of `threads`.
    pub fn finish(self, threads: HashSet<Tid>) -> Stacked {
        let mut stacks = vec![Vec::new(); self.numbers.len()];
        for (stack, number) in self.numbers {
            stacks[number as usize] = stack;
        }
        let samples = self.samples.into_iter();
        Stacked {
            functions: self.functions.all,
            stacks,
            samples: samples
                .filter(|(_, tid, _)| threads.contains(tid))
                .collect(),
            is_refused: self.is_refused,
        }
    }
}
