//! The spike that waits for its second replica, with patient and with impatient clients.
//! λ goes from 2 to 6 per second at 60 s, a replica serves 4, the second one starts in 180 s.

mod common;

use common::{assert_conserved, constant, run};
use preroll_sim::EndpointReport;
use serde_json::{Value, json};

const SURGE_S: f64 = 60.0;

fn spike(seed: u64, gap: &Value, time: &Value, client: &Value) -> EndpointReport {
    let config = json!({"seed": seed, "end_s": SURGE_S + 1800.0, "sample_s": 1.0, "endpoints": [{
        "name": "chat",
        "arrivals": {"kind": "renewal", "gap": gap, "rates": [[0.0, 2.0], [SURGE_S, 6.0]],
                     "end_s": SURGE_S + 1800.0, "prompt": constant(1.0), "output": constant(1.0)},
        "service": json!({"kind": "slots", "slots": 1, "time": time, "first_share": 0.0}),
        "replicas": 1, "plan": [[SURGE_S, 2]], "start": {"new_node": constant(180.0)},
        "client": client,
    }]});
    let report = run(&config).endpoints.remove(0);
    assert_conserved(&report);
    report
}

fn exponential(mean: f64) -> Value {
    json!({"kind": "exponential", "mean": mean})
}

fn close(value: f64, theory: f64, share: f64) {
    assert!(
        (value - theory).abs() <= share * theory,
        "{value} is not within {share} of {theory}"
    );
}

#[test]
fn a_deterministic_spike_peaks_and_recovers_as_the_formula_says() {
    let e = spike(0, &constant(1.0), &constant(0.25), &json!({}));
    close(f64::from(e.peak_queued), 360.0, 0.02);
    close(e.peak_s - SURGE_S, 180.0, 0.02);
    close(e.drained_s.unwrap() - SURGE_S, 360.0, 0.02);
}

#[test]
fn the_mean_of_random_spikes_is_the_same() {
    const RUNS: u64 = 600;
    let mut queued = vec![0.0; 1000];
    let mut drained = 0.0;
    for seed in 0..RUNS {
        let e = spike(seed, &exponential(1.0), &exponential(0.25), &json!({}));
        for (sum, sample) in queued.iter_mut().zip(&e.timeline) {
            *sum += f64::from(sample.1) / RUNS as f64;
        }
        drained += (e.drained_s.unwrap() - SURGE_S) / RUNS as f64;
    }
    let peak = queued.iter().copied().fold(0.0, f64::max);
    close(peak, 360.0, 0.02);
    close(drained, 360.0, 0.02);
}

/// Clients that read a stream: their first byte comes when service begins.
fn impatient(timeout_s: f64, serve_dead_work: bool) -> Value {
    json!({"timeout_s": timeout_s, "retries": 3, "serve_dead_work": serve_dead_work})
}

/// Evenly spaced, every instant is a tie: whoever comes to the head of the queue has waited just
/// as long as its client does. The published 230 s is the side on which that attempt is served
/// (clients give up a millisecond later); on the other side one more round of retries, 10 s, has
/// to be worked off. A time-out of 9.9 or 10.2 s gives anything from 228 to 268 s.
#[test]
fn dropping_dead_work_recovers_after_230_seconds() {
    let recovered = |timeout_s| {
        let client = impatient(timeout_s, false);
        let e = spike(0, &constant(1.0), &constant(0.25), &client);
        e.drained_s.unwrap() - SURGE_S
    };
    close(recovered(10.001), 230.0, 0.02);
    close(recovered(9.999), 240.0, 0.02);
}

/// Random arrivals and services have no such ties: between the two on average, or a little later.
#[test]
fn dropping_dead_work_recovers_on_average_too() {
    const RUNS: u64 = 100;
    let client = impatient(10.0, false);
    let recovered = |seed| {
        let e = spike(seed, &exponential(1.0), &exponential(0.25), &client);
        e.drained_s.unwrap() - SURGE_S
    };
    let mean = (0..RUNS).map(recovered).sum::<f64>() / RUNS as f64;
    close(mean, 230.0, 0.10);
}

#[test]
fn serving_dead_work_never_recovers_and_wastes_nearly_everything() {
    const SEEDS: u64 = 8;
    for timeout_s in [10.0, 30.0] {
        let mut mean = 0.0;
        for seed in 1..=SEEDS {
            let patience = impatient(timeout_s, true);
            let e = spike(seed, &exponential(1.0), &exponential(0.25), &patience);
            assert_eq!(e.drained_s, None, "the queue was never empty again");
            // what was wasted of the service since the surge; before it nothing was
            let since_s = e.service_s - 2.0 * SURGE_S * 0.25;
            mean += e.wasted_s / since_s / SEEDS as f64;
        }
        assert!((0.965..0.99).contains(&mean), "{timeout_s} s wasted {mean}");
    }
}
