//! On random systems: nothing is lost, Little's law holds, equal seeds give equal runs.

mod common;

use common::{assert_conserved, constant, sim};
use preroll_sim::{Pause, Report};
use proptest::prelude::*;
use serde_json::{Value, json};

fn dist() -> impl Strategy<Value = Value> {
    let mean = 0.05..3.0f64;
    prop_oneof![
        mean.clone().prop_map(constant),
        mean.clone()
            .prop_map(|m| json!({"kind": "exponential", "mean": m})),
        (mean.clone(), 0.2..4.0f64)
            .prop_map(|(m, cv)| json!({"kind": "gamma", "mean": m, "cv": cv})),
        (mean, 0.3..2.0f64)
            .prop_map(|(m, shape)| json!({"kind": "weibull", "mean": m, "shape": shape})),
    ]
}

fn service() -> impl Strategy<Value = Value> {
    let slots = (1..6u32, dist(), 0.0..=1.0f64).prop_map(|(slots, time, share)| {
        json!({"kind": "slots", "slots": slots, "time": time, "first_share": share})
    });
    let batch = (1..12u32, 40..4000u64, 8..600u32).prop_map(|(max_batch, kv_tokens, chunk)| {
        json!({"kind": "batch", "max_batch": max_batch, "step_s": 0.02, "seq_s": 0.001,
               "kv_token_s": 1e-6, "prefill_token_s": 1e-4, "chunk_tokens": chunk,
               "kv_tokens": kv_tokens})
    });
    prop_oneof![slots, batch]
}

fn client() -> impl Strategy<Value = Value> {
    (
        prop::option::of(0.1..20.0f64),
        0..4u32,
        0.0..2.0f64,
        any::<bool>(),
    )
        .prop_map(|(timeout_s, retries, backoff, serve)| {
            json!({"timeout_s": timeout_s, "retries": retries, "backoff": constant(backoff),
                   "serve_dead_work": serve})
        })
}

fn plan() -> impl Strategy<Value = Value> {
    let step = (0.0..60.0f64, 0..6u32);
    prop::collection::vec(step, 0..6).prop_map(|steps| json!(steps))
}

fn endpoint() -> impl Strategy<Value = Value> {
    let limits = (prop::option::of(0..40u32), prop::option::of(0.1..10.0f64));
    (
        dist(),
        0.2..8.0f64,
        service(),
        client(),
        plan(),
        limits,
        0..4u32,
    )
        .prop_map(
            |(gap, rate, service, client, plan, (queue_limit, max_wait_s), replicas)| {
                json!({"name": "e", "service": service, "client": client, "plan": plan,
                   "queue_limit": queue_limit, "max_wait_s": max_wait_s, "replicas": replicas,
                   "start": {"new_node": constant(7.0), "resident": constant(0.5),
                             "keep_resident_s": 10.0},
                   "arrivals": {"kind": "renewal", "gap": gap, "rates": [[0.0, rate]],
                                "end_s": 60.0, "prompt": {"kind": "uniform", "low": 1, "high": 60},
                                "output": {"kind": "exponential", "mean": 12}}})
            },
        )
}

fn config() -> impl Strategy<Value = Value> {
    let devices = prop::option::of(1..12u32);
    (
        0..u64::MAX,
        prop::collection::vec(endpoint(), 1..4),
        devices,
        prop::option::of(30.0..90.0),
    )
        .prop_map(
            |(seed, endpoints, devices, end_s): (u64, _, _, Option<f64>)| {
                json!({"seed": seed, "endpoints": endpoints, "devices": devices, "end_s": end_s,
                   "tick_s": 2.0, "sample_s": 1.0})
            },
        )
}

/// A policy that follows the load, so that replicas come, go and drain.
fn run(config: &Value) -> Report {
    let mut sim = sim(config, vec![]);
    loop {
        match sim.run(1000) {
            Pause::Over => return sim.report(),
            Pause::Slice => {}
            Pause::Tick(index) => {
                let seen = sim.observe(index);
                assert!(seen.concurrency >= 0.0 && seen.idle_s >= 0.0);
                sim.scale(index, (seen.in_flight + seen.queued).div_ceil(2).min(5));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_times_add_up(config in config()) {
        for e in run(&config).endpoints {
            assert_conserved(&e);
            prop_assert!(e.attempts >= e.served);
            prop_assert!(e.first_byte.count == e.served && e.late <= e.served);
            prop_assert!(e.wasted_s <= e.service_s + 1e-9);
            prop_assert!(e.idle_s <= e.ready_s + 1e-9);
        }
    }

    #[test]
    fn equal_seeds_give_equal_runs(config in config()) {
        let text = |r: &Report| serde_json::to_string(r).unwrap();
        prop_assert_eq!(text(&run(&config)), text(&run(&config)));
    }
}

#[test]
fn another_seed_is_another_run() {
    let with = |seed| {
        let e = common::endpoint(
            &common::poisson(1.0, 500.0),
            &common::slots(2, &constant(1.0)),
        );
        common::run_one(&common::config(seed, &e)).arrivals
    };
    assert_ne!(with(1), with(2));
    assert_eq!(with(1), with(1));
}
