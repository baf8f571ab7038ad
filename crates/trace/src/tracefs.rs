//! A private instance of the kernel's tracer: set up, drained while the command runs, removed.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::decode::{Decoder, TRACEPOINTS};
use crate::event::{Event, FileId, Kind, Tid};
use crate::ring::read_page;
use crate::running::Running;

const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// For all CPUs together, and the least and most for one: at 20 ms between drains 16 MiB hold
/// bursts of several hundred thousand events a second.
const BUFFERS_KB: usize = 512 * 1024;
const LEAST_KB: usize = 4 * 1024;
const MOST_KB: usize = 32 * 1024;
const PAGE: usize = 4096;
/// Above this many events (40 bytes each) recording stops and says so.
const MAX_EVENTS: usize = 12_000_000;
/// A file of which less was read since the last drain is not worth a look for its name.
const WORTH_A_LOOK: u64 = 1 << 20;
const MAX_LOOKS: u8 = 3;
const LOOKS_A_TICK: usize = 2;
/// The kernel's own number for the first PID namespace (PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// An instance below `instances/`, removed when dropped.
#[derive(Debug)]
pub struct Instance {
    root: PathBuf,
    decoder: Decoder,
    pipes: Vec<File>,
    per_cpu: Vec<Vec<Event>>,
    /// How many events of each CPU have been asked for files without a name.
    asked: Vec<usize>,
    /// How many events of each CPU have been taken for who runs.
    followed: Vec<usize>,
    running: Running,
    /// Looks that named nothing: such a file is not asked for again.
    given_up: HashMap<FileId, u8>,
    /// Pages before which the kernel dropped events, or that could not be read.
    pub lost_pages: usize,
    /// The event limit was reached.
    pub is_full: bool,
}

fn mounted() -> Result<PathBuf, String> {
    let found = || {
        MOUNT_POINTS
            .iter()
            .map(PathBuf::from)
            .find(|p| p.join("instances").is_dir())
    };
    if let Some(path) = found() {
        return Ok(path);
    }
    let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
    rustix::mount::mount("nodev", MOUNT_POINTS[0], "tracefs", flags, None)
        .map_err(|e| format!("tracefs is not mounted and cannot be ({e})"))?;
    found().ok_or_else(|| "tracefs has no instances".to_owned())
}

fn write(path: &Path, value: &str) -> Result<(), String> {
    std::fs::write(path, value).map_err(|e| format!("{}: {e}", path.display()))
}

impl Instance {
    /// Begins to record the threads that `pid` creates from now on, and theirs.
    pub fn start(pid: u32) -> Result<Self, String> {
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        if namespace.as_os_str() != FIRST_PID_NAMESPACE {
            return Err("in a PID namespace the kernel's tracer uses other numbers".to_owned());
        }
        let root = mounted()?.join(format!("instances/preroll-{}", std::process::id()));
        std::fs::create_dir(&root).map_err(|e| format!("{}: {e}", root.display()))?;
        match Self::configure(&root, pid) {
            Ok(instance) => Ok(instance),
            Err(message) => {
                let _ = std::fs::remove_dir(&root);
                Err(message)
            }
        }
    }

    fn configure(root: &Path, pid: u32) -> Result<Self, String> {
        write(&root.join("tracing_on"), "0")?;
        write(&root.join("trace_clock"), "mono")?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let each_kb = (BUFFERS_KB / cpus).clamp(LEAST_KB, MOST_KB);
        write(&root.join("buffer_size_kb"), &each_kb.to_string())?;
        write(&root.join("options/event-fork"), "1")?;
        write(&root.join("set_event_pid"), &pid.to_string())?;
        let decoder = Decoder::open(&root.join("events"))?;
        for name in TRACEPOINTS {
            write(&root.join("events").join(name).join("enable"), "1")?;
        }
        let pipes = open_pipes(root)?;
        let per_cpu: Vec<Vec<Event>> = pipes.iter().map(|_| Vec::new()).collect();
        let (asked, followed) = (vec![0; pipes.len()], vec![0; pipes.len()]);
        let instance = Self {
            root: root.to_owned(),
            decoder,
            pipes,
            per_cpu,
            asked,
            followed,
            running: Running::default(),
            given_up: HashMap::new(),
            lost_pages: 0,
            is_full: false,
        };
        write(&root.join("tracing_on"), "1")?;
        Ok(instance)
    }

    /// Takes what the kernel has buffered; never blocks.
    pub fn drain(&mut self) {
        let mut page = [0; PAGE];
        for cpu in 0..self.pipes.len() {
            loop {
                match self.pipes[cpu].read(&mut page) {
                    Ok(0) => break,
                    Ok(length) => self.take(cpu, &page[..length]),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// Threads that since the last call have brought bytes of files into memory whose names are
    /// not in `known`: they may have them open still. A few at most: looking costs milliseconds.
    pub fn readers_of_unnamed(&mut self, known: &HashMap<FileId, String>) -> Vec<Tid> {
        let mut bytes_of: HashMap<(FileId, Tid), u64> = HashMap::new();
        for (events, asked) in self.per_cpu.iter().zip(&mut self.asked) {
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
        for (cpu, (events, followed)) in self.per_cpu.iter().zip(&mut self.followed).enumerate() {
            self.running.take(cpu, &events[*followed..]);
            *followed = events.len();
        }
        self.running.threads()
    }

    fn take(&mut self, cpu: usize, page: &[u8]) {
        let total: usize = self.per_cpu.iter().map(Vec::len).sum();
        if total > MAX_EVENTS {
            self.is_full = true;
            return;
        }
        let (decoder, out) = (&self.decoder, &mut self.per_cpu[cpu]);
        let facts = read_page(page, |t, data| decoder.decode(t, cpu as u16, data, out));
        self.lost_pages += usize::from(facts.missed || facts.damaged);
    }

    /// Stops recording and returns all events in time order.
    pub fn finish(mut self) -> (Vec<Event>, usize, bool) {
        let _ = write(&self.root.join("tracing_on"), "0");
        self.drain();
        let mut events: Vec<Event> = self.per_cpu.drain(..).flatten().collect();
        // Stable: events of one CPU with one stamp (a switch out and in) keep their order.
        events.sort_by_key(|e| e.t_ns);
        (events, self.lost_pages, self.is_full)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.pipes.clear();
        let _ = write(&self.root.join("events/enable"), "0");
        let _ = std::fs::remove_dir(&self.root);
    }
}

fn open_pipes(root: &Path) -> Result<Vec<File>, String> {
    let mut pipes = Vec::new();
    loop {
        let path = root.join(format!("per_cpu/cpu{}/trace_pipe_raw", pipes.len()));
        if !path.exists() {
            break;
        }
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(&path)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        pipes.push(file);
    }
    if pipes.is_empty() {
        Err("tracefs has no per-CPU buffers".to_owned())
    } else {
        Ok(pipes)
    }
}
