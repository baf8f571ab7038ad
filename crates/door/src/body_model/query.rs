//! Query strings: `model` percent-decoded.

use super::{BodyError, name};

/// The value of `model` in a query string (without its question mark).
///
/// # Errors
/// [`BodyError`]: `model` twice, not UTF-8 once decoded, or no name.
pub fn from_query(query: &str) -> Result<Option<String>, BodyError> {
    let mut model = None;
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode(key).as_deref() != Some(b"model") {
            continue;
        }
        if model.is_some() {
            return Err(BodyError::TwoModels);
        }
        let bytes = decode(value).ok_or(BodyError::NoName("has a broken percent escape"))?;
        let text = String::from_utf8(bytes).map_err(|_| BodyError::NoName("is not UTF-8"))?;
        model = Some(name(text.into())?);
    }
    Ok(model)
}

/// Percent-decodes; None for a broken escape.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut result = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        result.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = (bytes.next()? as char).to_digit(16)?;
                let low = (bytes.next()? as char).to_digit(16)?;
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    Some(result)
}
