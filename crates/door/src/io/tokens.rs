//! Header fields that are lists of words, such as Connection.

use http::header::{HeaderMap, HeaderName};

/// The words of a comma-separated field, over all its lines.
pub fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).into_iter();
    values
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|word| !word.is_empty())
}

/// Whether `token` is one of them.
pub fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|word| word.eq_ignore_ascii_case(token.as_bytes()))
}
