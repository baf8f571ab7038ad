//! The access log: one JSON object a line, errors always, the rest by sample.
//!
//! A thread writes; the loop only hands lines over. When the disk is slower than the door, lines
//! are dropped and the number dropped is in the next line that gets through.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use serde::Serialize;

use crate::clock::wall_ns;
use crate::pace::PaceReport;

/// Lines that may wait for the disk: about a megabyte.
const WAITING: usize = 4096;

/// One request.
#[derive(Serialize)]
pub struct Line<'a> {
    pub request_id: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub stage: &'a str,
    pub replica: Option<&'a str>,
    pub status: u16,
    pub outcome: &'static str,
    pub attempts: u32,
    pub queue_ms: f64,
    pub first_byte_ms: Option<f64>,
    pub ttft_ms: Option<f64>,
    pub total_ms: f64,
    pub bytes_out: u64,
    pub gap_max_ms: Option<f64>,
    pub stalls: Option<u64>,
    pub prompt_tokens: Option<u64>,
    pub cached_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    /// The conversation that it says it belongs to.
    pub session: Option<&'a str>,
    /// Of streams with a frame interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceReport>,
}

/// A line with its wall-clock time and what was lost before it.
#[derive(Serialize)]
struct Stamped<'a> {
    time_s: f64,
    #[serde(flatten)]
    line: &'a Line<'a>,
    #[serde(skip_serializing_if = "is_zero")]
    dropped_before: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The log of one door.
pub struct AccessLog {
    sample: f64,
    lines: Option<SyncSender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    dropped: Cell<u64>,
    dropped_total: Cell<u64>,
}

impl AccessLog {
    /// Appends to `path`; `sample` is the share of requests without an error that is kept.
    ///
    /// # Errors
    /// The file and what the kernel said.
    pub fn open(path: &Path, sample: f64) -> Result<AccessLog, String> {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let file = opened.map_err(|error| format!("--access-log {}: {error}", path.display()))?;
        let (lines, taken) = sync_channel(WAITING);
        let writer = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_all(&taken, file))
            .map_err(|error| format!("--access-log: no thread: {error}"))?;
        Ok(AccessLog {
            sample,
            lines: Some(lines),
            writer: Some(writer),
            dropped: Cell::new(0),
            dropped_total: Cell::new(0),
        })
    }

    /// Whether a request is to be logged; asked once for each.
    pub fn takes(&self, is_error: bool) -> bool {
        is_error || (self.sample > 0.0 && fastrand::f64() < self.sample)
    }

    pub fn write(&self, line: &Line<'_>) {
        let time_s = wall_ns() as f64 / 1e9;
        let stamped = Stamped {
            time_s,
            line,
            dropped_before: self.dropped.get(),
        };
        let Ok(mut text) = serde_json::to_vec(&stamped) else {
            return;
        };
        text.push(b'\n');
        match self.lines.as_ref().map(|lines| lines.try_send(text)) {
            Some(Ok(())) => self.dropped.set(0),
            _ => {
                self.dropped.set(self.dropped.get() + 1);
                self.dropped_total.set(self.dropped_total.get() + 1);
            }
        }
    }

    /// Lines lost so far.
    pub fn dropped_total(&self) -> u64 {
        self.dropped_total.get()
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            // The last lines of a drained door are worth a moment.
            let _ = writer.join();
        }
    }
}

/// Writes what comes, in as few calls as there are pauses.
fn write_all(lines: &Receiver<Vec<u8>>, file: File) {
    let mut file = BufWriter::with_capacity(64 << 10, file);
    while let Ok(line) = lines.recv() {
        // A full disk loses lines; it must not end the log, or it would stay lost when there is
        // room again.
        let _ = file.write_all(&line);
        while let Ok(line) = lines.try_recv() {
            let _ = file.write_all(&line);
        }
        let _ = file.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str) -> Line<'_> {
        Line {
            request_id: id,
            method: "GET",
            path: "/a\"\n",
            stage: "s",
            replica: None,
            status: 200,
            outcome: "complete",
            attempts: 1,
            queue_ms: 0.0,
            first_byte_ms: None,
            ttft_ms: None,
            total_ms: 1.0,
            bytes_out: 3,
            gap_max_ms: None,
            stalls: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: None,
            session: None,
            pace: None,
        }
    }

    #[test]
    fn every_line_is_json_and_the_last_are_written_at_the_end() {
        let path = std::env::temp_dir().join(format!("preroll-log-{}", std::process::id()));
        let log = AccessLog::open(&path, 0.0).unwrap();
        for n in 0..100 {
            log.write(&line(&n.to_string()));
        }
        assert_eq!(log.dropped_total(), 0);
        drop(log);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let ids: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|value| value["request_id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(ids, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn errors_are_always_taken_and_a_sample_of_nothing_takes_nothing_else() {
        let path = std::env::temp_dir().join(format!("preroll-log-s-{}", std::process::id()));
        let log = AccessLog::open(&path, 0.0).unwrap();
        assert!(log.takes(true) && !log.takes(false));
        drop(log);
        std::fs::remove_file(&path).unwrap();
    }
}
