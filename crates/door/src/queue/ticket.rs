//! Tickets: a request between submission and verdict.

use std::rc::Rc;
use std::task::{Poll, Waker};

use super::line::{Entry, Verdict};
use super::permit::Permit;
use super::state::Inner;
use crate::wait::Refusal;

/// A request in the line. Dropping it withdraws the request: it is never dispatched, and a slot
/// that was granted meanwhile is freed.
pub struct Ticket {
    inner: Rc<Inner>,
    entry: Rc<Entry>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({} of {})", self.entry.seq, self.inner.name)
    }
}

impl Ticket {
    pub(super) fn new(inner: Rc<Inner>, entry: Rc<Entry>) -> Ticket {
        Ticket { inner, entry }
    }

    /// The verdict, once; until then `waker` is kept and woken when there is one.
    pub fn poll(&mut self, waker: &Waker, now_ns: u64) -> Poll<Result<Permit, Refusal>> {
        if self.entry.verdict.borrow().is_none() && self.entry.expires_ns.get() <= now_ns {
            let inner = self.inner.clone();
            inner.with(now_ns, |state| state.dispatch(&inner));
        }
        let verdict = self.entry.verdict.borrow_mut().take();
        match verdict {
            Some(Ok(permit)) => Poll::Ready(self.in_time(permit, now_ns)),
            Some(Err(refusal)) => Poll::Ready(Err(refusal)),
            None => {
                let mut kept = self.entry.waker.borrow_mut();
                match kept.as_mut() {
                    Some(kept) => kept.clone_from(waker),
                    None => *kept = Some(waker.clone()),
                }
                Poll::Pending
            }
        }
    }

    /// A grant that is only looked at after the deadline is given back: expired work reaches no
    /// replica.
    fn in_time(&self, permit: Permit, now_ns: u64) -> Verdict {
        if permit.ask().nearest_deadline_ns() > now_ns {
            return Ok(permit);
        }
        let waited_ns = now_ns - self.entry.arrived_ns.min(now_ns);
        permit.withdraw(now_ns);
        Err(self.inner.with(now_ns, |state| state.too_late(waited_ns)))
    }

    /// When the request is refused if no slot has come free; `u64::MAX`: never. May move later, not
    /// nearer.
    pub fn expires_ns(&self) -> u64 {
        self.entry.expires_ns.get()
    }

    /// The wait expected at submission, ns.
    pub fn expected_wait_ns(&self) -> u64 {
        self.entry.expected_ns
    }

    /// A slot is held already: the next poll gives the permit.
    pub fn is_granted(&self) -> bool {
        matches!(*self.entry.verdict.borrow(), Some(Ok(_)))
    }

    /// There is a verdict: the next poll gives it.
    pub fn is_settled(&self) -> bool {
        self.entry.verdict.borrow().is_some()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Dropping a granted permit frees its slot; it must not happen while the cell is borrowed.
        let verdict = self.entry.verdict.borrow_mut().take();
        let inner = self.inner.clone();
        if let Some(Ok(permit)) = verdict {
            inner.with(0, |state| state.counts.cancelled += 1);
            permit.withdraw(0);
            return;
        }
        inner.with(0, |state| {
            // The next one may need less KV than the one that left.
            if state.line.remove(&self.entry) {
                state.counts.cancelled += 1;
                state.dispatch(&inner);
            }
        });
    }
}
