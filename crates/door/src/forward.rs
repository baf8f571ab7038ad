//! Heads on their way through: what belongs to one connection only is taken out, in both
//! directions.

use http::header::{
    AUTHORIZATION, CONNECTION, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, UPGRADE,
};
use http::uri::{PathAndQuery, Uri};

use crate::auth;
use crate::io::tokens::{has_token, tokens};
use crate::pool::Backend;

/// The one header that says whose slot a call holds; believed on the internal listener only.
pub const PARENT: HeaderName = HeaderName::from_static("x-preroll-parent");
/// The stage that a call is for; believed on the internal listener only.
pub const STAGE: HeaderName = HeaderName::from_static("x-preroll-stage");
/// What is left of the time in which the whole must be over.
pub const DEADLINE_MS: HeaderName = HeaderName::from_static("x-preroll-deadline-ms");
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What of a head does not pass, found in one walk: most heads hold little of it, and looking each
/// name up costs more than walking over the few that are there.
#[derive(Debug, Default)]
struct Stops {
    /// Of the fixed list.
    hop_by_hop: Vec<HeaderName>,
    lookalikes: bool,
}

/// Never forwarded, named in Connection or not (RFC 9110, section 7.6.1).
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

impl Stops {
    fn of(headers: &HeaderMap) -> Stops {
        let mut stops = Stops::default();
        for name in headers.keys() {
            let text = name.as_str();
            if is_hop_by_hop(text) {
                stops.hop_by_hop.push(name.clone());
            }
            stops.lookalikes |= text.bytes().any(|byte| byte == b'_');
        }
        stops
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.hop_by_hop.contains(name)
    }

    /// Takes out the fixed list and what Connection names.
    fn strip(&self, headers: &mut HeaderMap) {
        let named = match self.has(&CONNECTION) {
            true => named_in_connection(headers),
            false => Vec::new(),
        };
        for name in self.hop_by_hop.iter().chain(&named) {
            headers.remove(name);
        }
    }
}

/// Takes out what belongs to one connection: the fixed list and what Connection names.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    Stops::of(headers).strip(headers);
}

fn named_in_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut named = Vec::new();
    for token in tokens(headers, &CONNECTION) {
        // The two that nearly every client sends name no header of their own.
        let is_plain =
            token.eq_ignore_ascii_case(b"keep-alive") || token.eq_ignore_ascii_case(b"close");
        if let (false, Ok(name)) = (is_plain, HeaderName::from_bytes(token)) {
            named.push(name);
        }
    }
    named
}

/// Makes a client's head into the head for a replica, but for how long the body is (`io::sending`).
pub fn to_replica(headers: &mut HeaderMap, backend: &Backend, upgrade: bool) {
    let stops = Stops::of(headers);
    let wants_trailers = stops.has(&TE) && has_token(headers, &TE, "trailers");
    let protocol = if upgrade {
        headers.get(UPGRADE).cloned()
    } else {
        None
    };
    stops.strip(headers);
    headers.remove(EXPECT);
    if stops.lookalikes {
        drop_lookalikes(headers);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    match &backend.host {
        Some(host) => drop(headers.insert(HOST, host.clone())),
        None if !headers.contains_key(HOST) => {
            headers.insert(HOST, HeaderValue::from_static("localhost"));
        }
        None => {}
    }
    match &backend.authorization {
        Some(value) => drop(headers.insert(AUTHORIZATION, value.clone())),
        None => drop(headers.remove(AUTHORIZATION)),
    }
}

/// Servers that turn names into variables (WSGI, CGI) cannot tell `Content_Length` from
/// `Content-Length`: names with an underscore do not pass, as in nginx.
fn drop_lookalikes(headers: &mut HeaderMap) {
    let lookalikes: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().contains('_'))
        .cloned()
        .collect();
    for name in lookalikes {
        headers.remove(name);
    }
}

/// The target for a replica, in origin form; `strip` is taken off the path's front.
pub fn target(uri: &Uri, strip: Option<&str>) -> Option<Uri> {
    let path_and_query = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let rest = match strip {
        Some(prefix) => path_and_query
            .strip_prefix(prefix)
            .unwrap_or(path_and_query),
        None if uri.scheme().is_none() => return Some(uri.clone()),
        None => path_and_query,
    };
    let text = if rest.starts_with('/') {
        rest.to_owned()
    } else {
        format!("/{rest}")
    };
    text.parse().ok()
}

/// A request id from outside: kept when it is short and cannot break a log line or a URL.
pub fn request_id(headers: &HeaderMap) -> RequestId {
    match headers.get(REQUEST_ID) {
        Some(value) if auth::request_id(value.as_bytes()).is_some() => RequestId(value.clone()),
        _ => {
            let mut text = [0; 32];
            write_hex(&mut text[..16], fastrand::u64(..));
            write_hex(&mut text[16..], fastrand::u64(..));
            RequestId(header(&text))
        }
    }
}

/// A request's id, ready to be a header: one piece of memory for all who say it.
#[derive(Debug, Clone)]
pub struct RequestId(HeaderValue);

impl RequestId {
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub fn value(&self) -> &HeaderValue {
        &self.0
    }
}

fn header(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).unwrap_or_else(|_| HeaderValue::from_static("?"))
}

/// Sixteen digits of 64 bits.
fn write_hex(text: &mut [u8], value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = value.to_be_bytes();
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// The W3C trace context: the client's when it is valid, else a new one.
pub fn traceparent(headers: &HeaderMap) -> HeaderValue {
    match headers.get(TRACEPARENT) {
        Some(value) if is_traceparent(value.as_bytes()) => value.clone(),
        _ => {
            let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
            write_hex(&mut text[3..19], fastrand::u64(1..));
            write_hex(&mut text[19..35], fastrand::u64(..));
            write_hex(&mut text[36..52], fastrand::u64(1..));
            header(&text)
        }
    }
}

fn is_traceparent(text: &[u8]) -> bool {
    let hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let parts: Vec<&[u8]> = text.split(|b| *b == b'-').collect();
    match parts[..] {
        [b"00", trace, span, flags] => {
            (trace.len(), span.len(), flags.len()) == (32, 16, 2)
                && hex(trace)
                && hex(span)
                && hex(flags)
                && trace.iter().any(|b| *b != b'0')
                && span.iter().any(|b| *b != b'0')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn what_connection_names_is_taken_out_with_the_fixed_list() {
        let mut headers = map(&[
            ("connection", "close, X-Secret"),
            ("connection", "x-other"),
            ("keep-alive", "5"),
            ("te", "gzip"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("x-kept", "3"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("x-kept", "3")]));
    }

    #[test]
    fn a_prefix_is_stripped_and_absolute_targets_become_origin_form() {
        let cases = [
            ("/echo/a?b=1", Some("/echo"), "/a?b=1"),
            ("/echo?x", Some("/echo"), "/?x"),
            ("/a?b", None, "/a?b"),
            ("http://h:1/a?b", None, "/a?b"),
            ("http://h", None, "/"),
        ];
        for (uri, strip, expected) in cases {
            let uri: Uri = uri.parse().unwrap();
            assert_eq!(target(&uri, strip).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn an_unsafe_request_id_is_replaced() {
        let kept = request_id(&map(&[("x-request-id", "abc-1.2:3")]));
        assert_eq!(kept.as_str(), "abc-1.2:3");
        for id in ["", "a b", "a\"b", "a\tb", "\u{e9}", &"a".repeat(129)] {
            let made = request_id(&map(&[("x-request-id", id)]));
            assert_eq!(made.as_str().len(), 32, "{id:?}");
        }
    }

    #[test]
    fn a_trace_context_is_kept_when_valid_and_made_when_not() {
        let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(traceparent(&map(&[("traceparent", valid)])), valid);
        for text in [
            "",
            "00-0-0-0",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            let made = traceparent(&map(&[("traceparent", text)]));
            assert!(made != text && is_traceparent(made.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn names_with_an_underscore_do_not_pass() {
        let mut headers = map(&[("content_length", "5"), ("x-a", "1")]);
        drop_lookalikes(&mut headers);
        assert_eq!(headers, map(&[("x-a", "1")]));
    }
}
