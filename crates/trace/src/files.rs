//! What /proc says of the tree while it lives: processes, thread names, and which file an inode is.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::event::{FileId, Tid};
use crate::live::Live;

/// One process of the tree.
#[derive(Clone, Debug, Default)]
pub struct Process {
    pub command: String,
}

/// What was learned about the tree.
#[derive(Debug, Default)]
pub struct Tree {
    /// The process to which orphans of the tree fall; 0: there is none.
    pub owner: Tid,
    /// Thread to process.
    pub process_of: HashMap<Tid, Tid>,
    pub names: HashMap<Tid, String>,
    pub processes: HashMap<Tid, Process>,
    pub paths: HashMap<FileId, String>,
}

fn text(path: String) -> String {
    fs::read(path)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default()
}

/// Device number in the encoding of tracepoints.
pub fn file_id(device: u64, inode: u64) -> FileId {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    FileId {
        device: major << 20 | minor,
        inode,
    }
}

impl Tree {
    /// Learns the owner's name: before a tree's first thread, it is what the tree waits for.
    pub fn look_at_owner(&mut self) {
        let pid = self.owner;
        if pid != 0 {
            self.process_of.insert(pid, pid);
            let command = text(format!("/proc/{pid}/cmdline")).replace('\0', " ");
            self.processes.entry(pid).or_default().command = command.trim_end().to_owned();
        }
    }

    /// Learns thread names and command lines; cheap, called often.
    pub fn look(&mut self, root: Tid) {
        let mut live = Live::default();
        for pid in live.pids(root, self.owner) {
            for tid in live.threads(pid) {
                self.process_of.insert(tid, pid);
                let name = text(format!("/proc/{pid}/task/{tid}/comm"));
                self.names.insert(tid, name.trim_end().to_owned());
            }
            let command = text(format!("/proc/{pid}/cmdline")).replace('\0', " ");
            let entry = self.processes.entry(pid).or_default();
            if !command.trim().is_empty() {
                command.trim_end().clone_into(&mut entry.command);
            }
        }
    }

    /// Learns which files the tree has mapped or open; dearer, called rarely.
    pub fn look_at_files(&mut self, root: Tid) {
        for pid in Live::default().pids(root, self.owner) {
            self.look_at_files_of(pid);
        }
    }

    /// Learns which files one thread's process has mapped or open right now.
    pub fn look_at_files_of(&mut self, tid: Tid) {
        for line in text(format!("/proc/{tid}/maps")).lines() {
            self.learn_mapping(line);
        }
        let Ok(open) = fs::read_dir(format!("/proc/{tid}/fd")) else {
            return;
        };
        for entry in open.flatten() {
            if let (Ok(path), Ok(facts)) = (fs::read_link(entry.path()), fs::metadata(entry.path()))
                && facts.is_file()
            {
                let id = file_id(facts.dev(), facts.ino());
                self.paths.insert(id, path.to_string_lossy().into_owned());
            }
        }
    }

    /// A line of /proc/PID/maps: range, permissions, offset, major:minor, inode, path.
    fn learn_mapping(&mut self, line: &str) {
        let mut parts = line.splitn(6, ' ');
        let Some((device, inode)) = parts.nth(3).zip(parts.next()) else {
            return;
        };
        let path = parts.next().unwrap_or_default().trim();
        let Some((major, minor)) = device.split_once(':') else {
            return;
        };
        let numbers = (
            u32::from_str_radix(major, 16),
            u32::from_str_radix(minor, 16),
            inode.parse(),
        );
        if let (Ok(major), Ok(minor), Ok(inode)) = numbers
            && path.starts_with('/')
        {
            self.paths.insert(
                FileId {
                    device: major << 20 | minor,
                    inode,
                },
                path.to_owned(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_program_is_found_among_the_mapped_files() {
        let mut tree = Tree::default();
        let me = std::process::id() as Tid;
        tree.look(me);
        tree.look_at_files(me);
        let exe = fs::read_link("/proc/self/exe").unwrap();
        let facts = fs::metadata(&exe).unwrap();
        let id = file_id(facts.dev(), facts.ino());
        assert_eq!(tree.paths.get(&id).map(String::as_str), exe.to_str());
        assert_eq!(tree.process_of[&me], me);
        assert!(!tree.processes[&me].command.is_empty());
    }

    #[test]
    fn a_mapping_without_a_file_teaches_nothing() {
        let mut tree = Tree::default();
        tree.learn_mapping("7ff0-7ff1 rw-p 00000000 00:00 0 [stack]");
        tree.learn_mapping("garbage");
        assert!(tree.paths.is_empty());
    }
}
