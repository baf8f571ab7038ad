//! Where the time of a process tree goes, seen from outside.
//!
//! Two recorders feed one model. As root, kernel tracepoints give every switch, wake-up and system
//! call (`tracefs`, `ring`, `decode`); without root, /proc is sampled (`sampler`). `timeline` turns
//! events into states per thread; `critical` walks back from the end over wake-ups, so that every
//! nanosecond from spawn to ready goes to exactly one cause. Beside both, `stacks` looks now and then which
//! Python function a running thread is in (`python`).

mod args;
mod buffers;
mod cause;
mod critical;
mod decode;
mod elf;
mod event;
mod files;
mod live;
mod python;
mod python_layout;
mod reading;
mod recorder;
mod ring;
mod running;
mod sampler;
mod stacks;
mod steal;
mod timeline;
mod tracefs;

/// Runs the program; returns its exit status.
pub fn main() -> std::process::ExitCode {
    match args::parse(std::env::args().skip(1)).and_then(recorder::run) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("preroll-trace: {message}");
            std::process::ExitCode::from(2)
        }
    }
}
