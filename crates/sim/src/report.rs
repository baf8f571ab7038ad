//! What a control tick sees, and what a run leaves: plain numbers, ready to be written as JSON.

use serde::Serialize;

use crate::dist::seconds;
use crate::endpoint::Endpoint;
use crate::engine::Sim;
use crate::histogram::Histogram;
use crate::request::State;
use crate::stats::Sample;

/// One endpoint at one control tick; the meaning of the fields is that of `core.Observation`.
#[derive(Clone, Debug)]
pub struct Observation {
    pub now_s: f64,
    pub num_ready: u32,
    pub num_starting: u32,
    pub in_flight: u32,
    pub queued: u32,
    pub arrivals: u32,
    pub concurrency: f64,
    pub idle_s: f64,
    /// Number of gaps seen so far; the latest are given by `Sim::gaps_s`.
    pub num_gaps: u64,
    /// Median of the starts so far.
    pub start_s: Option<f64>,
}

/// Mean and quantiles of a duration, seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Quantiles {
    pub count: u64,
    pub mean_s: Option<f64>,
    pub p50_s: Option<f64>,
    pub p95_s: Option<f64>,
    pub p99_s: Option<f64>,
    pub max_s: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct EndpointReport {
    pub arrivals: u64,
    pub attempts: u64,
    pub served: u64,
    pub refused: u64,
    pub expired: u64,
    pub timed_out: u64,
    /// Clients still in the system, or waiting to try again, at the end.
    pub in_flight: u64,
    pub late: u64,
    pub dead_served: u64,
    pub preemptions: u64,
    /// By preparedness: resident, local weights, warm node, new node.
    pub starts: [u64; 4],
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub in_system_mean: f64,
    pub idle_s: f64,
    pub idle_closed_s: f64,
    pub ready_s: f64,
    pub starting_s: f64,
    pub sojourn_s: f64,
    pub in_system_s: f64,
    pub service_s: f64,
    pub wasted_s: f64,
    pub wait: Quantiles,
    pub first_byte: Quantiles,
    pub whole: Quantiles,
    pub start_time: Quantiles,
    pub peak_queued: u32,
    pub peak_s: f64,
    pub drained_s: Option<f64>,
    pub num_gaps: u64,
    /// Seconds that the offline optimum pays, when it was tracked.
    pub optimum_s: Option<f64>,
    pub timeline: Vec<SampleReport>,
}

/// (time s, queued, in flight, ready, starting, arrivals, late)
pub type SampleReport = (f64, u32, u32, u32, u32, u64, u64);

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub end_s: f64,
    pub events: u64,
    pub endpoints: Vec<EndpointReport>,
}

impl Sim {
    /// What control sees of an endpoint now; begins a new interval of averaging.
    pub fn observe(&mut self, index: u32) -> Observation {
        let now_ns = self.now_ns;
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.touch(now_ns);
        let (concurrency, arrivals, idle_s) =
            endpoint.stats.take_tick(now_ns, endpoint.in_system());
        Observation {
            now_s: seconds(now_ns),
            num_ready: endpoint.num_ready,
            num_starting: endpoint.num_starting,
            in_flight: endpoint.in_flight,
            queued: endpoint.queued,
            arrivals,
            concurrency,
            idle_s,
            num_gaps: endpoint.stats.num_gaps,
            start_s: endpoint.stats.start_time.quantile(0.5).map(|v| v / 1e9),
        }
    }

    /// The latest gaps of an endpoint without any work, seconds, oldest first.
    pub fn gaps_s(&self, index: u32) -> Vec<f64> {
        let gaps = &self.endpoints[index as usize].stats.gaps_ns;
        gaps.iter().map(|&ns| seconds(ns)).collect()
    }

    pub fn report(&self) -> Report {
        let mut in_flight = vec![0; self.endpoints.len()];
        for request in self.requests.iter() {
            if request.state != State::Gone && !request.dead {
                in_flight[request.endpoint as usize] += 1;
            }
        }
        // sojourns that are not over yet, so that Little's law holds at any end
        let mut open_ns = vec![0u128; self.endpoints.len()];
        for request in self.requests.iter() {
            if matches!(request.state, State::Queued | State::Running) {
                open_ns[request.endpoint as usize] += u128::from(self.now_ns - request.arrived_ns);
            }
        }
        let end_s = seconds(self.now_ns);
        let each = self.endpoints.iter().zip(in_flight).zip(open_ns);
        let endpoints = each
            .map(|((e, n), open)| endpoint_report(e, n, open, end_s))
            .collect();
        Report {
            end_s,
            events: self.num_events,
            endpoints,
        }
    }
}

fn endpoint_report(
    endpoint: &Endpoint,
    in_flight: u64,
    open_ns: u128,
    end_s: f64,
) -> EndpointReport {
    let stats = &endpoint.stats;
    let area_s = |ns: u128| ns as f64 / 1e9;
    EndpointReport {
        arrivals: stats.arrivals,
        attempts: stats.attempts,
        served: stats.served,
        refused: stats.refused,
        expired: stats.expired,
        timed_out: stats.timed_out,
        in_flight,
        late: stats.late,
        dead_served: stats.dead_served,
        preemptions: stats.preemptions,
        starts: stats.starts,
        prompt_tokens: stats.prompt_tokens,
        cached_tokens: stats.cached_tokens,
        output_tokens: stats.output_tokens,
        in_system_mean: if end_s > 0.0 {
            area_s(stats.in_system_ns) / end_s
        } else {
            0.0
        },
        idle_s: area_s(stats.idle_ns),
        idle_closed_s: area_s(stats.idle_closed_ns),
        ready_s: area_s(stats.ready_ns),
        starting_s: area_s(stats.starting_ns),
        sojourn_s: area_s(stats.sojourn_ns + open_ns),
        in_system_s: area_s(stats.in_system_ns),
        service_s: area_s(stats.service_ns),
        wasted_s: area_s(stats.wasted_ns),
        wait: quantiles(&stats.wait),
        first_byte: quantiles(&stats.first_byte),
        whole: quantiles(&stats.whole),
        start_time: quantiles(&stats.start_time),
        peak_queued: stats.peak_queued,
        peak_s: seconds(stats.peak_ns),
        drained_s: stats.drained_ns.map(seconds),
        num_gaps: stats.num_gaps,
        optimum_s: endpoint.levels.as_ref().map(|l| area_s(l.optimum_ns)),
        timeline: endpoint
            .timeline
            .samples
            .iter()
            .map(sample_report)
            .collect(),
    }
}

fn quantiles(histogram: &Histogram) -> Quantiles {
    let at = |q: f64| histogram.quantile(q).map(|v| v / 1e9);
    Quantiles {
        count: histogram.count(),
        mean_s: histogram.mean().map(|v| v / 1e9),
        p50_s: at(0.5),
        p95_s: at(0.95),
        p99_s: at(0.99),
        max_s: seconds(histogram.max()),
    }
}

fn sample_report(s: &Sample) -> SampleReport {
    (
        seconds(s.time_ns),
        s.queued,
        s.in_flight,
        s.ready,
        s.starting,
        s.arrivals,
        s.late,
    )
}
