//! Continuous batching worked out by hand, preemption, and the prefix cache on a trace.

mod common;

use common::{assert_conserved, config, constant, endpoint, run_one, sim, steady, with};
use preroll_sim::{EndpointReport, Pause, PrefixCache, Trace};
use serde_json::{Value, json};

fn batch(more: &Value) -> Value {
    let base = json!({"kind": "batch", "max_batch": 4, "step_s": 0.010, "seq_s": 0.001,
                      "prefill_token_s": 0.0001, "chunk_tokens": 64, "kv_tokens": 10_000});
    with(base, more)
}

fn on_trace(trace: Trace, service: &Value) -> EndpointReport {
    let e = endpoint(&json!({"kind": "trace", "trace": 0}), service);
    let mut sim = sim(&config(0, &e), vec![trace]);
    while sim.run(u64::MAX) != Pause::Over {}
    let report = sim.report().endpoints.remove(0);
    assert_conserved(&report);
    report
}

fn requests(at_s: &[f64], prompt: u32, output: u32) -> Trace {
    Trace {
        times_ns: at_s.iter().map(|t| (t * 1e9) as u64).collect(),
        prompts: vec![prompt; at_s.len()],
        outputs: vec![output; at_s.len()],
        ..Trace::default()
    }
}

fn assert_close(value: Option<f64>, expected: f64) {
    let value = value.unwrap();
    assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
}

#[test]
fn one_request_takes_its_chunks_and_its_steps() {
    // 100 prompt tokens in chunks of 64 and 36; the second step gives the first token,
    // then two decode steps of 11 ms
    let e = on_trace(requests(&[0.0], 100, 3), &batch(&json!({})));
    let first = 0.010 + 0.0064 + 0.010 + 0.0036;
    assert_close(e.first_byte.mean_s, first);
    assert_close(e.whole.mean_s, first + 2.0 * 0.011);
}

#[test]
fn requests_that_decode_together_share_their_steps() {
    let e = on_trace(requests(&[0.0, 0.0], 10, 11), &batch(&json!({})));
    // the first begins alone, the second joins at the boundary
    let own = 0.010 + 0.001;
    let joined = 0.010 + 0.001 + 0.001;
    let both = 0.010 + 0.002;
    assert_close(Some(e.whole.max_s), own + joined + 9.0 * both + 0.011);
}

#[test]
fn kv_tokens_slow_the_step_down() {
    let slow = batch(&json!({"kv_token_s": 0.0001}));
    let e = on_trace(requests(&[0.0], 10, 2), &slow);
    // the second token reads 11 cached ones
    assert_close(e.whole.mean_s, 0.011 + 0.011 + 0.0011);
}

#[test]
fn a_full_cache_preempts_the_last_and_serves_all() {
    let small = batch(&json!({"kv_tokens": 64}));
    let e = on_trace(requests(&[0.0; 6], 10, 40), &small);
    assert_eq!(e.served, 6);
    assert!(e.preemptions > 0);
}

#[test]
fn a_request_that_can_never_fit_is_refused() {
    let small = batch(&json!({"kv_tokens": 64}));
    let e = on_trace(requests(&[0.0, 1.0], 60, 5), &small);
    assert_eq!((e.refused, e.served), (2, 0));
}

#[test]
fn a_prefix_that_was_seen_is_not_computed_again() {
    let cached = batch(&json!({"prefix_blocks": 100, "block_tokens": 32}));
    let trace = Trace {
        hash_offsets: vec![0, 3, 6],
        hashes: vec![1, 2, 3, 1, 2, 9],
        ..requests(&[0.0, 10.0], 96, 1)
    };
    let e = on_trace(trace, &cached);
    assert_eq!((e.prompt_tokens, e.cached_tokens), (192, 64));
}

#[test]
fn the_prefix_cache_forgets_the_least_recently_used_and_leaves_before_roots() {
    let mut cache = PrefixCache::new(3);
    cache.touch(&[1, 2]);
    cache.touch(&[5]);
    cache.touch(&[1]);
    cache.touch(&[6]);
    assert_eq!(cache.matched(&[1, 2]), 1, "block 2 was the oldest");
    cache.touch(&[7, 8, 9]);
    assert_eq!(cache.matched(&[7, 8, 9]), 3);
    assert_eq!(cache.matched(&[1]), 0);
}

#[test]
fn throughput_is_bounded_by_the_step_model() {
    // 4 sequences advance one token in 14 ms: at most 4 / (10 x 14 ms) requests/s plus prefill
    let e = endpoint(
        &steady(100.0, 50.0),
        &batch(&json!({"prefill_token_s": 0.0})),
    );
    let report = run_one(&with(config(0, &e), &json!({"end_s": 50.0})));
    assert_conserved(&report);
    let rate = report.served as f64 / 50.0;
    assert!(
        rate < 4.0 / (10.0 * 0.0125) && rate > 0.8 * 4.0 / (10.0 * 0.014),
        "{rate}"
    );
    assert!(constant(1.0).is_object());
}
