//! Service in slots: each request takes one for a time of its own.

use crate::dist::ns;
use crate::engine::Sim;
use crate::events::Kind;
use crate::replica::Phase;

impl Sim {
    /// Starts a request on the replica that got room last. The endpoint was touched.
    #[inline]
    pub(crate) fn slot_begin(&mut self, request: u32) {
        let slot = &self.requests[request];
        let endpoint = &mut self.endpoints[slot.endpoint as usize];
        let Some(&replica) = endpoint.spare.last() else {
            return;
        };
        let (service_s, first_share) = endpoint.service_s(slot.prompt, slot.output);
        self.occupy(request, replica);
        let slot = &mut self.requests[request];
        slot.first_byte_ns = self.now_ns + ns(service_s * first_share);
        self.events.push(
            self.now_ns + ns(service_s),
            Kind::Done,
            request,
            slot.generation,
        );
    }

    #[inline]
    pub(crate) fn slot_done(&mut self, request: u32) {
        let index = self.requests[request].endpoint;
        self.endpoints[index as usize].touch_requests(self.now_ns);
        let replica = self.complete(request);
        self.release(index, replica);
        self.dispatch(index);
        self.endpoints[index as usize].changed(self.now_ns);
    }

    /// Books a request whose service ended, and frees its memory. Gives its replica.
    #[inline]
    pub(crate) fn complete(&mut self, request: u32) -> u32 {
        let now_ns = self.now_ns;
        let slot = &self.requests[request];
        let stats = &mut self.endpoints[slot.endpoint as usize].stats;
        let service_ns = u128::from(now_ns - slot.begun_ns);
        stats.service_ns += service_ns;
        stats.sojourn_ns += u128::from(now_ns - slot.arrived_ns);
        stats.departures += 1;
        if slot.dead {
            stats.dead_served += 1;
            stats.wasted_ns += service_ns;
        } else {
            stats.served += 1;
            stats.note_first_byte(slot.first_byte_ns - slot.client_ns);
            stats.whole.record(now_ns - slot.client_ns);
            stats.output_tokens += u64::from(slot.output);
        }
        let replica = slot.replica;
        self.requests.remove(request);
        replica
    }

    /// A request left a replica: counts, room, and the end of a drain.
    #[inline]
    pub(crate) fn release(&mut self, index: u32, replica: u32) {
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.in_flight -= 1;
        let state = &mut self.replicas[replica as usize];
        state.in_flight -= 1;
        if state.phase == Phase::Draining {
            if state.in_flight == 0 {
                self.remove_replica(replica);
            }
            return;
        }
        if state.in_flight + 1 == endpoint.slots {
            endpoint.spare.push(replica);
        }
    }
}
