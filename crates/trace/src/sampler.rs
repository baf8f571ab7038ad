//! The recorder without root: /proc is read every few milliseconds for every thread of the tree.
//!
//! A sample says how long a thread ran and waited for a CPU since the last one (schedstat) and what
//! it was blocked in (stat, syscall). Who ended a wait is not visible; the busiest thread that could
//! have is taken, and nobody when none was busy.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::cause::{Call, call, call_of_function};
use crate::event::FileId;
use crate::event::Tid;
use crate::live::Live;
use crate::reading::{Reading, Reads};
use crate::timeline::{Doing, Span, Timeline};

/// A thread must have run this share of the interval to count as what others waited for.
const BUSY_SHARE: f64 = 0.2;
/// A thread that has not run is looked at in full only every so many samples.
const IDLE_STRIDE: u64 = 8;
/// One read call of many megabytes may take so long.
const LONG_READ_NS: u64 = 100_000_000;

struct Watched {
    pid: Tid,
    parent: Tid,
    schedstat: File,
    stat: File,
    /// The system call, or where that may not be read the kernel function slept in.
    syscall: Option<File>,
    wchan: Option<File>,
    reads: Reads,
    run_ns: u64,
    wait_ns: u64,
    state: u8,
    cpu: u16,
    call: Option<Call>,
    last_ns: u64,
}

/// What one thread did in one interval.
#[derive(Clone, Copy)]
struct Sample {
    tid: Tid,
    pid: Tid,
    parent: Tid,
    start_ns: u64,
    run_ns: u64,
    wait_ns: u64,
    state: u8,
    cpu: u16,
    call: Option<Call>,
    reading: Option<Reading>,
}

/// Samples a tree into a timeline.
pub struct Sampler {
    root: Tid,
    owner: Tid,
    live: Live,
    /// Names of files that were read.
    paths: HashMap<FileId, String>,
    spawned_ns: u64,
    last_ns: u64,
    /// When each thread was last seen to have read much.
    read_until: HashMap<Tid, u64>,
    watched: HashMap<Tid, Watched>,
    timeline: Timeline,
    ticks: u64,
}

fn read_text(file: &File, buffer: &mut [u8]) -> Option<usize> {
    file.read_at(buffer, 0).ok().filter(|n| *n > 0)
}

/// State, parent and last CPU from /proc/PID/stat, fields 3, 4 and 39, counted from the name's ')'.
fn parse_stat(text: &[u8]) -> Option<(u8, Tid, u16)> {
    let after = text.iter().rposition(|b| *b == b')')? + 2;
    let mut parts = text.get(after..)?.split(|b| *b == b' ');
    let state = *parts.next()?.first()?;
    let parent = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let cpu = parts
        .nth(34)
        .and_then(|p| std::str::from_utf8(p).ok()?.trim().parse().ok());
    Some((state, parent, cpu.unwrap_or(u16::MAX)))
}

fn parse_schedstat(text: &[u8]) -> Option<(u64, u64)> {
    let mut parts = std::str::from_utf8(text)
        .ok()?
        .split_whitespace()
        .map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// "running", "-1 …" (blocked outside a call) or "NUMBER args…".
fn parse_syscall(text: &[u8]) -> Option<Call> {
    let first = std::str::from_utf8(text).ok()?.split_whitespace().next()?;
    first.parse::<i32>().ok().filter(|n| *n >= 0).map(call)
}

impl Watched {
    fn open(pid: Tid, tid: Tid, t_ns: u64) -> Option<Self> {
        let open = |name: &str| File::open(format!("/proc/{pid}/task/{tid}/{name}")).ok();
        Some(Self {
            pid,
            parent: 0,
            schedstat: open("schedstat")?,
            stat: open("stat")?,
            syscall: open("syscall"),
            wchan: open("wchan"),
            reads: Reads::open(pid, tid),
            run_ns: 0,
            wait_ns: 0,
            state: b'S',
            cpu: u16::MAX,
            call: None,
            last_ns: t_ns,
        })
    }

    fn blocked_in(&self, buffer: &mut [u8]) -> Option<Call> {
        let syscall = self.syscall.as_ref().and_then(|f| read_text(f, buffer));
        if let Some(n) = syscall {
            return parse_syscall(&buffer[..n]);
        }
        let n = self.wchan.as_ref().and_then(|f| read_text(f, buffer))?;
        std::str::from_utf8(&buffer[..n])
            .ok()
            .and_then(call_of_function)
    }

    /// At least so long has it lived: what it has run and queued so far. All of its life counts
    /// for a thread that had a whole interval, as nobody saw its beginning.
    fn age_ns(&self) -> u64 {
        let mut buffer = [0; 128];
        let n = read_text(&self.schedstat, &mut buffer).unwrap_or(0);
        parse_schedstat(&buffer[..n]).map_or(0, |(run, wait)| run + wait)
    }

    /// The process's parent for a first thread, its first thread for others.
    fn creator(&self, tid: Tid) -> Option<Tid> {
        if tid != self.pid {
            return Some(self.pid);
        }
        let mut buffer = [0; 1024];
        let n = read_text(&self.stat, &mut buffer)?;
        Some(parse_stat(&buffer[..n])?.1)
    }

    fn sample(
        &mut self,
        tid: Tid,
        t_ns: u64,
        in_full: bool,
        paths: &mut HashMap<FileId, String>,
    ) -> Option<Sample> {
        let mut buffer = [0; 1024];
        let n = read_text(&self.schedstat, &mut buffer)?;
        let (run, wait) = parse_schedstat(&buffer[..n])?;
        let (ran, waited) = (
            run.saturating_sub(self.run_ns),
            wait.saturating_sub(self.wait_ns),
        );
        (self.run_ns, self.wait_ns) = (run, wait);
        let mut reading = None;
        if in_full || ran > 0 || self.state != b'S' {
            reading = self.reads.look(paths);
            let n = read_text(&self.stat, &mut buffer)?;
            (self.state, self.parent, self.cpu) = parse_stat(&buffer[..n])?;
            // Who has a processor, or wants one, is blocked in nothing.
            let is_blocked = self.state != b'R';
            self.call = is_blocked.then(|| self.blocked_in(&mut buffer)).flatten();
        }
        let start_ns = std::mem::replace(&mut self.last_ns, t_ns);
        let (pid, parent, state, cpu, call) =
            (self.pid, self.parent, self.state, self.cpu, self.call);
        Some(Sample {
            tid,
            pid,
            parent,
            start_ns,
            run_ns: ran,
            wait_ns: waited,
            state,
            cpu,
            call,
            reading,
        })
    }
}

impl Sampler {
    /// A sampler of the tree below `root`, spawned at `spawned_ns`, whose orphans fall to `owner`.
    pub fn new(root: Tid, owner: Tid, spawned_ns: u64) -> Self {
        Self {
            root,
            owner,
            live: Live::default(),
            paths: HashMap::new(),
            spawned_ns,
            last_ns: spawned_ns,
            read_until: HashMap::new(),
            watched: HashMap::new(),
            timeline: Timeline::default(),
            ticks: 0,
        }
    }

    /// Takes one sample of every thread at `t_ns`.
    pub fn sample(&mut self, t_ns: u64) {
        self.ticks += 1;
        self.discover(t_ns);
        let in_full = self.ticks % IDLE_STRIDE == 1;
        let mut samples = Vec::with_capacity(self.watched.len());
        let (paths, live) = (&mut self.paths, &mut self.live);
        self.watched.retain(|tid, watched| {
            let sample = watched.sample(*tid, t_ns, in_full, paths);
            samples.extend(sample);
            if sample.is_none() {
                live.forget(watched.pid);
            }
            sample.is_some()
        });
        for sample in &samples {
            self.push(sample, t_ns, awaited(sample, &samples, t_ns));
        }
        self.last_ns = t_ns;
    }

    /// The threads that had a processor, or wanted one, at the last sample, with their processes.
    pub fn running(&self) -> Vec<(Tid, Tid)> {
        let running = self.watched.iter().filter(|(_, w)| w.state == b'R');
        running.map(|(tid, watched)| (*tid, watched.pid)).collect()
    }

    fn discover(&mut self, t_ns: u64) {
        for pid in self.live.pids(self.root, self.owner) {
            for tid in self.live.threads(pid) {
                if !self.watched.contains_key(&tid)
                    && let Some(mut watched) = Watched::open(pid, tid, t_ns)
                {
                    watched.last_ns = t_ns - watched.age_ns().min(t_ns - self.earliest(tid));
                    if tid != self.root {
                        let parent = watched.creator(tid).unwrap_or(self.root);
                        let thread = self.timeline.threads.entry(tid).or_default();
                        thread.born = Some((parent, watched.last_ns));
                    }
                    self.watched.insert(tid, watched);
                }
            }
        }
    }

    /// The first moment at which a thread that is new now can have begun.
    fn earliest(&self, tid: Tid) -> u64 {
        if tid == self.root {
            self.spawned_ns
        } else {
            self.last_ns
        }
    }

    fn push(&mut self, sample: &Sample, t_ns: u64, by: Tid) {
        if let Some(reading) = sample.reading {
            self.read_on(sample.tid, t_ns, reading.file);
        }
        let length = t_ns.saturating_sub(sample.start_ns);
        let charged = sample.run_ns + sample.wait_ns;
        let late = charged.saturating_sub(length).min(sample.wait_ns);
        let late = self.queued_before(sample, late);
        let run = sample.run_ns.min(length);
        let wait = (sample.wait_ns - late).min(length - run);
        let reading = sample.reading.is_some();
        let doing = [
            (
                run,
                Doing::Running {
                    cpu: u16::MAX,
                    reading,
                },
            ),
            (wait, Doing::Runnable),
            (length - run - wait, blocked(sample, by)),
        ];
        let mut now = sample.start_ns;
        let mut cold_bytes = sample.reading.map_or(0, |reading| reading.cold_bytes);
        for (length, doing) in doing.into_iter().filter(|(length, _)| *length > 0) {
            let span = Span {
                start_ns: now,
                end_ns: now + length,
                doing,
                file: sample.reading.and_then(|reading| reading.file),
                cold_bytes: std::mem::take(&mut cold_bytes),
            };
            self.timeline.push(sample.tid, span);
            now += length;
        }
    }

    /// Bytes are counted when a read call ends: what ran between two samples that saw some, close
    /// to each other, was reading too, and what slept in a read slept for that file.
    fn read_on(&mut self, tid: Tid, t_ns: u64, file: Option<FileId>) {
        let before = self.read_until.insert(tid, t_ns);
        let Some(since) = before.filter(|since| since + LONG_READ_NS >= t_ns) else {
            return;
        };
        let spans = self.timeline.threads.get_mut(&tid).map(|t| &mut t.spans);
        let recent = spans.into_iter().flatten().rev();
        for span in recent.take_while(|span| span.start_ns >= since) {
            match &mut span.doing {
                Doing::Running { reading, .. } => {
                    *reading = true;
                    span.file = file;
                }
                Doing::Asleep {
                    call: Some(Call::Read),
                    ..
                } => span.file = span.file.or(file),
                _ => {}
            }
        }
    }

    /// A thread is charged for its wait for a CPU when that ends, however long it was. What lies
    /// before this interval is waiting by now, or was taken for running: that is turned into
    /// waiting. Returns how much of the wait lies there.
    fn queued_before(&mut self, sample: &Sample, late_ns: u64) -> u64 {
        let Some(thread) = self.timeline.threads.get_mut(&sample.tid) else {
            return 0;
        };
        let spans = &mut thread.spans;
        let is_waiting = |span: &&Span| span.doing == Doing::Runnable;
        let num_waiting = spans.iter().rev().take_while(is_waiting).count();
        let first = spans.len() - num_waiting;
        let waited: u64 = spans[first..].iter().map(|s| s.end_ns - s.start_ns).sum();
        let Some(last) = spans[..first].last_mut() else {
            return waited.min(late_ns);
        };
        let Doing::Running { .. } = last.doing else {
            return waited.min(late_ns);
        };
        let more_ns = late_ns.saturating_sub(waited);
        let more_ns = more_ns.min(last.end_ns - last.start_ns);
        if more_ns == 0 {
            return waited.min(late_ns);
        }
        last.end_ns -= more_ns;
        let waiting = Span {
            start_ns: last.end_ns,
            end_ns: last.end_ns + more_ns,
            doing: Doing::Runnable,
            file: None,
            cold_bytes: 0,
        };
        if last.end_ns == last.start_ns {
            spans[first - 1] = waiting;
        } else {
            spans.insert(first, waiting);
        }
        waited + more_ns
    }

    /// The timeline so far, and the names of files that were read.
    pub fn finish(self) -> (Timeline, HashMap<FileId, String>) {
        (self.timeline, self.paths)
    }
}

/// What the part of an interval was that a thread neither ran nor queued.
///
/// A thread that is running now has not been charged yet for its current slice of the CPU, nor one
/// that queues for its wait.
fn blocked(sample: &Sample, by: Tid) -> Doing {
    if sample.state == b'R' && sample.run_ns == 0 {
        return Doing::Runnable;
    }
    if sample.state == b'R' {
        return Doing::Running {
            cpu: sample.cpu,
            reading: sample.reading.is_some(),
        };
    }
    Doing::Asleep {
        call: sample.call,
        disk: sample.state == b'D',
        by,
    }
}

/// The thread that `sample` most likely waited for; 0 when none was busy.
fn awaited(sample: &Sample, all: &[Sample], t_ns: u64) -> Tid {
    let is_child = |s: &&Sample| s.parent == sample.pid && s.pid != sample.pid;
    let is_sibling = |s: &&Sample| s.pid == sample.pid && s.tid != sample.tid;
    let busiest =
        |those: &mut dyn Iterator<Item = &Sample>| those.max_by_key(|s| s.run_ns).copied();
    let found = match sample.call {
        Some(Call::Wait) => busiest(&mut all.iter().filter(is_child)),
        Some(Call::Futex) => busiest(&mut all.iter().filter(is_sibling)),
        Some(Call::Read | Call::Poll | Call::Socket) => {
            busiest(&mut all.iter().filter(|s| is_child(s) || is_sibling(s)))
        }
        _ => None,
    };
    let enough = (t_ns.saturating_sub(sample.start_ns)) as f64 * BUSY_SHARE;
    match found {
        Some(other) if sample.call == Some(Call::Wait) || other.run_ns as f64 >= enough => {
            other.tid
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_a_name_with_parentheses() {
        assert_eq!(
            parse_stat(b"12 (a) b (c) R 7 12"),
            Some((b'R', 7, u16::MAX))
        );
        assert_eq!(parse_stat(b"12 (a"), None);
    }

    #[test]
    fn syscall_lines_are_told_apart() {
        assert_eq!(parse_syscall(b"running\n"), None);
        assert_eq!(parse_syscall(b"-1 0x7f 0x7f\n"), None);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(parse_syscall(b"230 0x0 0x0\n"), Some(Call::Sleep));
    }

    #[test]
    fn the_busiest_child_is_what_a_wait_waits_for() {
        let sample = |tid, pid, parent, run_ns, call| Sample {
            tid,
            pid,
            parent,
            start_ns: 0,
            run_ns,
            wait_ns: 0,
            state: b'S',
            cpu: 0,
            call,
            reading: None,
        };
        let all = [
            sample(1, 1, 0, 0, Some(Call::Wait)),
            sample(2, 2, 1, 5, None),
            sample(3, 3, 1, 90, None),
            sample(4, 4, 9, 99, None),
        ];
        assert_eq!(awaited(&all[0], &all, 100), 3);
        assert_eq!(awaited(&all[1], &all, 100), 0);
    }

    #[test]
    fn a_wait_of_many_samples_is_none_of_it_running() {
        let mut sampler = Sampler::new(1, 0, 0);
        // It ran 2 ms of the first 10, and then waited for 34 ms before it ran again.
        for (end_ms, run_ms, wait_ms) in [(10, 2, 0), (20, 0, 0), (30, 0, 0), (40, 4, 34)] {
            let sample = Sample {
                tid: 1,
                pid: 1,
                parent: 0,
                start_ns: (end_ms - 10) * 1_000_000,
                run_ns: run_ms * 1_000_000,
                wait_ns: wait_ms * 1_000_000,
                state: b'R',
                cpu: 0,
                call: None,
                reading: None,
            };
            sampler.push(&sample, end_ms * 1_000_000, 0);
        }
        let spans = &sampler.timeline.threads[&1].spans;
        let running = spans.iter().filter(|s| s.doing != Doing::Runnable);
        let ran: u64 = running.map(|s| s.end_ns - s.start_ns).sum();
        assert_eq!(ran, 6_000_000);
        let joined = spans
            .windows(2)
            .all(|pair| pair[0].end_ns == pair[1].start_ns);
        assert!(joined && spans.last().unwrap().end_ns == 40_000_000);
    }
}
