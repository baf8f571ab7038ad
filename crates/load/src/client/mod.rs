//! `preroll-load run`: a load client that stamps before it parses and says how late it was itself.

mod content;
mod control;
mod engine;
mod exchange;
mod flight;
mod histogram;
mod output;
mod playback;
mod prepared;
mod record;
mod response;
mod schedule;
mod socket;
mod spec;
mod sse;
mod totals;
mod transport;
mod websocket;
mod workload;

use std::io::Read;

/// Reads the spec (a file, or `-` for standard input) and runs it.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let [path] = arguments else {
        return Err(
            "usage: preroll-load run SPEC.json (- reads one line from standard input)".into(),
        );
    };
    let text = if path == "-" {
        let mut line = String::new();
        read_line(&mut line).map_err(|e| format!("standard input: {e}"))?;
        line
    } else {
        std::fs::read_to_string(path).map_err(|e| format!("spec '{path}': {e}"))?
    };
    let spec: spec::Spec =
        serde_json::from_str(&text).map_err(|e| format!("spec '{path}': {e}"))?;
    let spec = spec.check().map_err(|e| format!("spec '{path}': {e}"))?;
    engine::Engine::new(spec)?.run()
}

/// Byte by byte, so that the commands after the first line stay in the pipe.
fn read_line(line: &mut String) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let mut stdin = std::io::stdin().lock();
    let mut byte = [0_u8; 1];
    while stdin.read(&mut byte)? == 1 && byte[0] != b'\n' {
        bytes.push(byte[0]);
    }
    *line = String::from_utf8_lossy(&bytes).into_owned();
    Ok(())
}
