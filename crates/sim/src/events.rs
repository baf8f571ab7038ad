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
#[derive(Debug, Default)]
pub struct Events {
    heap: Vec<Event>,
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
        let mut hole = self.heap.len();
        self.heap.push(event);
        let key = event.key();
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.heap[parent].key() <= key {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = event;
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        let last = self.heap.pop()?;
        let Some(&first) = self.heap.first() else {
            return Some(last);
        };
        self.sift_down(last);
        Some(first)
    }

    #[inline]
    fn sift_down(&mut self, event: Event) {
        let heap = &mut self.heap[..];
        let (len, key) = (heap.len(), event.key());
        let mut hole = 0;
        loop {
            let child = hole * ARITY + 1;
            if child >= len {
                break;
            }
            let mut best = child;
            let mut best_key = heap[child].key();
            for (i, other) in heap
                .iter()
                .enumerate()
                .take(len.min(child + ARITY))
                .skip(child + 1)
            {
                if other.key() < best_key {
                    (best, best_key) = (i, other.key());
                }
            }
            if key <= best_key {
                break;
            }
            heap[hole] = heap[best];
            hole = best;
        }
        heap[hole] = event;
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
