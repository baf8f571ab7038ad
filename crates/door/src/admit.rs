//! Waiting for a slot, while watching whether anyone still waits for the answer.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::time::Duration;

use crate::clock::recent_ns;
use crate::io::link::Link;
use crate::queue::{Permit, Ticket};
use crate::wait::Refusal;

/// The client closed its connection.
#[derive(Debug)]
pub struct Gone;

/// How often a client whose body lies unread is looked at; half of what it may take to notice.
const LOOK: Duration = Duration::from_millis(50);

/// The slot, or the refusal.
pub async fn wait(mut ticket: Ticket) -> Result<Permit, Refusal> {
    poll_fn(|cx| ticket.poll(cx.waker(), recent_ns())).await
}

/// Runs `work` unless the client leaves. hyper watches a socket only once the request was read
/// whole; until then the end may lie behind unread bytes, and this looks past them.
///
/// # Errors
/// [`Gone`].
pub async fn unless_gone<T>(link: &Rc<Link>, work: impl Future<Output = T>) -> Result<T, Gone> {
    let gone = async {
        loop {
            tokio::time::sleep(LOOK).await;
            if link.sock.is_peer_gone() {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = gone => Err(Gone),
    }
}
