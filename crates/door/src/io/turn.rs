//! When something is written.

use std::future::poll_fn;
use std::task::Poll;

/// Lets every task that is ready now have its turn first.
///
/// A write wakes whoever waits for it, which costs the kernel more than the write where that one sleeps
/// on another processor. Once all that are ready have read, their writes leave close behind each other,
/// and the other side is woken by the first of them alone. Without others this costs one more turn.
pub async fn after_the_others() {
    let mut has_waited = false;
    poll_fn(|cx| match std::mem::replace(&mut has_waited, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn all_that_are_ready_read_before_one_writes() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let tasks = tokio::task::LocalSet::new();
        let log = Rc::new(RefCell::new(String::new()));
        for _ in 0..3 {
            let log = log.clone();
            tasks.spawn_local(async move {
                log.borrow_mut().push('r');
                after_the_others().await;
                log.borrow_mut().push('w');
            });
        }
        runtime.block_on(tasks);
        assert_eq!(*log.borrow(), "rrrwww");
    }
}
