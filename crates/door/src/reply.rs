//! Answers that the door gives itself, and the one type of body that hyper is given.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use serde_json::{Value, json};

use crate::clock::recent_ns;
use crate::io::gate::IDLE_NS;
use crate::io::link::{Link, Waiting};
use crate::relay::Relay;
use crate::wait::Refusal;

pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
pub const EXPECTED_WAIT: HeaderName = HeaderName::from_static("x-preroll-expected-wait");

/// Why a body could not be sent whole.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body made by the door that is not known at once.
pub type Feed = Pin<Box<dyn Body<Data = Bytes, Error = BodyError>>>;

enum Kind {
    Full(Bytes),
    Relay(Box<Relay>),
    Feed(Feed),
}

/// A response body. When hyper drops it, the response is over.
pub struct OutBody {
    kind: Kind,
    link: Rc<Link>,
}

impl Drop for OutBody {
    fn drop(&mut self) {
        self.link.response_done.set(true);
        if self.link.waiting() == Waiting::Nothing {
            // The end of the answer may wait for a client that does not read: not for ever.
            self.link.wait_for(Waiting::Idle, recent_ns() + IDLE_NS);
        }
    }
}

impl OutBody {
    pub fn full(link: &Rc<Link>, bytes: impl Into<Bytes>) -> OutBody {
        OutBody {
            kind: Kind::Full(bytes.into()),
            link: link.clone(),
        }
    }

    pub fn relay(link: &Rc<Link>, relay: Relay) -> OutBody {
        OutBody {
            kind: Kind::Relay(Box::new(relay)),
            link: link.clone(),
        }
    }

    pub fn feed(link: &Rc<Link>, feed: Feed) -> OutBody {
        OutBody {
            kind: Kind::Feed(feed),
            link: link.clone(),
        }
    }
}

impl Body for OutBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().kind {
            Kind::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Relay(relay) => relay.poll_frame(cx),
            Kind::Feed(feed) => feed.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Relay(relay) => relay.is_end_stream(),
            Kind::Feed(feed) => feed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Relay(relay) => relay.size_hint(),
            Kind::Feed(feed) => feed.size_hint(),
        }
    }
}

/// Any answer with a body of JSON.
pub fn json(link: &Rc<Link>, status: StatusCode, value: &Value) -> Response<OutBody> {
    typed(link, status, "application/json", format!("{value}\n"))
}

/// Any answer with a text of a given type.
pub fn typed(
    link: &Rc<Link>,
    status: StatusCode,
    content_type: &'static str,
    text: impl Into<Bytes>,
) -> Response<OutBody> {
    let mut response = Response::new(OutBody::full(link, text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn error_value(status: StatusCode, kind: &str, message: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "code": status.as_u16(), "param": null}})
}

/// An error in the form that OpenAI's clients read.
pub fn error(link: &Rc<Link>, status: StatusCode, kind: &str, message: &str) -> Response<OutBody> {
    json(link, status, &error_value(status, kind, message))
}

/// A refusal with its truth: when to come back, and how long the wait really is.
pub fn refusal(link: &Rc<Link>, refusal: &Refusal) -> Response<OutBody> {
    let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut response = error(link, status, refusal.error_type(), &refusal.message());
    let headers = response.headers_mut();
    let should_retry = if refusal.should_retry() {
        "true"
    } else {
        "false"
    };
    headers.insert(SHOULD_RETRY, HeaderValue::from_static(should_retry));
    headers.insert(RETRY_AFTER, HeaderValue::from(refusal.retry_after_s()));
    headers.insert(RETRY_AFTER_MS, HeaderValue::from(refusal.retry_after_ms));
    if let Some(wait) = refusal
        .expected_wait_s()
        .and_then(|s| HeaderValue::try_from(s).ok())
    {
        headers.insert(EXPECTED_WAIT, wait);
    }
    response
}

/// An error answer as bytes, for a connection that hyper does not serve (any more); `fields` end in
/// CR LF.
pub fn raw(status: StatusCode, kind: &str, message: &str, fields: &str) -> String {
    let body = format!("{}\n", error_value(status, kind, message));
    format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{fields}\r\n{body}",
        status.as_u16(),
        status.canonical_reason().unwrap_or("Error"),
        body.len(),
    )
}
