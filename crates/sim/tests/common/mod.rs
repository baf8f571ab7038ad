//! Short ways to say a configuration in tests.
#![allow(dead_code)]

use preroll_sim::{Config, EndpointReport, Pause, Report, Sim, Trace};
use serde_json::{Value, json};

/// A source of exponential gaps at `rate` for `end_s` seconds.
pub fn poisson(rate: f64, end_s: f64) -> Value {
    renewal(&json!({"kind": "exponential", "mean": 1.0}), rate, end_s)
}

pub fn steady(rate: f64, end_s: f64) -> Value {
    renewal(&constant(1.0), rate, end_s)
}

pub fn renewal(gap: &Value, rate: f64, end_s: f64) -> Value {
    json!({"kind": "renewal", "gap": gap, "rates": [[0.0, rate]], "end_s": end_s,
           "prompt": constant(100.0), "output": constant(10.0)})
}

pub fn constant(value: f64) -> Value {
    json!({"kind": "constant", "value": value})
}

pub fn slots(slots: u32, time: &Value) -> Value {
    json!({"kind": "slots", "slots": slots, "time": time})
}

pub fn endpoint(arrivals: &Value, service: &Value) -> Value {
    json!({"name": "chat", "arrivals": arrivals, "service": service, "replicas": 1})
}

pub fn with(mut base: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

pub fn config(seed: u64, endpoint: &Value) -> Value {
    json!({"seed": seed, "endpoints": [endpoint]})
}

pub fn sim(config: &Value, traces: Vec<Trace>) -> Sim {
    let config: Config = serde_json::from_value(config.clone()).unwrap();
    Sim::new(&config, traces).unwrap()
}

pub fn run(config: &Value) -> Report {
    let mut sim = sim(config, vec![]);
    while sim.run(u64::MAX) != Pause::Over {}
    sim.report()
}

pub fn run_one(config: &Value) -> EndpointReport {
    run(config).endpoints.remove(0)
}

/// Every client ended in exactly one way, and the time in the system adds up.
pub fn assert_conserved(e: &EndpointReport) {
    let ended = e.served + e.refused + e.expired + e.timed_out + e.in_flight;
    assert_eq!(
        e.arrivals, ended,
        "arrivals = served + refused + expired + timed out + in flight"
    );
    // Little's law, as an identity: the integral of the number is the sum of the times
    let gap = (e.in_system_s - e.sojourn_s).abs();
    assert!(
        gap <= 1e-6 * e.in_system_s.max(1.0),
        "{} is not {}",
        e.in_system_s,
        e.sojourn_s
    );
}
