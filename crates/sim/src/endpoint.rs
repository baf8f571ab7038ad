//! One endpoint: its queue, its replicas, its clients' timers and its counters.

use std::collections::VecDeque;

use crate::config::{Batch, Client, EndpointConfig, Service};
use crate::dist::{Dist, Sampler, ns};
use crate::levels::Levels;
use crate::rng::Stream;
use crate::source::{Arrival, Source};
use crate::stats::{Stats, Timeline};

/// A timer of a request; all of an endpoint are equally long, so they are due in order.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    pub due_ns: u64,
    pub request: u32,
    pub generation: u32,
}

/// How requests are served, with its constants worked out.
#[derive(Debug)]
pub enum Serving {
    Slots {
        time: Sampler,
        prompt_token_s: f64,
        output_token_s: f64,
        first_share: f64,
    },
    Batch(Batch),
}

#[derive(Debug)]
pub struct Endpoint {
    pub source: Source,
    pub next: Option<Arrival>,
    pub serving: Serving,
    pub slots: u32,
    pub queue_limit: u32,
    pub max_wait_ns: u64,
    pub timeout_ns: u64,
    pub retries: u32,
    pub backoff: Sampler,
    pub serve_dead_work: bool,
    pub service_stream: Stream,
    pub client_stream: Stream,
    pub start_stream: Stream,

    pub queue: VecDeque<u32>,
    /// Requests in the queue that are still to be served.
    pub queued: u32,
    pub in_flight: u32,
    /// Replicas with room, last in first out: full replicas first, so that others fall idle.
    pub spare: Vec<u32>,
    /// Replicas that start or are ready.
    pub replicas: Vec<u32>,
    pub num_ready: u32,
    pub num_starting: u32,
    /// What control last asked for.
    pub wanted: u32,
    pub devices_per_replica: u32,
    /// When the replicas that were stopped left their state behind, oldest first.
    pub remains: VecDeque<u64>,

    pub timeouts: VecDeque<Timer>,
    pub expiries: VecDeque<Timer>,
    pub is_timeout_armed: bool,
    pub is_expiry_armed: bool,
    pub tick_generation: u32,

    pub stats: Stats,
    pub timeline: Timeline,
    pub levels: Option<Levels>,
}

const SERVICE: u64 = 3;
const CLIENT: u64 = 4;
const START: u64 = 5;

impl Endpoint {
    pub fn new(config: &EndpointConfig, source: Source, seed: u64, index: u64) -> Self {
        let Client {
            timeout_s,
            retries,
            backoff,
            serve_dead_work,
        } = &config.client;
        let (serving, slots) = serving(&config.service);
        let or_never = |s: Option<f64>| s.map_or(u64::MAX, ns);
        let levels = config
            .start_cost_s
            .map(|cost_s| Levels::new(ns(cost_s), slots, config.replicas.max(1)));
        Self {
            source,
            next: None,
            serving,
            slots,
            queue_limit: config.queue_limit.unwrap_or(u32::MAX),
            max_wait_ns: or_never(config.max_wait_s),
            timeout_ns: or_never(*timeout_s),
            retries: *retries,
            backoff: backoff.sampler(),
            serve_dead_work: *serve_dead_work,
            service_stream: Stream::new(seed, SERVICE, index),
            client_stream: Stream::new(seed, CLIENT, index),
            start_stream: Stream::new(seed, START, index),
            queue: VecDeque::new(),
            queued: 0,
            in_flight: 0,
            spare: Vec::new(),
            replicas: Vec::new(),
            num_ready: 0,
            num_starting: 0,
            wanted: config.replicas,
            devices_per_replica: config.devices_per_replica,
            remains: VecDeque::new(),
            timeouts: VecDeque::new(),
            expiries: VecDeque::new(),
            is_timeout_armed: false,
            is_expiry_armed: false,
            tick_generation: 0,
            stats: Stats::new(or_never(config.late_s)),
            timeline: Timeline::default(),
            levels,
        }
    }

    /// Starting and ready replicas.
    pub fn active(&self) -> u32 {
        self.num_ready + self.num_starting
    }

    pub fn in_system(&self) -> u32 {
        self.queued + self.in_flight
    }

    /// Accounts for the time since the last change; call before replicas change.
    pub fn touch(&mut self, now_ns: u64) {
        self.touch_requests(now_ns);
        self.stats
            .advance_replicas(now_ns, self.num_ready, self.num_starting);
    }

    /// The same where only requests change: replicas come and go a thousand times more rarely.
    #[inline]
    pub fn touch_requests(&mut self, now_ns: u64) {
        let in_system = self.queued + self.in_flight;
        // most slots are one, and a division takes as long as the rest of this
        let needed = if self.slots == 1 {
            in_system
        } else {
            in_system.div_ceil(self.slots)
        };
        let surplus = self.num_ready.saturating_sub(needed);
        self.stats.advance_requests(now_ns, in_system, surplus);
    }

    /// Call after the number in the system changed.
    #[inline]
    pub fn changed(&mut self, now_ns: u64) {
        let in_system = self.queued + self.in_flight;
        self.stats.note_level(now_ns, in_system, self.queued);
        if let Some(levels) = &mut self.levels {
            levels.set(now_ns, in_system);
        }
    }

    /// Service time of a request in seconds, and the share of it until the first byte.
    #[inline]
    pub fn service_s(&mut self, prompt: u32, output: u32) -> (f64, f64) {
        match &self.serving {
            Serving::Slots {
                time,
                prompt_token_s,
                output_token_s,
                first_share,
            } => {
                let base = time.sample(&mut self.service_stream);
                let prompt_s = prompt_token_s * f64::from(prompt);
                (
                    base + prompt_s + output_token_s * f64::from(output),
                    *first_share,
                )
            }
            Serving::Batch(_) => (0.0, 1.0),
        }
    }
}

fn serving(service: &Service) -> (Serving, u32) {
    match service {
        Service::Slots {
            slots,
            time,
            prompt_token_s,
            output_token_s,
            first_share,
        } => {
            let serving = Serving::Slots {
                time: time.sampler(),
                prompt_token_s: *prompt_token_s,
                output_token_s: *output_token_s,
                first_share: *first_share,
            };
            (serving, *slots)
        }
        Service::Batch(batch) => (Serving::Batch(batch.clone()), batch.max_batch),
    }
}

/// Start times by preparedness.
#[derive(Debug)]
pub struct StartTimes {
    /// (kept for, start time): resident, local weights, warm node.
    prepared: [(u64, Option<Sampler>); 3],
    new_node: Sampler,
}

impl StartTimes {
    pub fn new(config: &EndpointConfig) -> Self {
        let start = &config.start;
        let level =
            |keep_s: f64, dist: &Option<Dist>| (ns(keep_s), dist.as_ref().map(Dist::sampler));
        let prepared = [
            level(start.keep_resident_s, &start.resident),
            level(start.keep_local_s, &start.local_weights),
            level(start.keep_node_s, &start.warm_node),
        ];
        Self {
            prepared,
            new_node: start.new_node.sampler(),
        }
    }

    /// The level (0 resident … 3 new node) and time of a start on remains of this age.
    pub fn sample(&self, age_ns: Option<u64>, stream: &mut Stream) -> (usize, u64) {
        for (level, (keep_ns, sampler)) in self.prepared.iter().enumerate() {
            if let (Some(age), Some(sampler)) = (age_ns, sampler)
                && age <= *keep_ns
            {
                return (level, sampler.sample_ns(stream));
            }
        }
        (3, self.new_node.sample_ns(stream))
    }
}
