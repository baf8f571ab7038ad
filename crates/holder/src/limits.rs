//! Limits of the tree: processors, priority, memory, and a record of which were applied.

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cgroup::Groups;
use crate::spec::{Orphans, Spec};

pub struct Limiter {
    pub groups: Groups,
    pub cpus: String,
    pub nice: String,
    pub kill: &'static str,
    set: Option<CpuSet>,
    priority: Option<i32>,
    final_oom_kills: Option<u64>,
}

impl Limiter {
    /// Prepares the limits; processors that this machine has not are an error.
    pub fn new(spec: &Spec) -> Result<Self, String> {
        let set = spec.limits.cpus.as_deref().map(cpu_set).transpose()?;
        let groups = match spec.orphans {
            Orphans::Free => Groups::none("the process's children are not its holder's"),
            _ => Groups::create(&spec.id, spec.limits.memory_bytes),
        };
        Ok(Self {
            kill: if groups.can_kill() {
                "cgroup.kill"
            } else {
                "descendants"
            },
            groups,
            cpus: if set.is_some() { "affinity" } else { "none" }.to_owned(),
            nice: "none".to_owned(),
            set,
            priority: spec.limits.nice,
            final_oom_kills: None,
        })
    }

    /// Runs `spawn` on the child's processors, so that the child has them from its first moment.
    pub fn on_cpus<T>(&self, spawn: impl FnOnce() -> T) -> T {
        let before = self.set.as_ref().and_then(|set| {
            let before = sched_getaffinity(None).ok()?;
            sched_setaffinity(None, set).ok().map(|()| before)
        });
        let result = spawn();
        if let Some(before) = before {
            // It was allowed a moment ago; at worst the holder stays beside its child.
            let _ = sched_setaffinity(None, &before);
        }
        result
    }

    /// Puts a process that runs already under the limits, before it does anything.
    pub fn admit(&mut self, pid: Pid) -> Result<(), String> {
        let admitted = self.groups.entrances().admit(pid);
        admitted.map_err(|error| format!("control group: {error}"))?;
        if let Some(set) = &self.set {
            sched_setaffinity(Some(pid), set).map_err(|error| format!("limits.cpus: {error}"))?;
        }
        self.apply_nice(pid);
        Ok(())
    }

    pub fn apply_nice(&mut self, pid: Pid) {
        if let Some(nice) = self.priority {
            self.nice = match setpriority_process(Some(pid), nice) {
                Ok(()) => "priority".to_owned(),
                Err(error) => format!("none: {error}"),
            };
        }
    }

    pub fn oom_kills(&self) -> u64 {
        self.final_oom_kills
            .unwrap_or_else(|| self.groups.oom_kills())
    }

    /// The tree has ended: keeps the count and removes the groups.
    pub fn finish(&mut self) {
        self.final_oom_kills = Some(self.oom_kills());
        self.groups.remove();
    }
}

fn cpu_set(cpus: &[usize]) -> Result<CpuSet, String> {
    let allowed = sched_getaffinity(None).map_err(|error| error.to_string())?;
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
            let usable: Vec<_> = (0..CpuSet::MAX_CPU)
                .filter(|&cpu| allowed.is_set(cpu))
                .collect();
            return Err(format!(
                "limits.cpus has {cpu}; this machine allows {usable:?}"
            ));
        }
        set.set(cpu);
    }
    if cpus.is_empty() {
        return Err("limits.cpus is empty: null is no limit".to_owned());
    }
    Ok(set)
}
