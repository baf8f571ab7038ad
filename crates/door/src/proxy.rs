//! The way of one request to a replica and of its answer back, phase by phase.

use std::borrow::Cow;
use std::rc::Rc;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use crate::account::Account;
use crate::admit::Gone;
use crate::body_model::{self, Facts};
use crate::buffer::{self, Held, Unread};
use crate::door::Door;
use crate::facts;
use crate::forward::{self, RequestId};
use crate::io::link::{Link, Origin};
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

    /// What the client is told; None: nobody is there to be told.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Stop::Refused(refusal) => StatusCode::from_u16(refusal.status()).ok(),
            Stop::Error { status, .. } => Some(*status),
            Stop::Gone => None,
        }
    }

    fn answer(&self, link: &Rc<Link>) -> Response<OutBody> {
        match self {
            Stop::Refused(refusal) => reply::refusal(link, refusal),
            Stop::Error {
                status,
                kind,
                message,
            } => {
                let mut response = reply::error(link, *status, kind, message);
                if *status == StatusCode::UNAUTHORIZED {
                    let scheme = HeaderValue::from_static("Bearer");
                    response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
                }
                response
            }
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
    frame_us: Option<u64>,
    priority: i32,
}

/// Answers one request by a replica, or says why not.
pub async fn answer(
    door: &Rc<Door>,
    link: &Rc<Link>,
    request: Box<Request<Incoming>>,
    request_id: RequestId,
) -> Response<OutBody> {
    match run(door, link, request, request_id).await {
        Ok(response) => response,
        Err(stop) => {
            if let Stop::Error { kind, .. } = &stop {
                door.metrics.http_refused(kind);
            }
            stop.answer(link)
        }
    }
}

async fn run(
    door: &Rc<Door>,
    link: &Rc<Link>,
    request: Box<Request<Incoming>>,
    request_id: RequestId,
) -> Result<Response<OutBody>, Stop> {
    let routing = door.routing();
    let (mut parts, body) = request.into_parts();
    if link.origin == Origin::Public {
        authenticate(&routing, &parts.headers)?;
    }
    let destination = match called(link, &routing, &parts.headers)? {
        Some(destination) => destination,
        None => {
            if let Some(response) = models(link, &routing, parts.uri.path()) {
                return Ok(response);
            }
            destination(&routing, parts.uri.path())
        }
    };
    let whole = link.body.take().map(|bytes| Held::uncharged(door, bytes));
    check_length(&body, whole.as_ref(), &routing)?;
    let (payload, facts) = take_body(door, &routing, &destination, &parts, (whole, body)).await?;
    let is_upgrade = session::is_upgrade(&parts);
    if is_upgrade && !matches!(payload, Payload::None) {
        return Err(bad_request("a WebSocket handshake has no body"));
    }
    let handle = choose(&routing, &destination, &parts, &facts)?;
    let mut ask = facts::ask(
        &parts.headers,
        link.origin,
        destination.priority,
        destination.timeout_ms,
        |parent| held_priority(door, parent),
    );
    if handle.table.kv_tokens.is_some() {
        ask.tokens = facts.tokens();
    }
    let mut account = Account::new(door, handle, &parts, request_id);
    account.set_frame(destination.frame_us);
    account.life.set_priority(ask.priority);
    if ask.session.is_some() {
        let name = facts::session(&parts.headers);
        name.into_iter()
            .for_each(|name| account.life.set_session(name));
    }
    let uri = forward::target(&parts.uri, destination.strip);
    parts.uri = uri.ok_or_else(|| bad_request("the request target is not valid"))?;
    if is_upgrade {
        return session::open(link, account, parts).await;
    }
    let body_limit = routing.tables.limits.body_bytes;
    let outgoing = Outgoing::new(parts, payload, facts.model_span, body_limit);
    send::deliver(link, account, ask, outgoing).await
}

fn authenticate(routing: &Routing, headers: &HeaderMap) -> Result<(), Stop> {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    match routing.keys.check(given) {
        Ok(_) => Ok(()),
        Err(error) => {
            let status = StatusCode::UNAUTHORIZED;
            Err(Stop::error(
                status,
                "authentication_error",
                error.to_string(),
            ))
        }
    }
}

/// The priority of a request that holds a slot now; None: there is none of that id.
fn held_priority(door: &Door, id: &str) -> Option<i32> {
    let life = door.history.live(id)?;
    life.is_admitted().then(|| life.priority())
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
            frame_us: route.frame_us,
            priority: route.priority,
        },
        None => Destination {
            handle: None,
            strip: None,
            timeout_ms: None,
            frame_us: None,
            priority: 0,
        },
    }
}

/// Where a stage's call goes: the stage that it names, whatever the path.
fn called<'a>(
    link: &Link,
    routing: &'a Routing,
    headers: &HeaderMap,
) -> Result<Option<Destination<'a>>, Stop> {
    if link.origin != Origin::Internal {
        return Ok(None);
    }
    let Some(name) = headers.get(forward::STAGE) else {
        return Ok(None);
    };
    let handle = name.to_str().ok().and_then(|name| routing.stages.get(name));
    let Some(handle) = handle else {
        let known: Vec<_> = routing.stages.keys().collect();
        let message = format!("there is no stage {name:?}: one of {known:?}");
        return Err(Stop::error(StatusCode::NOT_FOUND, "not_found", message));
    };
    Ok(Some(Destination {
        handle: Some(handle),
        strip: None,
        timeout_ms: None,
        frame_us: None,
        priority: 0,
    }))
}

/// A length that is known is checked before a byte of the body is read.
fn check_length(body: &Incoming, whole: Option<&Held>, routing: &Routing) -> Result<(), Stop> {
    let limit = routing.tables.limits.body_bytes;
    let length = whole.map(|held| held.bytes.len() as u64);
    match length.or(body.size_hint().exact()) {
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

/// The body, read where its stage or its size in tokens must be known first, and what it says. `whole`:
/// it has come already, and hyper has none of it.
async fn take_body(
    door: &Rc<Door>,
    routing: &Routing,
    destination: &Destination<'_>,
    parts: &Parts,
    (whole, body): (Option<Held>, Incoming),
) -> Result<(Payload, Facts), Stop> {
    let headers = &parts.headers;
    let is_json = content_type_is(headers, "application/json");
    let is_multipart = content_type_is(headers, "multipart/form-data");
    let needs_json = destination
        .handle
        .is_none_or(|handle| handle.reads_bodies());
    let needs_form = destination.handle.is_none();
    let is_read = is_json && needs_json || is_multipart && needs_form;
    let held = match whole {
        None if body.is_end_stream() => return Ok((Payload::None, query_facts(parts)?)),
        None if !is_read => return Ok((Payload::Stream(body), query_facts(parts)?)),
        Some(held) if !is_read => return Ok((Payload::Held(held), query_facts(parts)?)),
        Some(mut held) => held.charge().map(|()| held),
        None => buffer::read(door, body).await,
    };
    let held = held.map_err(|unread| unheld(unread, routing))?;
    let read = if is_json {
        body_model::from_json(&held.bytes)
    } else {
        let content_type = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        body_model::from_multipart(&held.bytes, content_type.unwrap_or_default())
    };
    match read {
        Ok(facts) => Ok((Payload::Held(held), facts)),
        // Where the path decides, a body that only the replica understands is the replica's
        // business.
        Err(_) if destination.handle.is_some() => Ok((Payload::Held(held), Facts::default())),
        Err(error) => Err(bad_request(error.to_string())),
    }
}

fn query_facts(parts: &Parts) -> Result<Facts, Stop> {
    let query = parts.uri.query().unwrap_or_default();
    let model = body_model::from_query(query).map_err(|error| bad_request(error.to_string()))?;
    Ok(Facts {
        model,
        ..Facts::default()
    })
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

fn unheld(unread: Unread, routing: &Routing) -> Stop {
    match unread {
        Unread::TooLarge => too_large(routing.tables.limits.body_bytes),
        Unread::NoBudget => Stop::Refused(Refusal {
            kind: RefusalKind::Overload,
            expected_wait_ns: None,
            retry_after_ms: fastrand::u64(1000..2000),
            waited_ns: 0,
            detail: "the bodies held now fill limits.body_budget_bytes",
            cause: None,
        }),
        Unread::Broken => Stop::Gone,
    }
}

/// By path, else by model, else the only stage.
fn choose<'a>(
    routing: &'a Routing,
    destination: &Destination<'a>,
    parts: &Parts,
    facts: &Facts,
) -> Result<&'a Rc<StageHandle>, Stop> {
    if let Some(handle) = destination.handle {
        return Ok(handle);
    }
    let model = facts.model.as_deref();
    if let Some(handle) = model.and_then(|model| routing.by_model(model)) {
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
