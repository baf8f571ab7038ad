//! What a request's body says about itself: `model`, `stream`, token bounds, and how large its
//! prompt is.
//!
//! A scan of the top level only, not a parse of the document: a 32k-token prompt is skipped at
//! memory speed. It is strict where being lenient would let the door and an engine read two
//! different models, and blind elsewhere.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

mod json;
mod multipart;
mod query;

pub use json::from_json;
pub use multipart::from_multipart;
pub use query::from_query;

/// A model name longer than this is none.
pub const MAX_MODEL_BYTES: usize = 256;
/// Prompt bytes per token, on the low side for English text and JSON around it.
const BYTES_PER_TOKEN: u64 = 4;

/// What the body says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub model: Option<String>,
    /// Where the value of `model` stands in the body: with its quotes in JSON, bare in multipart.
    pub model_span: Option<Range<usize>>,
    pub stream: bool,
    /// The bound on the answer's tokens, over all its choices.
    pub max_tokens: Option<u64>,
    /// Bytes of the values that make up the prompt.
    pub prompt_bytes: usize,
}

impl Facts {
    /// Estimated tokens of KV: the prompt's and the answer's bound.
    pub fn tokens(&self) -> u64 {
        let prompt = (self.prompt_bytes as u64).div_ceil(BYTES_PER_TOKEN);
        prompt.saturating_add(self.max_tokens.unwrap_or(0))
    }
}

/// Why a body's model cannot be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyError {
    /// Not what its content type says; the byte offset and what is wrong there.
    Syntax { at: usize, message: &'static str },
    /// `model` stands there twice: the engine may read the other one.
    TwoModels,
    /// `model` is there and is no text of 1 to 256 bytes.
    NoName(&'static str),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Syntax { at, message } => write!(f, "request body, byte {at}: {message}"),
            BodyError::TwoModels => write!(f, "model: given twice; give it once"),
            BodyError::NoName(message) => write!(f, "model: {message}"),
        }
    }
}

impl std::error::Error for BodyError {}

/// `value` as a JSON string with its quotes: what replaces [`Facts::model_span`] of a JSON body.
pub fn json_string(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

/// Checks a model's name.
fn name(value: Cow<'_, str>) -> Result<String, BodyError> {
    if value.is_empty() {
        return Err(BodyError::NoName(
            "is empty; give the name of a served model",
        ));
    }
    if value.len() > MAX_MODEL_BYTES {
        return Err(BodyError::NoName("is longer than 256 bytes"));
    }
    if value.contains(char::is_control) {
        return Err(BodyError::NoName("contains control characters"));
    }
    Ok(value.into_owned())
}

#[cfg(test)]
mod tests;
