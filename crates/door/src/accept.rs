//! Connections: accepted, served by hyper behind the gate, ended for a reason.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::clock::refresh_ns;
use crate::door::Door;
use crate::io::gate::{Gate, GateLimits};
use crate::io::head::Reject;
use crate::io::link::{Link, Origin, Waiting};
use crate::io::listen::Listener;
use crate::io::sock::Sock;
use crate::reply::{self, OutBody};
use crate::websocket::Tunnel;
use crate::{admin, service};

/// How long a refused client may go on sending before its socket is closed over it.
const LINGER: Duration = Duration::from_secs(1);
/// hyper's buffers grow to this under load; heads are bounded by the gate.
const BUFFER_BYTES: usize = 64 << 10;
/// When descriptors ran out, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Accepts until the listener's time is over.
pub async fn accept(
    door: Rc<Door>,
    listener: Listener,
    origin: Origin,
    tls: Option<crate::tls::Acceptor>,
) {
    loop {
        let (sock, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let limit = door.routing().tables.limits.connections;
        // A stage's call is for a request that has a place already: refused for want of one, the
        // pipeline would wait for itself.
        let is_full = origin == Origin::Public && door.num_connections() >= limit;
        let (seat, door, tls) = (door.seat(), door.clone(), tls.clone());
        let counting = door.clone();
        let connection = async move {
            let _seat = seat;
            let Some(sock) = crate::tls::accept(tls, sock, &door).await else {
                return;
            };
            if is_full {
                return turn_away(sock).await;
            }
            let alarm = door.alarms.take();
            serve(door, Rc::new(Link::new(sock, origin, peer, alarm))).await;
        };
        tokio::task::spawn_local(alone(counting, connection));
    }
}

/// A panic ends this connection alone: what it held is given back as it unwinds, and it is counted.
///
/// No async function: it would hold the connection's state twice.
fn alone(door: Rc<Door>, connection: impl Future<Output = ()>) -> impl Future<Output = ()> {
    let caught = AssertUnwindSafe(connection).catch_unwind();
    caught.map(move |ended| {
        if ended.is_err() {
            door.metrics.panics.inc();
        }
    })
}

/// The connection limit is reached: said aloud, because a time-out must not be the first signal.
async fn turn_away(mut sock: Sock) {
    let answer = reply::raw(
        StatusCode::SERVICE_UNAVAILABLE,
        "unavailable",
        "the door holds limits.connections connections; retry after 1 s",
        "retry-after: 1\r\n",
    );
    let _ = sock.write_all(answer.as_bytes()).await;
    Box::pin(linger(&mut sock)).await;
}

/// hyper's service: each request becomes one future, dropped when the client leaves.
struct Requests {
    door: Rc<Door>,
    link: Rc<Link>,
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<OutBody>, Infallible>>>>;

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response<OutBody>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        let (door, link) = (self.door.clone(), self.link.clone());
        if link.origin.is_admin() {
            return Box::pin(async move { Ok(admin::answer(&door, &link, request).await) });
        }
        // Boxed: each layer of futures that it goes through would hold it twice.
        let request = Box::new(request);
        Box::pin(async move { Ok(service::answer(&door, &link, request).await) })
    }
}

type Server = http1::Connection<TokioIo<Gate>, Requests>;

/// Why a connection's service is over.
enum End {
    /// hyper is done: closed, or (with a tunnel waiting) switched to another protocol.
    Done,
    /// The client left, or an answer could not be finished.
    Broken,
    Rejected(Reject),
    Silent,
}

/// Serves one connection to its end.
///
/// What each part of it needs is allocated when it begins: hyper and its buffers take 20 kB, and a
/// client that is slow with its first head has no use for them yet.
pub async fn serve(door: Rc<Door>, link: Rc<Link>) {
    let _guard = door.enlist(link.clone());
    let limits = &door.routing().tables.limits;
    let limits = GateLimits {
        head_bytes: limits.head_bytes,
        head_timeout_ns: limits.head_timeout_ms * 1_000_000,
        body_timeout_ns: limits.body_timeout_ms * 1_000_000,
    };
    let mut gate = Gate::new(link.clone(), limits);
    let mut is_told = false;
    let first = poll_fn(|cx| poll_first(&door, &link, &mut gate, &mut is_told, cx)).await;
    let (gate, end) = match first {
        Some(end) => (gate, end),
        None => Box::pin(serve_http(&door, &link, gate, limits)).await,
    };
    Box::pin(finish(link, gate, end)).await;
}

/// Until the first head is whole (None) or the connection ends without one.
fn poll_first(
    door: &Door,
    link: &Link,
    gate: &mut Gate,
    is_told: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Option<End>> {
    begin_turn(link, cx);
    let polled = gate.poll_head(cx);
    if let Some(reject) = link.reject.borrow_mut().take() {
        return Poll::Ready(Some(End::Rejected(reject)));
    }
    match polled {
        Poll::Ready(Ok(true)) => Poll::Ready(None),
        Poll::Ready(Ok(false)) => Poll::Ready(Some(End::Done)),
        Poll::Ready(Err(_)) => Poll::Ready(Some(End::Broken)),
        // A request that has come is answered even now; of a connection just accepted that is not known
        // before the next turn, for which the drain wakes it.
        Poll::Pending if door.is_closing(link.origin) && std::mem::replace(is_told, true) => {
            Poll::Ready(Some(End::Done))
        }
        Poll::Pending => overdue(link).map_or(Poll::Pending, |end| Poll::Ready(Some(end))),
    }
}

/// Hands the connection to hyper, until it is done with it.
async fn serve_http(
    door: &Rc<Door>,
    link: &Rc<Link>,
    gate: Gate,
    limits: GateLimits,
) -> (Gate, End) {
    let service = Requests {
        door: door.clone(),
        link: link.clone(),
    };
    let mut server = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES.max(limits.head_bytes + (8 << 10)))
        .serve_connection(TokioIo::new(gate), service);
    let mut is_told = false;
    let end = poll_fn(|cx| poll(door, link, &mut server, &mut is_told, cx)).await;
    (server.into_parts().io.into_inner(), end)
}

fn begin_turn(link: &Link, cx: &Context<'_>) {
    refresh_ns();
    if !link.waker.borrow().will_wake(cx.waker()) {
        *link.waker.borrow_mut() = cx.waker().clone();
    }
}

fn poll(
    door: &Door,
    link: &Link,
    server: &mut Server,
    is_told: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<End> {
    begin_turn(link, cx);
    let mut polled = server.poll_without_shutdown(cx);
    // Told before it has read, hyper would close over a request that has come.
    let is_closing = polled.is_pending() && door.is_closing(link.origin);
    if is_closing && !std::mem::replace(is_told, true) {
        Pin::new(&mut *server).graceful_shutdown();
        polled = server.poll_without_shutdown(cx);
    }
    if let Some(reject) = link.reject.borrow_mut().take() {
        return Poll::Ready(End::Rejected(reject));
    }
    if let Poll::Ready(done) = polled {
        return Poll::Ready(if done.is_ok() { End::Done } else { End::Broken });
    }
    overdue(link).map_or(Poll::Pending, Poll::Ready)
}

/// How the connection ends when its wait is over, unless the request sees to that.
fn overdue(link: &Link) -> Option<End> {
    let message = match link.expired()? {
        Waiting::Idle => return Some(End::Silent),
        Waiting::Head if link.bytes_in.get() == 0 => return Some(End::Silent),
        Waiting::Head => "the request head did not come within limits.head_timeout_ms",
        Waiting::Body => "the request body stood still for limits.body_timeout_ms",
        // The relay was not asked, or it would have begun another wait: the client does not read.
        Waiting::Upstream | Waiting::Whole if link.is_answering.get() => return Some(End::Silent),
        _ => return None,
    };
    Some(End::Rejected(Reject {
        status: StatusCode::REQUEST_TIMEOUT,
        message,
    }))
}

async fn finish(link: Rc<Link>, gate: Gate, end: End) {
    let tunnel: Option<Tunnel> = link.tunnel.borrow_mut().take();
    if let (End::Done, Some(tunnel)) = (&end, tunnel) {
        let held = gate.into_held();
        return tunnel.run(link, held).await;
    }
    drop(gate);
    let is_answering = link.is_answering.get();
    // hyper and the service are gone: the socket is this task's alone.
    let mut sock = link.sock.clone();
    match end {
        End::Rejected(reject) if !is_answering => {
            let answer = reply::raw(reject.status, "invalid_request_error", reject.message, "");
            let _ = sock.write_all(answer.as_bytes()).await;
            linger(&mut sock).await;
        }
        End::Done if !link.request_done.get() && is_answering => linger(&mut sock).await,
        // TLS says that the end is the end; a broken answer must not look like one.
        End::Done if sock.is_tls() => drop(tokio::time::timeout(LINGER, sock.shutdown()).await),
        _ => {}
    }
}

/// Lets the client read the answer before the socket closes: closing over unread bytes resets it.
async fn linger(sock: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    if sock.shutdown().await.is_err() {
        return;
    }
    let drain = async {
        let mut waste = [0u8; 4096];
        while matches!(sock.read(&mut waste).await, Ok(1..)) {}
    };
    let _ = tokio::time::timeout(LINGER, drain).await;
}

#[cfg(test)]
mod tests;
