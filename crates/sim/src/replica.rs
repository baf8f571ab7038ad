//! One replica: its state, what it runs, and its memory.

use std::collections::VecDeque;

use crate::prefix::PrefixCache;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Ready,
    Draining,
    Stopped,
}

#[derive(Debug)]
pub struct Replica {
    pub endpoint: u32,
    pub phase: Phase,
    pub generation: u32,
    /// Requests here, waiting ones included.
    pub in_flight: u32,
    /// Assigned, not yet in the batch (batching).
    pub waiting: VecDeque<u32>,
    /// In the batch, in order of admission (batching).
    pub running: Vec<u32>,
    /// A step is under way (batching).
    pub is_stepping: bool,
    pub kv_used: u64,
    pub cache: PrefixCache,
}

impl Replica {
    pub fn new(endpoint: u32, prefix_blocks: u32, generation: u32) -> Self {
        Self {
            endpoint,
            phase: Phase::Starting,
            generation,
            in_flight: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            is_stepping: false,
            kv_used: 0,
            cache: PrefixCache::new(prefix_blocks),
        }
    }
}
