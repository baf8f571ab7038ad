//! The `preroll-door` program.

fn main() -> std::process::ExitCode {
    preroll_door::main()
}
