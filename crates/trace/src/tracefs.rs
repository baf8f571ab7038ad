//! The kernel's tracer: set up, drained while the command runs, removed.

use std::collections::{HashMap, HashSet};

use crate::buffers::Buffers;
use crate::decode::{Decoder, OF_THREADS, SWITCHES};
use crate::event::{Event, FileId, Kind, Tid};
use crate::ring::read_page;
use crate::running::Running;

/// For all CPUs together, and the least and most for one: at 20 ms between drains 16 MiB hold
/// bursts of several hundred thousand events a second.
const BUFFERS_KB: usize = 512 * 1024;
const LEAST_KB: usize = 4 * 1024;
const MOST_KB: usize = 32 * 1024;
/// Above this many events (40 bytes each) recording stops and says so.
const MAX_EVENTS: usize = 12_000_000;
/// A file of which less was read since the last drain is not worth a look for its name.
const WORTH_A_LOOK: u64 = 1 << 20;
const MAX_LOOKS: u8 = 3;
const LOOKS_A_TICK: usize = 2;
/// The kernel's own number for the first PID namespace (PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// What is recorded, and what was so far.
#[derive(Debug)]
pub struct Instance {
    /// What the command's threads do.
    threads: Buffers,
    /// Who gets a processor, of all threads: told to record some threads alone, kernels (6.18) leave
    /// out moments at which these get one, above all after a fork.
    switches: Buffers,
    decoder: Decoder,
    /// Of each processor what its threads did, then of each its switches; in the order of time.
    recorded: Vec<Vec<Event>>,
    /// How many events of each have been asked for files without a name.
    asked: Vec<usize>,
    /// How many events of each have been taken for who runs.
    followed: Vec<usize>,
    running: Running,
    /// Looks that named nothing: such a file is not asked for again.
    given_up: HashMap<FileId, u8>,
    /// Pages before which the kernel dropped events, or that could not be read.
    pub lost_pages: usize,
    /// The event limit was reached.
    pub is_full: bool,
}

impl Instance {
    /// Begins to record the threads that `pid` creates from now on, and theirs.
    pub fn start(pid: u32) -> Result<Self, String> {
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        if namespace.as_os_str() != FIRST_PID_NAMESPACE {
            return Err("in a PID namespace the kernel's tracer uses other numbers".to_owned());
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let each_kb = (BUFFERS_KB / cpus).clamp(LEAST_KB, MOST_KB);
        let name = format!("preroll-{}", std::process::id());
        let threads = Buffers::new(&name, each_kb)?;
        threads.set("options/event-fork", "1")?;
        threads.set("set_event_pid", &pid.to_string())?;
        threads.enable(&OF_THREADS)?;
        let switches = Buffers::new(&format!("{name}-switches"), LEAST_KB)?;
        switches.enable(&SWITCHES)?;
        let num = threads.num_cpus() + switches.num_cpus();
        let instance = Self {
            decoder: Decoder::open(&threads.events())?,
            threads,
            switches,
            recorded: vec![Vec::new(); num],
            asked: vec![0; num],
            followed: vec![0; num],
            running: Running::default(),
            given_up: HashMap::new(),
            lost_pages: 0,
            is_full: false,
        };
        instance.switches.set("tracing_on", "1")?;
        instance.threads.set("tracing_on", "1")?;
        Ok(instance)
    }

    /// Takes what the kernel has buffered; never blocks.
    pub fn drain(&mut self) {
        let total: usize = self.recorded.iter().map(Vec::len).sum();
        let mut left = MAX_EVENTS.saturating_sub(total);
        let num_cpus = self.threads.num_cpus();
        for (buffers, first) in [(&mut self.threads, 0), (&mut self.switches, num_cpus)] {
            buffers.drain(|cpu, page| {
                if left == 0 {
                    self.is_full = true;
                    return;
                }
                let out = &mut self.recorded[first + cpu];
                let before = out.len();
                let facts = read_page(page, |t, data| {
                    self.decoder.decode(t, cpu as u16, data, out);
                });
                left = left.saturating_sub(out.len() - before);
                self.lost_pages += usize::from(facts.missed || facts.damaged);
            });
        }
    }

    /// Threads that since the last call have brought bytes of files into memory whose names are
    /// not in `known`: they may have them open still. A few at most: looking costs milliseconds.
    pub fn readers_of_unnamed(&mut self, known: &HashMap<FileId, String>) -> Vec<Tid> {
        let mut bytes_of: HashMap<(FileId, Tid), u64> = HashMap::new();
        for (events, asked) in self.recorded.iter().zip(&mut self.asked) {
            for event in &events[*asked..] {
                if let Kind::Fetches { file, bytes } = event.kind
                    && !known.contains_key(&file)
                {
                    *bytes_of.entry((file, event.tid)).or_default() += bytes;
                }
            }
            *asked = events.len();
        }
        let mut tids = Vec::new();
        for ((file, tid), bytes) in bytes_of {
            let looks = self.given_up.entry(file).or_default();
            if bytes >= WORTH_A_LOOK && *looks < MAX_LOOKS && !tids.contains(&tid) {
                *looks += 1;
                tids.push(tid);
            }
        }
        tids.truncate(LOOKS_A_TICK);
        tids
    }

    /// The threads that had a processor, or wanted one, when the buffers were drained.
    pub fn running(&mut self) -> HashSet<Tid> {
        for (cpu, (events, followed)) in self.recorded.iter().zip(&mut self.followed).enumerate() {
            self.running.take(cpu, &events[*followed..]);
            *followed = events.len();
        }
        self.running.threads()
    }

    /// Stops recording and returns all events in time order.
    pub fn finish(mut self) -> (Vec<Event>, usize, bool) {
        for buffers in [&self.threads, &self.switches] {
            let _ = buffers.set("tracing_on", "0");
        }
        self.drain();
        let mut events: Vec<Event> = self.recorded.drain(..).flatten().collect();
        // Stable: events of one CPU with one stamp (a switch out and in) keep their order.
        events.sort_by_key(|e| e.t_ns);
        (events, self.lost_pages, self.is_full)
    }
}
