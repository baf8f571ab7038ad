//! Deadlines in one heap; an entry names a connection and is ignored when the connection has moved on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A deadline that came due: when it was meant for, whose it is, and what for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    pub at_ns: i64,
    sequence: u64,
    pub token: u64,
    pub kind: u8,
}

/// A heap of deadlines with a total order (time, then order of insertion).
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<Due>>,
    sequence: u64,
}

impl Timers {
    pub fn push(&mut self, at_ns: i64, token: u64, kind: u8) {
        self.sequence += 1;
        self.heap.push(Reverse(Due {
            at_ns,
            sequence: self.sequence,
            token,
            kind,
        }));
    }

    pub fn next_ns(&self) -> Option<i64> {
        self.heap.peek().map(|due| due.0.at_ns)
    }

    pub fn pop_due(&mut self, now_ns: i64) -> Option<Due> {
        let due = self.heap.peek()?.0;
        if due.at_ns > now_ns {
            return None;
        }
        self.heap.pop();
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::Timers;

    #[test]
    fn deadlines_come_in_time_order_and_equal_ones_in_insertion_order() {
        let mut timers = Timers::default();
        for (at, token) in [(30, 1), (10, 2), (10, 3)] {
            timers.push(at, token, 0);
        }
        assert_eq!(timers.next_ns(), Some(10));
        assert!(timers.pop_due(9).is_none());
        let order: Vec<u64> = std::iter::from_fn(|| timers.pop_due(50))
            .map(|d| d.token)
            .collect();
        assert_eq!(order, [2, 3, 1]);
    }
}
