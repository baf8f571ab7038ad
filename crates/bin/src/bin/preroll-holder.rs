//! The `preroll-holder` program.

fn main() -> std::process::ExitCode {
    preroll_holder::main()
}
