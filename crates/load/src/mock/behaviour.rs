//! How the mock answers: defaults from the command line, overridden per request by a `mock` object.

use serde::Deserialize;

use crate::clock::ms;

/// The shape of a streamed answer; all but `Plain` exist to test clients.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    #[default]
    Plain,
    /// An empty chunk with only the role comes at once; the first token follows after the TTFT.
    RoleFirst,
    /// The first half of the tokens are reasoning.
    Reasoning,
    /// A keep-alive comment comes half way before every token.
    Comments,
    /// Four events are written together.
    Coalesced,
    /// Every event is cut in two writes, 1 ms apart.
    Split,
    /// Lines end in CR LF, fields have no space after the colon.
    Crlf,
    /// Status 200, then an error event half way, then the end.
    ErrorAfter,
    /// Status 500.
    HttpError,
    /// No usage, even when it was asked for.
    NoUsage,
    /// Usage claims ten times the tokens that were sent.
    LieUsage,
    /// The connection ends half way without the last chunk.
    CloseEarly,
    /// The connection is reset half way.
    Reset,
    /// One byte every millisecond.
    Drip,
    /// The head never comes.
    Never,
    /// The head comes, nothing else.
    Stall,
    /// Every event carries `huge_bytes` of text.
    Huge,
    /// The stream ends cleanly but without `[DONE]`.
    NoDone,
    /// Answers 413 when only the head of the request is there, then closes.
    EarlyAnswer,
}

/// What one request gets. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behaviour {
    pub mode: Mode,
    pub ttft_ns: i64,
    pub gap_ns: i64,
    pub tokens: u32,
    pub tokens_per_event: u32,
    pub huge_bytes: usize,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            mode: Mode::Plain,
            ttft_ns: 0,
            gap_ns: 0,
            tokens: 16,
            tokens_per_event: 1,
            huge_bytes: 100 << 20,
        }
    }
}

/// The fields of a `mock` object in a request body, or of the command line.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Override {
    pub mode: Option<Mode>,
    pub ttft_ms: Option<f64>,
    pub gap_ms: Option<f64>,
    pub tokens: Option<u32>,
    pub tokens_per_event: Option<u32>,
    pub huge_bytes: Option<usize>,
}

impl Behaviour {
    pub fn with(mut self, over: &Override) -> Self {
        self.mode = over.mode.unwrap_or(self.mode);
        self.ttft_ns = over.ttft_ms.map_or(self.ttft_ns, ms);
        self.gap_ns = over.gap_ms.map_or(self.gap_ns, ms);
        self.tokens = over.tokens.unwrap_or(self.tokens);
        self.tokens_per_event = over
            .tokens_per_event
            .unwrap_or(self.tokens_per_event)
            .max(1);
        self.huge_bytes = over.huge_bytes.unwrap_or(self.huge_bytes);
        self
    }
}

/// What a request body says, found by search: parsing 130 kB of prompt would cost more than the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    pub behaviour: Behaviour,
    pub stream: bool,
    pub usage: bool,
    pub logprobs: bool,
}

impl Asked {
    pub fn read(body: &[u8], defaults: Behaviour) -> Self {
        let mut behaviour = defaults;
        if let Some(tokens) =
            number(body, b"\"max_tokens\":").or(number(body, b"\"max_completion_tokens\":"))
        {
            behaviour.tokens = tokens;
        }
        if let Some(over) = after(body, b"\"mock\":").and_then(first_value) {
            behaviour = behaviour.with(&over);
        }
        Self {
            behaviour,
            stream: is_true(body, b"\"stream\":"),
            usage: is_true(body, b"\"include_usage\":"),
            logprobs: is_true(body, b"\"logprobs\":"),
        }
    }
}

fn first_value(text: &[u8]) -> Option<Override> {
    serde_json::Deserializer::from_slice(text)
        .into_iter()
        .next()?
        .ok()
}

fn after<'a>(body: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::rfind(body, key)?;
    Some(body[at + key.len()..].trim_ascii_start())
}

fn number(body: &[u8], key: &[u8]) -> Option<u32> {
    let digits = after(body, key)?;
    let end = digits
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

fn is_true(body: &[u8], key: &[u8]) -> bool {
    after(body, key).is_some_and(|rest| rest.starts_with(b"true"))
}

#[cfg(test)]
mod tests {
    use super::{Asked, Behaviour, Mode};

    #[test]
    fn a_body_overrides_the_defaults_and_quoted_text_does_not() {
        let body = br#"{"messages":[{"content":"say \"stream\":true and \"mock\":{}"}],
            "max_tokens": 7, "stream":true, "mock": {"ttft_ms": 1.5, "mode": "role_first"}}"#;
        let asked = Asked::read(body, Behaviour::default());
        assert!(asked.stream && !asked.usage);
        assert_eq!(
            (asked.behaviour.tokens, asked.behaviour.ttft_ns),
            (7, 1_500_000)
        );
        assert_eq!(asked.behaviour.mode, Mode::RoleFirst);
        assert!(!Asked::read(br#"{"x":"\"stream\":true"}"#, Behaviour::default()).stream);
    }
}
