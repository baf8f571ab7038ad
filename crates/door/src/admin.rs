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
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::clock::now_ns;
use crate::door::{Door, Phase, Refused};
use crate::io::link::{Link, Origin, Waiting};
use crate::reply::{self, BodyError, OutBody};

/// Tables of ten thousand replicas are smaller than this.
const MAX_TABLES_BYTES: usize = 16 << 20;

/// Who may ask on the admin port.
#[derive(Debug, Default)]
pub struct Gatekeeper {
    /// SHA-256 of the token; None: no token is asked for.
    token: Option<[u8; 32]>,
    /// The Host values that are believed; a browser led here by another name (DNS rebinding) sends that name.
    hosts: Vec<String>,
}

impl Gatekeeper {
    /// For a port that listens on `host`. Without a token it must be on loopback.
    ///
    /// # Errors
    /// No token, and the port can be reached from elsewhere.
    pub fn new(host: &str, is_local: bool, token: Option<&str>) -> Result<Gatekeeper, String> {
        if !is_local && token.is_none() {
            return Err(format!(
                "--admin-tcp {host}: an address that is not loopback needs --admin-token-file"
            ));
        }
        let token = token.map(|token| Sha256::digest(token.trim().as_bytes()).into());
        let hosts = ["localhost", "127.0.0.1", "[::1]", host]
            .map(str::to_owned)
            .to_vec();
        Ok(Gatekeeper { token, hosts })
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let host = headers
            .get(HOST)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        if !self
            .hosts
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
        {
            return Err("the Host header does not name this listener");
        }
        // A browser sends Origin with what another page started; no tool of ours does.
        if headers.contains_key(ORIGIN) {
            return Err("requests with an Origin header are not served");
        }
        let Some(token) = &self.token else {
            return Ok(());
        };
        let given = headers
            .get(AUTHORIZATION)
            .map(HeaderValue::as_bytes)
            .unwrap_or_default();
        let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(given).into();
        if bool::from(digest.ct_eq(token)) {
            Ok(())
        } else {
            Err("the token is wrong or missing")
        }
    }
}

/// Answers one admin request.
pub async fn answer(
    door: &Rc<Door>,
    link: &Rc<Link>,
    request: Request<Incoming>,
) -> Response<OutBody> {
    if link.origin == Origin::AdminPort
        && let Err(reason) = door.gatekeeper.borrow().check(request.headers())
    {
        return reply::error(link, StatusCode::FORBIDDEN, "forbidden", reason);
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
        (_, "/healthz" | "/state" | "/events") => wrong_method(link, "GET"),
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
        if self.door.phase.get() == Phase::Closing {
            return Poll::Ready(None);
        }
        let (lines, seq) = ready!(self.next.as_mut().poll(cx));
        self.next = next_events(self.door.clone(), seq);
        Poll::Ready(Some(Ok(Frame::data(lines))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keeper: &Gatekeeper, fields: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        keeper.check(&headers).is_ok()
    }

    #[test]
    fn a_foreign_host_or_any_origin_is_refused_and_the_token_is_asked_for() {
        let open = Gatekeeper::new("127.0.0.1", true, None).unwrap();
        assert!(check(&open, &[("host", "127.0.0.1:9000")]));
        assert!(check(&open, &[("host", "LOCALHOST")]));
        assert!(!check(&open, &[("host", "evil.example:9000")]));
        assert!(!check(&open, &[]));
        assert!(!check(
            &open,
            &[("host", "localhost"), ("origin", "http://localhost")]
        ));
        let closed = Gatekeeper::new("10.0.0.1", false, Some("secret\n")).unwrap();
        let host = ("host", "10.0.0.1:1");
        assert!(check(&closed, &[host, ("authorization", "Bearer secret")]));
        assert!(!check(&closed, &[host, ("authorization", "Bearer secre")]));
        assert!(!check(&closed, &[host]));
    }

    #[test]
    fn a_port_that_others_reach_needs_a_token() {
        assert!(Gatekeeper::new("0.0.0.0", false, None).is_err());
    }
}
