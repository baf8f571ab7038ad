//! `preroll-load`: a load client that measures its own error, and a mock backend with known truth.

mod chunked;
mod client;
mod clock;
mod mock;
mod net;
mod poll;
mod slab;
mod timers;

use std::process::ExitCode;

const USAGE: &str = "usage: preroll-load run SPEC.json | preroll-load mock [--listen tcp:HOST:PORT|unix:PATH] [--ttft-ms N] …";

/// Runs the program; 2 is a wrong command line, 1 a failure later on.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    raise_descriptor_limit();
    let result = match arguments.first().map(String::as_str) {
        Some("run") => client::main(&arguments[1..]),
        Some("mock") => mock::main(&arguments[1..]),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// The soft limit of 1024 would cap the connections without saying so.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}
