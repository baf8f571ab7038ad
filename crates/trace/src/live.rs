//! Which processes and threads live, from files of /proc that stay open: to open one costs several
//! times as much as to read it.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::event::Tid;

/// Children of one thread that one read tells; more are read on.
const LIST_BYTES: usize = 4096;

/// The processes that were seen last.
#[derive(Debug, Default)]
pub struct Live {
    processes: HashMap<Tid, Process>,
}

#[derive(Debug)]
struct Process {
    /// Its folder of threads, and how many links that had when it was listed: two more than
    /// threads, so that it is listed again only when there are more or fewer.
    folder: File,
    num_links: u64,
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    tid: Tid,
    /// The list of processes that it created.
    children: Option<File>,
}

impl Process {
    fn open(pid: Tid) -> Option<Self> {
        let path = format!("/proc/{pid}/task");
        let folder = File::open(&path).ok()?;
        let num_links = folder.metadata().ok()?.nlink();
        let tids = fs::read_dir(&path).ok()?.flatten();
        let tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let thread = |tid: Tid| Thread {
            tid,
            children: File::open(format!("{path}/{tid}/children")).ok(),
        };
        Some(Self {
            threads: tids.map(thread).collect(),
            folder,
            num_links,
        })
    }

    fn is_current(&self) -> bool {
        let facts = self.folder.metadata();
        facts.is_ok_and(|facts| facts.nlink() == self.num_links)
    }

    fn children(&self) -> Vec<Tid> {
        let lists = self.threads.iter().filter_map(|t| t.children.as_ref());
        let text: Vec<u8> = lists.flat_map(whole).collect();
        let words = text.split(u8::is_ascii_whitespace);
        let number = |word| std::str::from_utf8(word).ok()?.parse().ok();
        words.filter_map(number).collect()
    }
}

/// A list of numbers. One that leaves half of the room free was all there is.
fn whole(list: &File) -> Vec<u8> {
    let mut room = [0; LIST_BYTES];
    let mut text = Vec::new();
    while let Ok(n) = list.read_at(&mut room, text.len() as u64)
        && n > 0
    {
        text.extend_from_slice(&room[..n]);
        if n < LIST_BYTES / 2 {
            break;
        }
    }
    text
}

impl Live {
    /// Every live process below `root`, itself included, and of those that fell to `owner` (0:
    /// there is none).
    pub fn pids(&mut self, root: Tid, owner: Tid) -> Vec<Tid> {
        let mut found = vec![root];
        if owner != 0 {
            found.extend(self.children(owner));
        }
        let mut seen = HashSet::new();
        found.retain(|pid| seen.insert(*pid));
        let mut next = 0;
        while next < found.len() {
            let children = self.children(found[next]);
            found.extend(children.into_iter().filter(|pid| seen.insert(*pid)));
            next += 1;
        }
        let processes = &mut self.processes;
        processes.retain(|pid, _| *pid == owner || seen.contains(pid));
        found
    }

    /// The threads of a process, as of the last look at its tree.
    pub fn threads(&self, pid: Tid) -> impl Iterator<Item = Tid> {
        let threads = self.processes.get(&pid).map(|process| &process.threads);
        threads.into_iter().flatten().map(|thread| thread.tid)
    }

    /// Lists the threads of a process anew next time: where one ends and another begins between
    /// two looks, there are as many as before.
    pub fn forget(&mut self, pid: Tid) {
        self.processes.remove(&pid);
    }

    fn children(&mut self, pid: Tid) -> Vec<Tid> {
        if !self.processes.get(&pid).is_some_and(Process::is_current) {
            self.processes.remove(&pid);
            let process = Process::open(pid).map(|process| (pid, process));
            self.processes.extend(process);
        }
        let process = self.processes.get(&pid);
        process.map(Process::children).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn what_begins_and_ends_is_seen_at_the_next_look() {
        let me = std::process::id() as Tid;
        let mut live = Live::default();
        assert!(live.pids(me, 0).contains(&me));
        let mut children: Vec<Child> = (0..900).map(|_| sleeper()).collect();
        let seen = live.pids(me, 0);
        assert!(
            children
                .iter()
                .all(|child| seen.contains(&(child.id() as Tid)))
        );
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let left = live.pids(me, 0);
        assert!(
            !children
                .iter()
                .any(|child| left.contains(&(child.id() as Tid)))
        );
    }

    #[test]
    fn a_process_that_is_gone_has_no_threads() {
        let mut child = sleeper();
        let pid = child.id() as Tid;
        let mut live = Live::default();
        live.pids(pid, 0);
        assert_eq!(live.threads(pid).collect::<Vec<_>>(), [pid]);
        child.kill().unwrap();
        child.wait().unwrap();
        live.pids(pid, 0);
        assert_eq!(live.threads(pid).count(), 0);
    }
}
