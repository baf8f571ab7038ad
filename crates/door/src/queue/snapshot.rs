//! A stage's numbers at one time, as `GET /state` shows them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::state::State;

/// One stage; field names are those of docs/protocol.md.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageSnapshot {
    pub queued: usize,
    pub in_flight: usize,
    pub sessions: usize,
    pub sessions_opened_total: u64,
    pub sessions_refused_total: u64,
    pub slots: usize,
    pub oldest_wait_ms: u64,
    pub arrivals_total: u64,
    pub finished_total: u64,
    pub refused_total: u64,
    /// Withdrawn before they ran: arrivals = queued + in flight + finished + refused + cancelled.
    pub cancelled_total: u64,
    pub last_activity_ns: u64,
    /// None: nothing can serve.
    pub expected_wait_ms: Option<u64>,
    /// Mean of predicted − actual wait; None until there are samples.
    pub expected_wait_bias_ms: Option<f64>,
    /// Mean of |predicted − actual| wait.
    pub expected_wait_error_ms: Option<f64>,
    /// Integral of in-flight + queued over time, request-nanoseconds.
    pub concurrency_ns: u128,
    pub replicas: BTreeMap<String, ReplicaSnapshot>,
}

/// One replica in the tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplicaSnapshot {
    pub in_flight: usize,
    pub sessions: usize,
    pub slots: usize,
    pub connections: u64,
    pub ejected: bool,
}

impl StageSnapshot {
    pub(super) fn of(state: &State) -> StageSnapshot {
        let ms = |ns: f64| ns / 1e6;
        let replicas = state.fleet.all().iter().map(|replica| {
            let snapshot = ReplicaSnapshot {
                in_flight: replica.in_flight(),
                sessions: replica.sessions.get(),
                slots: replica.slots(),
                connections: replica.connections.get(),
                ejected: replica.is_ejected(),
            };
            (replica.id().to_owned(), snapshot)
        });
        let oldest_ns = state.line.oldest_ns().unwrap_or(state.now_ns);
        let expected_ns = state.expected_wait_ns(state.line.len());
        StageSnapshot {
            queued: state.line.len(),
            in_flight: state.in_flight,
            sessions: state.sessions,
            sessions_opened_total: state.counts.sessions_opened,
            sessions_refused_total: state.counts.sessions_refused,
            slots: state.fleet.slots(),
            oldest_wait_ms: (state.now_ns - oldest_ns) / 1_000_000,
            arrivals_total: state.counts.arrivals,
            finished_total: state.counts.finished,
            refused_total: state.counts.refused,
            cancelled_total: state.counts.cancelled,
            last_activity_ns: state.counts.last_activity_ns,
            expected_wait_ms: expected_ns.map(|ns| ns.div_ceil(1_000_000)),
            expected_wait_bias_ms: state.estimator.bias_ns().map(ms),
            expected_wait_error_ms: state.estimator.error_ns().map(ms),
            concurrency_ns: state.counts.concurrency_ns,
            replicas: replicas.collect(),
        }
    }
}
