//! The program: records until a line on stdin says which interval to explain, then prints the partition.
//!
//! Out: one line `{"mode", "reason"}` when recording has begun. In: `{"pid", "owner", "spawned_ns"}`
//! (the tree's first process, once it runs; the process to which its orphans fall, 0 for none; when
//! it was spawned), then `{"from_ns", "to_ns", "by_first"}` (whether the first process's own end is
//! what ended the interval). Out: the partition as one JSON line.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::args::{Args, Mode};
use crate::cause::{Call, Cause, call};
use crate::critical::{Slice, Walker};
use crate::event::{Event, IDLE, Kind, Tid};
use crate::files::Tree;
use crate::sampler::Sampler;
use crate::stacks::{Stacked, Stacks};
use crate::steal::Steal;
use crate::timeline::{Doing, Timeline};
use crate::tracefs::Instance;

/// How often the kernel's buffers are drained and the tree is looked at.
const DRAIN: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(60);
const LOOK_AT_FILES: Duration = Duration::from_millis(1500);
/// How often it is looked which functions are running, where that is less often than all else.
const STACKS: Duration = Duration::from_millis(20);
/// A thread that wrote this shortly before readiness was seen is taken as the one that announced it.
const ANNOUNCE_NS: u64 = 100_000_000;

#[derive(Deserialize)]
#[serde(untagged)]
enum Request {
    Explain {
        from_ns: u64,
        to_ns: u64,
        #[serde(default)]
        by_first: bool,
    },
    Tree {
        pid: Tid,
        #[serde(default)]
        owner: Tid,
        #[serde(default)]
        spawned_ns: u64,
    },
}

#[derive(Serialize)]
struct Started<'a> {
    mode: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct Row {
    start_ns: u64,
    end_ns: u64,
    tid: Tid,
    cause: Cause,
    depth: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    cold_bytes: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[derive(Serialize)]
struct ThreadFacts {
    pid: Tid,
    name: String,
    /// The thread that created it; 0 when that was not seen.
    parent: Tid,
}

#[derive(Serialize)]
struct Partition<'a> {
    mode: &'a str,
    slices: Vec<Row>,
    threads: HashMap<Tid, ThreadFacts>,
    commands: HashMap<Tid, String>,
    announcer: Tid,
    events: usize,
    lost_pages: usize,
    is_full: bool,
    #[serde(flatten)]
    stacked: Stacked,
}

enum Source {
    Kernel(Box<Instance>),
    Samples(Option<Box<Sampler>>),
}

fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn open(args: Args) -> Result<(Source, String), String> {
    if args.mode == Mode::Proc {
        return Ok((Source::Samples(None), "asked for".to_owned()));
    }
    match Instance::start(args.follow) {
        Ok(instance) => Ok((Source::Kernel(Box::new(instance)), "tracepoints".to_owned())),
        Err(reason) if args.mode == Mode::Auto => Ok((Source::Samples(None), reason)),
        Err(reason) => Err(reason),
    }
}

/// Lines of stdin, read by a thread so that draining goes on; the channel closes with stdin.
fn requests() -> Receiver<Result<Request, String>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let parsed = serde_json::from_str(&line).map_err(|e| format!("request {line}: {e}"));
            if sender.send(parsed).is_err() {
                return;
            }
        }
    });
    receiver
}

struct Recorder {
    source: Source,
    interval: Duration,
    root: Option<Tid>,
    tree: Tree,
    steal: Steal,
    stacks: Stacks,
    ticks: u32,
}

impl Recorder {
    fn tick(&mut self) {
        let t_ns = now_ns();
        let looks_at_stacks = self.is_every(STACKS);
        match &mut self.source {
            Source::Kernel(instance) => {
                instance.drain();
                let process = |tid| Some((tid, *self.tree.process_of.get(&tid)?));
                let running = instance.running().into_iter().filter_map(process);
                self.stacks.sample(now_ns(), running);
                for tid in instance.readers_of_unnamed(&self.tree.paths) {
                    self.tree.look_at_files_of(tid);
                }
            }
            Source::Samples(sampler) => {
                if let Some(sampler) = sampler {
                    sampler.sample(t_ns);
                    if looks_at_stacks {
                        self.stacks.sample(now_ns(), sampler.running());
                    }
                }
            }
        }
        if self.is_every(LOOK) {
            self.steal.look(t_ns);
            self.root.into_iter().for_each(|root| self.tree.look(root));
        }
        if self.is_every(LOOK_AT_FILES) {
            let root = self.root.into_iter();
            root.for_each(|root| self.tree.look_at_files(root));
        }
        self.ticks += 1;
    }

    /// Whether this tick is one of those that are so far apart.
    fn is_every(&self, time: Duration) -> bool {
        let ticks = time.as_nanos() / self.interval.as_nanos();
        self.ticks.is_multiple_of(ticks.max(1) as u32)
    }

    fn follow(&mut self, pid: Tid, owner: Tid, spawned_ns: u64) {
        self.root = Some(pid);
        self.tree.owner = owner;
        if let Source::Samples(sampler) = &mut self.source {
            let mut started = Box::new(Sampler::new(pid, owner, spawned_ns));
            started.sample(now_ns());
            *sampler = Some(started);
        }
        self.tree.look_at_owner();
        self.tree.look(pid);
    }

    /// Runs until an interval is asked for; None when stdin closed first.
    fn wait(
        &mut self,
        requests: &Receiver<Result<Request, String>>,
    ) -> Result<Option<(u64, u64, bool)>, String> {
        let mut next = Instant::now();
        loop {
            next += self.interval;
            let patience = next.saturating_duration_since(Instant::now());
            match requests.recv_timeout(patience) {
                Ok(Ok(Request::Tree {
                    pid,
                    owner,
                    spawned_ns,
                })) => self.follow(pid, owner, spawned_ns),
                Ok(Ok(Request::Explain {
                    from_ns,
                    to_ns,
                    by_first,
                })) => return Ok(Some((from_ns, to_ns, by_first))),
                Ok(Err(message)) => return Err(message),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.tick();
            next = next.max(Instant::now() - self.interval);
        }
    }

    fn explain(mut self, from_ns: u64, to_ns: u64, by_first: bool) -> Result<(), String> {
        let root = self
            .root
            .ok_or("no process was named before the interval")?;
        self.tick();
        self.tree.look(root);
        self.tree.look_at_files(root);
        let mut facts = (0, 0, false);
        let (mode, timeline, announcer) = match self.source {
            Source::Kernel(instance) => {
                let (events, lost, is_full) = instance.finish();
                facts = (events.len(), lost, is_full);
                let events = of_tree(events, root, &mut self.tree);
                let announcer = announcer(&events, self.tree.owner, to_ns).unwrap_or(root);
                ("tracefs", Timeline::build(&events, to_ns), announcer)
            }
            Source::Samples(sampler) => {
                let (timeline, paths) = sampler.map(|s| s.finish()).unwrap_or_default();
                self.tree.paths.extend(paths);
                let announcer = last_to_run(&timeline, to_ns).unwrap_or(root);
                ("proc", timeline, announcer)
            }
        };
        let announcer = if by_first && lives_until(&timeline, root, to_ns) {
            root
        } else {
            announcer
        };
        let walker = Walker::new(&timeline, &self.tree.process_of);
        let slices = walker.explain(announcer, from_ns, to_ns);
        let slices = self.steal.carve(slices);
        let stacked = self
            .stacks
            .finish(slices.iter().map(|slice| slice.tid).collect());
        let partition = Partition {
            mode,
            slices: rows(slices, &self.tree),
            threads: thread_facts(&self.tree, &timeline),
            commands: self
                .tree
                .processes
                .into_iter()
                .map(|(pid, p)| (pid, p.command))
                .collect(),
            announcer,
            events: facts.0,
            lost_pages: facts.1,
            is_full: facts.2,
            stacked,
        };
        print_line(&partition)
    }
}

fn thread_facts(tree: &Tree, timeline: &Timeline) -> HashMap<Tid, ThreadFacts> {
    let facts = |(tid, pid): (&Tid, &Tid)| {
        let born = timeline.threads.get(tid).and_then(|thread| thread.born);
        let facts = ThreadFacts {
            pid: *pid,
            name: tree.names.get(tid).cloned().unwrap_or_default(),
            parent: born.map_or(0, |(parent, _)| parent),
        };
        (*tid, facts)
    };
    tree.process_of.iter().map(facts).collect()
}

fn rows(slices: Vec<Slice>, tree: &Tree) -> Vec<Row> {
    let path = |slice: &Slice| {
        slice.file.map(|id| {
            let unnamed = || format!("inode {}:{}", id.device, id.inode);
            tree.paths.get(&id).cloned().unwrap_or_else(unnamed)
        })
    };
    slices
        .iter()
        .map(|s| Row {
            start_ns: s.start_ns,
            end_ns: s.end_ns,
            tid: s.tid,
            cause: s.cause,
            depth: s.depth,
            file: path(s),
            cold_bytes: s.cold_bytes,
        })
        .collect()
}

/// The events of `root`, of everything that descends from it, of its owner, and of the idle task.
fn of_tree(events: Vec<Event>, root: Tid, tree: &mut Tree) -> Vec<Event> {
    let mut members = HashSet::from([root, tree.owner, IDLE]);
    for event in &events {
        if let Kind::Fork { parent } = event.kind
            && parent != IDLE
            && members.contains(&parent)
        {
            members.insert(event.tid);
            tree.process_of.entry(event.tid).or_insert(event.tid);
        }
    }
    events
        .into_iter()
        .filter(|e| members.contains(&e.tid))
        .collect()
}

/// The thread that wrote last before `to_ns`, else the one that last got a CPU; never the owner, nor
/// nobody.
fn announcer(events: &[Event], owner: Tid, to_ns: u64) -> Option<Tid> {
    let is_write = |e: &&Event| match e.kind {
        Kind::Enter { number, .. } => matches!(call(number), Call::Write | Call::Socket),
        _ => false,
    };
    let before = || {
        let back = events.iter().rev().skip_while(|e| e.t_ns > to_ns);
        back.filter(|e| e.tid != owner && e.tid != IDLE)
    };
    let recent = before()
        .take_while(|e| e.t_ns + ANNOUNCE_NS > to_ns)
        .find(is_write);
    recent
        .or_else(|| before().find(|e| e.kind == Kind::SwitchIn))
        .map(|e| e.tid)
}

/// Whether a thread was still seen shortly before `to_ns`.
fn lives_until(timeline: &Timeline, tid: Tid, to_ns: u64) -> bool {
    let spans = timeline.threads.get(&tid).map(|thread| &thread.spans);
    let end = spans.and_then(|spans| spans.last()).map(|span| span.end_ns);
    end.is_some_and(|end| end + ANNOUNCE_NS >= to_ns)
}

fn last_to_run(timeline: &Timeline, to_ns: u64) -> Option<Tid> {
    let last_run = |(tid, thread): (&Tid, &crate::timeline::Thread)| {
        let runs = thread.spans.iter().rev().skip_while(|s| s.start_ns > to_ns);
        let span = runs
            .into_iter()
            .find(|s| matches!(s.doing, Doing::Running { .. }))?;
        Some((span.end_ns, *tid))
    };
    timeline
        .threads
        .iter()
        .filter_map(last_run)
        .max()
        .map(|(_, tid)| tid)
}

fn print_line(value: &impl Serialize) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value).map_err(|e| e.to_string())?;
    out.write_all(b"\n")
        .and_then(|()| out.flush())
        .map_err(|e| e.to_string())
}

/// Five files of /proc stay open for each thread; the soft limit of 1024 is for programs that use
/// select().
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Records until told to explain.
pub fn run(args: Args) -> Result<(), String> {
    raise_descriptor_limit();
    let (source, reason) = open(args)?;
    let (mode, interval) = match source {
        Source::Kernel(_) => ("tracefs", DRAIN),
        Source::Samples(_) => ("proc", Duration::from_millis(args.interval_ms)),
    };
    print_line(&Started {
        mode,
        reason: &reason,
    })?;
    let mut recorder = Recorder {
        source,
        interval,
        root: None,
        tree: Tree::default(),
        steal: Steal::default(),
        stacks: Stacks::default(),
        ticks: 0,
    };
    match recorder.wait(&requests())? {
        Some((from_ns, to_ns, by_first)) => recorder.explain(from_ns, to_ns, by_first),
        None => Ok(()),
    }
}
