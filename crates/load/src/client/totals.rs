//! Sums over the measured requests, and the client's own lateness.

use std::collections::BTreeMap;

use serde::Serialize;

use super::histogram::{Histogram, Quantiles};
use super::record::Record;

/// How late the client itself was, in nanoseconds.
#[derive(Default)]
pub struct Lag {
    /// A timer of the loop fired this long after its time.
    pub timer: Histogram,
    /// A connection was read this long after the poll that announced it.
    pub read: Histogram,
    /// An arrival was begun this long after the schedule meant it.
    pub send: Histogram,
}

#[derive(Default)]
pub struct Totals {
    pub finished: u64,
    pub ok: u64,
    failures: BTreeMap<&'static str, u64>,
    statuses: BTreeMap<u16, u64>,
    pub ttft: Histogram,
    end_to_end: Histogram,
    gaps: Histogram,
    content_events: u64,
    content_reads: u64,
    multi_reads: u64,
    without_usage: u64,
    body_bytes: u64,
}

impl Totals {
    pub fn add(&mut self, record: &Record) {
        self.finished += 1;
        if let Some(status) = record.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        if let Some(failure) = &record.failure {
            *self.failures.entry(failure.kind).or_default() += 1;
            return;
        }
        self.ok += 1;
        self.without_usage += u64::from(record.completion_tokens.is_none());
        if let Some(first) = record.first_content_ns {
            self.ttft.record(first - record.intended_ns);
        }
        self.end_to_end.record(record.end_ns - record.intended_ns);
        record.gaps_ns.iter().for_each(|gap| self.gaps.record(*gap));
        self.content_events += record.content_events;
        self.content_reads += record.content_reads;
        self.multi_reads += record.multi_reads;
        self.body_bytes += record.body_bytes;
    }
}

/// The last line of a run.
#[derive(Serialize)]
pub struct Summary<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub reason: &'a str,
    pub start_ns: i64,
    pub measured_from_ns: i64,
    pub end_ns: i64,
    pub cpu_ns: i64,
    pub started: u64,
    pub warmup: u64,
    pub finished: u64,
    pub ok: u64,
    pub failures: &'a BTreeMap<&'static str, u64>,
    pub statuses: &'a BTreeMap<u16, u64>,
    pub connections: u64,
    pub max_in_flight: usize,
    pub mean_in_flight: f64,
    pub ttft_ns: Quantiles,
    pub end_to_end_ns: Quantiles,
    pub gap_ns: Quantiles,
    pub content_events: u64,
    pub content_reads: u64,
    pub multi_reads: u64,
    pub without_usage: u64,
    pub body_bytes: u64,
    pub timer_lag_ns: Quantiles,
    pub read_lag_ns: Quantiles,
    pub send_lag_ns: Quantiles,
}

/// What only the engine knows of a run.
pub struct Frame<'a> {
    pub reason: &'a str,
    pub start_ns: i64,
    pub measured_from_ns: i64,
    pub end_ns: i64,
    pub cpu_ns: i64,
    pub started: u64,
    pub warmup: u64,
    pub connections: u64,
    pub max_in_flight: usize,
    pub mean_in_flight: f64,
}

impl<'a> Summary<'a> {
    pub fn new(frame: Frame<'a>, totals: &'a Totals, lag: &Lag) -> Self {
        Self {
            kind: "end",
            reason: frame.reason,
            start_ns: frame.start_ns,
            measured_from_ns: frame.measured_from_ns,
            end_ns: frame.end_ns,
            cpu_ns: frame.cpu_ns,
            started: frame.started,
            warmup: frame.warmup,
            finished: totals.finished,
            ok: totals.ok,
            failures: &totals.failures,
            statuses: &totals.statuses,
            connections: frame.connections,
            max_in_flight: frame.max_in_flight,
            mean_in_flight: frame.mean_in_flight,
            ttft_ns: totals.ttft.quantiles(),
            end_to_end_ns: totals.end_to_end.quantiles(),
            gap_ns: totals.gaps.quantiles(),
            content_events: totals.content_events,
            content_reads: totals.content_reads,
            multi_reads: totals.multi_reads,
            without_usage: totals.without_usage,
            body_bytes: totals.body_bytes,
            timer_lag_ns: lag.timer.quantiles(),
            read_lag_ns: lag.read.quantiles(),
            send_lag_ns: lag.send.quantiles(),
        }
    }
}
