//! What one SSE event carries: content, usage, an error, or nothing that counts.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The facts of one event (or of one JSON answer).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Text of the answer or of its reasoning; a role alone or an empty text is not content.
    pub text: Option<Cow<'a, str>>,
    /// Content that is not text: a tool call, audio.
    pub other_content: bool,
    pub completion_tokens: Option<u64>,
    pub prompt_tokens: Option<u64>,
    pub error: Option<String>,
    pub done: bool,
    pub unreadable: bool,
}

impl Facts<'_> {
    pub fn is_content(&self) -> bool {
        self.text.is_some() || self.other_content
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<serde_json::Value>,
    #[serde(default)]
    object: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Text<'a>>,
    #[serde(default)]
    tool_calls: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    audio: Option<IgnoredAny>,
}

/// Text, or something else in its place (an array of parts): content all the same.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text<'a> {
    Plain(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens: Option<u64>,
}

/// Reads the data of one event. What is no JSON object is `unreadable`, never content.
pub fn read(data: &[u8]) -> Facts<'_> {
    let trimmed = data.trim_ascii();
    if trimmed == b"[DONE]" {
        return Facts {
            done: true,
            ..Facts::default()
        };
    }
    let Ok(event) = serde_json::from_slice::<Event<'_>>(trimmed) else {
        return Facts {
            unreadable: true,
            ..Facts::default()
        };
    };
    let mut facts = Facts::default();
    if let Some(usage) = event.usage {
        facts.completion_tokens = usage.completion_tokens;
        facts.prompt_tokens = usage.prompt_tokens;
    }
    if let Some(error) = event.error.filter(|e| !e.is_null()) {
        facts.error = Some(error.get("message").unwrap_or(&error).to_string());
    } else if event.object.as_deref() == Some("error") {
        facts.error = Some("an event of type error".into());
    }
    for choice in event.choices.into_iter().flatten() {
        add_choice(&mut facts, choice);
    }
    facts
}

fn add_choice<'a>(facts: &mut Facts<'a>, choice: Choice<'a>) {
    if let Some(text) = choice.text.filter(|t| !t.is_empty()) {
        facts.text = Some(text);
    }
    let Some(delta) = choice.delta.or(choice.message) else {
        return;
    };
    let called = delta.tool_calls.is_some_and(|calls| !calls.is_empty());
    facts.other_content |= called || delta.audio.is_some();
    for field in [
        delta.reasoning_content,
        delta.reasoning,
        delta.refusal,
        delta.content,
    ] {
        match field {
            Some(Text::Plain(text)) if !text.is_empty() => facts.text = Some(text),
            Some(Text::Other(_)) => facts.other_content = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn only_what_a_reader_would_see_is_content() {
        let yes = [
            r#"{"choices":[{"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"content":"","reasoning":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
            r#"{"choices":[{"delta":{"content":"a\"\\u00e9"}}]}"#,
            r#"{"choices":[{"text":"a"}]}"#,
        ];
        let no = [
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":null,"tool_calls":[]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"completion_tokens":7,"prompt_tokens":3}}"#,
            r#"{"choices":null}"#,
            "[DONE]",
            "not json",
            "\"text\"",
        ];
        yes.iter()
            .for_each(|event| assert!(read(event.as_bytes()).is_content(), "{event}"));
        no.iter()
            .for_each(|event| assert!(!read(event.as_bytes()).is_content(), "{event}"));
    }

    #[test]
    fn usage_errors_and_the_end_are_seen() {
        let usage = read(br#"{"choices":[],"usage":{"completion_tokens":7,"prompt_tokens":3}}"#);
        assert_eq!(
            (usage.completion_tokens, usage.prompt_tokens),
            (Some(7), Some(3))
        );
        assert!(read(b" [DONE]").done && read(b"{").unreadable);
        let error = read(br#"{"error":{"message":"planted"}}"#).error.unwrap();
        assert!(error.contains("planted"));
        assert!(read(br#"{"object":"error","message":"x"}"#).error.is_some());
        assert!(read(br#"{"error":null,"choices":[]}"#).error.is_none());
    }
}
