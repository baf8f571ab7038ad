//! WebSocket sessions: they hold no slot and never queue; their compute is per-turn calls that take slots.

use std::rc::Rc;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use crate::account::Account;
use crate::clock::now_ns;
use crate::door::Door;
use crate::forward;
use crate::io::body::SendBody;
use crate::io::link::Link;
use crate::io::upstream::Upstream;
use crate::pool::Backend;
use crate::proxy::Stop;
use crate::queue::{Fault, Outcome, SessionPermit};
use crate::relay::{Bounds, Relay};
use crate::reply::OutBody;
use crate::routes::StageHandle;
use crate::send::{REPLICA, prepare};
use crate::websocket::Tunnel;

/// Whether the client asks for a WebSocket. Any other upgrade is ignored, as RFC 9110 allows.
pub fn is_upgrade(parts: &Parts) -> bool {
    parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && forward::has_token(&parts.headers, &UPGRADE, "websocket")
        && forward::has_token(&parts.headers, &CONNECTION, "upgrade")
}

/// Opens a session on a replica; the answer is its 101, or whatever it says instead.
pub async fn open(
    door: &Rc<Door>,
    link: &Rc<Link>,
    handle: &Rc<StageHandle>,
    account: Account,
    mut parts: Parts,
) -> Result<Response<OutBody>, Stop> {
    let session = handle.stage.open_session(now_ns())?;
    let backend = door.pool.backend(session.replica());
    prepare(&mut parts.headers, &account.request_id);
    forward::to_replica(&mut parts.headers, &backend, false, true);
    let bounds = Bounds {
        idle_ns: handle
            .table
            .stream_idle_timeout_ms
            .saturating_mul(1_000_000),
        end_ns: u64::MAX,
    };
    bounds.arm(link, now_ns());
    let (upstream, response) = match shake_hands(link, &backend, parts).await {
        Ok(answered) => answered,
        Err(fault) => {
            session.finish(Outcome::Failed(fault), now_ns());
            let message = "the replica did not answer the WebSocket handshake";
            return Err(Stop::error(
                StatusCode::BAD_GATEWAY,
                "upstream_error",
                message,
            ));
        }
    };
    let mut answer = match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            let (headers, _) = {
                let (parts, body) = response.into_parts();
                (parts.headers, body)
            };
            switch(door, link, account, session, upstream, headers, bounds).await
        }
        _ => decline(
            link,
            account,
            session,
            backend.clone(),
            upstream,
            response,
            bounds,
        ),
    };
    answer.headers_mut().insert(REPLICA, backend.id.clone());
    Ok(answer)
}

async fn shake_hands(
    link: &Rc<Link>,
    backend: &Backend,
    parts: Parts,
) -> Result<(Upstream, Response<Incoming>), Fault> {
    // Always a new connection: it never comes back to the pool.
    let mut upstream = backend.connect().await.map_err(|_| Fault::Connect)?;
    let mut request = Request::new(SendBody::Empty);
    *request.uri_mut() = parts.uri;
    *request.headers_mut() = parts.headers;
    match upstream.exchange(request, || link.expired()).await {
        Ok(Ok(response)) => Ok((upstream, response)),
        Ok(Err(_)) => Err(Fault::Broken),
        Err(_) => Err(Fault::Stalled),
    }
}

async fn switch(
    door: &Rc<Door>,
    link: &Rc<Link>,
    account: Account,
    session: SessionPermit,
    upstream: Upstream,
    mut headers: http::HeaderMap,
    bounds: Bounds,
) -> Response<OutBody> {
    let (sock, first) = upstream.into_raw().await;
    let tunnel = Tunnel {
        door: door.clone(),
        upstream: sock,
        first,
        session,
        account,
        idle_ns: bounds.idle_ns,
    };
    *link.tunnel.borrow_mut() = Some(tunnel);
    forward::strip_hop_by_hop(&mut headers);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let mut answer = Response::new(OutBody::full(link, ""));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = headers;
    answer
}

/// The replica answered with something else: that goes to the client as it is.
fn decline(
    link: &Rc<Link>,
    mut account: Account,
    session: SessionPermit,
    backend: Rc<Backend>,
    upstream: Upstream,
    response: Response<Incoming>,
    bounds: Bounds,
) -> Response<OutBody> {
    session.finish(Outcome::Completed, now_ns());
    let (parts, body) = response.into_parts();
    account.answered(false, false);
    let relay = Relay::new(upstream, body, backend, account, link.clone(), bounds);
    let mut answer = Response::new(OutBody::relay(link, relay));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = parts.headers;
    forward::strip_hop_by_hop(answer.headers_mut());
    answer
}
