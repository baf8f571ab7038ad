//! Replicas come and go: starts by preparedness, drains, and the devices that all share.

use crate::engine::Sim;
use crate::events::Kind;
use crate::replica::{Phase, Replica};

/// What stopped replicas left behind is remembered for this many of them.
const MAX_REMAINS: usize = 4096;

impl Sim {
    /// Asks for `wanted` replicas of an endpoint, starting ones included.
    pub fn scale(&mut self, index: u32, wanted: u32) {
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.wanted = wanted;
        endpoint.touch(self.now_ns);
        while self.endpoints[index as usize].active() > wanted {
            self.stop_one(index);
        }
        self.fill(index);
    }

    /// Starts what is wanted as far as there are devices.
    fn fill(&mut self, index: u32) {
        while self.has_room(index) {
            self.start_one(index);
        }
    }

    /// Is one more replica wanted, and are there devices for it?
    pub(crate) fn has_room(&self, index: u32) -> bool {
        let endpoint = &self.endpoints[index as usize];
        endpoint.active() < endpoint.wanted
            && self.devices - self.devices_used >= endpoint.devices_per_replica
    }

    fn start_one(&mut self, index: u32) {
        let endpoint = &mut self.endpoints[index as usize];
        let age_ns = endpoint
            .remains
            .pop_back()
            .map(|left_ns| self.now_ns - left_ns);
        let times = &self.start_times[index as usize];
        let (level, time_ns) = times.sample(age_ns, &mut endpoint.start_stream);
        endpoint.stats.starts[level] += 1;
        endpoint.stats.start_time.record(time_ns);
        let replica = self.place(index);
        let generation = self.replicas[replica as usize].generation;
        self.events
            .push(self.now_ns + time_ns, Kind::Started, replica, generation);
    }

    /// A replica in the starting phase.
    fn place(&mut self, index: u32) -> u32 {
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.num_starting += 1;
        self.devices_used += endpoint.devices_per_replica;
        let prefix_blocks = match &endpoint.serving {
            crate::endpoint::Serving::Batch(batch) => batch.prefix_blocks,
            crate::endpoint::Serving::Slots { .. } => 0,
        };
        let replica = self
            .free_replicas
            .pop()
            .unwrap_or(self.replicas.len() as u32);
        let generation = self
            .replicas
            .get(replica as usize)
            .map_or(0, |r| r.generation);
        let new = Replica::new(index, prefix_blocks, generation);
        match self.replicas.get_mut(replica as usize) {
            Some(slot) => *slot = new,
            None => self.replicas.push(new),
        }
        endpoint.replicas.push(replica);
        replica
    }

    /// A replica that was ready before the run began.
    pub(crate) fn place_ready(&mut self, index: u32) {
        let replica = self.place(index);
        self.started(replica);
    }

    pub(crate) fn started(&mut self, replica: u32) {
        let index = self.replicas[replica as usize].endpoint;
        self.replicas[replica as usize].phase = Phase::Ready;
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.touch(self.now_ns);
        endpoint.num_starting -= 1;
        endpoint.num_ready += 1;
        endpoint.spare.push(replica);
        self.dispatch(index);
        self.endpoints[index as usize].changed(self.now_ns);
    }

    /// Gives up one replica: one that starts before one that works (what runs is never killed
    /// for what does not run yet), and of the ready ones that with the least to finish.
    fn stop_one(&mut self, index: u32) {
        let endpoint = &self.endpoints[index as usize];
        let rank = |&r: &u32| {
            let replica = &self.replicas[r as usize];
            (replica.phase == Phase::Ready, replica.in_flight)
        };
        // of equals the one that came last
        let Some(&replica) = endpoint.replicas.iter().rev().min_by_key(|r| rank(r)) else {
            return;
        };
        match self.replicas[replica as usize].phase {
            Phase::Ready => self.drain(index, replica),
            _ => {
                self.endpoints[index as usize].num_starting -= 1;
                self.remove_replica(replica);
            }
        }
    }

    fn drain(&mut self, index: u32, replica: u32) {
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.num_ready -= 1;
        endpoint.spare.retain(|&r| r != replica);
        endpoint.replicas.retain(|&r| r != replica);
        self.replicas[replica as usize].phase = Phase::Draining;
        if self.replicas[replica as usize].in_flight == 0 {
            self.remove_replica(replica);
        }
    }

    /// The process is gone; its devices are free, and what it left on its node is warm.
    pub(crate) fn remove_replica(&mut self, replica: u32) {
        let state = &mut self.replicas[replica as usize];
        state.phase = Phase::Stopped;
        state.generation += 1;
        let index = state.endpoint;
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.replicas.retain(|&r| r != replica);
        endpoint.remains.push_back(self.now_ns);
        if endpoint.remains.len() > MAX_REMAINS {
            endpoint.remains.pop_front();
        }
        self.devices_used -= endpoint.devices_per_replica;
        self.free_replicas.push(replica);
        if self.devices != u32::MAX {
            for other in 0..self.endpoints.len() as u32 {
                self.endpoints[other as usize].touch(self.now_ns);
                self.fill(other);
            }
        }
    }
}
