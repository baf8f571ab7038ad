//! The `preroll-door` program.

/// hyper takes and gives back a buffer of 8 KiB on either side of every request: more than the C library keeps at
/// hand, so that a sixth of a request's time went into its allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    preroll_door::main()
}
