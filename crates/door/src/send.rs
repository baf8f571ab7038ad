//! A request with a slot is sent; what comes back is made the client's answer.

use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use crate::account::{Account, Ending};
use crate::admit::{self, unless_gone};
use crate::body_model::json_string;
use crate::buffer::Held;
use crate::clock::recent_ns;
use crate::forward::{self, RequestId};
use crate::io::link::{Link, Waiting};
use crate::io::sending::{ClientBody, SendBody};
use crate::io::upstream::{Unanswered, Upstream};
use crate::pool::Backend;
use crate::proxy::{Stop, too_large};
use crate::queue::{Ask, Fault, Permit, Ticket};
use crate::relay::{Bounds, Relay};
use crate::reply::{self, OutBody};
use crate::wait::{RefusalKind, seconds};

pub const REPLICA: HeaderName = HeaderName::from_static("x-preroll-replica");
const QUEUE_MS: HeaderName = HeaderName::from_static("x-preroll-queue-ms");

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
    /// Where the model's name stands in a held body.
    pub model_span: Option<Range<usize>>,
    pub body_limit: u64,
    /// It was given away: it cannot be sent once more.
    is_spent: bool,
}

impl Outgoing {
    pub fn new(
        parts: Parts,
        payload: Payload,
        model_span: Option<Range<usize>>,
        body_limit: u64,
    ) -> Box<Outgoing> {
        Box::new(Outgoing {
            parts,
            payload,
            model_span,
            body_limit,
            is_spent: false,
        })
    }

    /// What is left of the deadline, whoever set it: the time in the queue is gone.
    fn tell_deadline(&mut self, bounds: &Bounds, now: u64) {
        if bounds.end_ns != u64::MAX {
            let left_ms = bounds.end_ns.saturating_sub(now) / 1_000_000;
            let headers = &mut self.parts.headers;
            headers.insert(forward::DEADLINE_MS, HeaderValue::from(left_ms));
        }
    }

    /// The body with the model's name as the engine knows it.
    fn named_for(&self, backend: &Backend, body: &Bytes) -> Bytes {
        let (Some(name), Some(span)) = (&backend.table.model, &self.model_span) else {
            return body.clone();
        };
        let is_json = body.get(span.start) == Some(&b'"');
        let name = if is_json {
            json_string(name)
        } else {
            name.clone()
        };
        let parts = [&body[..span.start], name.as_bytes(), &body[span.end..]];
        Bytes::from(parts.concat())
    }

    /// The request as this replica gets it. A copy stays here where sending can fail before a byte
    /// was taken, which only a Unix socket tells for sure.
    fn request(&mut self, backend: &Backend, link: &Rc<Link>) -> Request<SendBody> {
        let mut request = Request::new(SendBody::Empty);
        self.is_spent = matches!(self.payload, Payload::Stream(_)) || !backend.is_unix();
        *request.method_mut() = self.parts.method.clone();
        let (uri, headers) = (&mut self.parts.uri, &mut self.parts.headers);
        let (uri, mut headers) = if self.is_spent {
            (std::mem::take(uri), std::mem::take(headers))
        } else {
            (uri.clone(), headers.clone())
        };
        *request.uri_mut() = uri;
        let body = match std::mem::replace(&mut self.payload, Payload::None) {
            Payload::None => SendBody::Empty,
            Payload::Held(held) => {
                let bytes = self.named_for(backend, &held.bytes);
                self.payload = Payload::Held(held);
                SendBody::Full(bytes)
            }
            Payload::Stream(body) => {
                SendBody::Stream(ClientBody::new(body, self.body_limit, link.clone()))
            }
        };
        forward::to_replica(&mut headers, backend, false);
        *request.headers_mut() = headers;
        *request.body_mut() = body;
        request
    }
}

/// Asks for a slot, sends, and makes the answer; the account learns how it went.
pub async fn deliver(
    link: &Rc<Link>,
    mut account: Box<Account>,
    ask: Ask,
    mut outgoing: Box<Outgoing>,
) -> Result<Response<OutBody>, Stop> {
    prepare(&mut outgoing.parts.headers, &account.request_id);
    let obtained = if link.request_done.get() {
        obtain(link, &mut account, ask, &mut outgoing).await
    } else {
        let obtaining = Box::pin(obtain(link, &mut account, ask, &mut outgoing));
        unless_gone(link, obtaining)
            .await
            .unwrap_or_else(|gone| Err(gone.into()))
    };
    match obtained {
        Ok(obtained) => Ok(answer(link, account, obtained, outgoing.parts.version)),
        Err(stop) => {
            account.stopped(&stop);
            Err(stop)
        }
    }
}

/// A replica's answer and what belongs to it.
struct Obtained {
    told: Told,
    bounds: Bounds,
    backend: Rc<Backend>,
    answered: Box<(Upstream, Response<()>)>,
}

/// Until there is an answer or no hope of one; a request that provably never ran is tried again.
async fn obtain(
    link: &Rc<Link>,
    account: &mut Account,
    ask: Ask,
    outgoing: &mut Outgoing,
) -> Result<Obtained, Stop> {
    let handle = account.handle.clone();
    let bounds = Bounds {
        idle_ns: handle
            .table
            .stream_idle_timeout_ms
            .saturating_mul(1_000_000),
        end_ns: ask.deadline_ns.unwrap_or(u64::MAX),
    };
    let first_byte_ns = ask.first_byte_deadline_ns.unwrap_or(u64::MAX);
    let mut ticket = handle.stage.submit(ask, recent_ns())?;
    loop {
        let is_queued = !ticket.is_granted();
        if is_queued {
            account.queued(ticket.expected_wait_ns());
        }
        let permit = admit::wait(ticket).await?;
        let told = Told::of(&permit, is_queued);
        let backend = account.door.pool.backend(permit.replica());
        account.admitted(permit, &backend);
        bounds.arm_first(link, recent_ns(), first_byte_ns);
        match attempt(link, &backend, &bounds, outgoing).await {
            Attempt::Answered(answered) => {
                return Ok(Obtained {
                    told,
                    bounds,
                    backend,
                    answered,
                });
            }
            Attempt::NeverRan(fault) => ticket = again(account, fault)?,
            Attempt::Broken(reason) => return Err(failed(account, Fault::Broken, &reason)),
            Attempt::Late(waiting) => return Err(late(account, waiting)),
            Attempt::BodyOver => return Err(too_large(outgoing.body_limit)),
            Attempt::BodyBroken => return Err(Stop::Gone),
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
    Answered(Box<(Upstream, Response<()>)>),
    NeverRan(Fault),
    /// It may have run.
    Broken(String),
    Late(Waiting),
    BodyOver,
    /// The client's body broke off.
    BodyBroken,
}

/// Ids and trace context, once for all attempts.
pub fn prepare(headers: &mut HeaderMap, request_id: &RequestId) {
    headers.insert(forward::REQUEST_ID, request_id.value().clone());
    headers.insert(forward::TRACEPARENT, forward::traceparent(headers));
    headers.remove(forward::PARENT);
    headers.remove(forward::STAGE);
}

/// One try: on an idle connection, and, if that turns out to be closed before a byte was taken, on
/// a new one.
async fn attempt(
    link: &Rc<Link>,
    backend: &Rc<Backend>,
    bounds: &Bounds,
    outgoing: &mut Outgoing,
) -> Attempt {
    if let Some(upstream) = backend.reuse() {
        match exchange(link, upstream, bounds, backend, outgoing).await {
            Attempt::NeverRan(_) => {}
            other => return other,
        }
    }
    match backend.connect().await {
        Ok(upstream) => exchange(link, upstream, bounds, backend, outgoing).await,
        Err(_) => Attempt::NeverRan(Fault::Connect),
    }
}

async fn exchange(
    link: &Rc<Link>,
    mut upstream: Upstream,
    bounds: &Bounds,
    backend: &Backend,
    outgoing: &mut Outgoing,
) -> Attempt {
    outgoing.tell_deadline(bounds, recent_ns());
    let request = outgoing.request(backend, link);
    let give_up = || {
        if link.is_body_over.get() {
            return Some(Attempt::BodyOver);
        }
        match link.expired() {
            // A client that owes its body is answered by the connection itself.
            Some(Waiting::Body) => None,
            Some(waiting) => Some(Attempt::Late(waiting)),
            None => {
                if link.waiting() == Waiting::Nothing {
                    // The client's upload moved on: from here the replica is waited for again.
                    bounds.arm(link, recent_ns());
                }
                None
            }
        }
    };
    match upstream.exchange(request, give_up).await {
        Ok(Ok(response)) => Attempt::Answered(Box::new((upstream, response))),
        Ok(Err(_)) if link.is_body_over.get() => Attempt::BodyOver,
        Ok(Err(Unanswered {
            is_broken_off: true,
            ..
        })) => Attempt::BodyBroken,
        Ok(Err(Unanswered {
            never_ran: true, ..
        })) if !outgoing.is_spent => Attempt::NeverRan(Fault::Broken),
        Ok(Err(Unanswered { reason, .. })) => Attempt::Broken(reason),
        Err(gave_up) => gave_up,
    }
}

fn again(account: &mut Account, fault: Fault) -> Result<Ticket, Stop> {
    match account.take_permit() {
        Some(permit) => Ok(permit.retry(fault, recent_ns())?),
        None => Err(failed(account, fault, "it could not be sent again")),
    }
}

/// A request that may have run is never sent twice: the client decides.
fn failed(account: &mut Account, fault: Fault, reason: &str) -> Stop {
    account.end(Ending::Failed(fault));
    let message = format!("the replica did not answer: {reason}; the request may have run");
    Stop::error(StatusCode::BAD_GATEWAY, "upstream_error", message)
}

fn late(account: &mut Account, waiting: Waiting) -> Stop {
    match waiting {
        Waiting::Upstream => {
            account.end(Ending::Failed(Fault::Stalled));
            let message = "the replica fell silent for stream_idle_timeout_ms";
            Stop::error(StatusCode::GATEWAY_TIMEOUT, "upstream_error", message)
        }
        _ => {
            account.end(Ending::Deadline);
            let detail = "the deadline passed before the first byte";
            Stop::Refused(
                account
                    .handle
                    .stage
                    .refuse(RefusalKind::Deadline, detail, recent_ns()),
            )
        }
    }
}

/// The replica's head, made the client's, who speaks `version`.
fn answer(
    link: &Rc<Link>,
    mut account: Box<Account>,
    obtained: Obtained,
    version: Version,
) -> Response<OutBody> {
    let Obtained {
        told,
        bounds,
        backend,
        answered,
    } = obtained;
    let (upstream, response) = *answered;
    let (parts, ()) = response.into_parts();
    let mut headers = parts.headers;
    forward::strip_hop_by_hop(&mut headers);
    let is_rejected = matches!(
        parts.status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    if is_rejected && !headers.contains_key(RETRY_AFTER) {
        let detail = "the replica refused";
        let refusal = account
            .handle
            .stage
            .refuse(RefusalKind::Overload, detail, recent_ns());
        headers.insert(RETRY_AFTER, HeaderValue::from(refusal.retry_after_s()));
        headers.insert(
            reply::RETRY_AFTER_MS,
            HeaderValue::from(refusal.retry_after_ms),
        );
    }
    headers.insert(REPLICA, backend.id.clone());
    let queue_ms = match told.waited_ns / 1_000_000 {
        0 => HeaderValue::from_static("0"),
        ms => HeaderValue::from(ms),
    };
    headers.insert(QUEUE_MS, queue_ms);
    if let Some(wait) = told
        .expected_ns
        .and_then(|ns| HeaderValue::try_from(seconds(ns)).ok())
    {
        headers.insert(reply::EXPECTED_WAIT, wait);
    }
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    account.answered(parts.status, content_type);
    bounds.arm(link, recent_ns());
    let takes_chunks = version == Version::HTTP_11 && !headers.contains_key(CONTENT_LENGTH);
    let relay = Relay::new(
        upstream,
        backend,
        account,
        link.clone(),
        bounds,
        takes_chunks,
    );
    let mut response = Response::new(OutBody::relay(link, relay));
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers;
    response
}
