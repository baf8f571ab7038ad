//! A waker that does not wake the task that is running.
//!
//! hyper's client connection and its response future talk by channels made for two tasks: each
//! message wakes the other side. Here both are polled by one task, one after the other, so such a
//! wake only means "poll the other one again". Passing it on would run the whole connection once
//! more for every chunk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// More turns than any exchange needs; beyond it the task is woken, so that others get theirs.
const MAX_TURNS: usize = 8;

#[derive(Default)]
struct Inner {
    is_running: AtomicBool,
    was_woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_running.load(Ordering::Relaxed) {
            self.was_woken.store(true, Ordering::Relaxed);
            return;
        }
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.as_ref() {
            task.wake_by_ref();
        }
    }
}

/// One waker for several futures that one task polls together.
pub struct Quiet {
    inner: Arc<Inner>,
    waker: Waker,
}

impl Default for Quiet {
    fn default() -> Self {
        let inner = Arc::new(Inner::default());
        Quiet {
            waker: inner.clone().into(),
            inner,
        }
    }
}

impl Quiet {
    /// Polls `work` with the quiet waker until it is ready or nothing more was woken by itself;
    /// wakes that come later, from the socket, go to the task of `cx`.
    pub fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        mut work: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.remember(cx.waker());
        let mut quiet = Context::from_waker(&self.waker);
        self.inner.is_running.store(true, Ordering::Relaxed);
        let mut polled = Poll::Pending;
        for turn in 0..=MAX_TURNS {
            self.inner.was_woken.store(false, Ordering::Relaxed);
            polled = work(&mut quiet);
            if polled.is_ready() || !self.inner.was_woken.load(Ordering::Relaxed) {
                break;
            }
            if turn == MAX_TURNS {
                cx.waker().wake_by_ref();
            }
        }
        self.inner.is_running.store(false, Ordering::Relaxed);
        polled
    }

    /// As [`Quiet::poll`] for `work` that `behind` makes go on: what the one says to the other before
    /// it runs is no reason for another turn.
    pub fn poll_pair<T>(
        &self,
        cx: &mut Context<'_>,
        mut work: impl FnMut(&mut Context<'_>) -> Poll<T>,
        mut behind: impl FnMut(&mut Context<'_>),
    ) -> Poll<T> {
        self.poll(cx, |cx| {
            let polled = work(cx);
            if polled.is_pending() {
                self.inner.was_woken.store(false, Ordering::Relaxed);
                behind(cx);
            }
            polled
        })
    }

    fn remember(&self, waker: &Waker) {
        let mut task = self
            .inner
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_from_within_is_another_turn_and_one_from_without_wakes_the_task() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let quiet = Quiet::default();
        let mut turns = 0;
        let mut kept = None;
        let polled: Poll<()> = quiet.poll(&mut Context::from_waker(&waker), |cx| {
            turns += 1;
            if turns < 3 {
                cx.waker().wake_by_ref();
            }
            kept = Some(cx.waker().clone());
            Poll::Pending
        });
        assert!(polled.is_pending());
        assert_eq!((turns, count.0.load(Ordering::Relaxed)), (3, 0));
        kept.unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_said_before_the_other_runs_is_no_reason_for_another_turn() {
        let quiet = Quiet::default();
        let (works, behinds) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let polled = quiet.poll_pair(
            &mut Context::from_waker(Waker::noop()),
            |cx| {
                works.set(works.get() + 1);
                cx.waker().wake_by_ref();
                match behinds.get() {
                    2 => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            },
            |cx| {
                behinds.set(behinds.get() + 1);
                cx.waker().wake_by_ref();
            },
        );
        assert!(polled.is_ready());
        assert_eq!((works.get(), behinds.get()), (3, 2));
        let polled: Poll<()> = quiet.poll_pair(
            &mut Context::from_waker(Waker::noop()),
            |cx| {
                cx.waker().wake_by_ref();
                Poll::Pending
            },
            |_| works.set(works.get() + 1),
        );
        assert!(polled.is_pending());
        assert_eq!(works.get(), 4, "one turn");
    }

    #[test]
    fn endless_waking_is_handed_back_to_the_task() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let polled: Poll<()> = Quiet::default().poll(&mut Context::from_waker(&waker), |cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert!(polled.is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
