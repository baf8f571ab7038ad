//! Preroll: door.

pub mod clock;
pub mod io;
pub mod tables;
pub mod wait;

/// Runs the program; returns its exit status.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
