//! One instance of the kernel's tracer: its ring buffers, one a processor.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const PAGE: usize = 4096;

/// An instance below `instances/`, removed when dropped.
#[derive(Debug)]
pub struct Buffers {
    root: PathBuf,
    pipes: Vec<File>,
}

fn mounted() -> Result<PathBuf, String> {
    let found = || {
        MOUNT_POINTS
            .iter()
            .map(PathBuf::from)
            .find(|p| p.join("instances").is_dir())
    };
    if let Some(path) = found() {
        return Ok(path);
    }
    let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
    rustix::mount::mount("nodev", MOUNT_POINTS[0], "tracefs", flags, None)
        .map_err(|e| format!("tracefs is not mounted and cannot be ({e})"))?;
    found().ok_or_else(|| "tracefs has no instances".to_owned())
}

impl Buffers {
    /// A new instance that records nothing yet; `each_kb` for each processor.
    pub fn new(name: &str, each_kb: usize) -> Result<Self, String> {
        let root = mounted()?.join("instances").join(name);
        std::fs::create_dir(&root).map_err(|e| format!("{}: {e}", root.display()))?;
        let mut new = Self {
            root,
            pipes: Vec::new(),
        };
        new.set("tracing_on", "0")?;
        new.set("trace_clock", "mono")?;
        new.set("buffer_size_kb", &each_kb.to_string())?;
        new.pipes = open_pipes(&new.root)?;
        Ok(new)
    }

    pub fn set(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.root.join(file);
        std::fs::write(&path, value).map_err(|e| format!("{}: {e}", path.display()))
    }

    pub fn enable(&self, tracepoints: &[&str]) -> Result<(), String> {
        let mut all = tracepoints.iter();
        all.try_for_each(|name| self.set(&format!("events/{name}/enable"), "1"))
    }

    pub fn events(&self) -> PathBuf {
        self.root.join("events")
    }

    pub fn num_cpus(&self) -> usize {
        self.pipes.len()
    }

    /// Takes what the kernel has buffered, page by page with its processor; never blocks.
    pub fn drain(&mut self, mut take: impl FnMut(usize, &[u8])) {
        let mut page = [0; PAGE];
        for (cpu, pipe) in self.pipes.iter_mut().enumerate() {
            loop {
                match pipe.read(&mut page) {
                    Ok(0) => break,
                    Ok(length) => take(cpu, &page[..length]),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        self.pipes.clear();
        let _ = self.set("events/enable", "0");
        let _ = std::fs::remove_dir(&self.root);
    }
}

fn open_pipes(root: &Path) -> Result<Vec<File>, String> {
    let mut pipes = Vec::new();
    loop {
        let path = root.join(format!("per_cpu/cpu{}/trace_pipe_raw", pipes.len()));
        if !path.exists() {
            break;
        }
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(&path)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        pipes.push(file);
    }
    if pipes.is_empty() {
        Err("tracefs has no per-CPU buffers".to_owned())
    } else {
        Ok(pipes)
    }
}
