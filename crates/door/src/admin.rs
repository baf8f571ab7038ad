//! The admin listener: tables in, state and events out.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::auth::AdminError;
use crate::clock::now_ns;
use crate::door::{Door, Phase, Refused};
use crate::io::link::{Link, Origin, Waiting};
use crate::metrics::CONTENT_TYPE;
use crate::reply::{self, BodyError, OutBody};

/// Tables of ten thousand replicas are smaller than this.
const MAX_TABLES_BYTES: usize = 16 << 20;
/// Requests that `/recent` tells of when it is not asked for a number.
const DEFAULT_RECENT: usize = 20;

/// Answers one admin request.
pub async fn answer(
    door: &Rc<Door>,
    link: &Rc<Link>,
    request: Request<Incoming>,
) -> Response<OutBody> {
    if link.origin == Origin::AdminPort
        && let Err(error) = guard(door, request.headers())
    {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::FORBIDDEN);
        return reply::error(link, status, "forbidden", &error.to_string());
    }
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    match (method, path.as_str()) {
        (Method::GET, "/healthz") => reply::json(link, StatusCode::OK, &health(door)),
        (Method::GET, "/state") => reply::json(link, StatusCode::OK, &state(door)),
        (Method::GET, "/events") => events(door, link, request.uri().query()),
        (Method::PUT, "/tables") => put_tables(door, link, request.into_body()).await,
        (Method::POST, "/drain") => {
            door.drain.notify_one();
            reply::json(link, StatusCode::ACCEPTED, &json!({"draining": true}))
        }
        (Method::GET, "/metrics") => {
            reply::typed(link, StatusCode::OK, CONTENT_TYPE, metrics(door))
        }
        (Method::GET, "/recent") => recent(door, link, request.uri().query()),
        (Method::GET, path) if path.starts_with("/why/") => why(door, link, &path[5..]),
        (_, "/healthz" | "/state" | "/events" | "/metrics" | "/recent") => {
            wrong_method(link, "GET")
        }
        (_, "/tables") => wrong_method(link, "PUT"),
        (_, "/drain") => wrong_method(link, "POST"),
        _ => reply::error(
            link,
            StatusCode::NOT_FOUND,
            "not_found",
            "no such admin request",
        ),
    }
}

fn guard(door: &Door, headers: &HeaderMap) -> Result<(), AdminError> {
    let value = |name| headers.get(name).map(HeaderValue::as_bytes);
    door.admin_guard
        .borrow()
        .check(value(HOST), value(ORIGIN), value(AUTHORIZATION))
}

fn metrics(door: &Door) -> String {
    let now = now_ns();
    for handle in door.routing().stages.values() {
        handle.metrics.levels(&handle.stage.snapshot(now));
    }
    door.metrics
        .connections
        .set(i64::try_from(door.num_connections()).unwrap_or(i64::MAX));
    door.metrics
        .body_bytes
        .set(i64::try_from(door.body_bytes.get()).unwrap_or(i64::MAX));
    door.metrics.encode()
}

fn recent(door: &Door, link: &Rc<Link>, query: Option<&str>) -> Response<OutBody> {
    let pairs = query.unwrap_or_default().split('&');
    let limit = pairs
        .filter_map(|pair| pair.strip_prefix("limit=")?.parse().ok())
        .next();
    let views = door
        .history
        .recent(limit.unwrap_or(DEFAULT_RECENT), now_ns());
    reply::json(
        link,
        StatusCode::OK,
        &serde_json::to_value(views).unwrap_or_default(),
    )
}

fn why(door: &Door, link: &Rc<Link>, id: &str) -> Response<OutBody> {
    match door.history.why(id, now_ns()) {
        Some(view) => reply::json(
            link,
            StatusCode::OK,
            &serde_json::to_value(view).unwrap_or_default(),
        ),
        None => {
            let message = "this request is not among those remembered";
            reply::error(link, StatusCode::NOT_FOUND, "not_found", message)
        }
    }
}

fn wrong_method(link: &Rc<Link>, allowed: &'static str) -> Response<OutBody> {
    let message = format!("the method must be {allowed}");
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let mut response = reply::error(link, status, "invalid_request_error", &message);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn health(door: &Door) -> Value {
    json!({
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "tables_version": door.routing().tables.version,
        "draining": door.phase.get() != Phase::Serving,
    })
}

fn state(door: &Door) -> Value {
    let now = now_ns();
    let routing = door.routing();
    let stages = routing.stages.iter().map(|(name, handle)| {
        let snapshot = handle.stage.snapshot(now);
        (
            name.clone(),
            serde_json::to_value(snapshot).unwrap_or_default(),
        )
    });
    Value::Object(stages.collect())
}

async fn put_tables(door: &Rc<Door>, link: &Rc<Link>, body: Incoming) -> Response<OutBody> {
    let collected = Limited::new(body, MAX_TABLES_BYTES).collect().await;
    let Ok(collected) = collected else {
        let message =
            format!("the tables did not come whole, or are over {MAX_TABLES_BYTES} bytes");
        return reply::error(
            link,
            StatusCode::BAD_REQUEST,
            "invalid_request_error",
            &message,
        );
    };
    match door.apply(&collected.to_bytes()) {
        Ok(version) => reply::json(link, StatusCode::OK, &json!({"version": version})),
        Err(Refused::Invalid(error)) => {
            let kind = "invalid_request_error";
            reply::error(link, StatusCode::BAD_REQUEST, kind, &error.to_string())
        }
        Err(Refused::Older(in_force)) => {
            let message =
                format!("tables of version {in_force} are in force: send a newer version");
            reply::error(link, StatusCode::CONFLICT, "conflict", &message)
        }
    }
}

fn events(door: &Rc<Door>, link: &Rc<Link>, query: Option<&str>) -> Response<OutBody> {
    let pairs = query.unwrap_or_default().split('&');
    let since = pairs
        .filter_map(|pair| pair.strip_prefix("since=")?.parse().ok())
        .next();
    link.wait_for(Waiting::Nothing, u64::MAX);
    let feed = Feed {
        door: door.clone(),
        next: next_events(door.clone(), since.unwrap_or(0)),
    };
    let mut response = Response::new(OutBody::feed(link, Box::pin(feed)));
    let headers = response.headers_mut();
    headers.insert(
        "content-type",
        HeaderValue::from_static("application/x-ndjson"),
    );
    response
}

type Next = Pin<Box<dyn Future<Output = (Bytes, u64)>>>;

fn next_events(door: Rc<Door>, since: u64) -> Next {
    Box::pin(async move { door.events.after(since).await })
}

/// The events as they come; it ends with the door.
struct Feed {
    door: Rc<Door>,
    next: Next,
}

impl Body for Feed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.door.phase.get() >= Phase::Closing {
            return Poll::Ready(None);
        }
        let (lines, seq) = ready!(self.next.as_mut().poll(cx));
        self.next = next_events(self.door.clone(), seq);
        Poll::Ready(Some(Ok(Frame::data(lines))))
    }
}
