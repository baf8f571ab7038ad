//! Counters, integrals over time and the timeline of one endpoint.

use crate::histogram::Histogram;

#[derive(Debug, Default)]
pub struct Stats {
    late_ns: u64,
    /// Until when the integrals over requests, and those over replicas, are made up.
    requests_ns: u64,
    replicas_ns: u64,

    /// Clients that came; each ends as one of the next four or is in the system at the end.
    pub arrivals: u64,
    pub served: u64,
    pub refused: u64,
    pub expired: u64,
    pub timed_out: u64,
    pub attempts: u64,
    pub late: u64,
    /// Attempts that were served after their client had left.
    pub dead_served: u64,
    pub preemptions: u64,
    pub starts: [u64; 4],
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,

    /// Integrals in request- or replica-nanoseconds.
    pub in_system_ns: u128,
    /// Ready replicas beyond those that the requests in the system need.
    pub idle_ns: u128,
    pub ready_ns: u128,
    pub starting_ns: u128,
    /// `idle_ns` up to the latest arrival: the end of a run is not a gap.
    pub idle_closed_ns: u128,
    /// Sum over attempts that left of the time they spent in the system.
    pub sojourn_ns: u128,
    pub departures: u64,
    /// Service given, and the part of it that nobody received.
    pub service_ns: u128,
    pub wasted_ns: u128,

    pub wait: Histogram,
    pub first_byte: Histogram,
    pub whole: Histogram,
    pub start_time: Histogram,

    pub peak_queued: u32,
    pub peak_ns: u64,
    /// When the queue was first empty after its peak.
    pub drained_ns: Option<u64>,

    /// Since the last control tick.
    pub tick_arrivals: u32,
    tick_in_system_ns: u128,
    tick_ns: u64,
    idle_since_ns: u64,
    pub gaps_ns: std::collections::VecDeque<u64>,
    pub num_gaps: u64,
}

/// Gaps that a policy sees.
const GAPS_KEPT: usize = 256;

impl Stats {
    pub fn new(late_ns: u64) -> Self {
        Self {
            late_ns,
            ..Self::default()
        }
    }

    #[inline]
    pub fn advance_requests(&mut self, now_ns: u64, in_system: u32, surplus: u32) {
        let elapsed = u128::from(now_ns - self.requests_ns);
        self.requests_ns = now_ns;
        self.in_system_ns += elapsed * u128::from(in_system);
        self.idle_ns += elapsed * u128::from(surplus);
    }

    pub fn advance_replicas(&mut self, now_ns: u64, ready: u32, starting: u32) {
        let elapsed = u128::from(now_ns - self.replicas_ns);
        self.replicas_ns = now_ns;
        self.ready_ns += elapsed * u128::from(ready);
        self.starting_ns += elapsed * u128::from(starting);
    }

    /// A first attempt came to a system that held `in_system` requests.
    #[inline]
    pub fn note_arrival(&mut self, now_ns: u64, in_system: u32) {
        self.arrivals += 1;
        self.tick_arrivals += 1;
        if in_system == 0 {
            self.idle_closed_ns = self.idle_ns;
            if self.num_gaps > 0 || self.served > 0 {
                self.note_gap(now_ns - self.idle_since_ns);
            }
        }
    }

    fn note_gap(&mut self, gap_ns: u64) {
        if self.gaps_ns.len() == GAPS_KEPT {
            self.gaps_ns.pop_front();
        }
        self.gaps_ns.push_back(gap_ns);
        self.num_gaps += 1;
    }

    #[inline]
    pub fn note_level(&mut self, now_ns: u64, in_system: u32, queued: u32) {
        if in_system == 0 {
            self.idle_since_ns = now_ns;
        }
        if queued > self.peak_queued {
            (self.peak_queued, self.peak_ns, self.drained_ns) = (queued, now_ns, None);
        } else if queued == 0 && self.drained_ns.is_none() && self.peak_queued > 0 {
            self.drained_ns = Some(now_ns);
        }
    }

    /// A client got its first byte `after_ns` after its first attempt.
    #[inline]
    pub fn note_first_byte(&mut self, after_ns: u64) {
        self.first_byte.record(after_ns);
        self.late += u64::from(after_ns > self.late_ns);
    }

    /// Average in the system, arrivals and idle seconds since the last tick; begins a new tick.
    pub fn take_tick(&mut self, now_ns: u64, in_system: u32) -> (f64, u32, f64) {
        let elapsed = now_ns - self.tick_ns;
        let area = self.in_system_ns - self.tick_in_system_ns;
        let average = if elapsed > 0 {
            area as f64 / elapsed as f64
        } else {
            f64::from(in_system)
        };
        let arrivals = std::mem::take(&mut self.tick_arrivals);
        (self.tick_in_system_ns, self.tick_ns) = (self.in_system_ns, now_ns);
        let idle_ns = if in_system == 0 {
            now_ns - self.idle_since_ns
        } else {
            0
        };
        (average, arrivals, idle_ns as f64 / 1e9)
    }
}

/// One sample: counts at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub time_ns: u64,
    pub queued: u32,
    pub in_flight: u32,
    pub ready: u32,
    pub starting: u32,
    pub arrivals: u64,
    pub late: u64,
}

/// At most `MAX_SAMPLES` (even, so that the newest stays); when there are more, every second one goes and the interval doubles.
#[derive(Debug, Default)]
pub struct Timeline {
    pub samples: Vec<Sample>,
    pub interval_ns: u64,
}

pub const MAX_SAMPLES: usize = 4096;

impl Timeline {
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
        if self.samples.len() > MAX_SAMPLES {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval_ns *= 2;
        }
    }
}
