//! The log on disk: buffered, rotated by size; a full or read-only disk costs lines, nothing else.
//!
//! A line is `T_NS STREAM TEXT`; a piece that a later one continues has `+` after its stream.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::clock::MS;
use crate::ring::Stream;
use crate::spec;
use crate::split::Piece;

/// The buffer is written out at this size at the latest.
const BUFFER: usize = 64 * 1024;
/// After a failed write the disk is left alone for this long.
const RETRY_NS: u64 = 500 * MS;

#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    limit: spec::Log,
    file: Option<File>,
    size: u64,
    buffer: Vec<u8>,
    buffered_lines: u64,
    /// The last write stopped inside a line.
    is_torn: bool,
    retry_ns: u64,
    pub dropped_lines: u64,
    pub error: Option<String>,
}

impl Log {
    pub fn new(path: PathBuf, limit: spec::Log) -> Self {
        let mut log = Self {
            path,
            limit,
            file: None,
            size: 0,
            buffer: Vec::with_capacity(BUFFER / 4),
            buffered_lines: 0,
            is_torn: false,
            retry_ns: 0,
            dropped_lines: 0,
            error: None,
        };
        if let Err(error) = log.open() {
            log.fail(&error, 0);
        }
        log
    }

    pub fn push(&mut self, stream: Stream, piece: Piece<'_>) {
        let mark = if piece.partial { "+" } else { "" };
        let name = stream.name();
        // Writing to a Vec cannot fail.
        let _ = write!(self.buffer, "{} {name}{mark} ", piece.t_ns);
        self.buffer.extend_from_slice(piece.text);
        self.buffer.push(b'\n');
        self.buffered_lines += 1;
        if self.buffer.len() >= BUFFER {
            self.flush(piece.t_ns);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Writes the buffer out, or counts its lines as dropped.
    pub fn flush(&mut self, now_ns: u64) {
        if self.buffer.is_empty() {
            return;
        }
        if now_ns < self.retry_ns {
            self.dropped_lines += self.buffered_lines;
        } else if let Err(error) = self.write_out() {
            self.fail(&error, now_ns);
            self.dropped_lines += self.buffered_lines;
        } else {
            self.error = None;
        }
        self.buffer.clear();
        self.buffered_lines = 0;
    }

    fn write_out(&mut self) -> std::io::Result<()> {
        if self.file.is_none() {
            self.open()?;
        }
        if self.size + self.buffer.len() as u64 > self.limit.max_bytes && self.size > 0 {
            self.rotate()?;
        }
        let Some(file) = self.file.as_mut() else {
            return Ok(());
        };
        if self.is_torn {
            file.write_all(b"\n")?;
            self.is_torn = false;
        }
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            let written = file.write(rest)?;
            self.is_torn = written < rest.len();
            self.size += written as u64;
            rest = &rest[written..];
        }
        Ok(())
    }

    fn open(&mut self) -> std::io::Result<()> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// log → log.1 → … → log.(files - 1); the oldest is overwritten.
    fn rotate(&mut self) -> std::io::Result<()> {
        let numbered = |n: u32| match n {
            0 => self.path.clone(),
            n => self.path.with_extension(n.to_string()),
        };
        for n in (1..self.limit.files).rev() {
            match std::fs::rename(numbered(n - 1), numbered(n)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.limit.files == 1 {
            std::fs::remove_file(&self.path)?;
        }
        self.is_torn = false;
        self.open()
    }

    fn fail(&mut self, error: &std::io::Error, now_ns: u64) {
        self.error = Some(format!("cannot write {}: {error}", self.path.display()));
        self.retry_ns = now_ns + RETRY_NS;
        // Reopened at the retry: the file may be gone, or its file system mounted anew.
        self.file = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(dir: &std::path::Path, max_bytes: u64, files: u32) -> Log {
        Log::new(dir.join("log"), spec::Log { max_bytes, files })
    }

    fn push(log: &mut Log, t_ns: u64, text: &str) {
        log.push(
            Stream::Err,
            Piece {
                t_ns,
                text: text.as_bytes(),
                partial: false,
            },
        );
    }

    #[test]
    fn lines_carry_stamp_stream_and_text() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path(), 4096, 2);
        push(&mut log, 7, "hello");
        log.push(
            Stream::Out,
            Piece {
                t_ns: 8,
                text: b"more",
                partial: true,
            },
        );
        log.flush(9);
        let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert_eq!(text, "7 err hello\n8 out+ more\n");
    }

    #[test]
    fn rotation_keeps_a_bounded_number_of_bounded_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path(), 4096, 3);
        for t in 0..400 {
            push(&mut log, t, &"x".repeat(100));
            log.flush(t);
        }
        let mut names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (
                    entry.file_name().into_string().unwrap(),
                    entry.metadata().unwrap(),
                )
            })
            .collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(
            names.iter().map(|n| n.0.as_str()).collect::<Vec<_>>(),
            ["log", "log.1", "log.2"]
        );
        assert!(names.iter().all(|(_, meta)| meta.len() <= 4096));
        let newest = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(newest.lines().last().unwrap().starts_with("399 "));
    }

    #[test]
    fn an_unwritable_place_is_named_counted_and_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("later");
        let mut log = Log::new(
            place.join("log"),
            spec::Log {
                max_bytes: 4096,
                files: 2,
            },
        );
        assert!(log.error.as_ref().unwrap().contains("later/log"));
        push(&mut log, RETRY_NS, "lost");
        log.flush(RETRY_NS);
        assert_eq!(log.dropped_lines, 1);
        std::fs::create_dir(&place).unwrap();
        push(&mut log, RETRY_NS + 1, "still lost");
        log.flush(RETRY_NS + 1);
        push(&mut log, 3 * RETRY_NS, "kept");
        log.flush(3 * RETRY_NS);
        assert_eq!((log.dropped_lines, log.error.clone()), (2, None));
        assert!(
            std::fs::read_to_string(place.join("log"))
                .unwrap()
                .ends_with("err kept\n")
        );
    }
}
