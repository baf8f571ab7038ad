//! Connections by token; a token carries a generation, so that a late event cannot reach a successor.

/// Values by index; freed indices are used again under a new generation.
pub struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, value: T) -> u64 {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.1 = Some(value);
            return token(entry.0, index);
        }
        self.entries.push((0, Some(value)));
        token(0, (self.entries.len() - 1) as u32)
    }

    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut((key & 0xffff_ffff) as usize)?;
        if u64::from(entry.0) != key >> 32 {
            None
        } else {
            entry.1.as_mut()
        }
    }

    pub fn remove(&mut self, key: u64) -> Option<T> {
        let index = (key & 0xffff_ffff) as u32;
        let entry = self.entries.get_mut(index as usize)?;
        if u64::from(entry.0) != key >> 32 {
            return None;
        }
        let value = entry.1.take()?;
        // The top generation is kept free: it is the space of tokens that are no connections.
        entry.0 = (entry.0 + 1) & 0x7fff_ffff;
        self.free.push(index);
        self.len -= 1;
        Some(value)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn tokens(&self) -> Vec<u64> {
        let live = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, e)| e.1.is_some());
        live.map(|(index, e)| token(e.0, index as u32)).collect()
    }
}

fn token(generation: u32, index: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn a_token_of_a_removed_value_never_reaches_its_successor() {
        let mut slab = Slab::default();
        let old = slab.insert("old");
        assert_eq!(slab.remove(old), Some("old"));
        let new = slab.insert("new");
        assert!(slab.get_mut(old).is_none() && slab.remove(old).is_none());
        assert_eq!(slab.get_mut(new), Some(&mut "new"));
        assert_eq!((slab.len(), slab.tokens()), (1, vec![new]));
    }
}
