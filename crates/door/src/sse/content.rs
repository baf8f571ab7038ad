//! Which event carries content: the APIs of OpenAI (chat, completions, responses, speech) and
//! Anthropic, llama.cpp's own, and plain text.

use serde_json::Value;

/// What one event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something that a user sees or hears, reasoning included.
    Content,
    /// Role only, empty, keep-alive, usage, bookkeeping, or the end.
    Empty,
}

/// Classifies the data of one event.
pub(super) fn classify(data: &[u8]) -> Kind {
    let data = data.trim_ascii();
    if data.is_empty() || data == b"[DONE]" {
        return Kind::Empty;
    }
    let is_content = match serde_json::from_slice::<Value>(data) {
        Ok(value) => has_content(&value),
        // Not JSON: a stage that streams plain text.
        Err(_) => true,
    };
    if is_content {
        Kind::Content
    } else {
        Kind::Empty
    }
}

fn has_content(value: &Value) -> bool {
    let Value::Object(object) = value else {
        return is_filled(value);
    };
    if let Some(choices) = object.get("choices") {
        return choices
            .as_array()
            .is_some_and(|choices| choices.iter().any(choice_has_content));
    }
    if let Some(kind) = object.get("type").and_then(Value::as_str) {
        return typed_has_content(kind, value);
    }
    if object.get("error").is_some_and(is_filled) {
        return false;
    }
    let named = [
        "content", "text", "token", "audio", "output", "response", "delta", "message",
    ];
    let mut known = named.iter().filter_map(|key| object.get(*key)).peekable();
    if known.peek().is_some() {
        return known.any(is_filled);
    }
    // A stage's own events: anything but bookkeeping.
    let bookkeeping = [
        "id", "object", "created", "model", "usage", "status", "ping",
    ];
    object
        .iter()
        .any(|(key, value)| !bookkeeping.contains(&key.as_str()) && is_filled(value))
}

/// A choice of a chat or completion.
fn choice_has_content(choice: &Value) -> bool {
    const FIELDS: [&str; 8] = [
        "content",
        "reasoning_content",
        "reasoning",
        "tool_calls",
        "function_call",
        "refusal",
        "audio",
        "reasoning_details",
    ];
    let has = |part: &Value| FIELDS.iter().any(|field| is_filled(&part[*field]));
    is_filled(&choice["text"]) || has(&choice["delta"]) || has(&choice["message"])
}

/// An event with a `type`: Anthropic's and those of OpenAI that end in `.delta`.
fn typed_has_content(kind: &str, value: &Value) -> bool {
    match kind {
        "content_block_delta" => {
            let delta = &value["delta"];
            ["text", "thinking", "partial_json"]
                .iter()
                .any(|field| is_filled(&delta[*field]))
        }
        "content_block_start" => is_filled(&value["content_block"]["name"]),
        "ping" | "error" | "message_start" | "message_delta" | "message_stop" => false,
        _ if kind.ends_with(".delta") => is_filled(&value["delta"]) || is_filled(&value["audio"]),
        _ if kind.contains('.') => false,
        _ => ["content", "text", "token", "audio", "delta", "data"]
            .iter()
            .any(|field| is_filled(&value[*field])),
    }
}

/// Not null, not empty, not made of such.
fn is_filled(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(is_filled),
        Value::Object(fields) => fields.values().any(is_filled),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// The message of an error event's data.
pub(super) fn error_message(data: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(data).ok()?;
    let error = if value["error"].is_null() {
        &value
    } else {
        &value["error"]
    };
    let text = error.as_str().or_else(|| error["message"].as_str())?;
    Some(text.to_owned())
}

/// A stream may end after it without `[DONE]`.
pub(super) fn is_terminal(value: &Value) -> bool {
    let kinds = [
        "message_stop",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ];
    let kind = value["type"].as_str().unwrap_or("");
    kinds.contains(&kind) || kind.ends_with("audio.done") || kind == "transcript.text.done"
}
