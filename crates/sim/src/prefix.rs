//! The prefix cache of one replica: block ids, least recently used out first.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Block ids are small integers already; one multiplication spreads them.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u32(u32::from(b));
        }
    }

    fn write_u32(&mut self, id: u32) {
        let mixed = (self.0 ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[derive(Debug, Default)]
pub struct PrefixCache {
    capacity: usize,
    stamps: HashMap<u32, u64, BuildHasherDefault<IdHasher>>,
    /// Every use in order; an entry whose stamp is not the block's newest is passed over.
    uses: VecDeque<(u32, u64)>,
    clock: u64,
}

impl PrefixCache {
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity: capacity as usize,
            ..Self::default()
        }
    }

    /// How many leading blocks are here.
    pub fn matched(&self, blocks: &[u32]) -> usize {
        if self.capacity == 0 {
            return 0;
        }
        blocks
            .iter()
            .take_while(|b| self.stamps.contains_key(b))
            .count()
    }

    /// Marks blocks as used now. The first block is the newest, so that a prefix outlives what
    /// hangs from it.
    pub fn touch(&mut self, blocks: &[u32]) {
        if self.capacity == 0 {
            return;
        }
        for &block in blocks.iter().rev() {
            self.clock += 1;
            self.stamps.insert(block, self.clock);
            self.uses.push_back((block, self.clock));
        }
        while self.stamps.len() > self.capacity {
            self.evict();
        }
        if self.uses.len() > 4 * self.capacity.max(64) {
            let stamps = &self.stamps;
            self.uses
                .retain(|(block, stamp)| stamps.get(block) == Some(stamp));
        }
    }

    fn evict(&mut self) {
        if let Some((block, stamp)) = self.uses.pop_front()
            && self.stamps.get(&block) == Some(&stamp)
        {
            self.stamps.remove(&block);
        }
    }
}
