//! A request with a slot is sent; what comes back is made the client's answer.

use std::rc::Rc;

use http::header::{HeaderName, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::account::{Account, Ending};
use crate::admit::{self, unless_gone};
use crate::buffer::Held;
use crate::clock::now_ns;
use crate::door::Door;
use crate::forward;
use crate::io::body::{ClientBody, SendBody};
use crate::io::link::{Link, Waiting};
use crate::io::upstream::{Unanswered, Upstream};
use crate::pool::Backend;
use crate::proxy::{Stop, too_large};
use crate::queue::{Ask, Fault, Permit, Ticket};
use crate::relay::{Bounds, Relay};
use crate::reply::{self, OutBody};
use crate::routes::StageHandle;
use crate::wait::{RefusalKind, seconds};

pub const REPLICA: HeaderName = HeaderName::from_static("x-preroll-replica");
const QUEUE_MS: HeaderName = HeaderName::from_static("x-preroll-queue-ms");
const EVENT_STREAM: &[u8] = b"text/event-stream";

/// A request body: none, in memory, or still on its way.
pub enum Payload {
    None,
    Held(Held),
    Stream(Incoming),
}

/// What goes to a replica.
pub struct Outgoing {
    pub parts: Parts,
    pub payload: Payload,
    pub body_limit: u64,
}

impl Outgoing {
    /// Whether it can be sent once more.
    fn is_repeatable(&self) -> bool {
        !matches!(self.payload, Payload::Stream(_))
    }

    /// The request as this replica gets it. `is_last`: what cannot be copied may be taken.
    fn request(&mut self, backend: &Backend, link: &Rc<Link>, is_last: bool) -> Request<SendBody> {
        let mut request = Request::new(SendBody::Empty);
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = self.parts.uri.clone();
        let headers = &mut self.parts.headers;
        let mut headers = if is_last {
            std::mem::take(headers)
        } else {
            headers.clone()
        };
        let is_chunked = headers.contains_key(TRANSFER_ENCODING);
        let (body, is_chunked) = match std::mem::replace(&mut self.payload, Payload::None) {
            Payload::None => (SendBody::Empty, false),
            Payload::Held(held) => {
                let bytes = held.bytes.clone();
                self.payload = Payload::Held(held);
                headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                (SendBody::Full(bytes), false)
            }
            Payload::Stream(body) => {
                let body = ClientBody::new(body, self.body_limit, link.clone());
                (SendBody::Stream(body), is_chunked)
            }
        };
        forward::to_replica(&mut headers, backend, is_chunked, false);
        *request.headers_mut() = headers;
        *request.body_mut() = body;
        request
    }
}

/// Asks for a slot, sends, and makes the answer; a request that provably never ran is tried again.
pub async fn deliver(
    door: &Rc<Door>,
    link: &Rc<Link>,
    handle: &Rc<StageHandle>,
    mut account: Account,
    ask: Ask,
    mut outgoing: Outgoing,
) -> Result<Response<OutBody>, Stop> {
    let bounds = Bounds {
        idle_ns: handle
            .table
            .stream_idle_timeout_ms
            .saturating_mul(1_000_000),
        end_ns: ask.deadline_ns.unwrap_or(u64::MAX),
    };
    let first_byte_ns = ask.first_byte_deadline_ns.unwrap_or(u64::MAX);
    let mut ticket = handle.stage.submit(ask, now_ns())?;
    prepare(&mut outgoing.parts.headers, &account.request_id);
    loop {
        let is_queued = !ticket.is_granted();
        let permit = unless_gone(link, admit::wait(ticket)).await??;
        let told = Told::of(&permit, is_queued);
        let backend = door.pool.backend(permit.replica());
        account.admitted(permit);
        bounds.arm_first(link, now_ns(), first_byte_ns);
        let attempt = attempt(link, &backend, &bounds, &mut outgoing);
        match unless_gone(link, attempt).await? {
            Attempt::Answered(answered) => {
                return Ok(answer(
                    link, handle, account, told, bounds, backend, *answered,
                ));
            }
            Attempt::NeverRan(fault) if outgoing.is_repeatable() || fault == Fault::Connect => {
                ticket = again(&mut account, fault)?;
            }
            Attempt::NeverRan(fault) => return Err(failed(&mut account, fault, "it broke off")),
            Attempt::Broken(reason) => return Err(failed(&mut account, Fault::Broken, &reason)),
            Attempt::Late(waiting) => return Err(late(handle, &mut account, waiting)),
            Attempt::BodyOver => return Err(too_large(outgoing.body_limit)),
        }
    }
}

/// What the client is told of its wait.
struct Told {
    waited_ns: u64,
    expected_ns: Option<u64>,
}

impl Told {
    fn of(permit: &Permit, is_queued: bool) -> Told {
        let expected_ns = is_queued.then(|| permit.expected_wait_ns());
        Told {
            waited_ns: permit.waited_ns(),
            expected_ns,
        }
    }
}

/// What one attempt came to.
enum Attempt {
    Answered(Box<(Upstream, Response<Incoming>)>),
    NeverRan(Fault),
    /// It may have run.
    Broken(String),
    Late(Waiting),
    BodyOver,
}

/// Ids and trace context, once for all attempts.
pub fn prepare(headers: &mut HeaderMap, request_id: &str) {
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(forward::REQUEST_ID, id);
    }
    headers.insert(forward::TRACEPARENT, forward::traceparent(headers));
    headers.remove(forward::PARENT);
}

/// One try: on an idle connection, and, if that turns out to be closed before a byte was taken, on a new one.
async fn attempt(
    link: &Rc<Link>,
    backend: &Rc<Backend>,
    bounds: &Bounds,
    outgoing: &mut Outgoing,
) -> Attempt {
    if let Some(upstream) = backend.reuse() {
        let request = outgoing.request(backend, link, !outgoing.is_repeatable());
        match exchange(link, upstream, bounds, request).await {
            Attempt::NeverRan(_) if outgoing.is_repeatable() => {}
            other => return other,
        }
    }
    match backend.connect().await {
        Ok(upstream) => {
            let request = outgoing.request(backend, link, !outgoing.is_repeatable());
            exchange(link, upstream, bounds, request).await
        }
        Err(_) => Attempt::NeverRan(Fault::Connect),
    }
}

async fn exchange(
    link: &Rc<Link>,
    mut upstream: Upstream,
    bounds: &Bounds,
    request: Request<SendBody>,
) -> Attempt {
    let give_up = || {
        if link.is_body_over.get() {
            return Some(Attempt::BodyOver);
        }
        match link.expired() {
            Some(waiting) => Some(Attempt::Late(waiting)),
            None => {
                if link.waiting() == Waiting::Nothing {
                    // The client's upload moved on: from here the replica is waited for again.
                    bounds.arm(link, now_ns());
                }
                None
            }
        }
    };
    match upstream.exchange(request, give_up).await {
        Ok(Ok(response)) => Attempt::Answered(Box::new((upstream, response))),
        Ok(Err(_)) if link.is_body_over.get() => Attempt::BodyOver,
        Ok(Err(Unanswered {
            never_ran: true, ..
        })) => Attempt::NeverRan(Fault::Broken),
        Ok(Err(Unanswered { reason, .. })) => Attempt::Broken(reason),
        Err(gave_up) => gave_up,
    }
}

fn again(account: &mut Account, fault: Fault) -> Result<Ticket, Stop> {
    match account.take_permit() {
        Some(permit) => Ok(permit.retry(fault, now_ns())?),
        None => Err(failed(account, fault, "it could not be sent again")),
    }
}

/// A request that may have run is never sent twice: the client decides.
fn failed(account: &mut Account, fault: Fault, reason: &str) -> Stop {
    account.end(Ending::Failed(fault));
    let message = format!("the replica did not answer: {reason}; the request may have run");
    Stop::error(StatusCode::BAD_GATEWAY, "upstream_error", message)
}

fn late(handle: &StageHandle, account: &mut Account, waiting: Waiting) -> Stop {
    match waiting {
        Waiting::Upstream => {
            account.end(Ending::Failed(Fault::Stalled));
            let message = "the replica fell silent for stream_idle_timeout_ms";
            Stop::error(StatusCode::GATEWAY_TIMEOUT, "upstream_error", message)
        }
        _ => {
            account.end(Ending::Deadline);
            let detail = "the deadline passed before the first byte";
            Stop::Refused(handle.stage.refuse(RefusalKind::Deadline, detail, now_ns()))
        }
    }
}

/// The replica's head, made the client's.
fn answer(
    link: &Rc<Link>,
    handle: &StageHandle,
    mut account: Account,
    told: Told,
    bounds: Bounds,
    backend: Rc<Backend>,
    (upstream, response): (Upstream, Response<Incoming>),
) -> Response<OutBody> {
    let (parts, body) = response.into_parts();
    let mut headers = parts.headers;
    forward::strip_hop_by_hop(&mut headers);
    let is_rejected = matches!(
        parts.status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    if is_rejected && !headers.contains_key(RETRY_AFTER) {
        let detail = "the replica refused";
        let refusal = handle.stage.refuse(RefusalKind::Overload, detail, now_ns());
        headers.insert(RETRY_AFTER, HeaderValue::from(refusal.retry_after_s()));
        headers.insert(
            reply::RETRY_AFTER_MS,
            HeaderValue::from(refusal.retry_after_ms),
        );
    }
    headers.insert(REPLICA, backend.id.clone());
    headers.insert(QUEUE_MS, HeaderValue::from(told.waited_ns / 1_000_000));
    if let Some(wait) = told
        .expected_ns
        .and_then(|ns| HeaderValue::try_from(seconds(ns)).ok())
    {
        headers.insert(reply::EXPECTED_WAIT, wait);
    }
    let content_type = headers
        .get(http::header::CONTENT_TYPE)
        .map(HeaderValue::as_bytes);
    account.answered(
        content_type.is_some_and(|t| t.starts_with(EVENT_STREAM)),
        is_rejected,
    );
    bounds.arm(link, now_ns());
    let relay = Relay::new(upstream, body, backend, account, link.clone(), bounds);
    let mut response = Response::new(OutBody::relay(link, relay));
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers;
    response
}
