//! The one event order: (time, priority, sequence), kept by a four-ary heap.

/// What happens. Several at one instant happen in this order: work ends before new work comes,
/// and a control tick sees everything else that happened at its instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A request's service ends. Index: request.
    Done = 0,
    /// A replica's batch step ends. Index: replica.
    Step,
    /// A replica becomes ready. Index: replica.
    Started,
    /// The next request of a source. Index: endpoint.
    Arrival,
    /// A client tries again. Index: request.
    Retry,
    /// The oldest client time-out of an endpoint is due. Index: endpoint.
    TimeOut,
    /// The oldest queue deadline of an endpoint is due. Index: endpoint.
    Expiry,
    /// A written scale step. Index: endpoint.
    Plan,
    /// A sample of the timeline. Index: endpoint.
    Sample,
    /// A control tick. Index: endpoint.
    Tick,
}

const KINDS: [Kind; 10] = [
    Kind::Done,
    Kind::Step,
    Kind::Started,
    Kind::Arrival,
    Kind::Retry,
    Kind::TimeOut,
    Kind::Expiry,
    Kind::Plan,
    Kind::Sample,
    Kind::Tick,
];

/// One event; `generation` tells an event of a slot's earlier owner from one of the present.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub time_ns: u64,
    /// Priority (the kind) in the top byte, sequence below.
    order: u64,
    pub index: u32,
    pub generation: u32,
}

impl Event {
    #[inline]
    pub fn kind(&self) -> Kind {
        KINDS[(self.order >> 56) as usize]
    }

    #[inline]
    fn key(&self) -> u128 {
        (u128::from(self.time_ns) << 64) | u128::from(self.order)
    }
}

/// Pending events, earliest first.
///
/// Nearly every event plans its successor, so taking one leaves a hole at the root, and the next
/// push goes down from there: one walk through the heap where a pop and a push would be two.
#[derive(Debug, Default)]
pub struct Events {
    heap: Vec<Event>,
    /// The root was taken, and nothing has been put there yet.
    has_hole: bool,
    sequence: u64,
}

const ARITY: usize = 4;

impl Events {
    #[inline]
    pub fn push(&mut self, time_ns: u64, kind: Kind, index: u32, generation: u32) {
        self.sequence += 1;
        let order = ((kind as u64) << 56) | self.sequence;
        let event = Event {
            time_ns,
            order,
            index,
            generation,
        };
        if self.has_hole {
            self.has_hole = false;
            sift_down(&mut self.heap, event);
        } else {
            self.heap.push(event);
            sift_up(&mut self.heap, event);
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        if self.has_hole {
            self.has_hole = false;
            let last = self.heap.pop()?;
            if !self.heap.is_empty() {
                sift_down(&mut self.heap, last);
            }
        }
        let first = *self.heap.first()?;
        self.has_hole = true;
        Some(first)
    }

    pub fn is_empty(&self) -> bool {
        self.heap.len() == usize::from(self.has_hole)
    }
}

#[inline]
fn sift_up(heap: &mut [Event], event: Event) {
    let (mut hole, key) = (heap.len() - 1, event.key());
    while hole > 0 {
        let parent = (hole - 1) / ARITY;
        if heap[parent].key() <= key {
            break;
        }
        heap[hole] = heap[parent];
        hole = parent;
    }
    heap[hole] = event;
}

#[inline]
fn sift_down(heap: &mut [Event], event: Event) {
    let key = event.key();
    let mut hole = 0;
    while let Some(best) = earliest_child(heap, hole) {
        if key <= heap[best].key() {
            break;
        }
        heap[hole] = heap[best];
        hole = best;
    }
    heap[hole] = event;
}

/// Which of four children is earliest is a coin toss that no branch predictor wins: the index is
/// computed instead of branched upon.
#[inline]
fn earliest_child(heap: &[Event], parent: usize) -> Option<usize> {
    let child = parent * ARITY + 1;
    let children = heap.get(child..)?;
    if let Some(four) = children.first_chunk::<ARITY>() {
        let left = usize::from(four[1].key() < four[0].key());
        let right = 2 + usize::from(four[3].key() < four[2].key());
        let is_right = usize::from(four[right].key() < four[left].key());
        return Some(child + left + (right - left) * is_right);
    }
    let best = children.iter().enumerate().min_by_key(|(_, e)| e.key())?;
    Some(child + best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A heap with a hole gives the same order as sorting what is pending, whatever mix of
    /// pushes and pops comes.
    #[test]
    fn events_come_in_the_one_order_whatever_the_mix_of_pushes_and_pops() {
        let mut stream = crate::rng::Stream::new(5, 0, 0);
        let mut events = Events::default();
        let mut pending: Vec<(u64, u8, u64)> = vec![];
        let (mut sequence, mut taken) = (0, 0);
        for round in 0..200_000u32 {
            let bits = stream.next_u64();
            // rounds in which pushes win over pops, and the other way round
            let pushes = if round % 4000 < 2000 { 5 } else { 3 };
            if bits % 8 < pushes {
                let kind = KINDS[(bits >> 8) as usize % KINDS.len()];
                let time_ns = (bits >> 16) % 64;
                sequence += 1;
                events.push(time_ns, kind, round, 0);
                pending.push((time_ns, kind as u8, sequence));
            } else {
                pending.sort_unstable();
                let expected = (!pending.is_empty()).then(|| pending.remove(0));
                let found = events.pop();
                assert_eq!(
                    found.map(|e| (e.time_ns, e.kind() as u8, e.order & ((1 << 56) - 1))),
                    expected
                );
                taken += u32::from(found.is_some());
            }
            assert_eq!(events.is_empty(), pending.is_empty());
        }
        assert!(taken > 50_000);
    }
}
