//! The holder: starts one long-lived process, owns its whole tree, stamps every line it prints,
//! and answers on a Unix socket. docs/protocol.md is its contract; one thread, no runtime.

mod cgroup;
mod clock;
mod conn;
mod forked;
mod generation;
mod holder;
mod launch;
mod limits;
mod listen;
mod log;
mod output;
mod pace;
mod poll;
mod pty;
mod request;
mod ring;
mod server;
mod spec;
mod split;
mod status;
mod tree;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{FlockOperation, Mode, OFlags};

/// How long the lock of another holder, that may be about to end, is waited for.
const LOCK_WAIT_NS: u64 = 1000 * clock::MS;

const USAGE: &str = "usage: preroll-holder SPEC.json [--forked PID:OUT:ERR:GO:SPAWNED_NS]   \
                     (preroll starts it; docs/protocol.md)";

/// Runs the program; returns its exit status: 2 when the specification cannot be carried out.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [flag] if flag == "--version" => {
            println!(
                "preroll-holder {} (spec {})",
                env!("CARGO_PKG_VERSION"),
                spec::VERSION
            );
            ExitCode::SUCCESS
        }
        [path] if !path.starts_with('-') => exit_code(run(Path::new(path), None)),
        [path, flag, child] if flag == "--forked" => {
            let forked = forked::Forked::take(child);
            exit_code(forked.and_then(|forked| run(Path::new(path), Some(forked))))
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn exit_code(result: Result<(), String>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    // In one write: whoever reads it gets all of it or nothing.
    let line = format!("preroll-holder: {error}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    ExitCode::from(2)
}

fn run(path: &Path, forked: Option<forked::Forked>) -> Result<(), String> {
    let spec = spec::Spec::load(path)?;
    let _lock = lock(&spec)?;
    let signals = server::Signals::install().map_err(|error| format!("signals: {error}"))?;
    let own = rustix::process::getpid();
    if spec.orphans != spec::Orphans::Free {
        rustix::process::set_child_subreaper(Some(own)).map_err(|e| format!("subreaper: {e}"))?;
    }
    let limiter = limits::Limiter::new(&spec)?;
    let sockets = listen::Sockets::bind(&spec.listen)?;
    let control = listen::bind_unix(&spec.socket).map_err(|error| format!("socket: {error}"))?;
    let holder = holder::Holder::new(spec, sockets, limiter, forked);
    let server =
        server::Server::new(control, signals, holder).map_err(|error| format!("start: {error}"))?;
    detach().map_err(|error| format!("detach: {error}"))?;
    server.run().map_err(|error| format!("poll: {error}"))
}

/// One holder per directory: the lock is held on the directory itself, which may be read-only.
/// Whoever only looks whether a holder lives has it for an instant, too: that is waited for.
fn lock(spec: &spec::Spec) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(&spec.dir, flags, Mode::empty())
        .map_err(|error| format!("dir {}: {error}", spec.dir.display()))?;
    let deadline_ns = clock::now_ns() + LOCK_WAIT_NS;
    while let Err(error) = rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK || clock::now_ns() > deadline_ns {
            return Err(format!(
                "id {}: another holder runs in {}",
                spec.id,
                spec.dir.display()
            ));
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Ok(dir)
}

/// Lets go of the starter's stderr: its end tells the starter that the child has been started.
fn detach() -> rustix::io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)
}
