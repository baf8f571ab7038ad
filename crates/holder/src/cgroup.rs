//! Control groups of one holder: a v2 group to end the tree at once, a v1 or v2 memory limit.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where a hierarchy is mounted and which group this process is in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    own: PathBuf,
}

/// Open descriptors by which a new process gets into the groups.
pub struct Entrances {
    /// The v2 group's directory: a child can be born in it.
    pub unified_dir: Option<OwnedFd>,
    unified_procs: Option<OwnedFd>,
    memory_procs: Option<OwnedFd>,
}

impl Entrances {
    /// Moves a process that runs already, alone, into both groups.
    pub fn admit(&self, pid: rustix::process::Pid) -> io::Result<()> {
        let text = pid.as_raw_nonzero().to_string();
        for procs in self.unified_procs.iter().chain(&self.memory_procs) {
            rustix::io::write(procs, text.as_bytes())?;
        }
        Ok(())
    }

    /// Moves the calling process into the memory group, and into the v2 group where it `must`.
    pub fn enter(&self, must_move: bool) -> io::Result<()> {
        let unified = self.unified_procs.as_ref().filter(|_| must_move);
        for procs in unified.into_iter().chain(&self.memory_procs) {
            rustix::io::write(procs, b"0")?;
        }
        Ok(())
    }
}

/// The groups that were made; all are removed at the end.
#[derive(Debug, Default)]
pub struct Groups {
    unified: Option<PathBuf>,
    memory_v1: Option<PathBuf>,
    has_memory_v2: bool,
    /// What became of the memory limit: `cgroup1`, `cgroup2`, or `none: reason`.
    pub memory: String,
}

impl Groups {
    /// No groups, for this reason.
    pub fn none(reason: &str) -> Self {
        let mut groups = Self::default();
        groups.memory = format!("none: {reason}");
        groups
    }

    /// Makes the groups that the kernel allows; what it does not allow is said, never an error.
    pub fn create(id: &str, memory_bytes: Option<u64>) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let member = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        // Two applications may use the same id: the holder's pid tells their groups apart.
        let name = format!("preroll-{id}-{}", std::process::id());
        let unified = unified(&mounts, &member);
        let mut groups = Self::default();
        if let Some(hierarchy) = &unified {
            let parent = hierarchy.parent(memory_bytes.is_some());
            groups.unified = make(&parent, &name).ok();
        }
        groups.memory = match memory_bytes {
            None => "none: no limit asked for".to_owned(),
            Some(bytes) => groups.limit(memory_v1(&mounts, &member), &name, bytes),
        };
        groups
    }

    fn limit(&mut self, v1: Option<Hierarchy>, name: &str, bytes: u64) -> String {
        let v2 = self.unified.as_deref().map(|group| limit_v2(group, bytes));
        if matches!(v2, Some(Ok(()))) {
            self.has_memory_v2 = true;
            return "cgroup2".to_owned();
        }
        let Some(v1) = v1 else {
            let reason = v2.and_then(Result::err).map(|error| error.to_string());
            let reason = reason.unwrap_or_else(|| "no writable control group".to_owned());
            return format!("none: {reason}");
        };
        match make(&v1.parent(false), name).and_then(|group| {
            self.memory_v1 = Some(group.clone());
            limit_v1(&group, bytes)
        }) {
            Ok(()) => "cgroup1".to_owned(),
            Err(error) => format!("none: {error}"),
        }
    }

    /// The ways into the groups, opened before the fork.
    pub fn entrances(&self) -> Entrances {
        let procs = |group: &Option<PathBuf>| {
            let path = group.as_ref()?.join("cgroup.procs");
            fs::OpenOptions::new()
                .write(true)
                .open(path)
                .ok()
                .map(OwnedFd::from)
        };
        Entrances {
            unified_dir: self
                .unified
                .as_ref()
                .and_then(|g| fs::File::open(g).ok())
                .map(OwnedFd::from),
            unified_procs: procs(&self.unified),
            memory_procs: procs(&self.memory_v1),
        }
    }

    /// Pids in the v2 group; None where there is none.
    pub fn members(&self) -> Option<Vec<i32>> {
        let text = fs::read_to_string(self.unified.as_ref()?.join("cgroup.procs")).ok()?;
        Some(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    pub fn can_kill(&self) -> bool {
        self.unified
            .as_ref()
            .is_some_and(|group| group.join("cgroup.kill").exists())
    }

    /// Ends everything in the v2 group at once.
    pub fn kill(&self) {
        if let Some(group) = &self.unified {
            // Where this fails the walk over the descendants does it.
            let _ = fs::write(group.join("cgroup.kill"), "1");
        }
    }

    /// How often the kernel ended a process of the tree for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let v1 = self
            .memory_v1
            .as_ref()
            .map(|group| group.join("memory.oom_control"));
        let v2 = self.has_memory_v2.then_some(self.unified.as_ref());
        let file = v1.or_else(|| Some(v2??.join("memory.events")));
        let text = file
            .and_then(|file| fs::read_to_string(file).ok())
            .unwrap_or_default();
        let counts = text
            .lines()
            .filter_map(|line| line.strip_prefix("oom_kill "));
        counts
            .filter_map(|count| count.trim().parse::<u64>().ok())
            .sum()
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.unified
            .iter()
            .chain(&self.memory_v1)
            .cloned()
            .collect()
    }

    /// Removes the groups; a group with a process in it stays, and so does its name.
    pub fn remove(&mut self) {
        self.unified = self
            .unified
            .take()
            .filter(|group| fs::remove_dir(group).is_err());
        self.memory_v1 = self
            .memory_v1
            .take()
            .filter(|group| fs::remove_dir(group).is_err());
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.remove();
    }
}

fn limit_v2(group: &Path, bytes: u64) -> io::Result<()> {
    if !group.join("memory.max").exists() {
        // The parent must hand the controller down first; it may not where it has processes.
        let parent = group.parent().unwrap_or(group);
        fs::write(parent.join("cgroup.subtree_control"), "+memory")?;
    }
    fs::write(group.join("memory.max"), bytes.to_string())?;
    // Swap is no memory to serve from; where there is no such file there is no swap limit.
    let _ = fs::write(group.join("memory.swap.max"), "0");
    Ok(())
}

fn limit_v1(group: &Path, bytes: u64) -> io::Result<()> {
    fs::write(group.join("memory.limit_in_bytes"), bytes.to_string())?;
    // Absent where swap is not accounted.
    let _ = fs::write(group.join("memory.memsw.limit_in_bytes"), bytes.to_string());
    Ok(())
}

impl Hierarchy {
    /// Where the new group goes: below the own one, or below the root of the mount where the own
    /// one is not visible. A v2 group with processes hands no controller down: then beside it.
    fn parent(&self, needs_memory: bool) -> PathBuf {
        let own = self
            .mount
            .join(self.own.strip_prefix("/").unwrap_or(&self.own));
        let own = if own.is_dir() {
            own
        } else {
            self.mount.clone()
        };
        let has_memory = |group: &Path| {
            let listed = fs::read_to_string(group.join("cgroup.subtree_control"));
            listed.is_ok_and(|text| text.split_ascii_whitespace().any(|one| one == "memory"))
        };
        match own.parent() {
            Some(beside) if needs_memory && !has_memory(&own) && has_memory(beside) => {
                beside.to_path_buf()
            }
            _ => own,
        }
    }
}

/// Removes what killed holders left: groups of ours without a process and without a holder.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix("preroll-")) else {
            continue;
        };
        let holder = rest
            .rsplit('-')
            .next()
            .and_then(|pid| pid.parse::<u32>().ok());
        if holder.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // A group with processes stays: whoever adopts them ends them first.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn make(parent: &Path, name: &str) -> io::Result<PathBuf> {
    sweep(parent);
    let group = parent.join(name);
    match fs::create_dir(&group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(group),
    }
}

fn unified(mounts: &str, member: &str) -> Option<Hierarchy> {
    let own = member.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Hierarchy {
        mount: mount_of(mounts, "cgroup2", "")?,
        own: own.into(),
    })
}

fn memory_v1(mounts: &str, member: &str) -> Option<Hierarchy> {
    let own = member.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        controllers
            .split(',')
            .any(|one| one == "memory")
            .then(|| fields.next())
            .flatten()
    })?;
    Some(Hierarchy {
        mount: mount_of(mounts, "cgroup", "memory")?,
        own: own.into(),
    })
}

/// The mount point of a file system type, with `option` among its super options when not empty.
fn mount_of(mounts: &str, kind: &str, option: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let mut tail = tail.split(' ');
        let is_kind = tail.next()? == kind;
        let options = tail.nth(1)?;
        let has_option = option.is_empty() || options.split(',').any(|one| one == option);
        (is_kind && has_option)
            .then(|| head.split(' ').nth(4))
            .flatten()
            .map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:4 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn both_hierarchies_are_found_where_they_are_mounted() {
        let member = "9:name=systemd:/\n4:cpuset,memory:/a/b\n0::/c\n";
        let v1 = memory_v1(MOUNTS, member).unwrap();
        assert_eq!(
            (v1.mount, v1.own),
            ("/sys/fs/cgroup/memory".into(), "/a/b".into())
        );
        let v2 = unified(MOUNTS, member).unwrap();
        assert_eq!(
            (v2.mount, v2.own),
            ("/sys/fs/cgroup/unified".into(), "/c".into())
        );
    }

    #[test]
    fn a_group_that_hands_no_memory_down_gets_a_sibling() {
        let mount = tempfile::tempdir().unwrap();
        let own = mount.path().join("user/app");
        fs::create_dir_all(&own).unwrap();
        let hierarchy = Hierarchy {
            mount: mount.path().into(),
            own: "/user/app".into(),
        };
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        fs::write(
            mount.path().join("user/cgroup.subtree_control"),
            "cpu memory\n",
        )
        .unwrap();
        assert_eq!(hierarchy.parent(true), mount.path().join("user"));
        assert_eq!(hierarchy.parent(false), own);
        let hidden = Hierarchy {
            own: "/elsewhere".into(),
            ..hierarchy
        };
        assert_eq!(hidden.parent(false), mount.path());
    }

    #[test]
    fn groups_of_dead_holders_are_swept_and_those_of_living_ones_kept() {
        let parent = tempfile::tempdir().unwrap();
        let living = format!("preroll-a-{}", std::process::id());
        // Pids end well below: /proc/sys/kernel/pid_max is 2^22 at most.
        for name in [
            living.as_str(),
            "preroll-a-99999999",
            "preroll-x",
            "other-99999999",
        ] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        make(parent.path(), "preroll-b-1").unwrap();
        let kept: Vec<_> = [
            living.as_str(),
            "preroll-a-99999999",
            "preroll-x",
            "other-99999999",
        ]
        .map(|name| parent.path().join(name).exists())
        .into();
        assert_eq!(kept, [true, false, true, true]);
    }

    #[test]
    fn a_kernel_without_them_has_none() {
        assert_eq!(unified("", "0::/\n"), None);
        assert_eq!(memory_v1(MOUNTS, "0::/\n"), None);
        let groups = Groups::default();
        assert!(!groups.can_kill() && groups.oom_kills() == 0 && groups.members().is_none());
    }
}
