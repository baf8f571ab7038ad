//! The partition: every nanosecond between spawn and ready goes to one cause of the chain of threads
//! that the start was waiting for.
//!
//! The chain starts at the thread that announced readiness. Where a thread sleeps and another thread
//! of the tree ended that sleep, the sleep is explained by what the other did meanwhile; before a
//! thread existed, by what its creator did. So slices tile the interval by construction.

use std::collections::HashMap;

use crate::cause::{Call, Cause, of_sleep};
use crate::event::{FileId, Tid};
use crate::timeline::{Doing, Span, Thread, Timeline};

/// A thread that works longer than this after a poll timed out has done something about it.
const BETWEEN_POLLS_NS: u64 = 50_000_000;

/// Waiting chains longer than this are cut: two threads that wake each other could go on for ever.
const MAX_DEPTH: usize = 32;

/// One piece of the partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub start_ns: u64,
    pub end_ns: u64,
    pub tid: Tid,
    pub cause: Cause,
    /// How many waits lie between the chain's first thread and this one.
    pub depth: usize,
    pub cpu: Option<u16>,
    pub file: Option<FileId>,
    pub cold_bytes: u64,
}

/// A lock is taken as held by another thread of the process that ran for this share of the wait:
/// an interpreter's lock is passed on by time-outs, which nobody is seen to end.
const BUSY_SHARE: f64 = 0.5;
/// A relative that ran for this share of a wait that nobody was seen to end is what it waits for.
const AWAKE_SHARE: f64 = 0.2;
/// Shorter waits are not worth looking for who was busy.
const WORTH_A_LOOK_NS: u64 = 20_000;

/// Explains time by a timeline.
pub struct Walker<'a> {
    timeline: &'a Timeline,
    process_of: &'a HashMap<Tid, Tid>,
    /// The threads of each process.
    members: HashMap<Tid, Vec<Tid>>,
    /// What the threads of each process have created.
    offspring: HashMap<Tid, Vec<Tid>>,
    slices: Vec<Slice>,
    /// Threads being explained right now: a cycle of waits ends here.
    stack: Vec<Tid>,
}

impl<'a> Walker<'a> {
    /// A walker over `timeline`, whose threads belong to processes as `process_of` says.
    pub fn new(timeline: &'a Timeline, process_of: &'a HashMap<Tid, Tid>) -> Self {
        let mut members: HashMap<Tid, Vec<Tid>> = HashMap::new();
        let mut offspring: HashMap<Tid, Vec<Tid>> = HashMap::new();
        let process = |tid: &Tid| *process_of.get(tid).unwrap_or(tid);
        for (tid, thread) in &timeline.threads {
            members.entry(process(tid)).or_default().push(*tid);
            if let Some((parent, _)) = thread.born
                && process(&parent) != process(tid)
            {
                offspring.entry(process(&parent)).or_default().push(*tid);
            }
        }
        Self {
            timeline,
            process_of,
            members,
            offspring,
            slices: Vec::new(),
            stack: Vec::new(),
        }
    }

    /// The slices of `[from, to)` as seen from thread `tid`: contiguous, in order, without overlap.
    pub fn explain(mut self, tid: Tid, from: u64, to: u64) -> Vec<Slice> {
        self.thread(tid, from, to);
        merge(self.slices)
    }

    fn emit(&mut self, tid: Tid, from: u64, to: u64, cause: Cause, span: Option<&Span>) {
        if to <= from {
            return;
        }
        let cpu = match span.map(|s| s.doing) {
            Some(Doing::Running { cpu, .. }) => Some(cpu),
            _ => None,
        };
        self.slices.push(Slice {
            start_ns: from,
            end_ns: to,
            tid,
            cause,
            depth: self.stack.len().saturating_sub(1),
            cpu,
            file: span.and_then(|s| s.file),
            cold_bytes: span.map_or(0, |s| s.cold_bytes),
        });
    }

    fn thread(&mut self, tid: Tid, from: u64, to: u64) {
        let timeline = self.timeline;
        let Some(thread) = timeline
            .threads
            .get(&tid)
            .filter(|_| self.stack.len() < MAX_DEPTH)
        else {
            return self.emit(tid, from, to, Cause::Unknown, None);
        };
        self.stack.push(tid);
        let mut now = self.before_birth(thread, tid, from, to);
        let first = thread.spans.partition_point(|s| s.end_ns <= now);
        for span in thread.spans[first..].iter().take_while(|s| s.start_ns < to) {
            self.emit(tid, now, span.start_ns.min(to), Cause::Unknown, None);
            now = now.max(span.start_ns);
            let end = span.end_ns.min(to);
            self.span(tid, now, end, span);
            now = end.max(now);
        }
        self.emit(tid, now, to, Cause::Unknown, None);
        self.stack.pop();
    }

    /// Time before the thread existed belongs to its creator; returns where its own life begins.
    fn before_birth(&mut self, thread: &Thread, tid: Tid, from: u64, to: u64) -> u64 {
        let Some((parent, born)) = thread.born.filter(|(_, born)| *born > from) else {
            return from;
        };
        let until = born.min(to);
        if self.stack.contains(&parent) {
            self.emit(tid, from, until, Cause::Unknown, None);
        } else {
            self.thread(parent, from, until);
        }
        until
    }

    fn span(&mut self, tid: Tid, from: u64, to: u64, span: &Span) {
        match span.doing {
            Doing::Running { reading: true, .. } => {
                self.emit(tid, from, to, Cause::Read, Some(span))
            }
            Doing::Running { .. } => self.emit(tid, from, to, Cause::Cpu, Some(span)),
            Doing::Runnable => self.emit(tid, from, to, Cause::RunQueue, Some(span)),
            Doing::Asleep { call, disk, by } => self.asleep(tid, from, to, span, (call, disk, by)),
        }
    }

    fn asleep(
        &mut self,
        tid: Tid,
        from: u64,
        to: u64,
        span: &Span,
        (call, disk, by): (Option<Call>, bool, Tid),
    ) {
        let by = match call {
            Some(Call::Wait) if by == 0 => self.living_child(tid, from, to).unwrap_or(0),
            Some(Call::Poll) if by == 0 => self.served_later(tid, span),
            _ => by,
        };
        let follow = by != 0
            && !disk
            && call != Some(Call::Sleep)
            && !self.stack.contains(&by)
            && self.timeline.threads.contains_key(&by);
        if !follow && call == Some(Call::Futex) && !disk {
            return self.locked(tid, from, to, span);
        }
        if !follow {
            let is_wait = matches!(
                call,
                Some(Call::Poll | Call::Socket | Call::Read | Call::Write)
            );
            return match self.busy_relative(tid, from, to) {
                Some(busy) if is_wait && !disk => self.thread(busy, from, to),
                _ => self.emit(tid, from, to, of_sleep(call, disk), Some(span)),
            };
        }
        let begin = self.slices.len();
        self.thread(by, from, to);
        if call == Some(Call::Futex) {
            // A lock whose holder itself slept is a wait for the lock, whatever the holder slept on.
            for slice in &mut self.slices[begin..] {
                if matches!(slice.cause, Cause::Sleep | Cause::Unknown | Cause::Lock) {
                    slice.cause = Cause::Lock;
                    slice.tid = tid;
                }
            }
        }
    }

    /// Who ended the wait of which `span` is a piece: a poll that timed out and was begun again is
    /// one wait with the polls after it. 0 when no thread of the tree ever ended it.
    fn served_later(&self, tid: Tid, span: &Span) -> Tid {
        let spans = &self.timeline.threads[&tid].spans;
        let next = spans.partition_point(|s| s.start_ns <= span.start_ns);
        let mut worked_ns = 0;
        for later in &spans[next..] {
            match later.doing {
                Doing::Asleep {
                    call: Some(Call::Poll),
                    by,
                    ..
                } => {
                    if by != 0 {
                        return by;
                    }
                }
                Doing::Asleep { .. } => return 0,
                Doing::Running { .. } => worked_ns += later.end_ns - later.start_ns,
                Doing::Runnable => {}
            }
            if worked_ns > BETWEEN_POLLS_NS {
                return 0;
            }
        }
        0
    }

    fn process(&self, tid: Tid) -> Tid {
        *self.process_of.get(&tid).unwrap_or(&tid)
    }

    /// The youngest child of the process that lived through the interval: a wait that has not
    /// ended waits for it.
    fn living_child(&self, tid: Tid, from: u64, to: u64) -> Option<Tid> {
        let lives = |child: &&Tid| {
            let thread = &self.timeline.threads[*child];
            let began = thread.born.map_or(0, |(_, born)| born);
            let ended = thread.spans.last().map_or(0, |span| span.end_ns);
            began <= from.max(began.min(to)) && ended >= to && !self.stack.contains(*child)
        };
        let born = |child: &&Tid| self.timeline.threads[*child].born.map(|(_, born)| born);
        let children = self.offspring.get(&self.process(tid))?;
        children.iter().filter(lives).max_by_key(born).copied()
    }

    /// A wait for a lock that no thread was seen to end.
    fn locked(&mut self, tid: Tid, from: u64, to: u64, span: &Span) {
        let timeline = self.timeline;
        let Some(busy) = self.busy_sibling(tid, from, to) else {
            return self.emit(tid, from, to, Cause::Lock, Some(span));
        };
        let spans = &timeline.threads[&busy].spans;
        let first = spans.partition_point(|s| s.end_ns <= from);
        let mut now = from;
        for worked in spans[first..].iter().take_while(|s| s.start_ns < to) {
            let cause = match worked.doing {
                Doing::Running { .. } => Cause::Cpu,
                Doing::Runnable => Cause::RunQueue,
                Doing::Asleep { .. } => continue,
            };
            self.emit(
                tid,
                now,
                worked.start_ns.clamp(now, to),
                Cause::Lock,
                Some(span),
            );
            now = now.max(worked.start_ns);
            let end = worked.end_ns.min(to);
            self.emit(busy, now, end, cause, Some(worked));
            now = now.max(end);
        }
        self.emit(tid, now, to, Cause::Lock, Some(span));
    }

    /// The thread of this process or of one below it that a wait without a visible end waits for:
    /// a poll that times out and begins anew, or a packet that came by way of an interrupt.
    fn busy_relative(&self, tid: Tid, from: u64, to: u64) -> Option<Tid> {
        if to - from < WORTH_A_LOOK_NS {
            return None;
        }
        let mut processes = vec![self.process(tid)];
        let mut next = 0;
        let mut busiest = (0, 0);
        while next < processes.len() {
            let process = processes[next];
            next += 1;
            for child in self.offspring.get(&process).into_iter().flatten() {
                let child = self.process(*child);
                if !processes.contains(&child) {
                    processes.push(child);
                }
            }
            for other in self.members.get(&process).into_iter().flatten() {
                let ran = ran_ns(&self.timeline.threads[other], from, to);
                if ran > busiest.0 && !self.stack.contains(other) {
                    busiest = (ran, *other);
                }
            }
        }
        (busiest.0 as f64 >= (to - from) as f64 * AWAKE_SHARE).then_some(busiest.1)
    }

    fn busy_sibling(&self, tid: Tid, from: u64, to: u64) -> Option<Tid> {
        if to - from < WORTH_A_LOOK_NS {
            return None;
        }
        let siblings = self.members.get(&self.process(tid))?;
        let busiest = siblings
            .iter()
            .filter(|other| **other != tid)
            .map(|other| (ran_ns(&self.timeline.threads[other], from, to), *other))
            .max()?;
        (busiest.0 as f64 >= (to - from) as f64 * BUSY_SHARE).then_some(busiest.1)
    }
}

/// How long a thread was on a CPU within an interval.
fn ran_ns(thread: &Thread, from: u64, to: u64) -> u64 {
    let first = thread.spans.partition_point(|s| s.end_ns <= from);
    let within = thread.spans[first..].iter().take_while(|s| s.start_ns < to);
    within
        .filter(|s| matches!(s.doing, Doing::Running { .. }))
        .map(|s| s.end_ns.min(to) - s.start_ns.max(from))
        .sum()
}

/// Joins neighbours that differ in nothing but time.
fn merge(slices: Vec<Slice>) -> Vec<Slice> {
    let mut out: Vec<Slice> = Vec::with_capacity(slices.len());
    for slice in slices {
        match out.last_mut() {
            Some(last)
                if last.end_ns == slice.start_ns
                    && (last.tid, last.cause, last.file, last.cpu)
                        == (slice.tid, slice.cause, slice.file, slice.cpu) =>
            {
                last.end_ns = slice.end_ns;
                last.cold_bytes += slice.cold_bytes;
            }
            _ => out.push(slice),
        }
    }
    out
}

#[cfg(test)]
mod tests;
