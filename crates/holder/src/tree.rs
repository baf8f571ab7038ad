//! The processes below one process, read from /proc: to count them, and to end every one.

use std::collections::HashMap;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;

/// Clock ticks per second in /proc (USER_HZ is 100 on every Linux architecture).
const TICK_NS: u64 = 10_000_000;

/// The fields of /proc/PID/stat that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    pub parent: i32,
    pub is_zombie: bool,
    pub cpu_ns: u64,
    pub start_ticks: u64,
    pub rss_pages: u64,
}

impl Stat {
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name, field 2, may hold spaces and parentheses: fields count from the last `)`.
    fn parse(pid: i32, stat: &[u8]) -> Option<Self> {
        let end = memchr::memrchr(b')', stat)?;
        let text = std::str::from_utf8(&stat[end + 1..]).ok()?;
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            is_zombie: *fields.first()? == "Z",
            cpu_ns: (number(14)? + number(15)?) * TICK_NS,
            start_ticks: number(22)?,
            rss_pages: number(24)?,
        })
    }
}

/// What the tree uses now.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    pub processes: u64,
    pub rss_bytes: u64,
    pub cpu_ns: u64,
}

/// All descendants of `root`, without it; zombies too.
pub fn descendants(root: i32) -> Vec<Stat> {
    let mut children: HashMap<i32, Vec<Stat>> = HashMap::new();
    for stat in every_process() {
        children.entry(stat.parent).or_default().push(stat);
    }
    let (mut found, mut queue) = (Vec::new(), vec![root]);
    while let Some(parent) = queue.pop() {
        for stat in children.remove(&parent).unwrap_or_default() {
            queue.push(stat.pid);
            found.push(stat);
        }
    }
    found
}

fn every_process() -> impl Iterator<Item = Stat> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Stat::read)
}

/// What these processes use together; those that have ended are left out.
pub fn usage_of(processes: impl IntoIterator<Item = Stat>) -> Usage {
    let page = rustix::param::page_size() as u64;
    let living = processes.into_iter().filter(|stat| !stat.is_zombie);
    living.fold(Usage::default(), |sum, stat| Usage {
        processes: sum.processes + 1,
        rss_bytes: sum.rss_bytes + stat.rss_pages * page,
        cpu_ns: sum.cpu_ns + stat.cpu_ns,
    })
}

/// Sends a signal to all descendants of `root`; returns how many living ones it found.
pub fn signal_all(root: i32, signal: Signal) -> usize {
    let living = descendants(root).into_iter().filter(|stat| !stat.is_zombie);
    living.map(|stat| signal_one(stat, signal)).count()
}

/// A pidfd and a second look make sure that a pid used anew is not hit.
pub fn signal_one(stat: Stat, signal: Signal) {
    let Some(pid) = Pid::from_raw(stat.pid) else {
        return;
    };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if Stat::read(stat.pid).is_some_and(|now| now.start_ticks == stat.start_ticks) {
        // It may have ended by itself: then there is nothing left to signal.
        let _ = pidfd_send_signal(&pidfd, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let line = b"7 (a) b) (c) S 3 7 7 0 -1 4194560 1 0 0 0 20 10 0 0 20 0 1 0 5555 9000 250 1";
        let stat = Stat::parse(7, line).unwrap();
        assert_eq!(
            (stat.parent, stat.start_ticks, stat.rss_pages),
            (3, 5555, 250)
        );
        assert_eq!(stat.cpu_ns, 300_000_000);
    }

    #[test]
    fn descendants_and_their_use_are_found_and_ended() {
        let me = std::process::id() as i32;
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 1000 & echo $!; wait $!"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = shell.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let (parent, child) = (shell.id() as i32, line.trim().parse::<i32>().unwrap());
        let found: Vec<i32> = descendants(me).iter().map(|stat| stat.pid).collect();
        assert!(found.contains(&parent) && found.contains(&child));
        let usage = usage_of(descendants(parent));
        assert!(usage.processes == 1 && usage.rss_bytes > 0);
        assert_eq!(signal_all(parent, Signal::KILL), 1);
        assert!(!shell.wait().unwrap().success());
    }
}
