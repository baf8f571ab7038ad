//! The `preroll-load` program.

fn main() -> std::process::ExitCode {
    preroll_load::main()
}
