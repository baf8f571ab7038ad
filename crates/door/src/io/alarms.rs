//! When the wait of each client connection ends.
//!
//! All ends are looked at many times a second, so they lie side by side: following a pointer to each of
//! ten thousand connections instead held every request up for a third of a millisecond.

use std::cell::RefCell;
use std::rc::Rc;

/// The ends of all waits, by the place that each connection took.
#[derive(Default)]
pub struct Alarms {
    /// `u64::MAX`: no end, or the place is free.
    ends_ns: RefCell<Vec<u64>>,
    free: RefCell<Vec<usize>>,
}

impl Alarms {
    /// A place of its own, free again when it is dropped.
    pub fn take(self: &Rc<Self>) -> Alarm {
        let free = self.free.borrow_mut().pop();
        let place = free.unwrap_or_else(|| {
            let mut ends = self.ends_ns.borrow_mut();
            ends.push(u64::MAX);
            ends.len() - 1
        });
        Alarm {
            alarms: self.clone(),
            place,
        }
    }

    /// The places whose wait is over at `now_ns`; each wait is told once.
    pub fn over(&self, now_ns: u64) -> Vec<usize> {
        let mut over = Vec::new();
        for (place, end) in self.ends_ns.borrow_mut().iter_mut().enumerate() {
            if *end <= now_ns {
                *end = u64::MAX;
                over.push(place);
            }
        }
        over
    }
}

/// One connection's.
pub struct Alarm {
    alarms: Rc<Alarms>,
    place: usize,
}

impl Alarm {
    pub fn place(&self) -> usize {
        self.place
    }

    /// Its wait ends at `end_ns`; the one before is forgotten.
    pub fn set(&self, end_ns: u64) {
        self.alarms.ends_ns.borrow_mut()[self.place] = end_ns;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.set(u64::MAX);
        self.alarms.free.borrow_mut().push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_over_at_its_end_once_and_a_new_one_replaces_it() {
        let alarms = Rc::new(Alarms::default());
        let (first, second) = (alarms.take(), alarms.take());
        first.set(10);
        second.set(20);
        assert!(alarms.over(9).is_empty());
        assert_eq!(alarms.over(10), [first.place()]);
        assert!(alarms.over(19).is_empty(), "told once");
        second.set(30);
        first.set(25);
        assert_eq!(alarms.over(30), [first.place(), second.place()]);
    }

    #[test]
    fn a_place_is_taken_again_and_nothing_of_its_last_wait_is_left() {
        let alarms = Rc::new(Alarms::default());
        let (gone, other) = (alarms.take(), alarms.take());
        gone.set(10);
        let place = gone.place();
        drop(gone);
        assert!(alarms.over(10).is_empty());
        let next = alarms.take();
        assert_eq!(next.place(), place);
        assert_ne!(next.place(), other.place());
        next.set(11);
        assert_eq!(alarms.over(11), [place]);
    }
}
