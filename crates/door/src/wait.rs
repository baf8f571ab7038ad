//! How long a request will wait, how wrong that was, and what a refused client is told.
//!
//! Pure: time comes in as nanoseconds. The estimate for a request with `ahead` others before it on
//! `slots` busy slots is the residual of the service in progress, shared by the slots, plus `ahead`
//! turns of a slot's completion interval. It ignores differences between replicas and the sizes of
//! the requests.

/// Which refusal a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalKind {
    /// 429: it works, and there is too much of it.
    Overload,
    /// 503: nothing can serve now.
    Unavailable,
    /// 504: the deadline passed while queued.
    Deadline,
}

impl RefusalKind {
    /// Every kind, for tables of counters.
    pub const ALL: [RefusalKind; 3] = [
        RefusalKind::Overload,
        RefusalKind::Unavailable,
        RefusalKind::Deadline,
    ];

    /// The `type` of the error body and the `kind` label of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            RefusalKind::Overload => "overloaded",
            RefusalKind::Unavailable => "unavailable",
            RefusalKind::Deadline => "deadline",
        }
    }
}

/// A refused request: what the client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// The truth, uncapped; None: nobody knows (nothing can be started).
    pub expected_wait_ns: Option<u64>,
    /// When to come back: capped at 60 s, with jitter.
    pub retry_after_ms: u64,
    /// How long it had been queued.
    pub waited_ns: u64,
    /// Which bound was hit, in words.
    pub detail: &'static str,
    /// Why nothing serves, where control has said so.
    pub cause: Option<Box<str>>,
}

impl Refusal {
    /// The HTTP status: 429, 503 or 504.
    pub fn status(&self) -> u16 {
        match self.kind {
            RefusalKind::Overload => 429,
            RefusalKind::Unavailable => 503,
            RefusalKind::Deadline => 504,
        }
    }

    /// The `type` of the error body.
    pub fn error_type(&self) -> &'static str {
        self.kind.as_str()
    }

    /// The value of `x-should-retry`: a client whose time is over must not ask again.
    pub fn should_retry(&self) -> bool {
        self.kind != RefusalKind::Deadline
    }

    /// The value of `retry-after`: whole seconds, 1 to 60.
    pub fn retry_after_s(&self) -> u64 {
        self.retry_after_ms.div_ceil(1000).clamp(1, 60)
    }

    /// The value of `x-preroll-expected-wait`: seconds.
    pub fn expected_wait_s(&self) -> Option<String> {
        self.expected_wait_ns.map(seconds)
    }

    /// One sentence for the error body: what happened and when to come back.
    pub fn message(&self) -> String {
        let detail = self.detail;
        let after = self.retry_after_s();
        let cause = self.cause.as_deref().unwrap_or_default();
        let cause = if cause.is_empty() {
            String::new()
        } else {
            format!(": {cause}")
        };
        match (self.kind, self.expected_wait_s()) {
            (RefusalKind::Deadline, _) => {
                format!(
                    "{detail} (waited {} s); not worth retrying",
                    seconds(self.waited_ns)
                )
            }
            (_, Some(wait)) => {
                format!("{detail}{cause}; expected wait {wait} s; retry after {after} s")
            }
            (_, None) => format!("{detail}{cause}; retry after {after} s"),
        }
    }
}

/// Nanoseconds as seconds with three digits, rounded up so that a wait is never called zero.
pub fn seconds(ns: u64) -> String {
    let ms = ns.div_ceil(1_000_000);
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// The OpenAI SDK gives up above 120 s: half of it leaves room for jitter in either client.
const RETRY_CAP_NS: u64 = 60_000_000_000;
/// A retry sooner than this only burns cores.
const RETRY_FLOOR_NS: u64 = 50_000_000;

/// The virtual queue of those who were told to come back: each refusal stands behind the last.
///
/// Its length is bounded by the retry cap: beyond it, times are drawn from the upper half of the
/// cap.
#[derive(Debug)]
pub struct VirtualTail {
    tail_ns: u64,
    rng: fastrand::Rng,
}

impl VirtualTail {
    /// An empty tail; `seed` makes the jitter repeatable.
    pub fn new(seed: u64) -> Self {
        VirtualTail {
            tail_ns: 0,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// When a client refused now should come back, in ms: after `expected_ns`, behind earlier
    /// refusals that are `turn_ns` apart, at most 60 s, with up to a tenth of jitter.
    pub fn next_ms(&mut self, now_ns: u64, expected_ns: u64, turn_ns: u64) -> u64 {
        let soonest = now_ns.saturating_add(expected_ns.max(RETRY_FLOOR_NS));
        self.tail_ns = self.tail_ns.max(soonest).saturating_add(turn_ns);
        let wait = self.tail_ns - now_ns;
        let told = if wait > RETRY_CAP_NS {
            self.tail_ns = self.tail_ns.min(now_ns + RETRY_CAP_NS).max(now_ns);
            self.rng.u64(RETRY_CAP_NS / 2..=RETRY_CAP_NS)
        } else {
            wait + self.rng.u64(0..=wait / 10)
        };
        (told.min(RETRY_CAP_NS) / 1_000_000).max(1)
    }
}

/// The weight of the newest sample once there are many.
const ALPHA: f64 = 0.05;
/// Completions nearer to each other than this many are needed before the drain rate is trusted.
const DRAIN_SAMPLES: u32 = 8;

/// An exponentially weighted mean and variance that begins as a plain mean.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ewma {
    mean: f64,
    variance: f64,
    samples: u32,
}

impl Ewma {
    /// Takes one sample.
    pub fn add(&mut self, value: f64) {
        self.samples = self.samples.saturating_add(1);
        let weight = (1.0 / f64::from(self.samples)).max(ALPHA);
        let delta = value - self.mean;
        self.mean += weight * delta;
        self.variance = (1.0 - weight) * (self.variance + weight * delta * delta);
    }

    /// The mean, None without samples.
    pub fn mean(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.mean)
    }

    /// The squared coefficient of variation; 1 (as of exponential service) until there are eight
    /// samples.
    pub fn cv2(&self) -> f64 {
        if self.samples < 8 || self.mean <= 0.0 {
            return 1.0;
        }
        self.variance / (self.mean * self.mean)
    }
}

/// What is busy when an estimate is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Busy {
    /// Slots that serve, over all ready replicas.
    pub slots: usize,
    /// Requests in flight on them.
    pub in_flight: usize,
    /// Requests queued ahead of the one asked about.
    pub ahead: usize,
    /// Mean time that those in flight have been served, ns.
    pub mean_age_ns: f64,
}

/// Learns a stage's service time, drain rate and its own error.
#[derive(Debug)]
pub struct Estimator {
    default_service_ns: f64,
    service: Ewma,
    interval: Ewma,
    last_drain_ns: Option<u64>,
    error: Ewma,
    absolute_error: Ewma,
}

impl Estimator {
    /// `default_service_ns` holds until the first sample.
    pub fn new(default_service_ns: u64) -> Self {
        Estimator {
            default_service_ns: default_service_ns as f64,
            service: Ewma::default(),
            interval: Ewma::default(),
            last_drain_ns: None,
            error: Ewma::default(),
            absolute_error: Ewma::default(),
        }
    }

    /// A new default; samples stay.
    pub fn set_default(&mut self, default_service_ns: u64) {
        self.default_service_ns = default_service_ns as f64;
    }

    /// One service time, from admission to the end.
    pub fn served(&mut self, service_ns: u64) {
        self.service.add(service_ns as f64);
    }

    /// A slot came free while requests were waiting, at `now_ns`: the time since the last one is a
    /// drain sample.
    pub fn drained(&mut self, now_ns: u64) {
        if let Some(last) = self.last_drain_ns {
            self.interval.add(now_ns.saturating_sub(last) as f64);
        }
        self.last_drain_ns = Some(now_ns);
    }

    /// The queue ran empty: the time until the next completion says nothing about the drain rate.
    pub fn idle(&mut self) {
        self.last_drain_ns = None;
    }

    /// The slots changed: the old drain rate no longer holds.
    pub fn slots_changed(&mut self) {
        self.interval = Ewma::default();
        self.last_drain_ns = None;
    }

    /// Expected service time, ns.
    pub fn service_ns(&self) -> f64 {
        self.service
            .mean()
            .unwrap_or(self.default_service_ns)
            .max(1.0)
    }

    /// Expected time between two completions with all slots busy, ns: measured when it has been,
    /// else service time over slots.
    pub fn turn_ns(&self, slots: usize) -> f64 {
        match self.interval.mean() {
            Some(mean) if self.interval.samples >= DRAIN_SAMPLES => mean.max(1.0),
            _ => self.service_ns() / slots.max(1) as f64,
        }
    }

    /// Expected wait for a slot, ns.
    pub fn wait_ns(&self, busy: Busy) -> u64 {
        let free = busy.slots.saturating_sub(busy.in_flight);
        if busy.ahead < free {
            return 0;
        }
        let turns = (busy.ahead - free) as f64;
        (self.residual_ns(busy) + turns * self.turn_ns(busy.slots)) as u64
    }

    /// Time until the first of the busy slots comes free: what regular service has left of it, or,
    /// for service as irregular as exponential (whose age says nothing), a full turn.
    fn residual_ns(&self, busy: Busy) -> f64 {
        let service = self.service_ns();
        let regular = 1.0 - self.service.cv2().min(1.0);
        let left = (service - busy.mean_age_ns * regular).max(service * 0.05);
        left / service * self.turn_ns(busy.slots)
    }

    /// One prediction met its truth.
    pub fn predicted(&mut self, expected_ns: u64, actual_ns: u64) {
        let error = expected_ns as f64 - actual_ns as f64;
        self.error.add(error);
        self.absolute_error.add(error.abs());
    }

    /// Mean of predicted − actual, ns; None without samples.
    pub fn bias_ns(&self) -> Option<f64> {
        self.error.mean()
    }

    /// Mean of |predicted − actual|, ns; None without samples.
    pub fn error_ns(&self) -> Option<f64> {
        self.absolute_error.mean()
    }
}

/// Time until a start is over, ns: of a running one what is left (a tenth of it when it is late:
/// "any moment now" would be a lie), of one not begun all of it.
pub fn start_remaining_ns(expected_ns: u64, started_ns: Option<u64>, now_ns: u64) -> u64 {
    match started_ns {
        None => expected_ns,
        Some(started) => started
            .saturating_add(expected_ns)
            .saturating_sub(now_ns)
            .max(expected_ns / 10),
    }
}

#[cfg(test)]
mod tests;
