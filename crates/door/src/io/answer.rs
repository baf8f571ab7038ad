//! What a replica answers: the reading of its head, and how its body ends (RFC 9112, section 6.3).

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use http::{Response, StatusCode, Version};
use httparse::{Header, ParserConfig, Status};

use super::chunked::ChunkWalk;
use super::tokens::{has_token, tokens};

/// More fields than any engine sends.
const MAX_FIELDS: usize = 100;
/// A head longer than this is no head.
const HEAD_BYTES: usize = 64 << 10;
/// So many fields are added on the way to the client: the map grows once.
const ADDED_FIELDS: usize = 5;

/// What of the body is still to come.
#[derive(Debug)]
pub enum Rest {
    Nothing,
    Length(u64),
    Chunks(ChunkWalk),
    /// What has come of the lines behind the last chunk.
    Trailers(ChunkWalk, Vec<u8>),
    UntilClose,
}

/// A head and what it says of its message.
#[derive(Debug)]
pub struct Answer {
    pub head: Response<()>,
    pub rest: Rest,
    /// The connection can serve another request behind the body.
    pub keeps_alive: bool,
}

/// Not an answer: what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadAnswer(pub &'static str);

/// Takes the head off the front of `held`; None while it is not whole. `is_to_head`: it answers a HEAD
/// request, so that no body follows.
///
/// # Errors
/// [`BadAnswer`].
pub fn take(held: &mut BytesMut, is_to_head: bool) -> Result<Option<Answer>, BadAnswer> {
    if held.is_empty() {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let len = match config.parse_response_with_uninit_headers(&mut parsed, held, &mut fields) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) if held.len() > HEAD_BYTES => {
            return Err(BadAnswer("its head is longer than 64 KiB"));
        }
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(BadAnswer("it is not HTTP/1")),
    };
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::from_u16(parsed.code.unwrap_or_default())
        .map_err(|_| BadAnswer("its status is none"))?;
    if parsed.version == Some(0) {
        *head.version_mut() = Version::HTTP_10;
    }
    *head.headers_mut() = shared(parsed.headers, &held[..len])?;
    held.advance(len);
    if held.is_empty() {
        *held = BytesMut::new(); // An idle connection or stream holds no memory.
    }
    let rest = rest(&mut head, is_to_head)?;
    let keeps_alive = match (&rest, head.version()) {
        (Rest::UntilClose, _) => false,
        (_, Version::HTTP_10) => has_token(head.headers(), &CONNECTION, "keep-alive"),
        _ => !has_token(head.headers(), &CONNECTION, "close"),
    };
    Ok(Some(Answer {
        head,
        rest,
        keeps_alive,
    }))
}

/// The fields of the head `bytes`, their values in one piece of memory.
fn shared(fields: &[Header<'_>], bytes: &[u8]) -> Result<HeaderMap, BadAnswer> {
    let whole = Bytes::copy_from_slice(bytes);
    let mut headers = HeaderMap::with_capacity(fields.len() + ADDED_FIELDS);
    for field in fields {
        let value = match field.value {
            [] => HeaderValue::from_static(""),
            value => {
                let at = value.as_ptr() as usize - bytes.as_ptr() as usize;
                HeaderValue::from_maybe_shared(whole.slice(at..at + value.len()))
                    .map_err(|_| BadAnswer("a field of its head has no valid value"))?
            }
        };
        headers.append(name(field)?, value);
    }
    Ok(headers)
}

fn name(field: &Header<'_>) -> Result<HeaderName, BadAnswer> {
    HeaderName::from_bytes(field.name.as_bytes())
        .map_err(|_| BadAnswer("a field of its head has no valid name"))
}

fn rest(head: &mut Response<()>, is_to_head: bool) -> Result<Rest, BadAnswer> {
    let (status, version) = (head.status(), head.version());
    let headers = head.headers_mut();
    if headers.contains_key(TRANSFER_ENCODING) {
        // One who obeys the length would read another message: it does not go on.
        headers.remove(CONTENT_LENGTH);
    }
    let is_bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if is_to_head || is_bodiless || status.is_informational() {
        return Ok(Rest::Nothing);
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return coded(headers, version);
    }
    match length(headers)? {
        Some(0) => Ok(Rest::Nothing),
        Some(length) => Ok(Rest::Length(length)),
        None => Ok(Rest::UntilClose),
    }
}

fn coded(headers: &HeaderMap, version: Version) -> Result<Rest, BadAnswer> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let num_chunked = tokens(headers, &TRANSFER_ENCODING)
        .filter(|coding| is_chunked(coding))
        .count();
    let is_last = tokens(headers, &TRANSFER_ENCODING)
        .last()
        .is_some_and(is_chunked);
    match (num_chunked, is_last) {
        _ if version == Version::HTTP_10 => Err(BadAnswer("HTTP/1.0 has no Transfer-Encoding")),
        (0, _) => Ok(Rest::UntilClose),
        (1, true) => Ok(Rest::Chunks(ChunkWalk::of_replica())),
        _ => Err(BadAnswer("its Transfer-Encoding has no one meaning")),
    }
}

/// The length that is announced, which is then said once.
fn length(headers: &mut HeaderMap) -> Result<Option<u64>, BadAnswer> {
    let mut said = tokens(headers, &CONTENT_LENGTH).map(digits);
    let first = match said.next() {
        None if !headers.contains_key(CONTENT_LENGTH) => return Ok(None),
        first => first.flatten(),
    };
    let (mut is_same, mut is_repeated) = (true, false);
    for again in said {
        (is_same, is_repeated) = (is_same && again == first, true);
    }
    let Some(length) = first.filter(|_| is_same) else {
        return Err(BadAnswer("its Content-Length is no one number"));
    };
    if is_repeated {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(Some(length))
}

fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        let sum = sum.checked_mul(10)?;
        (digit <= 9).then(|| sum.checked_add(digit))?
    })
}

/// The fields behind the last chunk: `lines` end with the empty one.
///
/// # Errors
/// [`BadAnswer`].
pub fn trailers(lines: &[u8]) -> Result<HeaderMap, BadAnswer> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match httparse::parse_headers(lines, &mut fields) {
        Ok(Status::Complete((_, fields))) => shared(fields, lines),
        _ => Err(BadAnswer("what follows its last chunk are no fields")),
    }
}

#[cfg(test)]
mod tests;
