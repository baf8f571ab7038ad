//! One stage's handles, resolved once.

use std::cell::RefCell;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::families::{Families, ReplicaLabels, SecondsGauge, StageKindLabels, StageLabels};
use crate::pace::PaceReport;
use crate::queue::{Move, StageSnapshot};
use crate::sse::Usage;
use crate::wait::RefusalKind;

/// Where a request was when its client left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Queued,
    /// Admitted, no content yet.
    Prefill,
    Stream,
}

const PHASES: [&str; 3] = ["queued", "prefill", "stream"];
const REFUSALS: [&str; 3] = [
    RefusalKind::ALL[0].as_str(),
    RefusalKind::ALL[1].as_str(),
    RefusalKind::ALL[2].as_str(),
];
/// How requests end; another word is counted as the last.
const OUTCOMES: [&str; 7] = [
    "complete",
    "error_status",
    "rejected",
    "client_gone",
    "deadline",
    "failed",
    "other",
];

/// In the order of [`Move`].
const MOVES: [&str; 3] = ["new", "kept", "moved"];

/// What is recorded of streams that are played as they come.
struct PaceMetrics {
    realtime_factor: Histogram,
    worst_gap: Histogram,
    underruns: Counter,
    streams: Counter,
    off_pace: Counter,
}

/// What is recorded of one stage.
pub struct StageMetrics {
    labels: StageLabels,
    depth: Gauge,
    in_flight: Gauge,
    slots: Gauge,
    sessions: Gauge,
    session_duration: Histogram,
    session_ends: [Counter; OUTCOMES.len()],
    session_moves: [Counter; MOVES.len()],
    cached_tokens: Counter,
    expected_wait: SecondsGauge,
    expected_wait_bias: SecondsGauge,
    wait: Histogram,
    wait_error: Histogram,
    ttft: Histogram,
    gap: Histogram,
    pace: PaceMetrics,
    e2e: Histogram,
    attempts: Histogram,
    stalls: Counter,
    prompt_tokens: Counter,
    completion_tokens: Counter,
    refusals: [Counter; REFUSALS.len()],
    cancels: [Counter; PHASES.len()],
    requests: [Counter; OUTCOMES.len()],
    replicas: [Family<ReplicaLabels, Gauge>; 3],
    known_replicas: RefCell<Vec<String>>,
}

fn outcome_at(outcome: &str) -> usize {
    let at = OUTCOMES.iter().position(|known| *known == outcome);
    at.unwrap_or(OUTCOMES.len() - 1)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Families {
    pub(super) fn stage(&self, name: &str, model: &str) -> StageMetrics {
        let labels = StageLabels {
            stage: name.to_owned(),
            model_name: model.to_owned(),
        };
        let counter = |family: &Family<StageKindLabels, Counter>, kind| {
            family.get_or_create_owned(&StageKindLabels {
                stage: name.to_owned(),
                kind,
            })
        };
        StageMetrics {
            depth: self.depth.get_or_create_owned(&labels),
            in_flight: self.in_flight.get_or_create_owned(&labels),
            slots: self.slots.get_or_create_owned(&labels),
            sessions: self.sessions.get_or_create_owned(&labels),
            session_duration: self.session_duration.get_or_create_owned(&labels),
            session_ends: OUTCOMES.map(|kind| counter(&self.session_ends, kind)),
            session_moves: MOVES.map(|kind| counter(&self.session_moves, kind)),
            cached_tokens: self.cached_tokens.get_or_create_owned(&labels),
            expected_wait: self.expected_wait.get_or_create_owned(&labels),
            expected_wait_bias: self.expected_wait_bias.get_or_create_owned(&labels),
            wait: self.wait.get_or_create_owned(&labels),
            wait_error: self.wait_error.get_or_create_owned(&labels),
            ttft: self.ttft.get_or_create_owned(&labels),
            gap: self.gap.get_or_create_owned(&labels),
            pace: PaceMetrics {
                realtime_factor: self.realtime_factor.get_or_create_owned(&labels),
                worst_gap: self.worst_gap.get_or_create_owned(&labels),
                underruns: self.underruns.get_or_create_owned(&labels),
                streams: self.paced.get_or_create_owned(&labels),
                off_pace: self.off_pace.get_or_create_owned(&labels),
            },
            e2e: self.e2e.get_or_create_owned(&labels),
            attempts: self.attempts.get_or_create_owned(&labels),
            stalls: self.stalls.get_or_create_owned(&labels),
            prompt_tokens: self.prompt_tokens.get_or_create_owned(&labels),
            completion_tokens: self.completion_tokens.get_or_create_owned(&labels),
            refusals: REFUSALS.map(|kind| counter(&self.refusals, kind)),
            cancels: PHASES.map(|kind| counter(&self.cancels, kind)),
            requests: OUTCOMES.map(|kind| counter(&self.requests, kind)),
            replicas: [
                self.replica_in_flight.clone(),
                self.replica_connections.clone(),
                self.replica_ejected.clone(),
            ],
            known_replicas: RefCell::default(),
            labels,
        }
    }
}

impl StageMetrics {
    pub(super) fn labels(&self) -> &StageLabels {
        &self.labels
    }

    pub(super) fn model(&self) -> &str {
        &self.labels.model_name
    }

    pub(super) fn kinds<'a>(
        &self,
        families: &'a Families,
    ) -> [(
        &'a Family<StageKindLabels, Counter>,
        &'static [&'static str],
    ); 5] {
        [
            (&families.refusals, &REFUSALS),
            (&families.cancels, &PHASES),
            (&families.requests, &OUTCOMES),
            (&families.session_ends, &OUTCOMES),
            (&families.session_moves, &MOVES),
        ]
    }

    /// A request got its slot; the wait's error is recorded with it.
    pub fn admitted(&self, waited_ns: u64, expected_ns: u64) {
        self.wait.observe(seconds(waited_ns));
        self.wait_error
            .observe(seconds(waited_ns.abs_diff(expected_ns)));
    }

    pub fn refused(&self, kind: RefusalKind) {
        self.refusals[kind as usize].inc();
    }

    /// First content came this long after arrival.
    pub fn first_content(&self, since_arrival_ns: u64) {
        self.ttft.observe(seconds(since_arrival_ns));
    }

    /// A paced stream has ended; `is_off`: it missed the objective.
    pub fn paced(&self, report: &PaceReport, is_off: bool) {
        let pace = &self.pace;
        pace.streams.inc();
        pace.off_pace.inc_by(u64::from(is_off));
        pace.underruns.inc_by(report.underruns);
        if let Some(factor) = report.realtime_factor {
            pace.realtime_factor.observe(factor);
            pace.worst_gap.observe(report.worst_gap_ms / 1e3);
        }
    }

    pub fn gap(&self, gap_ns: u64) {
        self.gap.observe(seconds(gap_ns));
    }

    pub fn stalled(&self, stalls: u64) {
        self.stalls.inc_by(stalls);
    }

    /// A request ended. `outcome` is one of `complete`, `error_status`, `rejected`, `client_gone`,
    /// `deadline`, `failed`; another word counts as `other`.
    pub fn finished(&self, outcome: &str, duration_ns: u64, attempts: u32) {
        self.requests[outcome_at(outcome)].inc();
        self.e2e.observe(seconds(duration_ns));
        self.attempts.observe(f64::from(attempts));
    }

    /// A WebSocket session ended; the outcomes are those of requests.
    pub fn session_ended(&self, outcome: &str, duration_ns: u64) {
        self.session_ends[outcome_at(outcome)].inc();
        self.session_duration.observe(seconds(duration_ns));
    }

    /// A request named a session.
    pub fn session_moved(&self, session_move: Move) {
        self.session_moves[session_move as usize].inc();
    }

    pub fn tokens(&self, usage: &Usage) {
        self.prompt_tokens.inc_by(usage.prompt_tokens);
        self.completion_tokens.inc_by(usage.completion_tokens);
        self.cached_tokens.inc_by(usage.cached_tokens);
    }

    pub fn cancelled(&self, phase: Phase) {
        self.cancels[phase as usize].inc();
    }

    /// Sets the gauges, before a scrape.
    pub fn levels(&self, now: &StageSnapshot) {
        self.depth.set(now.queued as i64);
        self.in_flight.set(now.in_flight as i64);
        self.slots.set(now.slots as i64);
        self.sessions.set(now.sessions as i64);
        // Nobody knows: infinity, not a number that looks like one.
        self.expected_wait.set(
            now.expected_wait_ms
                .map_or(f64::INFINITY, |ms| ms as f64 / 1e3),
        );
        self.expected_wait_bias
            .set(now.expected_wait_bias_ms.unwrap_or(0.0) / 1e3);
        self.forget_replicas();
        for (id, replica) in &now.replicas {
            let labels = self.replica(id);
            let values = [
                replica.in_flight as i64,
                replica.connections as i64,
                i64::from(replica.ejected),
            ];
            for (family, value) in self.replicas.iter().zip(values) {
                family.get_or_create(&labels).set(value);
            }
        }
        *self.known_replicas.borrow_mut() = now.replicas.keys().cloned().collect();
    }

    fn replica(&self, id: &str) -> ReplicaLabels {
        ReplicaLabels {
            stage: self.labels.stage.clone(),
            replica: id.to_owned(),
        }
    }

    pub(super) fn forget_replicas(&self) {
        for id in self.known_replicas.borrow_mut().drain(..) {
            let labels = self.replica(&id);
            self.replicas.iter().for_each(|family| {
                family.remove(&labels);
            });
        }
    }
}
