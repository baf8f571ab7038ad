//! The command line: `preroll-trace --follow PID [--mode auto|tracefs|proc] [--interval-ms N]`.

/// Which recorder to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Tracepoints where they can be had, else /proc.
    Auto,
    Tracefs,
    Proc,
}

/// Parsed arguments.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// The process whose future descendants are recorded.
    pub follow: u32,
    pub mode: Mode,
    pub interval_ms: u64,
}

fn number<T: std::str::FromStr>(flag: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{flag} {value}: a whole number is expected"))
}

/// Parses the arguments after the program's name.
pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args {
        follow: 0,
        mode: Mode::Auto,
        interval_ms: 10,
    };
    while let Some(flag) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{flag}: a value is expected"))?;
        match flag.as_str() {
            "--follow" => args.follow = number(&flag, &value)?,
            "--interval-ms" => args.interval_ms = number::<u64>(&flag, &value)?.clamp(1, 1000),
            "--mode" => {
                args.mode = match value.as_str() {
                    "auto" => Mode::Auto,
                    "tracefs" => Mode::Tracefs,
                    "proc" => Mode::Proc,
                    _ => return Err(format!("--mode {value}: auto, tracefs or proc")),
                }
            }
            _ => {
                return Err(format!(
                    "unknown flag {flag}; --follow, --mode, --interval-ms"
                ));
            }
        }
    }
    if args.follow == 0 {
        return Err("--follow PID is required".to_owned());
    }
    Ok(args)
}
