//! Requests in a slab: a fixed piece of memory for each one that is in the system.

/// Where an attempt of a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Free,
    /// In the queue of its endpoint.
    Queued,
    /// Left the queue from the middle; its place is removed when it reaches the head.
    Gone,
    /// At a replica.
    Running,
    /// Its client waits before the next attempt.
    Backoff,
}

/// One attempt of one client.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When the client's first attempt came.
    pub client_ns: u64,
    /// When this attempt came.
    pub arrived_ns: u64,
    /// When its service began.
    pub begun_ns: u64,
    /// When its first byte came or will come; `u64::MAX` while unknown.
    pub first_byte_ns: u64,
    pub prompt: u32,
    pub output: u32,
    pub trace_index: u32,
    /// Output tokens produced so far (batching).
    pub generated: u32,
    /// Prompt tokens still to work off (batching).
    pub to_prefill: u32,
    /// Prompt tokens in the step that runs (batching).
    pub chunk: u32,
    pub replica: u32,
    pub generation: u32,
    pub endpoint: u32,
    pub attempt: u32,
    pub state: State,
    /// Nobody waits for it any more.
    pub dead: bool,
}

const FREE: Request = Request {
    client_ns: 0,
    arrived_ns: 0,
    begun_ns: 0,
    first_byte_ns: u64::MAX,
    prompt: 0,
    output: 0,
    trace_index: 0,
    generated: 0,
    to_prefill: 0,
    chunk: 0,
    replica: 0,
    generation: 0,
    endpoint: 0,
    attempt: 0,
    state: State::Free,
    dead: false,
};

impl Request {
    /// A first attempt that arrives now.
    pub fn new(endpoint: u32, now_ns: u64, prompt: u32, output: u32, trace_index: u32) -> Self {
        let arrived_ns = now_ns;
        Self {
            client_ns: now_ns,
            arrived_ns,
            prompt,
            output,
            trace_index,
            endpoint,
            ..FREE
        }
    }

    /// Tokens that its KV cache holds when it runs.
    pub fn context(&self) -> u64 {
        u64::from(self.prompt) + u64::from(self.generated)
    }
}

/// All requests that are somewhere in the system.
#[derive(Debug, Default)]
pub struct Slab {
    items: Vec<Request>,
    free: Vec<u32>,
}

impl Slab {
    /// Places a request; its generation stays the slot's own.
    #[inline]
    pub fn insert(&mut self, request: Request) -> u32 {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.items[index as usize];
            let generation = slot.generation;
            *slot = Request {
                generation,
                ..request
            };
            return index;
        }
        self.items.push(request);
        (self.items.len() - 1) as u32
    }

    #[inline]
    pub fn remove(&mut self, index: u32) {
        let slot = &mut self.items[index as usize];
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Requests that are not free, gone ones included.
    pub fn live(&self) -> usize {
        self.items.len() - self.free.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.items.iter().filter(|r| r.state != State::Free)
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = Request;

    #[inline]
    fn index(&self, index: u32) -> &Request {
        &self.items[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Request {
        &mut self.items[index as usize]
    }
}
