//! The waiting line: FIFO within a class, classes in order, and who expires next. O(log n) per
//! operation.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::task::Waker;

use super::{Ask, Permit};
use crate::wait::Refusal;

/// What came of a queued request.
pub(super) type Verdict = Result<Permit, Refusal>;

/// Priorities beyond this are taken as this: it bounds the number of classes.
const PRIORITY_BOUND: i32 = 100;

/// Within a priority: those that come back after a failed connect, then calls for held slots, then
/// new arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Retry,
    Held,
    New,
}

/// Who goes before whom; the smallest goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class(Reverse<i32>, Rank);

impl Class {
    pub(super) fn of(ask: &Ask, attempt: u32) -> Class {
        let rank = match (attempt, ask.holds_parent) {
            (2.., _) => Rank::Retry,
            (_, true) => Rank::Held,
            (_, false) => Rank::New,
        };
        Class(
            Reverse(ask.priority.clamp(-PRIORITY_BOUND, PRIORITY_BOUND)),
            rank,
        )
    }

    pub(super) fn is_retry(self) -> bool {
        self.1 == Rank::Retry
    }

    pub(super) fn is_new(self) -> bool {
        self.1 == Rank::New
    }
}

/// One request from submission to verdict; shared by the line and its ticket.
#[derive(Debug)]
pub(super) struct Entry {
    pub ask: Ask,
    pub class: Class,
    pub seq: u64,
    /// When the request first came, before any retry.
    pub arrived_ns: u64,
    pub expected_ns: u64,
    pub attempt: u32,
    pub expires_ns: Cell<u64>,
    pub verdict: RefCell<Option<Verdict>>,
    pub waker: RefCell<Option<Waker>>,
}

impl Entry {
    /// The nearer of the two deadlines.
    pub(super) fn deadline_ns(&self) -> u64 {
        self.ask.nearest_deadline_ns()
    }
}

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    classes: BTreeMap<Class, BTreeMap<u64, Rc<Entry>>>,
    expiries: BTreeSet<(u64, Class, u64)>,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.expiries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.expiries.is_empty()
    }

    /// How many a newcomer of `class` would find before it.
    pub(super) fn ahead_of(&self, class: Class) -> usize {
        self.classes
            .range(..=class)
            .map(|(_, entries)| entries.len())
            .sum()
    }

    pub(super) fn push(&mut self, entry: Rc<Entry>) {
        self.expiries
            .insert((entry.expires_ns.get(), entry.class, entry.seq));
        self.classes
            .entry(entry.class)
            .or_default()
            .insert(entry.seq, entry);
    }

    pub(super) fn first(&self) -> Option<&Rc<Entry>> {
        self.classes
            .first_key_value()
            .and_then(|(_, entries)| entries.first_key_value())
            .map(|e| e.1)
    }

    /// Takes an entry out; false when it was not in (any more).
    pub(super) fn remove(&mut self, entry: &Entry) -> bool {
        let Some(entries) = self.classes.get_mut(&entry.class) else {
            return false;
        };
        if entries.remove(&entry.seq).is_none() {
            return false;
        }
        if entries.is_empty() {
            self.classes.remove(&entry.class);
        }
        self.expiries
            .remove(&(entry.expires_ns.get(), entry.class, entry.seq))
    }

    /// When the next entry expires.
    pub(super) fn next_expiry_ns(&self) -> Option<u64> {
        self.expiries.first().map(|first| first.0)
    }

    /// Takes out one entry whose time is over.
    pub(super) fn pop_expired(&mut self, now_ns: u64) -> Option<Rc<Entry>> {
        let &(expires, class, seq) = self.expiries.first()?;
        if expires > now_ns {
            return None;
        }
        let entry = self.classes.get(&class)?.get(&seq)?.clone();
        self.remove(&entry);
        Some(entry)
    }

    /// Gives every entry a new expiry. O(n log n): only when readiness changes.
    pub(super) fn extend(&mut self, expires_ns: impl Fn(&Entry) -> u64) {
        for entry in self.classes.values().flat_map(BTreeMap::values) {
            let (old, new) = (entry.expires_ns.get(), expires_ns(entry));
            if new > old {
                self.expiries.remove(&(old, entry.class, entry.seq));
                entry.expires_ns.set(new);
                self.expiries.insert((new, entry.class, entry.seq));
            }
        }
    }

    /// Takes everything out, first to go first.
    pub(super) fn drain(&mut self) -> Vec<Rc<Entry>> {
        self.expiries.clear();
        std::mem::take(&mut self.classes)
            .into_values()
            .flat_map(BTreeMap::into_values)
            .collect()
    }

    /// When the one who has waited longest came. O(classes).
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        let firsts = self.classes.values().filter_map(BTreeMap::first_key_value);
        firsts.map(|(_, entry)| entry.arrived_ns).min()
    }
}
