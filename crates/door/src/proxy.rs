//! The way of one request to a replica and of its answer back, phase by phase.

use std::borrow::Cow;
use std::rc::Rc;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use crate::account::Account;
use crate::admit::Gone;
use crate::buffer::{self, Held, Unread};
use crate::door::Door;
use crate::facts;
use crate::forward;
use crate::io::link::Link;
use crate::reply::{self, OutBody};
use crate::routes::{Routing, StageHandle, prefix_of};
use crate::send::{self, Outgoing, Payload};
use crate::service::models;
use crate::session;
use crate::wait::{Refusal, RefusalKind};

/// Why a request goes no further.
#[derive(Debug)]
pub enum Stop {
    /// Refused by the queue, with its truth.
    Refused(Refusal),
    Error {
        status: StatusCode,
        kind: &'static str,
        message: Cow<'static, str>,
    },
    /// Nobody is there to be answered.
    Gone,
}

impl Stop {
    pub fn error(
        status: StatusCode,
        kind: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Stop {
        Stop::Error {
            status,
            kind,
            message: message.into(),
        }
    }

    fn answer(&self, link: &Rc<Link>) -> Response<OutBody> {
        match self {
            Stop::Refused(refusal) => reply::refusal(link, refusal),
            Stop::Error {
                status,
                kind,
                message,
            } => reply::error(link, *status, kind, message),
            Stop::Gone => reply::error(link, StatusCode::BAD_REQUEST, "client_gone", "client gone"),
        }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Stop {
        Stop::Gone
    }
}

/// Where a request goes, as far as its head tells.
struct Destination<'a> {
    handle: Option<&'a Rc<StageHandle>>,
    strip: Option<&'a str>,
    timeout_ms: Option<u64>,
    priority: i32,
}

/// Answers one request by a replica, or says why not.
pub async fn answer(
    door: &Rc<Door>,
    link: &Rc<Link>,
    request: Request<Incoming>,
    request_id: String,
) -> Response<OutBody> {
    match run(door, link, request, request_id).await {
        Ok(response) => response,
        Err(stop) => stop.answer(link),
    }
}

async fn run(
    door: &Rc<Door>,
    link: &Rc<Link>,
    request: Request<Incoming>,
    request_id: String,
) -> Result<Response<OutBody>, Stop> {
    let routing = door.routing();
    let (mut parts, body) = request.into_parts();
    if let Some(response) = models(link, &routing, parts.uri.path()) {
        return Ok(response);
    }
    let destination = destination(&routing, parts.uri.path());
    check_length(&body, &routing)?;
    let mut account = Account::new(door.clone(), request_id);
    let payload = match body {
        body if body.is_end_stream() => Payload::None,
        body if needs_body(&destination, &parts.headers) => {
            Payload::Held(hold(door, &routing, body).await?)
        }
        body => Payload::Stream(body),
    };
    let handle = choose(&routing, &destination, &parts, &payload)?;
    let ask = facts::ask(
        &parts.headers,
        link.origin,
        destination.priority,
        destination.timeout_ms,
        |parent| door.priorities.borrow().get(parent).copied(),
    );
    account.note_priority(ask.priority);
    let uri = forward::target(&parts.uri, destination.strip);
    parts.uri = uri.ok_or_else(|| bad_request("the request target is not valid"))?;
    if session::is_upgrade(&parts) {
        return session::open(door, link, handle, account, parts).await;
    }
    let limit = routing.tables.limits.body_bytes;
    let outgoing = Outgoing {
        parts,
        payload,
        body_limit: limit,
    };
    send::deliver(door, link, handle, account, ask, outgoing).await
}

fn bad_request(message: impl Into<Cow<'static, str>>) -> Stop {
    Stop::error(StatusCode::BAD_REQUEST, "invalid_request_error", message)
}

fn destination<'a>(routing: &'a Routing, path: &str) -> Destination<'a> {
    match routing.by_path(path) {
        Some((route, handle)) => Destination {
            handle: Some(handle),
            strip: prefix_of(route),
            timeout_ms: route.timeout_ms,
            priority: route.priority,
        },
        None => Destination {
            handle: None,
            strip: None,
            timeout_ms: None,
            priority: 0,
        },
    }
}

/// A length that is known is checked before a byte of the body is read.
fn check_length(body: &Incoming, routing: &Routing) -> Result<(), Stop> {
    let limit = routing.tables.limits.body_bytes;
    match body.size_hint().exact() {
        Some(length) if length > limit => Err(too_large(limit)),
        _ => Ok(()),
    }
}

pub fn too_large(limit: u64) -> Stop {
    let message = format!("the body is larger than limits.body_bytes ({limit} bytes)");
    Stop::error(
        StatusCode::PAYLOAD_TOO_LARGE,
        "invalid_request_error",
        message,
    )
}

/// Whether the body must be read before the stage is known, or for what the stage must know of it.
fn needs_body(destination: &Destination<'_>, headers: &HeaderMap) -> bool {
    match destination.handle {
        None => is_json(headers) || is_multipart(headers),
        Some(handle) => {
            let renames = handle
                .table
                .replicas
                .iter()
                .any(|replica| replica.model.is_some());
            (renames || handle.table.kv_tokens.is_some()) && is_json(headers)
        }
    }
}

fn content_type_is(headers: &HeaderMap, expected: &str) -> bool {
    let value = headers
        .get(CONTENT_TYPE)
        .map(|value| value.as_bytes())
        .unwrap_or_default();
    value
        .get(..expected.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(expected.as_bytes()))
}

pub fn is_json(headers: &HeaderMap) -> bool {
    content_type_is(headers, "application/json")
}

fn is_multipart(headers: &HeaderMap) -> bool {
    content_type_is(headers, "multipart/form-data")
}

async fn hold(door: &Rc<Door>, routing: &Routing, body: Incoming) -> Result<Held, Stop> {
    let limits = &routing.tables.limits;
    buffer::read(door, body)
        .await
        .map_err(|unread| match unread {
            Unread::TooLarge => too_large(limits.body_bytes),
            Unread::NoBudget => Stop::Refused(Refusal {
                kind: RefusalKind::Overload,
                expected_wait_ns: None,
                retry_after_ms: fastrand::u64(1000..2000),
                waited_ns: 0,
                detail: "the bodies held now fill limits.body_budget_bytes",
            }),
            Unread::Broken => Stop::Gone,
        })
}

/// By path, else by model, else the only stage.
fn choose<'a>(
    routing: &'a Routing,
    destination: &Destination<'a>,
    parts: &Parts,
    payload: &Payload,
) -> Result<&'a Rc<StageHandle>, Stop> {
    if let Some(handle) = destination.handle {
        return Ok(handle);
    }
    let model = model_of(parts, payload);
    if let Some(handle) = model.as_deref().and_then(|model| routing.by_model(model)) {
        return Ok(handle);
    }
    if let Some(handle) = routing
        .only()
        .filter(|h| model.is_none() || h.table.models.is_empty())
    {
        return Ok(handle);
    }
    let known = routing.model_names();
    Err(match model {
        Some(model) => Stop::error(
            StatusCode::NOT_FOUND,
            "model_not_found",
            format!("model {model:?} is not served here: one of {known:?}"),
        ),
        None => Stop::error(
            StatusCode::NOT_FOUND,
            "not_found",
            format!(
                "no route names {:?}, and the request names no model",
                parts.uri.path()
            ),
        ),
    })
}

fn model_of(parts: &Parts, payload: &Payload) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        model: String,
    }
    match payload {
        Payload::Held(held) => serde_json::from_slice::<Named>(&held.bytes)
            .ok()
            .map(|named| named.model),
        _ => {
            let pairs = parts.uri.query().unwrap_or_default().split('&');
            pairs
                .filter_map(|pair| pair.strip_prefix("model="))
                .map(str::to_owned)
                .next()
        }
    }
}
