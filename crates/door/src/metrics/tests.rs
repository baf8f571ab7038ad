//! Metrics: names, values, and that series end.

use std::collections::BTreeMap;

use super::*;
use crate::queue::{Move, ReplicaSnapshot, StageSnapshot};
use crate::sse::Usage;
use crate::wait::RefusalKind;

fn snapshot() -> StageSnapshot {
    let replica = ReplicaSnapshot {
        in_flight: 2,
        sessions: 0,
        slots: 4,
        connections: 3,
        ejected: true,
    };
    StageSnapshot {
        queued: 5,
        in_flight: 2,
        sessions: 1,
        sessions_opened_total: 1,
        sessions_refused_total: 0,
        slots: 4,
        oldest_wait_ms: 0,
        arrivals_total: 0,
        finished_total: 0,
        refused_total: 0,
        cancelled_total: 0,
        last_activity_ns: 0,
        expected_wait_ms: Some(1500),
        expected_wait_bias_ms: None,
        expected_wait_error_ms: None,
        concurrency_ns: 0,
        replicas: BTreeMap::from([("chat-1".to_owned(), replica)]),
    }
}

/// Records everything once.
fn record(metrics: &Metrics) {
    let stage = metrics.stage("chat", "smol");
    stage.levels(&snapshot());
    stage.admitted(20_000_000, 30_000_000);
    stage.refused(RefusalKind::Overload);
    stage.refused(RefusalKind::Deadline);
    stage.first_content(100_000_000);
    stage.gap(20_000_000);
    stage.stalled(1);
    stage.finished("complete", 1_000_000_000, 1);
    stage.finished("what is this", 1_000_000_000, 2);
    stage.tokens(&Usage {
        prompt_tokens: 7,
        completion_tokens: 9,
        cached_tokens: 3,
    });
    stage.cancelled(Phase::Prefill);
    stage.session_moved(Move::Moved);
    stage.session_ended("complete", 1_000_000_000);
    metrics.http_refused("unauthorized");
}

#[test]
fn every_series_is_there_with_its_value() {
    let metrics = Metrics::new();
    record(&metrics);
    let text = metrics.encode();
    let labels = "{stage=\"chat\",model_name=\"smol\"}";
    for line in [
        format!("preroll_queue_depth{labels} 5"),
        format!("preroll_requests_in_flight{labels} 2"),
        format!("preroll_slots{labels} 4"),
        format!("preroll_sessions{labels} 1"),
        format!("preroll_expected_wait_seconds{labels} 1.5"),
        format!("preroll_queue_wait_seconds_sum{labels} 0.02"),
        format!("preroll_expected_wait_error_seconds_sum{labels} 0.01"),
        format!("preroll_time_to_first_content_seconds_count{labels} 1"),
        format!("preroll_content_gap_seconds_count{labels} 1"),
        format!("preroll_request_duration_seconds_count{labels} 2"),
        format!("preroll_request_attempts_sum{labels} 3.0"),
        format!("preroll_stalls_total{labels} 1"),
        format!("preroll_completion_tokens_total{labels} 9"),
        format!("preroll_cached_prompt_tokens_total{labels} 3"),
        format!("preroll_session_duration_seconds_count{labels} 1"),
        format!("vllm:num_requests_running{labels} 2"),
        format!("vllm:num_requests_waiting{labels} 5"),
        format!("vllm:time_to_first_token_seconds_sum{labels} 0.1"),
        format!("vllm:e2e_request_latency_seconds_count{labels} 2"),
        format!("vllm:request_queue_time_seconds_count{labels} 1"),
        "preroll_refusals_total{stage=\"chat\",kind=\"overloaded\"} 1".to_owned(),
        "preroll_refusals_total{stage=\"chat\",kind=\"unavailable\"} 0".to_owned(),
        "preroll_refusals_total{stage=\"chat\",kind=\"deadline\"} 1".to_owned(),
        "preroll_cancels_total{stage=\"chat\",kind=\"prefill\"} 1".to_owned(),
        "preroll_requests_total{stage=\"chat\",kind=\"complete\"} 1".to_owned(),
        "preroll_requests_total{stage=\"chat\",kind=\"other\"} 1".to_owned(),
        "preroll_upstream_connections{stage=\"chat\",replica=\"chat-1\"} 3".to_owned(),
        "preroll_replica_ejected{stage=\"chat\",replica=\"chat-1\"} 1".to_owned(),
        "preroll_session_ends_total{stage=\"chat\",kind=\"complete\"} 1".to_owned(),
        "preroll_session_moves_total{stage=\"chat\",kind=\"moved\"} 1".to_owned(),
        "preroll_http_refusals_total{kind=\"unauthorized\"} 1".to_owned(),
        "preroll_door_connections 0".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_stage_that_left_leaves_no_series() {
    let metrics = Metrics::new();
    record(&metrics);
    metrics.forget("chat");
    let text = metrics.encode();
    assert!(!text.contains("chat"), "{text}");
}

#[test]
fn a_replica_that_left_and_an_old_model_name_leave_no_series() {
    let metrics = Metrics::new();
    record(&metrics);
    metrics.stage("chat", "smol").levels(&StageSnapshot {
        replicas: BTreeMap::new(),
        ..snapshot()
    });
    assert!(!metrics.encode().contains("chat-1"));
    let other = metrics.stage("chat", "other");
    other.gap(1);
    let text = metrics.encode();
    assert!(text.contains("other") && !text.contains("smol"), "{text}");
}

#[test]
fn the_same_stage_keeps_its_counts() {
    let metrics = Metrics::new();
    (0..3).for_each(|_| metrics.stage("chat", "smol").cancelled(Phase::Stream));
    let line = "preroll_cancels_total{stage=\"chat\",kind=\"stream\"} 3\n";
    assert!(metrics.encode().contains(line));
}

#[test]
#[ignore = "prints a measurement: cargo test --release -- --ignored --nocapture metrics_cost"]
fn metrics_cost() {
    let metrics = Metrics::new();
    let stage = metrics.stage("chat", "smol");
    let rounds = 1_000_000u64;
    let begin = std::time::Instant::now();
    (0..rounds).for_each(|i| stage.gap(std::hint::black_box(i)));
    println!(
        "{} ns per observation",
        begin.elapsed().as_nanos() as u64 / rounds
    );
}
