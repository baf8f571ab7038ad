//! The offline optimum of holding replicas, exactly and in one pass.
//!
//! With starts that take no time, the cheapest provision of a known demand splits into levels: the
//! j-th replica is needed while the demand is at least j, and in every gap between two such times
//! the cheaper of idling through it and starting again is paid.

/// The gap structure of one demand curve.
#[derive(Debug)]
pub struct Levels {
    start_cost_ns: u64,
    slots: u32,
    max: u32,
    needed: u32,
    /// Per level: when it was last needed; None before the first time.
    left_ns: Vec<Option<u64>>,
    pub optimum_ns: u128,
    pub gaps: u64,
}

impl Levels {
    /// Demand above `max` replicas of `slots` each has to wait, and is not a level.
    pub fn new(start_cost_ns: u64, slots: u32, max: u32) -> Self {
        Self {
            start_cost_ns,
            slots,
            max,
            needed: 0,
            left_ns: Vec::new(),
            optimum_ns: 0,
            gaps: 0,
        }
    }

    /// `in_system` requests from now on.
    #[inline]
    pub fn set(&mut self, now_ns: u64, in_system: u32) {
        let needed = in_system.div_ceil(self.slots).min(self.max);
        while self.needed > needed {
            self.needed -= 1;
            self.left_ns[self.needed as usize] = Some(now_ns);
        }
        while self.needed < needed {
            self.rise(now_ns);
        }
    }

    fn rise(&mut self, now_ns: u64) {
        let level = self.needed as usize;
        self.needed += 1;
        if level == self.left_ns.len() {
            self.left_ns.push(None);
        }
        let paid = match self.left_ns[level] {
            None => self.start_cost_ns,
            Some(left) => {
                self.gaps += u64::from(now_ns > left);
                self.start_cost_ns.min(now_ns - left)
            }
        };
        self.optimum_ns += u128::from(paid);
    }
}
