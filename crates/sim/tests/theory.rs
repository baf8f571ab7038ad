//! The simulator against queueing theory. Seeds are fixed; intervals come from batches of runs.

mod common;

use common::{assert_conserved, config, constant, endpoint, poisson, run_one, slots, with};
use serde_json::{Value, json};

fn exponential(mean: f64) -> Value {
    json!({"kind": "exponential", "mean": mean})
}

/// Mean wait of independent runs, and the half width of its 99.9 % interval.
fn mean_wait(replicas: u32, rate: f64, time: &Value) -> (f64, f64) {
    const RUNS: u64 = 40;
    let waits: Vec<f64> = (0..RUNS)
        .map(|seed| {
            let e = endpoint(&poisson(rate, 40_000.0), &slots(1, time));
            let report = run_one(&config(seed, &with(e, &json!({"replicas": replicas}))));
            assert_conserved(&report);
            report.wait.mean_s.unwrap()
        })
        .collect();
    let n = RUNS as f64;
    let mean = waits.iter().sum::<f64>() / n;
    let variance = waits.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, 3.56 * (variance / n).sqrt())
}

fn assert_wait(replicas: u32, rate: f64, time: &Value, theory_s: f64) {
    let (mean, half) = mean_wait(replicas, rate, time);
    assert!(
        half < 0.05 * theory_s,
        "the interval ±{half} is too wide to say anything"
    );
    assert!(
        (mean - theory_s).abs() < half,
        "waits {mean} ± {half} s; theory says {theory_s}"
    );
}

#[test]
fn mm1_waits_as_long_as_theory_says() {
    for rho in [0.5, 0.8] {
        assert_wait(1, rho, &exponential(1.0), rho / (1.0 - rho));
    }
}

#[test]
fn md1_waits_half_as_long() {
    assert_wait(1, 0.8, &constant(1.0), 0.8 / (2.0 * 0.2));
}

#[test]
fn mg1_follows_pollaczek_and_khinchine() {
    let time = json!({"kind": "gamma", "mean": 1.0, "cv": 2.0});
    assert_wait(1, 0.5, &time, 0.5 * (1.0 + 4.0) / (2.0 * 0.5));
}

#[test]
fn mmk_follows_erlang_c() {
    let (k, load) = (5u32, 4.0f64);
    let mut term = 1.0;
    let mut below = 1.0;
    for i in 1..k {
        term *= load / f64::from(i);
        below += term;
    }
    let last = term * load / f64::from(k) / (1.0 - load / f64::from(k));
    let erlang_c = last / (below + last);
    assert_wait(k, load, &exponential(1.0), erlang_c / (f64::from(k) - load));
}

#[test]
fn slots_of_one_replica_are_servers_too() {
    let e = endpoint(&poisson(4.0, 20_000.0), &slots(5, &exponential(1.0)));
    let one = run_one(&config(7, &e));
    let e = endpoint(&poisson(4.0, 20_000.0), &slots(1, &exponential(1.0)));
    let five = run_one(&config(7, &with(e, &json!({"replicas": 5}))));
    assert_eq!(one.wait.mean_s, five.wait.mean_s);
}

#[test]
fn utilisation_is_offered_load() {
    let e = endpoint(&poisson(0.6, 200_000.0), &slots(1, &exponential(1.0)));
    let report = run_one(&config(3, &e));
    let busy = 1.0 - report.idle_s / report.ready_s;
    assert!((busy - 0.6).abs() < 0.01, "busy {busy}");
}
