//! Server-sent events as they pass: the first content, gaps, stalls, what the server reports at the
//! end.
//!
//! Up to the first content every event is parsed in full (role-only, empty and keep-alive events
//! are not content); later ones are only told apart and counted, by looking for line ends. Nothing
//! is held back and nothing grows: of a huge event only its first bytes are kept.

mod content;
mod lines;
mod usage;

pub use usage::Usage;

use content::{Kind, classify};
use lines::{Line, Lines};

/// Events larger than this are content without being parsed: no keep-alive is that long.
const MAX_PARSED: usize = 256 << 10;
/// Of the last two data lines this much is kept, for the usage they may carry.
const MAX_KEPT: usize = 32 << 10;
/// A server's error message is passed on up to this many bytes.
const MAX_ERROR: usize = 512;

/// What a stream was, once it is over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamReport {
    pub first_content_ns: Option<u64>,
    pub last_content_ns: Option<u64>,
    /// Events with content; after the first, every data event counts.
    pub content_events: u64,
    /// All events that carried data, `[DONE]` too.
    pub events: u64,
    /// Longest time between two chunks with content.
    pub gap_max_ns: u64,
    /// Gaps longer than the stall threshold.
    pub stalls: u64,
    /// `[DONE]` or another terminal event came.
    pub is_done: bool,
    /// The stream ended inside an event.
    pub is_cut: bool,
    /// What an error event said.
    pub error: Option<String>,
    /// Tokens as the server counted them.
    pub usage: Option<Usage>,
}

/// Watches one stream.
#[derive(Debug)]
pub struct Scanner {
    stall_ns: u64,
    lines: Lines,
    report: StreamReport,
    /// The event being read, until there was content.
    event: Event,
    /// The last data lines, newest last, without `data:`.
    kept: [Vec<u8>; 2],
    is_error_event: bool,
}

/// An event that is parsed in full.
#[derive(Debug, Default)]
struct Event {
    data: Vec<u8>,
    has_data: bool,
    is_oversized: bool,
}

impl Scanner {
    /// A gap above `stall_ns` counts as a stall.
    pub fn new(stall_ns: u64) -> Scanner {
        Scanner {
            stall_ns,
            lines: Lines::default(),
            report: StreamReport::default(),
            event: Event::default(),
            kept: [Vec::new(), Vec::new()],
            is_error_event: false,
        }
    }

    /// Sees a chunk pass, at whatever place the stream was split. Returns the gap to the chunk with
    /// content before it, ns, when this one had content and was not the first.
    pub fn chunk(&mut self, data: &[u8], now_ns: u64) -> Option<u64> {
        let before = self.report.content_events;
        let mut lines = std::mem::take(&mut self.lines);
        lines.feed(data, |line| self.line(line, now_ns));
        self.lines = lines;
        if self.report.content_events == before {
            return None;
        }
        let last_ns = self.report.last_content_ns.replace(now_ns)?;
        let gap_ns = now_ns.saturating_sub(last_ns);
        self.report.gap_max_ns = self.report.gap_max_ns.max(gap_ns);
        self.report.stalls += u64::from(gap_ns > self.stall_ns);
        Some(gap_ns)
    }

    /// There was content.
    pub fn has_content(&self) -> bool {
        self.report.first_content_ns.is_some()
    }

    /// The stream stands inside an event: something of it has passed, its blank line has not.
    pub fn is_mid_event(&self) -> bool {
        self.lines.is_mid_event()
    }

    /// The stream stands inside a line.
    pub fn is_mid_line(&self) -> bool {
        self.lines.is_mid_line()
    }

    /// A terminal event has passed: nothing is missing if the connection ends now.
    pub fn is_done(&self) -> bool {
        self.report.is_done
    }

    /// What to send when the upstream breaks: the end of the event that was cut, then an error
    /// event. `error_json` is the error's body; there is no `[DONE]`.
    pub fn last_words(&self, error_json: &str) -> String {
        let is_open = self.is_mid_line() || self.lines.is_after_return();
        let end = match (is_open, self.is_mid_event()) {
            (true, true) => "\n\n",
            (false, true) => "\n",
            (_, false) => "",
        };
        format!("{end}event: error\ndata: {error_json}\n\n")
    }

    /// The stream is over.
    pub fn finish(mut self) -> StreamReport {
        self.report.is_cut = self.is_mid_event();
        self.read_last();
        self.report
    }

    fn line(&mut self, line: Line<'_>, now_ns: u64) {
        match line {
            Line::Data {
                text,
                is_first,
                is_last,
            } => self.data(text, is_first, is_last),
            Line::EventType(name) => self.is_error_event = name == b"error",
            Line::Other => {}
            Line::End { has_data } => {
                if has_data {
                    self.event_over(now_ns);
                }
                self.is_error_event = false;
                self.event.clear();
            }
        }
    }

    /// A piece of a data line.
    fn data(&mut self, text: &[u8], is_first: bool, is_last: bool) {
        if is_first {
            self.kept.swap(0, 1);
            self.kept[1].clear();
        }
        let room = MAX_KEPT.saturating_sub(self.kept[1].len());
        self.kept[1].extend_from_slice(&text[..text.len().min(room)]);
        if is_last && text.len() <= room && self.kept[1] == b"[DONE]" {
            self.report.is_done = true;
        }
        if !self.has_content() {
            self.event.add(text, is_first);
        }
    }

    fn event_over(&mut self, now_ns: u64) {
        self.report.events += 1;
        let is_error = self.is_error_event || is_error_text(&self.kept[1]);
        if is_error {
            self.note_error();
            return;
        }
        let is_done = self.kept[1] == b"[DONE]";
        let is_content = if self.has_content() {
            !is_done
        } else {
            self.event.is_content()
        };
        if is_content {
            self.report.content_events += 1;
            self.report.first_content_ns.get_or_insert(now_ns);
            self.event = Event::default();
        }
    }

    fn note_error(&mut self) {
        let text = content::error_message(&self.kept[1])
            .unwrap_or_else(|| String::from_utf8_lossy(&self.kept[1]).into_owned());
        let mut end = text.len().min(MAX_ERROR);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.report.error.get_or_insert(text[..end].to_owned());
    }

    /// Usage, errors and ends that only the last events carry.
    fn read_last(&mut self) {
        for at in [1, 0] {
            let text = std::mem::take(&mut self.kept[at]);
            if text.len() >= MAX_KEPT {
                continue;
            }
            let Ok(value) = serde_json::from_slice(&text) else {
                continue;
            };
            self.report.is_done |= at == 1 && !self.report.is_cut && content::is_terminal(&value);
            if self.report.usage.is_none() {
                self.report.usage = Usage::read(&value);
            }
        }
    }
}

impl Event {
    fn add(&mut self, text: &[u8], is_first: bool) {
        if is_first && self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        if self.data.len() + text.len() > MAX_PARSED {
            self.is_oversized = true;
        } else {
            self.data.extend_from_slice(text);
        }
    }

    fn clear(&mut self) {
        self.data.clear();
        self.has_data = false;
        self.is_oversized = false;
    }

    fn is_content(&self) -> bool {
        self.is_oversized || classify(&self.data) == Kind::Content
    }
}

/// Most engines' error events, without a parse.
fn is_error_text(data: &[u8]) -> bool {
    let start = &data[..data.len().min(40)];
    let first_value_of = |key: &[u8]| {
        let rest = start
            .trim_ascii_start()
            .strip_prefix(b"{")?
            .trim_ascii_start();
        let value = rest
            .strip_prefix(key)?
            .trim_ascii_start()
            .strip_prefix(b":")?;
        Some(value.trim_ascii_start())
    };
    let is_error = first_value_of(b"\"error\"").is_some_and(|value| !value.starts_with(b"null"));
    is_error || first_value_of(b"\"object\"").is_some_and(|value| value.starts_with(b"\"error\""))
}

#[cfg(test)]
mod tests;
