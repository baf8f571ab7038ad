//! One request's account: what it held and what became of it, settled exactly once, whichever way it ends.

use std::rc::Rc;

use bytes::Bytes;
use serde_json::json;

use crate::clock::now_ns;
use crate::door::Door;
use crate::queue::{Fault, Outcome, Permit};
use crate::routes::StageHandle;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client got the replica's answer, whole.
    Complete,
    /// The replica's own 429 or 503 was passed on.
    Rejected,
    /// The client left before the end.
    ClientGone,
    /// An explicit deadline cut it.
    Deadline,
    Failed(Fault),
}

impl Ending {
    fn outcome(self) -> Outcome {
        match self {
            Ending::Complete => Outcome::Completed,
            Ending::Rejected => Outcome::Rejected,
            Ending::ClientGone | Ending::Deadline => Outcome::ClientGone,
            Ending::Failed(fault) => Outcome::Failed(fault),
        }
    }
}

/// What is known of a request from its head on.
pub struct Account {
    door: Rc<Door>,
    pub request_id: String,
    permit: Option<Permit>,
    is_rejected: bool,
    is_event_stream: bool,
    ends_event: bool,
    has_priority: bool,
    _stage: Option<Rc<StageHandle>>,
}

impl Account {
    pub fn new(door: Rc<Door>, request_id: String) -> Account {
        Account {
            door,
            request_id,
            permit: None,
            is_rejected: false,
            is_event_stream: false,
            ends_event: true,
            has_priority: false,
            _stage: None,
        }
    }

    /// The request's priority, for the calls that it makes.
    pub fn note_priority(&mut self, priority: i32) {
        if priority != 0 {
            self.door
                .priorities
                .borrow_mut()
                .insert(self.request_id.clone(), priority);
            self.has_priority = true;
        }
    }

    /// A slot is held from now on.
    pub fn admitted(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    pub fn permit(&mut self) -> Option<&mut Permit> {
        self.permit.as_mut()
    }

    /// Gives the slot up to be asked for again.
    pub fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// The replica's head came.
    pub fn answered(&mut self, is_event_stream: bool, is_rejected: bool) {
        self.is_event_stream = is_event_stream;
        self.is_rejected = is_rejected;
        let now = now_ns();
        if let Some(permit) = &mut self.permit {
            permit.first_byte(now);
        }
    }

    /// Bytes of the answer passed.
    pub fn passed(&mut self, data: &Bytes, _now: u64) {
        if self.is_event_stream && !data.is_empty() {
            self.ends_event = data.ends_with(b"\n\n") || data.ends_with(b"\r\n\r\n");
        }
    }

    /// What a broken event stream is ended with: the end of a partial event, then an error event.
    pub fn last_words(&self, message: &str) -> Option<Bytes> {
        if !self.is_event_stream {
            return None;
        }
        let error = json!({"error": {"message": message, "type": "upstream_error", "code": 502,
            "param": null, "request_id": self.request_id}});
        let separator = if self.ends_event { "" } else { "\n\n" };
        Some(Bytes::from(format!(
            "{separator}event: error\ndata: {error}\n\n"
        )))
    }

    /// Settles the account; later calls change nothing.
    pub fn end(&mut self, ending: Ending) {
        let ending = match ending {
            Ending::Complete if self.is_rejected => Ending::Rejected,
            other => other,
        };
        if let Some(permit) = self.permit.take() {
            permit.finish(ending.outcome(), now_ns());
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.end(Ending::ClientGone);
        if self.has_priority {
            self.door.priorities.borrow_mut().remove(&self.request_id);
        }
    }
}
