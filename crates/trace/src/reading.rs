//! Which file a sampled thread is reading: from its byte counters and from whose position moved.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::event::{FileId, Tid};
use crate::files::file_id;

/// Fewer bytes than this between two samples are not what the thread spends its time on.
const WORTH_A_LOOK: u64 = 256 * 1024;

/// What a thread has read since the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// None: no open file's position moved (positioned reads, pipes).
    pub file: Option<FileId>,
    pub cold_bytes: u64,
}

/// The byte counters of one thread.
pub struct Reads {
    io: Option<File>,
    pid: Tid,
    read_bytes: u64,
    storage_bytes: u64,
    positions: HashMap<u32, u64>,
    current: Option<(u32, FileId)>,
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

/// Bytes read by calls, and bytes from storage, out of /proc/PID/task/TID/io.
fn parse_io(text: &str) -> Option<(u64, u64)> {
    Some((field(text, "rchar:")?, field(text, "read_bytes:")?))
}

impl Reads {
    /// Counters of `tid`; where they may not be read, nothing is ever being read.
    pub fn open(pid: Tid, tid: Tid) -> Self {
        Self {
            io: File::open(format!("/proc/{pid}/task/{tid}/io")).ok(),
            pid,
            read_bytes: 0,
            storage_bytes: 0,
            positions: HashMap::new(),
            current: None,
        }
    }

    /// What was read since the last call; `paths` learns the file's name.
    pub fn look(&mut self, paths: &mut HashMap<FileId, String>) -> Option<Reading> {
        let mut buffer = [0; 256];
        let n = self.io.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let (read, stored) = parse_io(std::str::from_utf8(&buffer[..n]).ok()?)?;
        let count = read.saturating_sub(std::mem::replace(&mut self.read_bytes, read));
        let cold_bytes = stored.saturating_sub(std::mem::replace(&mut self.storage_bytes, stored));
        (count >= WORTH_A_LOOK).then(|| Reading {
            file: self.file(paths),
            cold_bytes,
        })
    }

    fn moved(&mut self, fd: u32) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.pid));
        let position = text.ok().and_then(|t| field(&t, "pos:")).unwrap_or(0);
        let before = self.positions.insert(fd, position).unwrap_or(0);
        position.saturating_sub(before)
    }

    fn file(&mut self, paths: &mut HashMap<FileId, String>) -> Option<FileId> {
        if let Some((fd, id)) = self.current
            && self.moved(fd) > 0
        {
            return Some(id);
        }
        let entries = fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?;
        let fds: Vec<u32> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        let furthest = fds.into_iter().map(|fd| (self.moved(fd), fd)).max()?;
        self.current = None;
        if furthest.0 > 0 {
            let link = format!("/proc/{}/fd/{}", self.pid, furthest.1);
            let facts = fs::metadata(&link).ok().filter(|facts| facts.is_file())?;
            let id = file_id(facts.dev(), facts.ino());
            let path = fs::read_link(&link).ok()?;
            paths.insert(id, path.to_string_lossy().into_owned());
            self.current = Some((furthest.1, id));
        }
        self.current.map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_file_that_this_thread_reads_is_found_by_its_position() {
        let path = std::env::temp_dir().join(format!("preroll-reads-{}", std::process::id()));
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let me = std::process::id() as Tid;
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let (mut reads, mut paths) = (Reads::open(me, tid), HashMap::new());
        reads.look(&mut paths);
        let mut file = File::open(&path).unwrap();
        file.read_exact(&mut vec![0; 1 << 20]).unwrap();
        let found = reads.look(&mut paths).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(paths[&found.file.unwrap()], path.to_str().unwrap());
        assert_eq!(reads.look(&mut paths), None);
    }

    #[test]
    fn counters_are_found_by_name() {
        let text = "rchar: 12\nwchar: 3\nread_bytes: 4096\n";
        assert_eq!(parse_io(text), Some((12, 4096)));
        assert_eq!(parse_io("rchar: x"), None);
    }
}
