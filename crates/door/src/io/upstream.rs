//! One connection to a replica: hyper's client, driven by whoever waits for its answer.
//!
//! The connection is no task of its own. It is polled by the request that uses it and dropped with
//! it, so leaving a request closes its socket in the same turn of the loop, and a chunk costs one
//! wake instead of two.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, Version};
use http_body::Body;
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};

use super::body::{SendBody, Sending};
use super::quiet::Quiet;
use super::sock::{SharedSock, Sock};
use super::unix::UnixSock;
use super::wire::{Wire, WireIo};
use crate::queue::Replica;
use crate::tables::Address;

/// A machine that does not answer a SYN for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Read and write buffers grow to this under load, and no further.
const BUFFER_BYTES: usize = 64 << 10;

/// Opens a socket to a replica.
///
/// # Errors
/// Whatever the kernel says, or a time-out after 3 s.
pub async fn connect(address: &Address) -> io::Result<Sock> {
    let open = async {
        Ok(match address {
            Address::Unix(path) => Sock::Unix(UnixSock::new(UnixStream::connect(path).await?)?),
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Sock::Tcp(stream)
            }
        })
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, open).await {
        Ok(opened) => opened,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

type Driver = http1::Connection<TokioIo<WireIo>, Sending>;

/// A usable connection to one replica. Boxed: it changes hands often, and hyper's state is large.
pub struct Upstream(Box<Parts>);

struct Parts {
    driver: Driver,
    sender: http1::SendRequest<Sending>,
    wire: Rc<Wire>,
    quiet: Quiet,
    is_over: bool,
    idle_since_ns: u64,
    /// Counted while it lives.
    _count: Count,
}

/// Counts a live connection.
struct Count(Rc<Replica>);

impl Count {
    fn new(replica: Rc<Replica>) -> Count {
        replica.connections.set(replica.connections.get() + 1);
        Count(replica)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
    }
}

/// A request that got no response.
#[derive(Debug)]
pub struct Unanswered {
    /// Not one byte of it left: it provably never ran.
    pub never_ran: bool,
    pub reason: String,
}

impl Upstream {
    /// Speaks HTTP/1.1 on `sock`, a socket of `replica`.
    ///
    /// # Errors
    /// hyper's, as text.
    pub async fn open(sock: Sock, replica: Rc<Replica>) -> Result<Upstream, String> {
        let wire = Wire::new(sock);
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(WireIo(wire.clone())))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Upstream(Box::new(Parts {
            driver,
            sender,
            wire,
            quiet: Quiet::default(),
            is_over: false,
            idle_since_ns: 0,
            _count: Count::new(replica),
        })))
    }

    /// Whether the exchange is over and hyper would send another.
    pub fn is_ready(&self) -> bool {
        !self.0.is_over && self.0.sender.is_ready()
    }

    /// Since when it lies in the pool.
    pub fn idle_since_ns(&self) -> u64 {
        self.0.idle_since_ns
    }

    /// It lies in the pool from `now` on.
    pub fn rest(&mut self, now: u64) {
        self.0.idle_since_ns = now;
    }

    /// Sends `request` and waits for the response head; `give_up` is asked on every wake.
    ///
    /// # Errors
    /// [`Unanswered`], or the reason of `give_up`.
    pub async fn exchange<G>(
        &mut self,
        request: Request<SendBody>,
        mut give_up: impl FnMut() -> Option<G>,
    ) -> Result<Result<Response<Incoming>, Unanswered>, G> {
        let Parts {
            driver,
            sender,
            wire,
            quiet,
            is_over,
            ..
        } = &mut *self.0;
        let alive = Rc::new(());
        wire.begin(Rc::downgrade(&alive));
        let request = request.map(|body| Sending::new(body, alive));
        let mut answer = pin!(sender.send_request(request));
        let result = poll_fn(|cx| {
            let polled = quiet.poll(cx, |cx| {
                drive(driver, is_over, cx);
                let mut polled = answer.as_mut().poll(cx);
                if polled.is_pending() && wire.pass_more() {
                    drive(driver, is_over, cx);
                    polled = answer.as_mut().poll(cx);
                }
                polled
            });
            if let Poll::Ready(answer) = polled {
                wire.begin_body(answer.as_ref().is_ok_and(has_chunks));
                return Poll::Ready(Ok(answer));
            }
            give_up().map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
        })
        .await?;
        Ok(result.map_err(|error| Unanswered {
            never_ran: wire.is_untouched(),
            reason: describe(&error),
        }))
    }

    /// Whether the body's data is to be read by [`Upstream::poll_chunks`].
    pub fn is_past_hyper(&self) -> bool {
        self.0.wire.is_past_hyper()
    }

    /// As [`Wire::poll_chunks`].
    pub fn poll_chunks(
        &self,
        cx: &mut Context<'_>,
        room: &mut [u8],
        each: impl FnMut(&[u8]),
    ) -> Poll<io::Result<bool>> {
        self.0.wire.poll_chunks(cx, room, each)
    }

    /// As [`Wire::poll_chunk`].
    pub fn poll_chunk(
        &self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<Option<Bytes>>> {
        self.0.wire.poll_chunk(cx, room)
    }

    /// The next frame of the response's body, or what is left of it for hyper.
    pub fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Parts {
            driver,
            quiet,
            is_over,
            ..
        } = &mut *self.0;
        // The body first: it says that it wants more, which the connection then hears at once instead
        // of in a turn of its own.
        quiet.poll_pair(
            cx,
            |cx| Pin::new(&mut *body).poll_frame(cx),
            |cx| drive(driver, is_over, cx),
        )
    }

    /// Lets hyper see the end of the exchange, so that the connection is ready for the next one.
    pub fn settle(&mut self) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        drive(&mut self.0.driver, &mut self.0.is_over, &mut cx);
    }

    /// After a 101: the raw socket and what the replica said already.
    pub async fn into_raw(mut self) -> (SharedSock, Bytes) {
        poll_fn(|cx| {
            drive(&mut self.0.driver, &mut self.0.is_over, cx);
            if self.0.is_over {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        let parts = self.0.driver.into_parts();
        self.0.wire.into_raw(parts.read_buf)
    }
}

/// Lets hyper read and write. Errors reach the request or its body by hyper's own channel.
fn drive(driver: &mut Driver, is_over: &mut bool, cx: &mut Context<'_>) {
    if !*is_over {
        *is_over = driver.poll_without_shutdown(cx).is_ready();
    }
}

/// Whether a body follows in chunks, plainly: in no other coding, by no older protocol.
fn has_chunks(answer: &Response<Incoming>) -> bool {
    let mut codings = answer.headers().get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next().map(HeaderValue::as_bytes);
    answer.version() == Version::HTTP_11
        && !answer.body().is_end_stream()
        && coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
        && codings.next().is_none()
}

/// hyper's words and what lies beneath them.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Whether the data of such an answer is read past hyper.
    async fn goes_past(body: SendBody, answer: &'static str) -> bool {
        let path = std::env::temp_dir().join(format!("pu-{}-{answer:p}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.read(&mut [0; 65536]).unwrap() == 65536 {}
            stream.write_all(answer.as_bytes()).unwrap();
            stream
        });
        let text = format!(
            r#"{{"id": "r", "address": "unix:{}", "slots": 1, "state": "ready"}}"#,
            path.display()
        );
        let table: crate::tables::ReplicaTable = serde_json::from_str(&text).unwrap();
        let sock = connect(&table.address).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut upstream = Upstream::open(sock, Replica::new(table)).await.unwrap();
        let request = Request::post("/").header("host", "a").body(body).unwrap();
        let answered = upstream.exchange(request, || None::<()>).await;
        assert_eq!(answered.unwrap().unwrap().status(), 200);
        server.join().unwrap();
        upstream.is_past_hyper()
    }

    #[tokio::test]
    async fn what_is_plainly_in_chunks_goes_past_hyper() {
        let cases = [
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Not: chunked\r\n\r\nab",
                false,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nchunked", false),
        ];
        for (answer, expected) in cases {
            assert_eq!(
                goes_past(SendBody::Empty, answer).await,
                expected,
                "{answer:?}"
            );
        }
        let held = SendBody::Full(Bytes::from_static(b"{}"));
        assert!(
            goes_past(
                held,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            )
            .await
        );
    }
}
