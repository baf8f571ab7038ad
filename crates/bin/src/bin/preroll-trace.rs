//! The `preroll-trace` program.

fn main() -> std::process::ExitCode {
    preroll_trace::main()
}
