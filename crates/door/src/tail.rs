//! Token counts at the end of a JSON answer, which passes by without being held.
//!
//! Only the last bytes are kept. Inside a JSON string every quote is escaped, so the bytes
//! `"usage"` with a colon behind them are a key wherever the cut falls.

use serde::Deserialize;

use crate::sse::Usage;

/// Servers put the counts last, before a few short fields.
const KEPT: usize = 4 << 10;
const KEY: &[u8] = b"\"usage\"";

/// The last bytes of an answer.
#[derive(Debug, Default)]
pub struct Tail(Vec<u8>);

impl Tail {
    /// Sees a piece pass that others may follow.
    pub fn passed(&mut self, data: &[u8]) {
        let data = &data[data.len().saturating_sub(KEPT)..];
        let surplus = (self.0.len() + data.len()).saturating_sub(KEPT);
        self.0.drain(..surplus);
        self.0.extend_from_slice(data);
    }

    /// The counts, once the answer is whole.
    pub fn usage(&self) -> Option<Usage> {
        usage_in(&self.0)
    }
}

/// The counts near the end of `text`; an answer that comes in one piece needs no [`Tail`].
pub fn usage_in(text: &[u8]) -> Option<Usage> {
    let text = &text[text.len().saturating_sub(KEPT)..];
    memchr::memmem::rfind_iter(text, KEY).find_map(|at| {
        let value = text[at + KEY.len()..]
            .trim_ascii_start()
            .strip_prefix(b":")?;
        let mut reader = serde_json::Deserializer::from_slice(value);
        Counts::deserialize(&mut reader).ok()?.usage()
    })
}

/// OpenAI's and Anthropic's names.
#[derive(Deserialize)]
struct Counts {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u64>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Counts {
    fn usage(self) -> Option<Usage> {
        if self.prompt_tokens.is_none() && self.completion_tokens.is_none() {
            return None;
        }
        let details = self.prompt_tokens_details;
        let cached = details.and_then(|details| details.cached_tokens);
        Some(Usage {
            prompt_tokens: self.prompt_tokens.unwrap_or(0),
            completion_tokens: self.completion_tokens.unwrap_or(0),
            cached_tokens: cached.or(self.cache_read_input_tokens).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = concat!(
        r#"{"id":"c1","choices":[{"message":{"content":"say \"usage\": {\"prompt_tokens\": 9}"}}],"#,
        r#""usage":{"prompt_tokens":12,"total_tokens":19,"completion_tokens":7,"#,
        r#""prompt_tokens_details":{"cached_tokens":4}},"prompt_logprobs":null}"#
    );
    const COUNTS: Usage = Usage {
        prompt_tokens: 12,
        completion_tokens: 7,
        cached_tokens: 4,
    };

    #[test]
    fn counts_are_found_however_the_answer_is_cut() {
        assert_eq!(usage_in(CHAT.as_bytes()), Some(COUNTS));
        for step in [1, 2, 7, 64, 1000] {
            let mut tail = Tail::default();
            tail.passed(&b"x".repeat(3 * KEPT));
            CHAT.as_bytes()
                .chunks(step)
                .for_each(|part| tail.passed(part));
            assert_eq!(tail.usage(), Some(COUNTS), "step {step}");
            assert!(tail.0.len() <= KEPT);
        }
    }

    #[test]
    fn other_names_and_embeddings_are_known() {
        let anthropic =
            br#"{"usage": {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 5}}"#;
        let counts = usage_in(anthropic).unwrap();
        assert_eq!(
            (
                counts.prompt_tokens,
                counts.completion_tokens,
                counts.cached_tokens
            ),
            (3, 5, 2)
        );
        let embeddings = br#"{"data":[],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}"#;
        assert_eq!(usage_in(embeddings).unwrap().prompt_tokens, 8);
    }

    #[test]
    fn what_is_no_count_is_none() {
        for text in [
            "",
            "{}",
            r#"{"usage":null}"#,
            r#"{"usage":{}}"#,
            r#"{"usage":{"prompt_tokens":-1}}"#,
            r#"{"usage":{"prompt_tokens":1"#,
            r#"{"kind":"usage"}"#,
            r#"{"text":"\"usage\":{\"prompt_tokens\":1}"}"#,
        ] {
            assert_eq!(usage_in(text.as_bytes()), None, "{text}");
        }
        let far = format!(
            r#"{{"usage":{{"prompt_tokens":1}},"x":"{}"}}"#,
            "y".repeat(KEPT)
        );
        assert_eq!(usage_in(far.as_bytes()), None, "too far from the end");
    }
}
