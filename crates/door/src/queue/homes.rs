//! Which replica served a session last: its prefix lies there in the KV cache.
//!
//! Two generations bound the memory: a session that is not asked for while as many others are as
//! one generation holds is forgotten.

use std::collections::HashMap;

/// Sessions per generation; a hundred bytes each.
const GENERATION: usize = 16_384;

/// Where a request of a session went, seen from the request of that session before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Nothing was known of the session.
    New,
    /// To the replica that served it last.
    Kept,
    /// To another one.
    Moved,
}

/// Sessions by the hash of their name, replicas by their key.
#[derive(Debug)]
pub(super) struct Homes {
    young: HashMap<u64, u64>,
    old: HashMap<u64, u64>,
    generation: usize,
}

impl Default for Homes {
    fn default() -> Homes {
        Homes::of(GENERATION)
    }
}

impl Homes {
    fn of(generation: usize) -> Homes {
        Homes {
            young: HashMap::new(),
            old: HashMap::new(),
            generation,
        }
    }

    /// The key of the replica that served `session` last, as far as it is remembered.
    pub(super) fn find(&self, session: u64) -> Option<u64> {
        let young = self.young.get(&session);
        young.or_else(|| self.old.get(&session)).copied()
    }

    /// The session is served by `replica` from now on.
    pub(super) fn settle(&mut self, session: u64, replica: u64) -> Move {
        let before = self.find(session);
        if self.young.len() >= self.generation && !self.young.contains_key(&session) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(session, replica);
        match before {
            None => Move::New,
            Some(same) if same == replica => Move::Kept,
            Some(_) => Move::Moved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_in_use_is_remembered_among_any_number_of_others_within_a_bound() {
        let mut homes = Homes::of(100);
        assert_eq!(homes.settle(u64::MAX, 1), Move::New);
        for stranger in 0..10_000 {
            homes.settle(stranger, 2);
            assert_eq!(homes.settle(u64::MAX, 1), Move::Kept, "after {stranger}");
            assert!(homes.young.len() + homes.old.len() <= 200);
        }
        assert_eq!(homes.find(0), None, "long ago");
        assert_eq!(homes.settle(u64::MAX, 3), Move::Moved);
        assert_eq!(homes.find(u64::MAX), Some(3));
    }
}
