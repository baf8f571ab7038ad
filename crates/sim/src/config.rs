//! What is simulated. Times are seconds; every field is checked once, before anything runs.

use serde::Deserialize;

use crate::dist::{Dist, within};

/// A whole simulation: endpoints on one fleet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(default)]
    pub seed: u64,
    /// Stop here; otherwise when all arrivals have come and nothing is left in the system.
    #[serde(default)]
    pub end_s: Option<f64>,
    /// Period of control ticks; None runs without a policy.
    #[serde(default)]
    pub tick_s: Option<f64>,
    /// Tick also while an endpoint has no replica and no request (for policies that pre-warm).
    #[serde(default)]
    pub tick_when_empty: bool,
    /// First interval of the timeline; it doubles when the timeline is full. None keeps none.
    #[serde(default)]
    pub sample_s: Option<f64>,
    /// Devices of the shared fleet; None is no limit.
    #[serde(default)]
    pub devices: Option<u32>,
    pub endpoints: Vec<EndpointConfig>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    pub name: String,
    pub arrivals: Arrivals,
    pub service: Service,
    /// Ready at time zero.
    #[serde(default)]
    pub replicas: u32,
    /// Written scale steps: at (time, replicas).
    #[serde(default)]
    pub plan: Vec<(f64, u32)>,
    #[serde(default)]
    pub start: Starts,
    #[serde(default = "one")]
    pub devices_per_replica: u32,
    /// Requests that may wait; one more is refused. None is no limit.
    #[serde(default)]
    pub queue_limit: Option<u32>,
    /// A request that waited this long is refused.
    #[serde(default)]
    pub max_wait_s: Option<f64>,
    #[serde(default)]
    pub client: Client,
    /// A first byte later than this after the client's first attempt is late.
    #[serde(default)]
    pub late_s: Option<f64>,
    /// Track the offline optimum of up to `replicas`, a start being worth this many idle seconds.
    #[serde(default)]
    pub start_cost_s: Option<f64>,
}

fn one() -> u32 {
    1
}

/// Where requests come from.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// Gaps of mean 1 drawn from `gap`, stretched by the rate in force: (from, requests/s).
    Renewal {
        gap: Dist,
        rates: Vec<(f64, f64)>,
        end_s: f64,
        prompt: Dist,
        output: Dist,
    },
    /// Exact numbers of requests per window, with the burstiness of `shape` inside it.
    Windows {
        windows: Vec<Window>,
        window_s: f64,
        prompt: Dist,
        output: Dist,
    },
    /// The trace that was handed over under this index.
    Trace { trace: usize },
}

/// One window of client activity. `weibull` false: gamma gaps.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    pub start_s: f64,
    pub count: f64,
    pub shape: f64,
    pub weibull: bool,
}

/// How a replica serves.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Service {
    /// `slots` requests at a time, each for a time of its own:
    /// `time` + tokens of prompt and output times their cost.
    Slots {
        slots: u32,
        time: Dist,
        #[serde(default)]
        prompt_token_s: f64,
        #[serde(default)]
        output_token_s: f64,
        /// Share of the service time after which the first byte comes.
        #[serde(default = "whole")]
        first_share: f64,
    },
    /// Continuous batching: all running requests advance one token per step, and a step takes
    /// `step_s + seq_s * sequences + kv_token_s * KV tokens + prefill_token_s * prompt tokens`.
    Batch(Batch),
}

fn whole() -> f64 {
    1.0
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    pub max_batch: u32,
    pub step_s: f64,
    #[serde(default)]
    pub seq_s: f64,
    #[serde(default)]
    pub kv_token_s: f64,
    #[serde(default)]
    pub prefill_token_s: f64,
    /// Prompt tokens worked off per step.
    #[serde(default = "chunk")]
    pub chunk_tokens: u32,
    /// KV capacity of a replica, tokens.
    pub kv_tokens: u64,
    /// Blocks of the prefix cache of a replica; 0 is none.
    #[serde(default)]
    pub prefix_blocks: u32,
    #[serde(default = "block")]
    pub block_tokens: u32,
}

fn chunk() -> u32 {
    2048
}

fn block() -> u32 {
    512
}

/// Start times by what is in place, and for how long a stopped replica leaves that behind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starts {
    pub new_node: Dist,
    #[serde(default)]
    pub warm_node: Option<Dist>,
    #[serde(default)]
    pub local_weights: Option<Dist>,
    #[serde(default)]
    pub resident: Option<Dist>,
    #[serde(default)]
    pub keep_node_s: f64,
    #[serde(default)]
    pub keep_local_s: f64,
    #[serde(default)]
    pub keep_resident_s: f64,
}

impl Default for Starts {
    fn default() -> Self {
        Self {
            new_node: Dist::constant(0.0),
            warm_node: None,
            local_weights: None,
            resident: None,
            keep_node_s: 0.0,
            keep_local_s: 0.0,
            keep_resident_s: 0.0,
        }
    }
}

/// What the callers do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Gives up when no byte came in this time. None is patient.
    #[serde(default)]
    pub timeout_s: Option<f64>,
    /// Further attempts after a refusal or a time-out.
    #[serde(default)]
    pub retries: u32,
    #[serde(default = "at_once")]
    pub backoff: Dist,
    /// Is work that nobody waits for still served?
    #[serde(default)]
    pub serve_dead_work: bool,
}

fn at_once() -> Dist {
    Dist::constant(0.0)
}

impl Default for Client {
    fn default() -> Self {
        Self {
            timeout_s: None,
            retries: 0,
            backoff: at_once(),
            serve_dead_work: false,
        }
    }
}

const MAX_ENDPOINTS: usize = 10_000;
const MAX_REPLICAS: u32 = 100_000;

impl Config {
    /// The first thing that is wrong, with its value and what is allowed.
    pub fn check(&self, num_traces: usize) -> Result<(), String> {
        optional("end_s", self.end_s)?;
        optional("tick_s", self.tick_s)?;
        optional("sample_s", self.sample_s)?;
        if self.endpoints.is_empty() || self.endpoints.len() > MAX_ENDPOINTS {
            let n = self.endpoints.len();
            return Err(format!(
                "endpoints: {n} given; 1 to {MAX_ENDPOINTS} are allowed"
            ));
        }
        self.endpoints.iter().try_for_each(|e| e.check(num_traces))
    }
}

fn optional(field: &str, value: Option<f64>) -> Result<(), String> {
    value.map_or(Ok(()), |v| within(field, "value", v, 1e-9))
}

impl EndpointConfig {
    fn check(&self, num_traces: usize) -> Result<(), String> {
        let name = &self.name;
        let at = |field: &str| format!("{name}.{field}");
        self.arrivals.check(&at("arrivals"), num_traces)?;
        self.service.check(&at("service"))?;
        self.start.check(&at("start"))?;
        self.client.backoff.check(&at("client.backoff"))?;
        optional(&at("client.timeout_s"), self.client.timeout_s)?;
        optional(&at("max_wait_s"), self.max_wait_s)?;
        optional(&at("late_s"), self.late_s)?;
        optional(&at("start_cost_s"), self.start_cost_s)?;
        for &(time_s, replicas) in &self.plan {
            within(&at("plan"), "time", time_s, 0.0)?;
            count(&at("plan"), replicas, 0)?;
        }
        count(&at("replicas"), self.replicas, 0)?;
        count(&at("devices_per_replica"), self.devices_per_replica, 0)
    }
}

fn count(field: &str, value: u32, low: u32) -> Result<(), String> {
    if (low..=MAX_REPLICAS).contains(&value) {
        return Ok(());
    }
    Err(format!(
        "{field}: {value} given; {low} to {MAX_REPLICAS} is allowed"
    ))
}

impl Arrivals {
    fn check(&self, field: &str, num_traces: usize) -> Result<(), String> {
        match self {
            Self::Renewal {
                gap,
                rates,
                end_s,
                prompt,
                output,
            } => {
                gap.check(&format!("{field}.gap"))?;
                within(&format!("{field}.gap"), "mean", gap.mean(), 1e-9)?;
                within(field, "end_s", *end_s, 0.0)?;
                check_rates(field, rates)?;
                check_tokens(field, prompt, output)
            }
            Self::Windows {
                windows,
                window_s,
                prompt,
                output,
            } => {
                within(field, "window_s", *window_s, 1e-3)?;
                for w in windows {
                    within(field, "start_s", w.start_s, 0.0)?;
                    within(field, "count", w.count, 0.0)?;
                    within(field, "shape", w.shape, 0.05)?;
                }
                if !windows.is_sorted_by(|a, b| a.start_s + window_s <= b.start_s + 1e-6) {
                    return Err(format!(
                        "{field}: windows overlap or are not in order of time"
                    ));
                }
                check_tokens(field, prompt, output)
            }
            Self::Trace { trace } if *trace < num_traces => Ok(()),
            Self::Trace { trace } => Err(format!(
                "{field}: trace {trace} was not given; there are {num_traces}"
            )),
        }
    }
}

fn check_rates(field: &str, rates: &[(f64, f64)]) -> Result<(), String> {
    if rates.first().is_none_or(|r| r.0 != 0.0) || !rates.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(format!("{field}: rates must begin at 0 s and rise in time"));
    }
    rates
        .iter()
        .try_for_each(|r| within(field, "rate", r.1, 0.0))
}

fn check_tokens(field: &str, prompt: &Dist, output: &Dist) -> Result<(), String> {
    prompt.check(&format!("{field}.prompt"))?;
    output.check(&format!("{field}.output"))
}

impl Service {
    fn check(&self, field: &str) -> Result<(), String> {
        match self {
            Self::Slots {
                slots,
                time,
                prompt_token_s,
                output_token_s,
                first_share,
            } => {
                count(&format!("{field}.slots"), *slots, 1)?;
                time.check(&format!("{field}.time"))?;
                within(field, "prompt_token_s", *prompt_token_s, 0.0)?;
                within(field, "output_token_s", *output_token_s, 0.0)?;
                if !(0.0..=1.0).contains(first_share) {
                    return Err(format!(
                        "{field}: first_share is {first_share}; 0 to 1 is allowed"
                    ));
                }
                Ok(())
            }
            Self::Batch(batch) => batch.check(field),
        }
    }
}

impl Batch {
    fn check(&self, field: &str) -> Result<(), String> {
        count(&format!("{field}.max_batch"), self.max_batch, 1)?;
        // a step of no time at all would never let the clock advance
        within(field, "step_s", self.step_s, 1e-9)?;
        within(field, "seq_s", self.seq_s, 0.0)?;
        within(field, "kv_token_s", self.kv_token_s, 0.0)?;
        within(field, "prefill_token_s", self.prefill_token_s, 0.0)?;
        if self.chunk_tokens == 0 || self.kv_tokens < 2 || self.block_tokens == 0 {
            return Err(format!(
                "{field}: chunk_tokens {}, kv_tokens {} and block_tokens {} must be at least 1, 2 and 1",
                self.chunk_tokens, self.kv_tokens, self.block_tokens
            ));
        }
        Ok(())
    }
}

impl Starts {
    fn check(&self, field: &str) -> Result<(), String> {
        self.new_node.check(&format!("{field}.new_node"))?;
        let others = [&self.warm_node, &self.local_weights, &self.resident];
        others
            .into_iter()
            .flatten()
            .try_for_each(|d| d.check(field))?;
        within(field, "keep_resident_s", self.keep_resident_s, 0.0)?;
        within(field, "keep_local_s", self.keep_local_s, 0.0)?;
        within(field, "keep_node_s", self.keep_node_s, 0.0)
    }
}
