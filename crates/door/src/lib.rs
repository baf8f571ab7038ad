//! The door: one process in front of every stage. It proxies HTTP/1.1 with a queue that tells the
//! truth, on one thread, and keeps its last tables when control is away.

mod accept;
mod account;
mod admin;
mod admit;
pub mod args;
pub mod auth;
pub mod body_model;
mod buffer;
pub mod clock;
mod door;
mod events;
mod facts;
mod forward;
pub mod history;
mod inherit;
pub mod io;
mod log;
pub mod metrics;
mod pace;
mod passing;
mod pool;
mod proxy;
pub mod queue;
mod relay;
mod reply;
mod routes;
mod run;
mod send;
mod service;
mod session;
pub mod sse;
pub mod tables;
pub mod tail;
mod tls;
pub mod wait;
mod websocket;

use std::process::ExitCode;

use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// Runs the program; returns its exit status: 0 after a drain, 2 for wrong arguments, 1 for what
/// the system refuses.
pub fn main() -> ExitCode {
    let args = match args::Args::parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("preroll-door: {error}");
            return ExitCode::from(2);
        }
    };
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("preroll-door: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a door on this thread until it is drained.
///
/// # Errors
/// One line: what could not be opened or read.
pub fn serve(args: args::Args) -> Result<(), String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    // A task of its own: what is waited for here is polled at every wake of any connection.
    let tasks = LocalSet::new();
    let running = tasks.spawn_local(run::run(args));
    tasks
        .block_on(&runtime, running)
        .unwrap_or_else(|error| Err(format!("the door's main task: {error}")))
}
