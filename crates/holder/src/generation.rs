//! One start of the program: what was started, when, and how it ended.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal};

use crate::clock::{now_ns, start_ticks};
use crate::launch::Launch;
use crate::limits::Limiter;
use crate::listen::Sockets;
use crate::ring::Stream;
use crate::spec::{Spec, Stdio};
use crate::status::Exit;
use crate::tree;

/// The marks by which what is left of a killed holder's tree is found: which holder, and where,
/// for two applications may use the same id.
const MARK: &str = "PREROLL_HOLDER";
const MARK_DIR: &str = "PREROLL_HOLDER_DIR";
/// Tells what a retired generation left from what the current one started.
const MARK_GENERATION: &str = "PREROLL_GENERATION";
/// More room than the default for a child that prints while the holder writes its log.
const PIPE_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone)]
pub struct Program {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
}

#[derive(Debug)]
pub struct Generation {
    pub number: u32,
    pub program: Program,
    pub pid: Pid,
    pub start_ticks: u64,
    pub spawned_ns: u64,
    pub exited_ns: Option<u64>,
    pub exit: Option<Exit>,
    pub is_rest_signalled: bool,
}

impl Generation {
    pub fn raw_pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }
}

/// Ends what a generation left behind: processes that reparented to the holder with its mark.
pub fn end_left_behind(holder: i32, number: u32) {
    let mark = format!("{MARK_GENERATION}={number}");
    for stat in tree::descendants(holder) {
        let environment = std::fs::read(format!("/proc/{}/environ", stat.pid)).unwrap_or_default();
        if environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == mark.as_bytes())
        {
            tree::signal_one(stat, Signal::KILL);
        }
    }
}

/// What every generation of one holder is started with.
pub struct Setting<'a> {
    pub spec: &'a Spec,
    pub sockets: &'a Sockets,
    pub limiter: &'a Limiter,
    pub number: u32,
}

/// The holder's ends of the child's output.
pub type Streams = Vec<(OwnedFd, Stream)>;

impl Setting<'_> {
    /// Starts the program; `spawned_ns` is taken just before the fork.
    pub fn spawn(&self, program: Program) -> Result<(Generation, Streams), String> {
        let (streams, stdout, stderr) = self.open_streams().map_err(|e| format!("stdio: {e}"))?;
        let mut env = program.env.clone();
        env.insert(MARK.to_owned(), self.spec.id.clone());
        env.insert(MARK_DIR.to_owned(), self.spec.dir.display().to_string());
        env.insert(MARK_GENERATION.to_owned(), self.number.to_string());
        env.extend(self.sockets.environment());
        let launch = Launch {
            argv: &program.argv,
            env: &env,
            cwd: &self.spec.cwd,
            stdout,
            stderr,
            is_terminal: self.spec.stdio == Stdio::Pty,
            listen: &self.sockets.fds,
            groups: self.limiter.groups.entrances(),
        };
        let spawned_ns = now_ns();
        let pid = self.limiter.on_cpus(|| launch.spawn())?;
        let generation = Generation {
            number: self.number,
            program,
            pid,
            start_ticks: start_ticks(pid.as_raw_nonzero().get()).unwrap_or(0),
            spawned_ns,
            exited_ns: None,
            exit: None,
            is_rest_signalled: false,
        };
        Ok((generation, streams))
    }

    fn open_streams(&self) -> rustix::io::Result<(Streams, OwnedFd, OwnedFd)> {
        if self.spec.stdio == Stdio::Pty {
            let (master, slave) = crate::pty::open()?;
            let copy = rustix::io::fcntl_dupfd_cloexec(&slave, 0)?;
            return Ok((vec![(master, Stream::Pty)], slave, copy));
        }
        let (out, stdout) = pipe()?;
        let (err, stderr) = pipe()?;
        Ok((vec![(out, Stream::Out), (err, Stream::Err)], stdout, stderr))
    }
}

fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // Refused to a user who has many pipes already: the default serves too.
    let _ = rustix::pipe::fcntl_setpipe_size(&read, PIPE_BYTES);
    Ok((read, write))
}
