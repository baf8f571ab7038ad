//! Bodies that must be read before their stage is known: held within one door-wide budget.

use std::pin::Pin;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;

use crate::door::Door;

/// A body in memory; its share of the budget comes back with it.
pub struct Held {
    pub bytes: Bytes,
    share: Share,
}

impl Held {
    /// A body that came whole with its head, and takes nothing from the budget: no connection holds
    /// more than one read of such.
    pub fn uncharged(door: &Rc<Door>, bytes: Bytes) -> Held {
        Held {
            bytes,
            share: Share::new(door),
        }
    }

    /// Takes its share of the budget.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn charge(&mut self) -> Result<(), Unread> {
        self.share.grow(self.bytes.len() as u64)
    }
}

/// Bytes taken from the budget.
struct Share {
    door: Rc<Door>,
    bytes: u64,
}

impl Share {
    fn new(door: &Rc<Door>) -> Share {
        Share {
            door: door.clone(),
            bytes: 0,
        }
    }

    fn grow(&mut self, bytes: u64) -> Result<(), Unread> {
        let routing = self.door.routing();
        let limits = &routing.tables.limits;
        let held = self.door.body_bytes.get() + bytes;
        if held > limits.body_budget_bytes {
            return Err(Unread::NoBudget);
        }
        self.door.body_bytes.set(held);
        self.bytes += bytes;
        if self.bytes > limits.body_bytes {
            return Err(Unread::TooLarge);
        }
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.door
            .body_bytes
            .set(self.door.body_bytes.get() - self.bytes);
    }
}

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread {
    TooLarge,
    /// All bodies held now leave no room for this one.
    NoBudget,
    /// The client left or broke the framing; nobody is there to be told.
    Broken,
}

/// Reads a whole body. It is charged as it comes, so that a large promise alone holds nothing.
///
/// # Errors
/// [`Unread`].
pub async fn read(door: &Rc<Door>, mut body: Incoming) -> Result<Held, Unread> {
    let mut share = Share::new(door);
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Unread::Broken)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        share.grow(data.len() as u64)?;
        // Most bodies come in one piece and are passed on without a copy.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&data);
        }
    }
    let bytes = if rest.is_empty() {
        first
    } else {
        rest.freeze()
    };
    Ok(Held { bytes, share })
}
