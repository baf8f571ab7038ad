//! WebSocket sessions: they hold no slot and never queue; their compute is per-turn calls that take
//! slots.

use std::rc::Rc;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};

use crate::account::{Account, Ending};
use crate::clock::now_ns;
use crate::facts;
use crate::forward;
use crate::io::link::Link;
use crate::io::sending::SendBody;
use crate::io::tokens::has_token;
use crate::io::upstream::Upstream;
use crate::pool::Backend;
use crate::proxy::Stop;
use crate::queue::{Fault, Outcome, SessionPermit};
use crate::relay::{Bounds, Relay};
use crate::reply::OutBody;
use crate::send::{REPLICA, prepare};
use crate::websocket::Tunnel;

/// Whether the client asks for a WebSocket. Any other upgrade is ignored, as RFC 9110 allows.
pub fn is_upgrade(parts: &Parts) -> bool {
    parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && has_token(&parts.headers, &UPGRADE, "websocket")
        && has_token(&parts.headers, &CONNECTION, "upgrade")
}

/// Opens a session on a replica; the answer is its 101, or whatever it says instead.
pub async fn open(
    link: &Rc<Link>,
    mut account: Box<Account>,
    parts: Parts,
) -> Result<Response<OutBody>, Stop> {
    match connect(link, &mut account, parts).await {
        Ok((session, backend, answered)) => {
            let id = backend.id.clone();
            let mut answer = reply_with(link, account, session, backend, answered);
            answer.headers_mut().insert(REPLICA, id);
            Ok(answer)
        }
        Err(stop) => {
            account.stopped(&stop);
            Err(stop)
        }
    }
}

type Answered = (Upstream, Response<()>);

async fn connect(
    link: &Rc<Link>,
    account: &mut Account,
    mut parts: Parts,
) -> Result<(SessionPermit, Rc<Backend>, Answered), Stop> {
    let session = account.handle.stage.open_session(
        facts::session(&parts.headers).map(facts::session_key),
        now_ns(),
    )?;
    let backend = account.door.pool.backend(session.replica());
    account.connected(&session, &backend);
    prepare(&mut parts.headers, &account.request_id);
    forward::to_replica(&mut parts.headers, &backend, true);
    bounds(account).arm(link, now_ns());
    match shake_hands(link, &backend, parts).await {
        Ok(answered) => Ok((session, backend, answered)),
        Err(fault) => {
            session.finish(Outcome::Failed(fault), now_ns());
            account.end(Ending::Failed(fault));
            let message = "the replica did not answer the WebSocket handshake";
            Err(Stop::error(
                StatusCode::BAD_GATEWAY,
                "upstream_error",
                message,
            ))
        }
    }
}

fn bounds(account: &Account) -> Bounds {
    let idle_ms = account.handle.table.stream_idle_timeout_ms;
    Bounds {
        idle_ns: idle_ms.saturating_mul(1_000_000),
        end_ns: u64::MAX,
    }
}

fn reply_with(
    link: &Rc<Link>,
    account: Box<Account>,
    session: SessionPermit,
    backend: Rc<Backend>,
    (upstream, response): Answered,
) -> Response<OutBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let (parts, ()) = response.into_parts();
        switch(link, account, session, upstream, parts.headers)
    } else {
        decline(link, account, session, backend, upstream, response)
    }
}

async fn shake_hands(
    link: &Rc<Link>,
    backend: &Backend,
    parts: Parts,
) -> Result<(Upstream, Response<()>), Fault> {
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

fn switch(
    link: &Rc<Link>,
    mut account: Box<Account>,
    session: SessionPermit,
    upstream: Upstream,
    mut headers: HeaderMap,
) -> Response<OutBody> {
    account.answered(StatusCode::SWITCHING_PROTOCOLS, None);
    let (sock, first) = upstream.into_raw();
    let tunnel = Tunnel {
        door: account.door.clone(),
        upstream: sock,
        first,
        session,
        idle_ns: bounds(&account).idle_ns,
        account,
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
    mut account: Box<Account>,
    session: SessionPermit,
    backend: Rc<Backend>,
    upstream: Upstream,
    response: Response<()>,
) -> Response<OutBody> {
    session.finish(Outcome::Completed, now_ns());
    let (parts, ()) = response.into_parts();
    account.answered(parts.status, None);
    let bounds = bounds(&account);
    let relay = Relay::new(upstream, backend, account, link.clone(), bounds, false);
    let mut answer = Response::new(OutBody::relay(link, relay));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = parts.headers;
    forward::strip_hop_by_hop(answer.headers_mut());
    answer
}
