//! Records go out as one JSON object a line, in the order in which requests ended.

use std::fs::File;
use std::io::{BufWriter, Write};

use serde::Serialize;

pub struct Output {
    records: BufWriter<Box<dyn Write>>,
    /// Progress goes to standard output only when the records do not.
    progress: bool,
}

impl Output {
    pub fn open(path: Option<&str>) -> Result<Self, String> {
        let sink: Box<dyn Write> = match path {
            Some(path) => {
                Box::new(File::create(path).map_err(|e| format!("records '{path}': {e}"))?)
            }
            None => Box::new(std::io::stdout()),
        };
        Ok(Self {
            records: BufWriter::with_capacity(64 << 10, sink),
            progress: path.is_some(),
        })
    }

    pub fn record(&mut self, value: &impl Serialize) -> Result<(), String> {
        serde_json::to_writer(&mut self.records, value)
            .map_err(|e| e.to_string())
            .and_then(|()| self.records.write_all(b"\n").map_err(|e| e.to_string()))
    }

    pub fn flush(&mut self) -> Result<(), String> {
        self.records.flush().map_err(|e| e.to_string())
    }

    pub fn progress(&mut self, value: &impl Serialize) -> Result<(), String> {
        if !self.progress {
            return Ok(());
        }
        let line = serde_json::to_string(value).map_err(|e| e.to_string())?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "{line}")
            .and_then(|()| stdout.flush())
            .map_err(|e| e.to_string())
    }
}
