//! Continuous batching: a replica advances all its running requests by one step at a time.
//!
//! Requests join at step boundaries. Prompts are worked off in chunks beside the decoding ones.
//! When the KV cache is full the request that was admitted last loses its place and is prefilled
//! again later (recomputation). Blocks shared through the prefix cache save work, not memory.

use crate::config::Batch;
use crate::dist::ns;
use crate::endpoint::Serving;
use crate::engine::Sim;
use crate::events::Kind;

impl Sim {
    fn batch_of(&self, index: u32) -> Option<&Batch> {
        match &self.endpoints[index as usize].serving {
            Serving::Batch(batch) => Some(batch),
            Serving::Slots { .. } => None,
        }
    }

    /// Can no replica ever hold all of its tokens?
    #[inline]
    pub(crate) fn is_too_large(&self, request: u32) -> bool {
        let r = &self.requests[request];
        match &self.endpoints[r.endpoint as usize].serving {
            Serving::Slots { .. } => false,
            Serving::Batch(b) => u64::from(r.prompt) + u64::from(r.output.max(1)) > b.kv_tokens,
        }
    }

    /// Hands a request to the replica with the least expected time to the first byte.
    pub(crate) fn batch_assign(&mut self, request: u32) {
        let index = self.requests[request].endpoint;
        let endpoint = &self.endpoints[index as usize];
        let Some(batch) = self.batch_of(index) else {
            return;
        };
        let best = endpoint.spare.iter().copied().min_by(|&a, &b| {
            let key = |r: u32| {
                (
                    self.expected_s(batch, request, r),
                    self.replicas[r as usize].in_flight,
                )
            };
            let ((sa, na), (sb, nb)) = (key(a), key(b));
            sa.total_cmp(&sb).then(na.cmp(&nb)).then(a.cmp(&b))
        });
        let Some(replica) = best else { return };
        self.occupy(request, replica);
        self.replicas[replica as usize].waiting.push_back(request);
        if !self.replicas[replica as usize].is_stepping {
            self.step_begin(replica);
        }
    }

    /// Uncached prefill of this request and of those that wait before it.
    fn expected_s(&self, batch: &Batch, request: u32, replica: u32) -> f64 {
        let state = &self.replicas[replica as usize];
        let ahead: u64 = state
            .waiting
            .iter()
            .map(|&w| u64::from(self.requests[w].prompt))
            .sum();
        let own = self.requests[request].context() - self.cached(batch, request, replica);
        (own + ahead) as f64 * batch.prefill_token_s
    }

    /// Prompt tokens that the replica has in its prefix cache; the last one is always computed.
    fn cached(&self, batch: &Batch, request: u32, replica: u32) -> u64 {
        let r = &self.requests[request];
        let Some(blocks) = self.blocks(r.endpoint, r.trace_index) else {
            return 0;
        };
        let matched = self.replicas[replica as usize].cache.matched(blocks) as u64;
        (matched * u64::from(batch.block_tokens)).min(u64::from(r.prompt).saturating_sub(1))
    }

    fn blocks(&self, index: u32, trace_index: u32) -> Option<&[u32]> {
        let trace = self.endpoints[index as usize].source.trace()?;
        Some(trace.hashes_of(trace_index))
    }

    fn step_begin(&mut self, replica: u32) {
        let index = self.replicas[replica as usize].endpoint;
        let Some(batch) = self.batch_of(index).cloned() else {
            return;
        };
        self.admit(&batch, replica);
        self.make_room(&batch, replica);
        let state = &mut self.replicas[replica as usize];
        state.is_stepping = !state.running.is_empty();
        if !state.is_stepping {
            return;
        }
        let step_s = self.compose(&batch, replica);
        let generation = self.replicas[replica as usize].generation;
        let at_ns = self.now_ns + ns(step_s).max(1);
        self.events.push(at_ns, Kind::Step, replica, generation);
    }

    fn admit(&mut self, batch: &Batch, replica: u32) {
        while let Some(&request) = self.replicas[replica as usize].waiting.front() {
            let context = self.requests[request].context();
            let state = &self.replicas[replica as usize];
            let is_full = state.running.len() >= batch.max_batch as usize;
            if is_full || state.kv_used + context + 1 > batch.kv_tokens {
                return;
            }
            let cached = self.cached(batch, request, replica);
            let slot = &mut self.requests[request];
            slot.to_prefill = ((context - cached) as u32).max(1);
            let stats = &mut self.endpoints[slot.endpoint as usize].stats;
            stats.prompt_tokens += context;
            stats.cached_tokens += cached;
            let state = &mut self.replicas[replica as usize];
            state.kv_used += context;
            state.waiting.pop_front();
            state.running.push(request);
            self.remember(request, replica);
        }
    }

    fn remember(&mut self, request: u32, replica: u32) {
        let r = self.requests[request];
        let trace = self.endpoints[r.endpoint as usize].source.trace();
        if let Some(trace) = trace {
            self.replicas[replica as usize]
                .cache
                .touch(trace.hashes_of(r.trace_index));
        }
    }

    /// Every running request may grow by a token in this step.
    fn make_room(&mut self, batch: &Batch, replica: u32) {
        loop {
            let state = &mut self.replicas[replica as usize];
            let growth = state.running.len() as u64;
            if state.running.len() <= 1 || state.kv_used + growth <= batch.kv_tokens {
                return;
            }
            let Some(victim) = state.running.pop() else {
                return;
            };
            let slot = &mut self.requests[victim];
            state.kv_used -= slot.context();
            state.waiting.push_front(victim);
            self.endpoints[slot.endpoint as usize].stats.preemptions += 1;
        }
    }

    /// Shares out the prompt tokens of the step and says how long it takes.
    fn compose(&mut self, batch: &Batch, replica: u32) -> f64 {
        let mut left = batch.chunk_tokens;
        let (mut sequences, mut kv_tokens) = (0u32, 0u64);
        for &request in &self.replicas[replica as usize].running {
            let slot = &mut self.requests[request];
            slot.chunk = slot.to_prefill.min(left);
            left -= slot.chunk;
            if slot.to_prefill == 0 {
                sequences += 1;
                kv_tokens += slot.context();
            }
        }
        batch.step_s
            + batch.seq_s * f64::from(sequences)
            + batch.kv_token_s * kv_tokens as f64
            + batch.prefill_token_s * f64::from(batch.chunk_tokens - left)
    }

    pub(crate) fn step_done(&mut self, replica: u32) {
        let index = self.replicas[replica as usize].endpoint;
        self.endpoints[index as usize].touch_requests(self.now_ns);
        self.advance_batch(replica);
        self.dispatch(index);
        // a drained replica is gone; its slot may already be another's
        let state = &mut self.replicas[replica as usize];
        if state.in_flight > 0 || state.is_stepping {
            state.is_stepping = false;
            self.step_begin(replica);
        }
        self.endpoints[index as usize].changed(self.now_ns);
    }

    fn advance_batch(&mut self, replica: u32) {
        let mut running = std::mem::take(&mut self.replicas[replica as usize].running);
        running.retain(|&request| !self.advance_request(request, replica));
        let state = &mut self.replicas[replica as usize];
        if state.running.is_empty() {
            state.running = running;
        }
    }

    /// One step of one request; true when it is finished and gone.
    fn advance_request(&mut self, request: u32, replica: u32) -> bool {
        let slot = &mut self.requests[request];
        let was_prefilling = slot.to_prefill > 0;
        slot.to_prefill -= slot.chunk;
        slot.chunk = 0;
        if was_prefilling && slot.to_prefill > 0 {
            return false;
        }
        slot.generated += 1;
        slot.first_byte_ns = slot.first_byte_ns.min(self.now_ns);
        let (context, index) = (slot.context(), slot.endpoint);
        let is_finished = slot.generated >= slot.output.max(1);
        let state = &mut self.replicas[replica as usize];
        state.kv_used += 1;
        if is_finished {
            state.kv_used -= context;
            self.complete(request);
            self.release(index, replica);
        }
        is_finished
    }

    /// Takes a cancelled request out of its replica.
    pub(crate) fn batch_forget(&mut self, request: u32) {
        let slot = &self.requests[request];
        let state = &mut self.replicas[slot.replica as usize];
        if let Some(at) = state.running.iter().position(|&r| r == request) {
            state.running.remove(at);
            state.kv_used -= slot.context();
        } else {
            state.waiting.retain(|&r| r != request);
        }
    }
}
