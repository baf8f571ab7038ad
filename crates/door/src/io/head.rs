//! The strict reading of a request head, before hyper sees it.
//!
//! hyper forgives what RFC 9112 lets a server forgive (a Content-Length beside a Transfer-Encoding,
//! one length given twice, bare line feeds). A proxy must not: the server behind it may forgive
//! differently, and two readings of one message are request smuggling. What passes here has one
//! reading.

use std::mem::MaybeUninit;

use http::StatusCode;
use httparse::{Error, Request, Status};

/// More fields than any client sends; each costs memory in every process on the way.
const MAX_FIELDS: usize = 100;

/// How the body's end is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
}

/// What the gate needs to know of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes, the empty line included.
    pub len: usize,
    pub framing: Framing,
    /// Where the digits of Content-Length stand, first and behind the last; equal: nowhere.
    pub length_at: (usize, usize),
}

/// A head that is refused: the status and what to tell the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    pub status: StatusCode,
    pub message: &'static str,
}

fn reject<T>(status: StatusCode, message: &'static str) -> Result<T, Reject> {
    Err(Reject { status, message })
}

fn bad<T>(message: &'static str) -> Result<T, Reject> {
    reject(StatusCode::BAD_REQUEST, message)
}

/// The head at the start of `bytes`; None while it is not complete.
///
/// # Errors
/// [`Reject`] for a head with no single reading, or one that the door does not serve.
pub fn read(bytes: &[u8]) -> Result<Option<Head>, Reject> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = Request::new(&mut []);
    let len = match request.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) => return partial(bytes),
        Err(Error::TooManyHeaders) => {
            return reject(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "more than 100 header fields: send fewer",
            );
        }
        Err(Error::Version) if names_version(bytes) => {
            return reject(
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "the version is not HTTP/1.0 or HTTP/1.1",
            );
        }
        Err(_) => return bad("the request head is not valid HTTP/1.1"),
    };
    if has_bare_newline(&bytes[..len]) {
        return bad("a line of the head does not end in CR LF");
    }
    let is_http_11 = request.version == Some(1);
    let method = request.method.unwrap_or_default();
    check_target(method, request.path.unwrap_or_default())?;
    let (framing, digits) = read_fields(request.headers, is_http_11)?;
    let at = digits.map_or(0, |digits| {
        digits.as_ptr() as usize - bytes.as_ptr() as usize
    });
    Ok(Some(Head {
        len,
        framing,
        length_at: (at, at + digits.map_or(0, <[u8]>::len)),
    }))
}

/// Whether the request line ends in a version, if not one of ours.
fn names_version(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|b| *b == b'\r' || *b == b'\n')
        .next()
        .unwrap_or_default();
    let version = line.split(|b| *b == b' ').nth(2).unwrap_or_default();
    matches!(version, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
        if major.is_ascii_digit() && minor.is_ascii_digit())
}

/// What can be said of an unfinished head: a version that is not ours is told at once.
fn partial(bytes: &[u8]) -> Result<Option<Head>, Reject> {
    if bytes.starts_with(b"PRI * HTTP/2") {
        return reject(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "HTTP/2 is not served here",
        );
    }
    Ok(None)
}

fn has_bare_newline(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

fn check_target(method: &str, target: &str) -> Result<(), Reject> {
    if method == "CONNECT" {
        return reject(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not served here");
    }
    if method == "TRACE" {
        return reject(StatusCode::METHOD_NOT_ALLOWED, "TRACE is not served here");
    }
    let clean = target
        .bytes()
        .all(|b| (0x21..0x7f).contains(&b) && b != b'#');
    let lower = target.as_bytes();
    let is_absolute =
        starts_with_ignore_case(lower, b"http://") || starts_with_ignore_case(lower, b"https://");
    let is_form = target.starts_with('/') || is_absolute || (target == "*" && method == "OPTIONS");
    if clean && is_form {
        Ok(())
    } else {
        bad("the request target is not valid")
    }
}

fn starts_with_ignore_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// How the body ends, and the digits that say so.
fn read_fields<'a>(
    fields: &[httparse::Header<'a>],
    is_http_11: bool,
) -> Result<(Framing, Option<&'a [u8]>), Reject> {
    let (mut length, mut chunked, mut host) = (None, false, None);
    for field in fields {
        let value = field.value;
        // Most fields are none of these: the length of the name tells.
        let is_repeated = match field.name.len() {
            4 if field.name.eq_ignore_ascii_case("host") => host.replace(value).is_some(),
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                length.replace((content_length(value)?, value)).is_some()
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                check_coding(value, is_http_11)?;
                std::mem::replace(&mut chunked, true)
            }
            _ => false,
        };
        if is_repeated {
            return bad("Host, Content-Length or Transfer-Encoding is given more than once");
        }
    }
    match host {
        Some(value) if !is_host(value) => return bad("Host is not a valid host and port"),
        None if is_http_11 => return bad("Host is missing"),
        _ => {}
    }
    match (length, chunked) {
        (Some(_), true) => bad("Content-Length and Transfer-Encoding are both given"),
        (Some((n, digits)), false) => Ok((Framing::Length(n), Some(digits))),
        (None, true) => Ok((Framing::Chunked, None)),
        (None, false) => Ok((Framing::Length(0), None)),
    }
}

fn check_coding(value: &[u8], is_http_11: bool) -> Result<(), Reject> {
    if !is_http_11 {
        return bad("Transfer-Encoding is given in HTTP/1.0");
    }
    if !value.eq_ignore_ascii_case(b"chunked") {
        let message = "a Transfer-Encoding other than chunked is not served here";
        return reject(StatusCode::NOT_IMPLEMENTED, message);
    }
    Ok(())
}

/// Digits only: a sign, a list or a space is a second reading.
fn content_length(value: &[u8]) -> Result<u64, Reject> {
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return bad("Content-Length is not a number");
    }
    Ok(value
        .iter()
        .fold(0, |sum, b| sum * 10 + u64::from(b - b'0')))
}

/// `host[:port]` in the characters of RFC 3986; empty is allowed by RFC 9112 and names nothing.
fn is_host(value: &[u8]) -> bool {
    let (name, port) = match memchr::memrchr(b':', value) {
        Some(at) if !value.ends_with(b"]") => (&value[..at], &value[at + 1..]),
        _ => (value, &value[..0]),
    };
    let is_port = port.len() <= 5 && port.iter().all(u8::is_ascii_digit);
    let inner = name
        .strip_prefix(b"[")
        .and_then(|rest| rest.strip_suffix(b"]"));
    let is_name = match inner {
        Some(address) => address
            .iter()
            .all(|b| b.is_ascii_hexdigit() || b":.".contains(b)),
        None => name
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(b)),
    };
    is_port && is_name
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
