//! What the holder says of its child: in replies, and in `status.json` for whoever comes later.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::spec::Listen;
use crate::tree::Usage;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Running,
    Restarting,
    Stopping,
    Exited,
}

#[derive(Debug, Serialize)]
pub struct Status<'a> {
    pub version: u32,
    pub id: &'a str,
    pub boot_id: &'a str,
    pub holder_pid: i32,
    pub holder_start_ticks: u64,
    pub pid: Option<i32>,
    pub pid_start_ticks: Option<u64>,
    pub state: State,
    pub generation: u32,
    pub restarts: u64,
    pub spawned_ns: Option<u64>,
    pub exited_ns: Option<u64>,
    pub exit: Option<Exit>,
    pub lines: u64,
    pub last_line_ns: Option<u64>,
    pub listen: &'a [Listen],
    pub limits_applied: Applied<'a>,
    pub oom_kills: u64,
    /// A fork server made the child that runs now.
    pub forked: bool,
    pub cgroups: Vec<PathBuf>,
    pub log_dropped_lines: u64,
    pub log_error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Usage>,
    pub error: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub struct Applied<'a> {
    pub memory: &'a str,
    pub cpus: &'a str,
    pub nice: &'a str,
    pub kill: &'a str,
}

/// Replaces the file in one step: a reader sees the old or the new one, never half.
pub fn write(path: &Path, status: &Status<'_>) -> io::Result<()> {
    let next = path.with_extension("json.next");
    std::fs::write(&next, serde_json::to_vec(status)?)?;
    std::fs::rename(&next, path)
}
