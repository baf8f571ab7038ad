//! What is written down about one request: times in CLOCK_MONOTONIC nanoseconds, counts, the outcome.

use serde::Serialize;

use super::playback::Played;

/// Why a request failed; one word for grouping, and the detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub kind: &'static str,
    pub detail: String,
}

/// Gaps beyond this many per request are counted, not listed.
pub const MAX_GAPS: usize = 1 << 16;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Record {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub sequence: u64,
    pub run: u64,
    pub call: u32,
    pub template: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tag: String,
    pub warmup: bool,
    pub in_flight: usize,
    pub reused: bool,
    /// When the schedule meant it to be sent.
    pub intended_ns: i64,
    /// When the client began with it; the difference to `intended_ns` is its own lateness.
    pub started_ns: i64,
    pub connect_ns: Option<i64>,
    pub sent_ns: Option<i64>,
    pub first_byte_ns: Option<i64>,
    pub first_content_ns: Option<i64>,
    pub last_content_ns: Option<i64>,
    pub end_ns: i64,
    pub status: Option<u16>,
    pub failure: Option<Failure>,
    pub content_events: u64,
    /// Reads that carried content: the gaps are one fewer.
    pub content_reads: u64,
    pub done_seen: bool,
    pub reads: u64,
    /// Reads that carried two or more content events: their gaps are not real.
    pub multi_reads: u64,
    pub max_gap_ns: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps_ns: Vec<i64>,
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    pub body_bytes: u64,
    pub oversize_events: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<f64>,
    /// When the last audio of a WebSocket was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_end_ns: Option<i64>,
    #[serde(flatten)]
    pub played: Option<Played>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl Record {
    /// Notes one read that carried `events` content events and was stamped `at_ns`.
    pub fn content(&mut self, events: u64, at_ns: i64, list_gaps: bool) {
        if events == 0 {
            return;
        }
        self.content_events += events;
        self.content_reads += 1;
        self.multi_reads += u64::from(events > 1);
        if let Some(last) = self.last_content_ns {
            let gap = at_ns - last;
            self.max_gap_ns = self.max_gap_ns.max(gap);
            if list_gaps && self.gaps_ns.len() < MAX_GAPS {
                self.gaps_ns.push(gap);
            }
        } else {
            self.first_content_ns = Some(at_ns);
        }
        self.last_content_ns = Some(at_ns);
    }

    pub fn fail(&mut self, kind: &'static str, detail: impl Into<String>) {
        // The first cause stands: what follows is usually its consequence.
        if self.failure.is_none() {
            self.failure = Some(Failure {
                kind,
                detail: detail.into(),
            });
        }
    }
}
