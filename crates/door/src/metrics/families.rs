//! The metric families: their names, their labels, their buckets.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::stage::StageMetrics;

/// Both are set by tables.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StageLabels {
    pub stage: String,
    pub model_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StageKindLabels {
    pub stage: String,
    pub kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabels {
    pub kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReplicaLabels {
    pub stage: String,
    pub replica: String,
}

/// Queue waits and times to first token: from what nobody notices to what nobody waits for.
const LATENCY_S: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0,
    60.0, 300.0,
];
const GAP_S: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0,
];
/// From a dropped call to a day of listening.
const SESSION_S: [f64; 8] = [1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 14_400.0, 86_400.0];
/// Real-time factors: below 1 a stream is made faster than it is played.
const FACTORS: [f64; 12] = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.5, 2.0, 5.0];
const ATTEMPTS: [f64; 3] = [1.0, 2.0, 3.0];

pub(super) type HistogramFamily = Family<StageLabels, Histogram, fn() -> Histogram>;
pub(super) type GaugeFamily = Family<StageLabels, Gauge>;
pub(super) type SecondsGauge = Gauge<f64, std::sync::atomic::AtomicU64>;

fn latency() -> Histogram {
    Histogram::new(LATENCY_S)
}

fn gap() -> Histogram {
    Histogram::new(GAP_S)
}

fn session() -> Histogram {
    Histogram::new(SESSION_S)
}

fn factors() -> Histogram {
    Histogram::new(FACTORS)
}

fn attempts() -> Histogram {
    Histogram::new(ATTEMPTS)
}

fn histograms(new: fn() -> Histogram) -> HistogramFamily {
    Family::new_with_constructor(new)
}

/// One family per metric, all of them per stage.
pub(super) struct Families {
    pub depth: GaugeFamily,
    pub in_flight: GaugeFamily,
    pub slots: GaugeFamily,
    pub sessions: GaugeFamily,
    pub session_duration: HistogramFamily,
    pub session_ends: Family<StageKindLabels, Counter>,
    pub session_moves: Family<StageKindLabels, Counter>,
    pub cached_tokens: Family<StageLabels, Counter>,
    pub expected_wait: Family<StageLabels, SecondsGauge>,
    pub expected_wait_bias: Family<StageLabels, SecondsGauge>,
    pub wait: HistogramFamily,
    pub wait_error: HistogramFamily,
    pub ttft: HistogramFamily,
    pub gap: HistogramFamily,
    pub realtime_factor: HistogramFamily,
    pub worst_gap: HistogramFamily,
    pub e2e: HistogramFamily,
    pub attempts: HistogramFamily,
    pub stalls: Family<StageLabels, Counter>,
    pub underruns: Family<StageLabels, Counter>,
    pub paced: Family<StageLabels, Counter>,
    pub off_pace: Family<StageLabels, Counter>,
    pub prompt_tokens: Family<StageLabels, Counter>,
    pub completion_tokens: Family<StageLabels, Counter>,
    pub refusals: Family<StageKindLabels, Counter>,
    pub cancels: Family<StageKindLabels, Counter>,
    pub requests: Family<StageKindLabels, Counter>,
    pub replica_in_flight: Family<ReplicaLabels, Gauge>,
    pub replica_connections: Family<ReplicaLabels, Gauge>,
    pub replica_ejected: Family<ReplicaLabels, Gauge>,
}

impl Families {
    pub(super) fn new(registry: &mut Registry) -> Families {
        let families = Families {
            depth: Family::default(),
            in_flight: Family::default(),
            slots: Family::default(),
            sessions: Family::default(),
            session_duration: histograms(session),
            session_ends: Family::default(),
            session_moves: Family::default(),
            cached_tokens: Family::default(),
            expected_wait: Family::default(),
            expected_wait_bias: Family::default(),
            wait: histograms(latency),
            wait_error: histograms(latency),
            ttft: histograms(latency),
            gap: histograms(gap),
            realtime_factor: histograms(factors),
            worst_gap: histograms(gap),
            e2e: histograms(latency),
            attempts: histograms(attempts),
            stalls: Family::default(),
            underruns: Family::default(),
            paced: Family::default(),
            off_pace: Family::default(),
            prompt_tokens: Family::default(),
            completion_tokens: Family::default(),
            refusals: Family::default(),
            cancels: Family::default(),
            requests: Family::default(),
            replica_in_flight: Family::default(),
            replica_connections: Family::default(),
            replica_ejected: Family::default(),
        };
        families.register_levels(registry);
        families.register_times(registry);
        families.register_counts(registry);
        families.register_sums(registry);
        families.register_vllm(registry);
        families
    }

    fn register_levels(&self, registry: &mut Registry) {
        let levels = [
            ("preroll_queue_depth", "Requests queued now", &self.depth),
            (
                "preroll_requests_in_flight",
                "Requests that hold a slot now",
                &self.in_flight,
            ),
            (
                "preroll_slots",
                "Slots of the replicas that serve",
                &self.slots,
            ),
            ("preroll_sessions", "Open sessions", &self.sessions),
        ];
        for (name, help, family) in levels {
            registry.register(name, help, family.clone());
        }
        let replicas = [
            (
                "preroll_replica_in_flight",
                "Requests in flight",
                &self.replica_in_flight,
            ),
            (
                "preroll_upstream_connections",
                "Connections to the replica",
                &self.replica_connections,
            ),
            (
                "preroll_replica_ejected",
                "1 while the replica is ejected",
                &self.replica_ejected,
            ),
        ];
        for (name, help, family) in replicas {
            registry.register(name, help, family.clone());
        }
        let waits = [
            (
                "preroll_expected_wait",
                "Wait expected of a request that comes now",
                &self.expected_wait,
            ),
            (
                "preroll_expected_wait_bias",
                "Mean of predicted - actual wait",
                &self.expected_wait_bias,
            ),
        ];
        for (name, help, family) in waits {
            registry.register_with_unit(name, help, Unit::Seconds, family.clone());
        }
    }

    fn register_times(&self, registry: &mut Registry) {
        let times = [
            (
                "preroll_queue_wait",
                "From arrival to admission",
                &self.wait,
            ),
            (
                "preroll_expected_wait_error",
                "|predicted - actual| wait",
                &self.wait_error,
            ),
            (
                "preroll_time_to_first_content",
                "From arrival to the first content",
                &self.ttft,
            ),
            (
                "preroll_content_gap",
                "Between two chunks with content",
                &self.gap,
            ),
            (
                "preroll_stream_worst_gap",
                "Longest time between two frames of a paced stream",
                &self.worst_gap,
            ),
            (
                "preroll_request_duration",
                "From arrival to the end",
                &self.e2e,
            ),
            (
                "preroll_session_duration",
                "WebSocket sessions, from arrival to the end",
                &self.session_duration,
            ),
        ];
        for (name, help, family) in times {
            registry.register_with_unit(name, help, Unit::Seconds, family.clone());
        }
        let help = "Time to send a paced stream over its playing time";
        registry.register(
            "preroll_stream_realtime_factor",
            help,
            self.realtime_factor.clone(),
        );
        let help = "Attempts per user request";
        registry.register("preroll_request_attempts", help, self.attempts.clone());
    }

    fn register_counts(&self, registry: &mut Registry) {
        let kinds = [
            (
                "preroll_refusals",
                "Refused requests by kind",
                &self.refusals,
            ),
            (
                "preroll_cancels",
                "Requests whose client left, by phase",
                &self.cancels,
            ),
            (
                "preroll_requests",
                "Ended requests by outcome",
                &self.requests,
            ),
            (
                "preroll_session_ends",
                "Ended WebSocket sessions by outcome",
                &self.session_ends,
            ),
            (
                "preroll_session_moves",
                "Requests that name a session: new, kept on its replica, moved",
                &self.session_moves,
            ),
        ];
        for (name, help, family) in kinds {
            registry.register(name, help, family.clone());
        }
    }

    fn register_sums(&self, registry: &mut Registry) {
        let counts = [
            (
                "preroll_stalls",
                "Gaps longer than the stall threshold",
                &self.stalls,
            ),
            (
                "preroll_stream_underruns",
                "Frames of paced streams that came after their turn",
                &self.underruns,
            ),
            ("preroll_paced_streams", "Ended paced streams", &self.paced),
            (
                "preroll_paced_streams_off_pace",
                "Those with a gap longer than slo.pace",
                &self.off_pace,
            ),
            (
                "preroll_prompt_tokens",
                "As the servers report them",
                &self.prompt_tokens,
            ),
            (
                "preroll_completion_tokens",
                "As the servers report them",
                &self.completion_tokens,
            ),
            (
                "preroll_cached_prompt_tokens",
                "Prompt tokens from a prefix cache, as the servers report them",
                &self.cached_tokens,
            ),
        ];
        for (name, help, family) in counts {
            registry.register(name, help, family.clone());
        }
    }

    /// The same series under the names that dashboards and autoscalers made for vLLM read.
    fn register_vllm(&self, registry: &mut Registry) {
        let gauges = [
            (
                "vllm:num_requests_running",
                "Requests that hold a slot now",
                &self.in_flight,
            ),
            (
                "vllm:num_requests_waiting",
                "Requests queued now",
                &self.depth,
            ),
        ];
        for (name, help, family) in gauges {
            registry.register(name, help, family.clone());
        }
        let times = [
            (
                "vllm:time_to_first_token",
                "From arrival to the first content",
                &self.ttft,
            ),
            (
                "vllm:e2e_request_latency",
                "From arrival to the end",
                &self.e2e,
            ),
            (
                "vllm:request_queue_time",
                "From arrival to admission",
                &self.wait,
            ),
        ];
        for (name, help, family) in times {
            registry.register_with_unit(name, help, Unit::Seconds, family.clone());
        }
    }

    /// Ends every series of a stage.
    pub(super) fn forget(&self, stage: &StageMetrics) {
        let labels = stage.labels();
        for family in [&self.depth, &self.in_flight, &self.slots, &self.sessions] {
            family.remove(labels);
        }
        for family in [
            &self.wait,
            &self.wait_error,
            &self.ttft,
            &self.gap,
            &self.realtime_factor,
            &self.worst_gap,
            &self.e2e,
            &self.attempts,
            &self.session_duration,
        ] {
            family.remove(labels);
        }
        for family in [
            &self.underruns,
            &self.paced,
            &self.off_pace,
            &self.stalls,
            &self.prompt_tokens,
            &self.completion_tokens,
            &self.cached_tokens,
        ] {
            family.remove(labels);
        }
        for family in [&self.expected_wait, &self.expected_wait_bias] {
            family.remove(labels);
        }
        for (family, kinds) in stage.kinds(self) {
            for kind in kinds {
                family.remove(&StageKindLabels {
                    stage: labels.stage.clone(),
                    kind,
                });
            }
        }
        stage.forget_replicas();
    }
}
