//! What control is told as it happens: `GET /events`, one JSON object a line, numbered.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::Notify;

use crate::clock::now_ns;
use crate::queue::StageEvent;

/// Kept for readers that come back; a reader that stays away longer asks for the whole state
/// anyway.
const KEPT: usize = 1024;

/// The latest events.
#[derive(Default)]
pub struct Events {
    lines: RefCell<VecDeque<(u64, Bytes)>>,
    last_seq: Cell<u64>,
    news: Notify,
}

impl Events {
    /// Numbers, keeps and tells one event.
    pub fn push(&self, stage: &str, event: &StageEvent) {
        let seq = self.last_seq.get() + 1;
        self.last_seq.set(seq);
        let t_ns = now_ns();
        let value = match event {
            StageEvent::Demand { waiting } => {
                json!({"seq": seq, "t_ns": t_ns, "kind": "demand", "stage": stage, "waiting": waiting})
            }
            StageEvent::ReplicaDown { replica, reason } => {
                json!({"seq": seq, "t_ns": t_ns, "kind": "replica_down", "stage": stage,
                       "replica": replica, "reason": reason})
            }
            StageEvent::ReplicaUp { replica, reason } => {
                json!({"seq": seq, "t_ns": t_ns, "kind": "replica_up", "stage": stage,
                       "replica": replica, "reason": reason})
            }
            StageEvent::Overload => {
                json!({"seq": seq, "t_ns": t_ns, "kind": "overload", "stage": stage})
            }
        };
        let mut lines = self.lines.borrow_mut();
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back((seq, Bytes::from(format!("{value}\n"))));
        drop(lines);
        self.news.notify_waiters();
    }

    /// The lines after `since` and the number to go on from; waits until there is one. A number
    /// from before this door began counts as 0.
    pub async fn after(&self, since: u64) -> (Bytes, u64) {
        let since = if since > self.last_seq.get() {
            0
        } else {
            since
        };
        loop {
            let news = self.news.notified();
            let lines: Vec<u8> = {
                let lines = self.lines.borrow();
                let new = lines.iter().filter(|(seq, _)| *seq > since);
                new.flat_map(|(_, line)| line.iter().copied()).collect()
            };
            if !lines.is_empty() {
                return (lines.into(), self.last_seq.get());
            }
            news.await;
        }
    }
}
