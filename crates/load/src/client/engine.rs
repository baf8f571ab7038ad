//! The client's one loop: schedule, connections, records. Parsing happens after the stamp, always.

use std::rc::Rc;

use super::control::{Command, Commands};
use super::exchange::{Exchange, Keep};
use super::output::Output;
use super::prepared::Prepared;
use super::spec::{Amount, Spec};
use super::totals::{Frame, Lag, Summary, Totals};
use super::transport::{TlsClient, Transport};
use super::workload::{Job, Workload};
use crate::clock::{cpu_ns, now_ns};
use crate::net::Address;
use crate::poll::Poller;
use crate::slab::Slab;
use crate::timers::{Due, Timers};

const WAKE: u64 = 1 << 63;
const TICK_NS: i64 = 10_000_000;
const TICKS_PER_FLUSH: u64 = 10;
const TICKS_PER_PROGRESS: u64 = 100;
pub(super) const READ_BYTES: usize = 256 << 10;
/// A user whose run failed waits this long, or a dead server would be hit as fast as it refuses.
const FAILURE_PAUSE_NS: i64 = 10_000_000;

/// What a timer is for.
pub(super) mod due {
    pub const TICK: u8 = 0;
    pub const ARRIVAL: u8 = 1;
    pub const TIMEOUT: u8 = 2;
    pub const CALL: u8 = 3;
    pub const FRAME: u8 = 4;
}

/// A connection and the exchange on it.
pub(super) struct Conn {
    pub transport: Transport,
    pub exchange: Option<Exchange>,
    pub job: Job,
    pub out: Rc<Vec<u8>>,
    pub written: usize,
    pub connecting: bool,
    pub watching_write: bool,
    /// Counts exchanges, so that an old time-out does not hit a new one.
    pub deadline_ns: i64,
}

pub struct Engine {
    pub(super) address: Address,
    pub(super) tls: Option<TlsClient>,
    pub(super) spec: Spec,
    pub(super) prepared: Vec<Prepared>,
    pub(super) poller: Poller,
    pub(super) conns: Slab<Conn>,
    pub(super) idle: Vec<u64>,
    pub(super) timers: Timers,
    pub(super) workload: Workload,
    /// Calls that wait for their time (think time, pause after a failure).
    pub(super) waiting: Slab<Job>,
    pub(super) output: Output,
    pub(super) totals: Totals,
    pub(super) lag: Lag,
    pub(super) buffer: Vec<u8>,
    pub(super) keep: Keep,
    pub(super) in_flight: usize,
    pub(super) connections: u64,
    pub(super) sequence: u64,
    pub(super) error: Option<String>,
    commands: Commands,
    start_ns: i64,
    measured_from_ns: Option<i64>,
    started_runs: u64,
    warmup_runs: u64,
    max_in_flight: usize,
    in_flight_area: f64,
    area_until_ns: i64,
    stopping: bool,
    aborting: bool,
    reason: &'static str,
    ticks: u64,
}

impl Engine {
    pub fn new(spec: Spec) -> Result<Self, String> {
        let address = Address::parse(&spec.target)?;
        let host = spec.host.clone().unwrap_or_else(|| match &address {
            Address::Tcp(at) => at.to_string(),
            Address::Unix(_) => "localhost".into(),
        });
        let poller = Poller::new().map_err(|e| e.to_string())?;
        let commands = Commands::listen(spec.control)?;
        poller
            .add(&commands.wake, WAKE, false)
            .map_err(|e| e.to_string())?;
        let start_ns = now_ns();
        Ok(Self {
            prepared: Prepared::all(&spec, &host)?,
            address,
            tls: spec.tls.as_ref().map(TlsClient::new).transpose()?,
            poller,
            conns: Slab::default(),
            idle: Vec::new(),
            timers: Timers::default(),
            workload: Workload::new(&spec),
            waiting: Slab::default(),
            output: Output::open(spec.records.as_deref())?,
            totals: Totals::default(),
            lag: Lag::default(),
            buffer: vec![0; READ_BYTES],
            keep: Keep {
                gaps: true,
                text: spec.keep_text,
            },
            in_flight: 0,
            connections: 0,
            sequence: 0,
            error: None,
            commands,
            start_ns,
            measured_from_ns: None,
            started_runs: 0,
            warmup_runs: 0,
            max_in_flight: 0,
            in_flight_area: 0.0,
            area_until_ns: start_ns,
            stopping: false,
            aborting: false,
            reason: "complete",
            ticks: 0,
            spec,
        })
    }

    /// Runs to the end and writes the summary. An error is one of output, not of the server.
    pub fn run(&mut self) -> Result<(), String> {
        self.output
            .progress(&serde_json::json!({"type": "start", "start_ns": self.start_ns}))?;
        self.timers.push(self.start_ns, 0, due::TICK);
        self.schedule_arrival();
        let mut ready = Vec::with_capacity(512);
        while !self.is_over() {
            self.poller
                .wait(self.timers.next_ns(), now_ns(), &mut ready)
                .map_err(|e| format!("epoll: {e}"))?;
            let woke_ns = now_ns();
            while let Some(due) = self.timers.pop_due(woke_ns) {
                self.on_due(due, woke_ns);
            }
            for event in &ready {
                if event.token == WAKE {
                    self.on_commands();
                } else {
                    self.on_ready(*event, woke_ns);
                }
            }
            if let Some(error) = self.error.take() {
                return Err(error);
            }
        }
        self.finish()
    }

    fn is_over(&self) -> bool {
        self.aborting || (self.stopping && self.in_flight == 0 && self.waiting.len() == 0)
    }

    fn finish(&mut self) -> Result<(), String> {
        for token in self.conns.tokens() {
            self.abort(token, "aborted", "the run was ended");
        }
        let end_ns = now_ns();
        self.count_area(end_ns);
        let from = self.measured_from_ns.unwrap_or(self.start_ns);
        let span = (self.area_until_ns - from).max(1) as f64;
        let frame = Frame {
            reason: self.reason,
            start_ns: self.start_ns,
            measured_from_ns: from,
            end_ns,
            cpu_ns: cpu_ns(),
            started: self.started_runs,
            warmup: self.warmup_runs,
            connections: self.connections,
            max_in_flight: self.max_in_flight,
            mean_in_flight: self.in_flight_area / span,
        };
        let summary = Summary::new(frame, &self.totals, &self.lag);
        self.output.record(&summary)?;
        self.output.flush()?;
        self.output.progress(&summary)
    }

    fn on_due(&mut self, due: Due, woke_ns: i64) {
        match due.kind {
            due::TICK => self.on_tick(due.at_ns, woke_ns),
            due::ARRIVAL => {
                let late = now_ns() - due.at_ns;
                self.lag.send.record(late);
                self.start_run(due.at_ns);
                self.schedule_arrival();
            }
            due::TIMEOUT => {
                let current = self.conns.get_mut(due.token).map(|conn| conn.deadline_ns);
                if current == Some(due.at_ns) {
                    let limit = format!("no complete answer within {} s", self.spec.timeout_s);
                    self.abort(due.token, "timeout", &limit);
                }
            }
            due::FRAME => self.send_frame(due.token, due.at_ns),
            _ => {
                if let Some(job) = self.waiting.remove(due.token) {
                    self.lag.send.record(now_ns() - due.at_ns);
                    self.send(job);
                }
            }
        }
    }

    fn on_tick(&mut self, meant_ns: i64, woke_ns: i64) {
        if self.ticks > 0 {
            self.lag.timer.record(woke_ns - meant_ns);
        }
        self.ticks += 1;
        // From now, not from then: a tick in the past would come due again at once, for ever.
        self.timers.push(now_ns() + TICK_NS, 0, due::TICK);
        self.count_area(woke_ns);
        let elapsed_s = (woke_ns - self.start_ns) as f64 / 1e9;
        self.check_time(woke_ns);
        if !self.stopping {
            for _ in 0..self.workload.new_users(elapsed_s) {
                self.start_run(now_ns());
            }
        }
        if self.spec.control || self.ticks.is_multiple_of(TICKS_PER_FLUSH) {
            self.note(|engine| engine.output.flush());
        }
        if self.ticks.is_multiple_of(TICKS_PER_PROGRESS) {
            let ttft = self.totals.ttft.quantiles();
            let line = serde_json::json!({
                "type": "tick", "elapsed_s": elapsed_s, "in_flight": self.in_flight,
                "finished": self.totals.finished, "ok": self.totals.ok,
                "ttft_p50_ns": ttft.p50, "ttft_p95_ns": ttft.p95,
            });
            self.note(|engine| engine.output.progress(&line));
        }
    }

    fn note(&mut self, write: impl FnOnce(&mut Self) -> Result<(), String>) {
        if let Err(error) = write(self) {
            self.error
                .get_or_insert(format!("cannot write records: {error}"));
        }
    }

    fn check_time(&mut self, now: i64) {
        if let (Some(seconds), Some(from)) = (self.spec.stop.seconds, self.measured_from_ns) {
            self.stopping |= now - from >= (seconds * 1e9) as i64;
        }
    }

    fn on_commands(&mut self) {
        for command in self.commands.take() {
            match command {
                Command::Level { connections, tag } => {
                    self.workload.set_target(connections);
                    self.workload.tag = tag;
                    for _ in 0..self.workload.new_users(0.0) {
                        self.start_run(now_ns());
                    }
                    self.say_drained();
                }
                Command::Stop => (self.stopping, self.reason) = (true, "stopped"),
                Command::Abort => (self.aborting, self.reason) = (true, "interrupted"),
            }
        }
    }

    /// At level zero the controlling process is told when the last answer has come.
    pub(super) fn say_drained(&mut self) {
        if self.workload.is_drained() && self.in_flight == 0 && self.waiting.len() == 0 {
            let line = serde_json::json!({"type": "drained", "tag": self.workload.tag});
            self.note(|engine| engine.output.record(&line));
        }
    }

    fn schedule_arrival(&mut self) {
        if self.workload.is_closed() || self.stopping {
            return;
        }
        match self.workload.next_arrival_ns() {
            Some(offset) => self.timers.push(self.start_ns + offset, 0, due::ARRIVAL),
            None => self.stopping = true,
        }
    }

    /// Starts a run unless the end has come; counts warm-up and measured runs apart.
    pub(super) fn start_run(&mut self, intended_ns: i64) {
        if self.stopping {
            self.workload.user_continues();
            return;
        }
        let warmup = self.is_warmup(intended_ns);
        if warmup {
            self.warmup_runs += 1;
        } else {
            self.begin_measuring(intended_ns);
            if reached(self.spec.stop, self.started_runs) {
                self.stopping = true;
                return;
            }
            self.started_runs += 1;
        }
        let mut job = self.workload.new_run(intended_ns);
        job.warmup = warmup;
        self.send(job);
        // Said at once, so that no further arrival is awaited.
        self.stopping |= reached(self.spec.stop, self.started_runs);
    }

    fn is_warmup(&self, now: i64) -> bool {
        let Amount { requests, seconds } = self.spec.warmup;
        let few = requests.is_some_and(|count| self.warmup_runs < count);
        let early = seconds.is_some_and(|s| now - self.start_ns < (s * 1e9) as i64);
        self.measured_from_ns.is_none() && (few || early)
    }

    fn begin_measuring(&mut self, now: i64) {
        if self.measured_from_ns.is_none() {
            self.measured_from_ns = Some(now);
            (self.in_flight_area, self.area_until_ns) = (0.0, now);
            self.max_in_flight = self.in_flight;
        }
    }

    /// The run's next call, the user's next run, or nothing.
    pub(super) fn after_call(&mut self, job: &Job, failed: bool) {
        let closed = self.workload.is_closed();
        let pause = if failed { FAILURE_PAUSE_NS } else { 0 };
        let at = now_ns() + pause.max(self.workload.think_ns);
        let next = if failed {
            None
        } else {
            self.workload.next_call(job, at)
        };
        if let Some(next) = next {
            return self.send_at(next, at);
        }
        if !closed || !self.workload.user_continues() {
            return;
        }
        if at <= now_ns() {
            return self.start_run(at);
        }
        let warmup = self.is_warmup(at);
        if self.stopping || (!warmup && reached(self.spec.stop, self.started_runs)) {
            self.stopping = true;
            return;
        }
        self.count_run(warmup, at);
        let mut next = self.workload.new_run(at);
        next.warmup = warmup;
        self.send_at(next, at);
    }

    fn count_run(&mut self, warmup: bool, at: i64) {
        if warmup {
            self.warmup_runs += 1;
        } else {
            self.begin_measuring(at);
            self.started_runs += 1;
        }
    }

    fn send_at(&mut self, job: Job, at_ns: i64) {
        if at_ns <= now_ns() {
            return self.send(job);
        }
        let key = self.waiting.insert(job);
        self.timers.push(at_ns, key, due::CALL);
    }

    pub(super) fn change_in_flight(&mut self, by: isize) {
        self.count_area(now_ns());
        self.in_flight = self.in_flight.saturating_add_signed(by);
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
    }

    /// The time-average of requests in flight is taken until the load stops being offered.
    fn count_area(&mut self, now: i64) {
        if !self.stopping && now > self.area_until_ns {
            self.in_flight_area += self.in_flight as f64 * (now - self.area_until_ns) as f64;
            self.area_until_ns = now;
        }
    }
}

fn reached(stop: Amount, started: u64) -> bool {
    stop.requests.is_some_and(|limit| started >= limit)
}
