//! The loop: takes the next event, changes one thing, plans what follows.

use std::sync::Arc;

use crate::config::Config;
use crate::dist::ns;
use crate::endpoint::{Endpoint, Serving, StartTimes};
use crate::events::{Event, Events, Kind};
use crate::replica::Replica;
use crate::request::{Request, Slab, State};
use crate::source::{Source, Trace};
use crate::stats::Sample;

/// Why the loop came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// A control tick of this endpoint: observe, scale, run again.
    Tick(u32),
    /// The given number of events is done; run again.
    Slice,
    Over,
}

/// A policy that lets requests wait this long after the last arrival will never serve them.
const DRAIN_LIMIT_NS: u64 = 200_000 * 1_000_000_000;

/// A simulation between two events.
#[derive(Debug)]
pub struct Sim {
    pub(crate) now_ns: u64,
    pub(crate) events: Events,
    pub(crate) requests: Slab,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) free_replicas: Vec<u32>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) start_times: Vec<StartTimes>,
    pub(crate) plans: Vec<Vec<(f64, u32)>>,
    pub(crate) num_events: u64,
    pub(crate) devices: u32,
    pub(crate) devices_used: u32,
    end_ns: u64,
    tick_ns: Option<u64>,
    tick_when_empty: bool,
    open_sources: usize,
    last_arrival_ns: u64,
    is_over: bool,
}

impl Sim {
    /// Checks the configuration and places the first events.
    pub fn new(config: &Config, traces: Vec<Trace>) -> Result<Self, String> {
        config.check(traces.len())?;
        traces.iter().try_for_each(Trace::check)?;
        let traces: Vec<_> = traces.into_iter().map(Arc::new).collect();
        let endpoint = |(i, c): (usize, &crate::config::EndpointConfig)| {
            let source = Source::new(&c.arrivals, &traces, config.seed, i as u64);
            Endpoint::new(c, source, config.seed, i as u64)
        };
        let mut sim = Self {
            now_ns: 0,
            events: Events::default(),
            requests: Slab::default(),
            replicas: Vec::new(),
            free_replicas: Vec::new(),
            endpoints: config.endpoints.iter().enumerate().map(endpoint).collect(),
            start_times: config.endpoints.iter().map(StartTimes::new).collect(),
            plans: config.endpoints.iter().map(|e| e.plan.clone()).collect(),
            num_events: 0,
            devices: config.devices.unwrap_or(u32::MAX),
            devices_used: 0,
            end_ns: config.end_s.map_or(u64::MAX, ns),
            tick_ns: config.tick_s.map(ns),
            tick_when_empty: config.tick_when_empty,
            open_sources: config.endpoints.len(),
            last_arrival_ns: 0,
            is_over: false,
        };
        sim.place_first_events(config);
        Ok(sim)
    }

    fn place_first_events(&mut self, config: &Config) {
        for index in 0..self.endpoints.len() as u32 {
            while self.has_room(index) {
                self.place_ready(index);
            }
            self.plan_arrival(index);
            for &(at_s, replicas) in &self.plans[index as usize] {
                self.events.push(ns(at_s), Kind::Plan, index, replicas);
            }
            if self.tick_ns.is_some() {
                self.events.push(0, Kind::Tick, index, 0);
            }
            if let Some(sample_s) = config.sample_s {
                self.endpoints[index as usize].timeline.interval_ns = ns(sample_s);
                self.events.push(0, Kind::Sample, index, 0);
            }
        }
    }

    /// Runs until a control tick, the end, or `max_events` more events.
    pub fn run(&mut self, max_events: u64) -> Pause {
        let stop = self.num_events.saturating_add(max_events);
        while !self.is_over && self.num_events < stop {
            let Some(event) = self.events.pop() else {
                return self.finish();
            };
            if event.time_ns > self.end_ns {
                return self.finish();
            }
            self.num_events += 1;
            self.now_ns = event.time_ns;
            if let Some(pause) = self.handle(event) {
                return pause;
            }
        }
        if self.is_over {
            Pause::Over
        } else {
            Pause::Slice
        }
    }

    #[inline]
    fn handle(&mut self, event: Event) -> Option<Pause> {
        let Event {
            index, generation, ..
        } = event;
        match event.kind() {
            Kind::Done if self.requests[index].generation == generation => self.slot_done(index),
            Kind::Arrival => self.arrive(index),
            Kind::Step if self.replicas[index as usize].generation == generation => {
                self.step_done(index);
            }
            Kind::Started if self.replicas[index as usize].generation == generation => {
                self.started(index);
            }
            Kind::Done | Kind::Step | Kind::Started => {}
            Kind::Retry => self.retry(index),
            Kind::TimeOut => self.time_outs(index),
            Kind::Expiry => self.expiries(index),
            Kind::Plan => self.scale(index, generation),
            Kind::Sample => return self.sample(index),
            Kind::Tick => return self.tick(index, generation),
        }
        None
    }

    fn finish(&mut self) -> Pause {
        if self.end_ns != u64::MAX {
            self.now_ns = self.end_ns;
        }
        for endpoint in &mut self.endpoints {
            endpoint.touch(self.now_ns);
        }
        self.is_over = true;
        Pause::Over
    }

    /// With a given end the run goes on to it; otherwise it stops when nothing more can happen.
    fn has_drained(&self) -> bool {
        let waited_ns = self.now_ns.saturating_sub(self.last_arrival_ns);
        self.end_ns == u64::MAX
            && self.open_sources == 0
            && (self.requests.live() == 0 || waited_ns > DRAIN_LIMIT_NS)
    }

    #[inline]
    fn plan_arrival(&mut self, index: u32) {
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.next = endpoint.source.next_arrival();
        match endpoint.next {
            Some(next) => self.events.push(next.time_ns, Kind::Arrival, index, 0),
            None => self.open_sources -= 1,
        }
    }

    #[inline]
    fn arrive(&mut self, index: u32) {
        let now_ns = self.now_ns;
        let endpoint = &mut self.endpoints[index as usize];
        let Some(arrival) = endpoint.next else { return };
        endpoint.touch_requests(now_ns);
        endpoint.stats.note_arrival(now_ns, endpoint.in_system());
        let (prompt, output) = (arrival.prompt, arrival.output);
        let request = Request::new(index, now_ns, prompt, output, arrival.trace_index);
        let request = self.requests.insert(request);
        self.last_arrival_ns = now_ns;
        self.plan_arrival(index);
        self.enter(request);
    }

    fn retry(&mut self, request: u32) {
        let endpoint = self.requests[request].endpoint;
        self.requests[request].arrived_ns = self.now_ns;
        self.endpoints[endpoint as usize].touch_requests(self.now_ns);
        self.enter(request);
    }

    /// An attempt reaches the door. The endpoint was touched.
    #[inline]
    fn enter(&mut self, request: u32) {
        let index = self.requests[request].endpoint;
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.stats.attempts += 1;
        if self.is_too_large(request) {
            return self.refuse_for_good(request);
        }
        let endpoint = &mut self.endpoints[index as usize];
        if endpoint.queued == 0 && !endpoint.spare.is_empty() {
            self.assign(request);
        } else if endpoint.queued >= endpoint.queue_limit {
            return self.refuse(request);
        } else {
            self.enqueue(index, request);
        }
        self.arm_time_out(index, request);
        self.endpoints[index as usize].changed(self.now_ns);
    }

    fn enqueue(&mut self, index: u32, request: u32) {
        self.requests[request].state = State::Queued;
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.queue.push_back(request);
        endpoint.queued += 1;
        let is_unserved = endpoint.active() == 0;
        self.arm_expiry(index, request);
        if is_unserved && self.tick_ns.is_some() {
            self.plan_tick(index, self.now_ns);
        }
    }

    /// Hands waiting requests to replicas with room, oldest first.
    pub(crate) fn dispatch(&mut self, index: u32) {
        loop {
            let endpoint = &mut self.endpoints[index as usize];
            if endpoint.queued == 0 || endpoint.spare.is_empty() {
                return;
            }
            let Some(request) = endpoint.queue.pop_front() else {
                return;
            };
            if self.requests[request].state == State::Gone {
                self.requests.remove(request);
                continue;
            }
            endpoint.queued -= 1;
            self.assign(request);
        }
    }

    #[inline]
    fn assign(&mut self, request: u32) {
        let index = self.requests[request].endpoint as usize;
        match self.endpoints[index].serving {
            Serving::Slots { .. } => self.slot_begin(request),
            Serving::Batch(_) => self.batch_assign(request),
        }
    }

    /// A request came to a replica: counts, and the list of those with room.
    #[inline]
    pub(crate) fn occupy(&mut self, request: u32, replica: u32) {
        let slot = &mut self.requests[request];
        slot.state = State::Running;
        slot.replica = replica;
        slot.begun_ns = self.now_ns;
        let endpoint = &mut self.endpoints[slot.endpoint as usize];
        endpoint.stats.wait.record(self.now_ns - slot.arrived_ns);
        endpoint.in_flight += 1;
        let replica_state = &mut self.replicas[replica as usize];
        replica_state.in_flight += 1;
        if replica_state.in_flight == endpoint.slots {
            if endpoint.spare.last() == Some(&replica) {
                endpoint.spare.pop();
            } else {
                endpoint.spare.retain(|&r| r != replica);
            }
        }
    }

    fn tick(&mut self, index: u32, generation: u32) -> Option<Pause> {
        let endpoint = &mut self.endpoints[index as usize];
        if generation != endpoint.tick_generation {
            return None;
        }
        let is_quiet = endpoint.active() == 0
            && endpoint.in_system() == 0
            && endpoint.stats.tick_arrivals == 0;
        if is_quiet && !self.tick_when_empty {
            return None;
        }
        if self.has_drained() {
            return Some(self.finish());
        }
        let next_ns = self.now_ns + self.tick_ns?;
        self.plan_tick(index, next_ns);
        Some(Pause::Tick(index))
    }

    /// The only tick of an endpoint that counts is the one planned last.
    fn plan_tick(&mut self, index: u32, at_ns: u64) {
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.tick_generation += 1;
        self.events
            .push(at_ns, Kind::Tick, index, endpoint.tick_generation);
    }

    fn sample(&mut self, index: u32) -> Option<Pause> {
        if self.has_drained() {
            return Some(self.finish());
        }
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.timeline.push(Sample {
            time_ns: self.now_ns,
            queued: endpoint.queued,
            in_flight: endpoint.in_flight,
            ready: endpoint.num_ready,
            starting: endpoint.num_starting,
            arrivals: endpoint.stats.arrivals,
            late: endpoint.stats.late,
        });
        let next_ns = self.now_ns + endpoint.timeline.interval_ns;
        self.events.push(next_ns, Kind::Sample, index, 0);
        None
    }
}
