//! Starts, drains, the shared fleet, the offline optimum, and errors of configuration.

mod common;

use common::{
    assert_conserved, config, constant, endpoint, poisson, run, run_one, sim, slots, steady, with,
};
use preroll_sim::{Config, Pause, Sim, Trace};
use serde_json::{Value, json};

fn at(times_s: &[f64]) -> Trace {
    Trace {
        times_ns: times_s.iter().map(|t| (t * 1e9) as u64).collect(),
        prompts: vec![0; times_s.len()],
        outputs: vec![0; times_s.len()],
        ..Trace::default()
    }
}

#[test]
fn the_offline_optimum_pays_the_cheaper_side_of_every_gap() {
    // work of 1 s at 0, 5, 100 and 103 s: a start (10), a gap of 4, one of 94 (a start), one of 2
    let e = endpoint(
        &json!({"kind": "trace", "trace": 0}),
        &slots(1, &constant(1.0)),
    );
    let e = with(e, &json!({"start_cost_s": 10.0}));
    let mut sim = sim(&config(0, &e), vec![at(&[0.0, 5.0, 100.0, 103.0])]);
    while sim.run(u64::MAX) != Pause::Over {}
    let report = sim.report().endpoints.remove(0);
    assert_eq!(report.optimum_s, Some(10.0 + 4.0 + 10.0 + 2.0));
    assert_eq!(report.num_gaps, 3);
}

#[test]
fn a_start_is_as_prepared_as_what_the_last_one_left() {
    let e = with(
        endpoint(&steady(1.0, 400.0), &slots(1, &constant(0.1))),
        &json!({"replicas": 0, "plan": [[0, 1], [50, 0], [55, 1], [100, 0], [150, 1], [200, 0],
                                         [390, 1]],
                "start": {"new_node": constant(8.0), "local_weights": constant(4.0),
                          "resident": constant(1.0), "keep_resident_s": 10.0,
                          "keep_local_s": 60.0}}),
    );
    let report = run_one(&config(0, &e));
    assert_eq!(
        report.starts,
        [1, 1, 0, 2],
        "resident, local weights, warm node, new node"
    );
    assert_conserved(&report);
}

#[test]
fn a_start_is_given_up_before_a_replica_that_works() {
    let e = with(
        endpoint(&steady(2.0, 100.0), &slots(1, &constant(0.4))),
        &json!({"plan": [[10, 2], [15, 1]], "start": {"new_node": constant(20.0)}}),
    );
    let report = run_one(&config(0, &e));
    assert_eq!((report.served, report.starting_s), (report.arrivals, 5.0));
}

#[test]
fn a_draining_replica_finishes_what_it_serves() {
    let e = with(
        endpoint(
            &json!({"kind": "trace", "trace": 0}),
            &slots(2, &constant(10.0)),
        ),
        &json!({"plan": [[5, 0]]}),
    );
    let mut sim = sim(&config(0, &e), vec![at(&[0.0, 1.0, 6.0])]);
    while sim.run(u64::MAX) != Pause::Over {}
    let report = sim.report().endpoints.remove(0);
    assert_eq!((report.served, report.in_flight), (2, 1));
}

#[test]
fn endpoints_share_the_devices_and_take_turns() {
    let make = |name: &str, plan: Value| {
        let e = endpoint(&poisson(1.0, 100.0), &slots(1, &constant(0.5)));
        with(e, &json!({"name": name, "replicas": 0, "plan": plan}))
    };
    let both = [
        make("a", json!([[0, 1], [50, 0]])),
        make("b", json!([[0, 1]])),
    ];
    let report = run(&json!({"devices": 1, "endpoints": both, "end_s": 200.0}));
    let ready: Vec<f64> = report.endpoints.iter().map(|e| e.ready_s).collect();
    assert_eq!(ready[0], 50.0);
    assert!(
        (ready[1] - 150.0).abs() < 1.0,
        "the second had to wait for the device: {ready:?}"
    );
}

#[test]
fn windows_hold_exactly_their_requests() {
    let window = |start_s: f64, count: f64, shape: f64, weibull: bool| json!({"start_s": start_s, "count": count, "shape": shape, "weibull": weibull});
    let arrivals = json!({"kind": "windows", "window_s": 600.0, "prompt": constant(1.0),
        "output": constant(1.0), "windows": [window(0.0, 40.0, 0.3, true),
                                             window(1200.0, 7.0, 2.0, false)]});
    let e = endpoint(&arrivals, &slots(100, &constant(0.0)));
    let mut sim = sim(
        &with(config(4, &e), &json!({"sample_s": 600.0, "end_s": 2400.0})),
        vec![],
    );
    while sim.run(u64::MAX) != Pause::Over {}
    let seen: Vec<u64> = sim.report().endpoints[0]
        .timeline
        .iter()
        .map(|s| s.5)
        .collect();
    assert_eq!(seen, [0, 40, 40, 47, 47]);
}

#[test]
fn memory_of_timelines_is_bounded() {
    let e = endpoint(&steady(1.0, 30_000.0), &slots(1, &constant(0.5)));
    let report = run_one(&with(
        config(0, &e),
        &json!({"sample_s": 1.0, "end_s": 30_000.0}),
    ));
    assert!(report.timeline.len() <= 4096 && report.timeline.len() >= 2048);
    let gaps: Vec<f64> = report
        .timeline
        .windows(2)
        .map(|w| w[1].0 - w[0].0)
        .collect();
    assert!(gaps.iter().all(|g| *g == gaps[0]), "even intervals");
}

#[test]
fn wrong_configurations_say_field_value_and_range() {
    let good = endpoint(&poisson(1.0, 1.0), &slots(1, &constant(1.0)));
    let cases = [
        (
            json!({"service": slots(0, &constant(1.0))}),
            "chat.service.slots: 0 given; 1 to",
        ),
        (
            json!({"service": slots(1, &constant(1e30))}),
            "chat.service.time: value is 1",
        ),
        (
            json!({"service": slots(1, &constant(-1.0))}),
            "value is -1; 0 to",
        ),
        (
            json!({"replicas": 4_000_000}),
            "chat.replicas: 4000000 given",
        ),
        (
            json!({"arrivals": {"kind": "trace", "trace": 3}}),
            "trace 3 was not given",
        ),
        (json!({"late_s": 0.0}), "chat.late_s: value is 0"),
        (
            json!({"arrivals": common::renewal(&constant(0.0), 1.0, 1.0)}),
            "gap: mean is 0",
        ),
    ];
    for (change, complaint) in cases {
        let config: Config =
            serde_json::from_value(config(0, &with(good.clone(), &change))).unwrap();
        let error = Sim::new(&config, vec![]).unwrap_err();
        assert!(error.contains(complaint), "{error}");
    }
    let unknown = config(0, &with(good, &json!({"slotz": 1})));
    assert!(
        serde_json::from_value::<Config>(unknown)
            .unwrap_err()
            .to_string()
            .contains("slotz")
    );
}

#[test]
fn traces_that_do_not_fit_are_named() {
    let falling = Trace {
        times_ns: vec![2, 1],
        ..at(&[0.0, 1.0])
    };
    assert!(falling.check().unwrap_err().contains("times do not rise"));
    let short = Trace {
        prompts: vec![1],
        ..at(&[0.0, 1.0])
    };
    assert!(short.check().unwrap_err().contains("2 times, 1 prompts"));
    let hashes = Trace {
        hash_offsets: vec![0, 5, 2],
        ..at(&[0.0, 1.0])
    };
    assert!(hashes.check().is_err());
}
