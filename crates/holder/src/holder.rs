//! The life of the child and its tree: started, restarted, upgraded, stopped, ended to the last.

use std::collections::BTreeMap;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};

use crate::clock::{MS, boot_id, now_ns, start_ticks};
use crate::forked::Forked;
use crate::generation::{Generation, Program};
use crate::limits::Limiter;
use crate::listen::Sockets;
use crate::log::Log;
use crate::output::Output;
use crate::poll::Poll;
use crate::ring::Ring;
use crate::spec::{Orphans, Spec};
use crate::status::{Applied, Exit, State, Status};
use crate::tree;

/// A child that ran this long starts its next back-off from the shortest wait.
const STEADY_NS: u64 = 10_000 * MS;
/// Waits between two attempts to end what is left of a tree.
const KILL_WAITS_NS: [u64; 5] = [MS, 2 * MS, 5 * MS, 20 * MS, 100 * MS];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Restarting { at_ns: u64 },
    Stopping { kill_ns: u64 },
    Killing { next_ns: u64, attempt: usize },
    Exited,
}

pub struct Holder {
    spec: Spec,
    /// The first child, where a fork server has made it.
    forked: Option<Forked>,
    is_forked: bool,
    sockets: Sockets,
    limiter: Limiter,
    pub output: Output,
    /// Oldest first, two at most; the last is the one that status tells of.
    generations: Vec<Generation>,
    num_generations: u32,
    phase: Phase,
    is_stop_asked: bool,
    restarts: u64,
    quick_ends: u32,
    error: Option<String>,
    boot_id: String,
    own_ticks: u64,
    status_error: Option<String>,
}

impl Holder {
    pub fn new(spec: Spec, sockets: Sockets, limiter: Limiter, forked: Option<Forked>) -> Self {
        let log = Log::new(spec.dir.join("log"), spec.log);
        let output = Output::new(Ring::new(spec.tail_lines), log, spec.exact_stamps);
        Self {
            sockets,
            limiter,
            output,
            generations: Vec::new(),
            num_generations: 0,
            phase: Phase::Exited,
            is_stop_asked: false,
            restarts: 0,
            quick_ends: 0,
            error: None,
            boot_id: boot_id(),
            is_forked: forked.is_some(),
            forked,
            own_ticks: start_ticks(getpid().as_raw_nonzero().get()).unwrap_or(0),
            status_error: None,
            spec,
        }
    }

    /// Starts the first child.
    pub fn start(&mut self, poll: &mut Poll) {
        let program = Program {
            argv: self.spec.argv.clone(),
            env: self.spec.env.clone(),
        };
        let started = match self.forked.take() {
            Some(forked) => self.take_over(poll, forked, program),
            None => self.spawn(poll, program),
        };
        match started {
            Ok(()) => self.phase = Phase::Running,
            Err(error) => self.fail(error),
        }
        self.write_status();
        if self.is_forked {
            // It may have ended before this program heard of the ends of its children.
            self.reap();
        }
    }

    /// A child that waits to be let go: put under the limits first.
    fn take_over(
        &mut self,
        poll: &mut Poll,
        forked: Forked,
        program: Program,
    ) -> Result<(), String> {
        self.limiter.admit(forked.pid)?;
        let (generation, streams, go) = forked.into_generation(program);
        self.num_generations = generation.number;
        self.generations.push(generation);
        for (fd, stream) in streams {
            self.output
                .add(poll, fd, stream)
                .map_err(|error| format!("cannot watch: {error}"))?;
        }
        // If it has ended meanwhile, that is seen as every end is.
        let _ = rustix::io::write(&go, b"1");
        Ok(())
    }

    fn spawn(&mut self, poll: &mut Poll, program: Program) -> Result<(), String> {
        let number = self.num_generations + 1;
        let setting = crate::generation::Setting {
            spec: &self.spec,
            sockets: &self.sockets,
            limiter: &self.limiter,
            number,
        };
        let (generation, streams) = setting.spawn(program)?;
        self.num_generations = number;
        self.limiter.apply_nice(generation.pid);
        self.generations.push(generation);
        for (fd, stream) in streams {
            self.output
                .add(poll, fd, stream)
                .map_err(|error| format!("cannot watch: {error}"))?;
        }
        Ok(())
    }

    /// The program could not be executed: try again where the specification says so, or end.
    fn fail(&mut self, error: String) {
        self.error = Some(format!("exec failed: {error}"));
        self.after_end(now_ns());
    }

    fn after_end(&mut self, now_ns: u64) {
        self.output.drain(now_ns);
        match self.spec.restart {
            Some(restart) if !self.is_stop_asked => {
                let wait_ms = restart.min_ms.saturating_mul(1 << self.quick_ends.min(20));
                let at_ns = now_ns + wait_ms.min(restart.max_ms) * MS;
                self.quick_ends += 1;
                self.phase = Phase::Restarting { at_ns };
            }
            _ => {
                self.phase = Phase::Exited;
                self.limiter.finish();
            }
        }
        self.write_status();
    }

    /// Collects every process of the tree that has ended.
    pub fn reap(&mut self) {
        let is_childless = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.note_end(pid, status),
                Ok(None) => break false,
                Err(Errno::INTR) => {}
                Err(_) => break true,
            }
        };
        self.settle(is_childless);
    }

    fn note_end(&mut self, pid: Pid, status: WaitStatus) {
        let exit = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(code),
            (_, Some(signal)) => Exit::Signal(signal),
            _ => return,
        };
        if let Some(ended) = self.generations.iter_mut().find(|g| g.pid == pid) {
            ended.exit = Some(exit);
            ended.exited_ns = Some(now_ns());
        }
    }

    /// Draws the consequences of what has ended.
    fn settle(&mut self, is_childless: bool) {
        if self.phase == Phase::Running {
            self.drop_ended_generation();
        }
        let has_ended = self.generations.iter().all(|g| g.exit.is_some());
        match self.phase {
            Phase::Exited | Phase::Restarting { .. } => {}
            _ if is_childless => self.tree_ended(),
            Phase::Running if has_ended && self.spec.orphans == Orphans::Kill => self.sweep(),
            Phase::Stopping { .. } if has_ended => self.signal_left(),
            _ => {}
        }
    }

    /// Of two generations one has ended: the other is the one that counts.
    fn drop_ended_generation(&mut self) {
        if self.generations.len() < 2 {
            return;
        }
        let Some(index) = self.generations.iter().rposition(|g| g.exit.is_some()) else {
            return;
        };
        let ended = self.generations.remove(index);
        if let (1, Some(exit)) = (index, ended.exit) {
            self.error = Some(format!("generation {} ended: {exit:?}", ended.number));
        }
        crate::generation::end_left_behind(own_pid(), ended.number);
        self.write_status();
    }

    fn tree_ended(&mut self) {
        let now = now_ns();
        let ran_ns = self
            .generations
            .last()
            .map_or(0, |g| now.saturating_sub(g.spawned_ns));
        if ran_ns >= STEADY_NS {
            self.quick_ends = 0;
        }
        self.after_end(now);
    }

    /// The direct child has ended by itself; what it left behind belongs to nobody.
    fn sweep(&mut self) {
        // One at least: it may have ended since, and another that it began been missed.
        let left = self.usage().processes.max(1);
        self.error = Some(format!(
            "the process ended and left {left} behind: ended too"
        ));
        self.begin_kill();
    }

    /// The direct child has obeyed the stop signal; the processes it left get it too, once.
    fn signal_left(&mut self) {
        if let Some(signal) = signal(self.spec.stop.signal) {
            let fresh = self.generations.iter_mut().filter(|g| !g.is_rest_signalled);
            if fresh.map(|g| g.is_rest_signalled = true).count() > 0 {
                tree::signal_all(own_pid(), signal);
            }
        }
    }

    /// Asks the tree to end and gives it so long; asked again, the shorter time counts.
    pub fn stop(&mut self, grace_ms: Option<u64>) {
        self.is_stop_asked = true;
        let grace_ms = grace_ms.unwrap_or(self.spec.stop.grace_ms);
        let kill_ns = now_ns().saturating_add(grace_ms.saturating_mul(MS));
        match self.phase {
            Phase::Exited | Phase::Killing { .. } => {}
            Phase::Restarting { .. } => self.after_end(now_ns()),
            Phase::Stopping { kill_ns: before } => {
                self.phase = Phase::Stopping {
                    kill_ns: before.min(kill_ns),
                };
            }
            Phase::Running => {
                self.phase = Phase::Stopping { kill_ns };
                for generation in &self.generations {
                    generation.signal(self.spec.stop.signal);
                }
                self.write_status();
                self.reap();
            }
        }
    }

    /// Ends the tree now.
    pub fn kill(&mut self) {
        self.is_stop_asked = true;
        match self.phase {
            Phase::Exited => {}
            Phase::Restarting { .. } => self.after_end(now_ns()),
            _ => self.begin_kill(),
        }
    }

    fn begin_kill(&mut self) {
        let is_new = !matches!(self.phase, Phase::Killing { .. } | Phase::Stopping { .. });
        self.phase = Phase::Killing {
            next_ns: 0,
            attempt: 0,
        };
        if is_new {
            self.write_status();
        }
        self.tick_kill(now_ns());
    }

    fn tick_kill(&mut self, now_ns: u64) {
        let Phase::Killing { next_ns, attempt } = self.phase else {
            return;
        };
        if now_ns < next_ns {
            return;
        }
        let wait_ns = KILL_WAITS_NS[attempt.min(KILL_WAITS_NS.len() - 1)];
        self.phase = Phase::Killing {
            next_ns: now_ns + wait_ns,
            attempt: attempt + 1,
        };
        if self.limiter.groups.can_kill() {
            self.limiter.groups.kill();
        }
        // A group is left only by the privileged, but they exist: the walk is made in any case.
        if attempt > 0 || !self.limiter.groups.can_kill() {
            tree::signal_all(own_pid(), Signal::KILL);
        }
        self.reap();
    }

    pub fn tick(&mut self, poll: &mut Poll, now_ns: u64) {
        match self.phase {
            Phase::Stopping { kill_ns } if kill_ns <= now_ns => self.begin_kill(),
            Phase::Killing { .. } => self.tick_kill(now_ns),
            Phase::Restarting { at_ns } if at_ns <= now_ns => self.restart(poll),
            _ => {}
        }
        self.output.tick(now_ns);
    }

    fn restart(&mut self, poll: &mut Poll) {
        let before = self.generations.pop().map(|g| g.program);
        let program = before.unwrap_or_else(|| Program {
            argv: self.spec.argv.clone(),
            env: self.spec.env.clone(),
        });
        self.restarts += 1;
        self.phase = Phase::Running;
        match self.spawn(poll, program) {
            Ok(()) => self.error = None,
            Err(error) => self.fail(error),
        }
        self.write_status();
    }

    pub fn due_ns(&self) -> Option<u64> {
        let own = match self.phase {
            Phase::Running | Phase::Exited => None,
            Phase::Restarting { at_ns } => Some(at_ns),
            Phase::Stopping { kill_ns } => Some(kill_ns),
            Phase::Killing { next_ns, .. } => Some(next_ns),
        };
        own.into_iter().chain(self.output.due_ns()).min()
    }

    pub fn has_exited(&self) -> bool {
        self.phase == Phase::Exited
    }

    /// Sends a signal to the direct child.
    pub fn signal(&self, number: i32) -> Result<(), String> {
        signal(number).ok_or(format!("signal {number} is not one (1 to 64)"))?;
        let current = self.generations.last().filter(|g| g.exit.is_none());
        current.ok_or("the process has ended")?.signal(number);
        Ok(())
    }

    /// Starts a second generation beside the first, on the same sockets.
    pub fn upgrade(
        &mut self,
        poll: &mut Poll,
        argv: Vec<String>,
        env: Option<BTreeMap<String, String>>,
    ) -> Result<i32, String> {
        if self.phase != Phase::Running {
            return Err("the process is not running: start it anew".to_owned());
        }
        if self.generations.len() > 1 {
            return Err("two generations live already: retire the older one first".to_owned());
        }
        let env = env.unwrap_or_else(|| self.spec.env.clone());
        crate::spec::check_program(&argv, &env)?;
        self.spawn(poll, Program { argv, env })?;
        self.write_status();
        self.generations
            .last()
            .map(Generation::raw_pid)
            .ok_or("it has ended".to_owned())
    }

    /// Asks the older of two generations to end; answers with its pid.
    pub fn retire(&self) -> Result<i32, String> {
        let [older, _] = &self.generations[..] else {
            return Err("there is no older generation".to_owned());
        };
        older.signal(self.spec.stop.signal);
        Ok(older.raw_pid())
    }

    pub fn status(&self, with_tree: bool) -> Status<'_> {
        let current = self.generations.last();
        Status {
            version: crate::spec::VERSION,
            id: &self.spec.id,
            boot_id: &self.boot_id,
            holder_pid: own_pid(),
            holder_start_ticks: self.own_ticks,
            pid: current.map(Generation::raw_pid),
            pid_start_ticks: current.map(|g| g.start_ticks),
            state: self.state(),
            generation: current.map_or(1, |g| g.number),
            restarts: self.restarts,
            spawned_ns: current.map(|g| g.spawned_ns),
            exited_ns: current.and_then(|g| g.exited_ns),
            exit: current.and_then(|g| g.exit),
            lines: self.output.ring.next() - 1,
            last_line_ns: self.output.ring.last_ns(),
            listen: &self.sockets.bound,
            limits_applied: Applied {
                memory: &self.limiter.groups.memory,
                cpus: &self.limiter.cpus,
                nice: &self.limiter.nice,
                kill: self.limiter.kill,
            },
            oom_kills: self.limiter.oom_kills(),
            forked: self.is_forked && current.is_some_and(|g| g.number == 1),
            cgroups: self.limiter.groups.paths(),
            log_dropped_lines: self.output.log.dropped_lines,
            log_error: self
                .output
                .log
                .error
                .as_deref()
                .or(self.status_error.as_deref()),
            tree: with_tree.then(|| self.usage()),
            error: self.error.as_deref(),
        }
    }

    /// From the control group where there is one: a walk over all of /proc costs milliseconds.
    fn usage(&self) -> tree::Usage {
        match self.limiter.groups.members() {
            Some(pids) => tree::usage_of(pids.into_iter().filter_map(tree::Stat::read)),
            None if self.phase == Phase::Exited => tree::Usage::default(),
            None => tree::usage_of(tree::descendants(own_pid())),
        }
    }

    fn state(&self) -> State {
        match self.phase {
            Phase::Running => State::Running,
            Phase::Restarting { .. } => State::Restarting,
            Phase::Stopping { .. } | Phase::Killing { .. } => State::Stopping,
            Phase::Exited => State::Exited,
        }
    }

    fn write_status(&mut self) {
        let path = self.spec.dir.join("status.json");
        let written = crate::status::write(&path, &self.status(false));
        self.status_error = written
            .err()
            .map(|error| format!("cannot write {}: {error}", path.display()));
    }

    /// Removes what only a living holder needs.
    pub fn close(&mut self) {
        self.output.drain(now_ns());
        self.limiter.finish();
        // Whoever removed it first had the same in mind.
        let _ = std::fs::remove_file(&self.spec.socket);
    }
}

/// A signal by its number; None when there is no such signal.
pub fn signal(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number)
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

impl Generation {
    /// The pid is ours until it is collected, so that no other process can be hit.
    pub fn signal(&self, number: i32) {
        if let (None, Some(signal)) = (self.exit, signal(number)) {
            // A process that is just ending cannot be signalled, and need not be.
            let _ = kill_process(self.pid, signal);
        }
    }
}
