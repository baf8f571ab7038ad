//! WebSocket connections: after the 101 the bytes pass both ways, and on a shutdown both sides are
//! told 1012 between two frames.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::account::{Account, Ending};
use crate::clock::{now_ns, refresh_ns};
use crate::door::Door;
use crate::io::frames::{CLOSE_1012, CLOSE_1012_MASKED, FrameWalk};
use crate::io::link::{Link, Origin, Waiting};
use crate::io::sock::SharedSock;
use crate::queue::SessionPermit;

/// One read in either direction: messages are mostly smaller, and thousands of sessions are held.
const READ_BYTES: usize = 8 << 10;
/// How long a peer has to answer the close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// An upgraded connection's other half, waiting for hyper to write the 101.
pub struct Tunnel {
    pub door: Rc<Door>,
    pub upstream: SharedSock,
    /// What the replica said right behind its 101.
    pub first: Bytes,
    pub session: SessionPermit,
    pub account: Box<Account>,
    pub idle_ns: u64,
}

impl Tunnel {
    /// Passes bytes until one side ends, falls silent, or the door closes; `held` came behind the
    /// client's request.
    pub async fn run(mut self, link: Rc<Link>, held: BytesMut) {
        let (client, replica) = (link.sock.clone(), self.upstream.clone());
        let up = Direction {
            link: &link,
            idle_ns: self.idle_ns,
            walk: FrameWalk::default(),
        };
        let down = Direction {
            link: &link,
            idle_ns: self.idle_ns,
            walk: FrameWalk::default(),
        };
        up.arm();
        let up = pin_box(up.copy(&self.door, &client, &replica, &held, &CLOSE_1012_MASKED));
        let down = pin_box(down.copy(&self.door, &replica, &client, &self.first, &CLOSE_1012));
        let silent = poll_fn(|_| match link.expired() {
            Some(Waiting::Upstream) => Poll::Ready(()),
            _ => Poll::Pending,
        });
        let ended = tokio::select! {
            ended = async { tokio::try_join!(up, down).map(drop) } => ended,
            () = silent => Err(io::ErrorKind::TimedOut.into()),
        };
        let _ = ended;
        refresh_ns();
        self.account.end(Ending::Complete);
    }
}

fn pin_box<'a, T>(
    future: impl Future<Output = T> + 'a,
) -> std::pin::Pin<Box<dyn Future<Output = T> + 'a>> {
    Box::pin(future)
}

struct Direction<'a> {
    link: &'a Rc<Link>,
    idle_ns: u64,
    walk: FrameWalk,
}

impl Direction<'_> {
    fn arm(&self) {
        self.link
            .wait_for(Waiting::Upstream, now_ns().saturating_add(self.idle_ns));
    }

    /// Copies until the end of `from` (then the other side is told by the end of the whole) or the
    /// door closes.
    async fn copy(
        mut self,
        door: &Door,
        from: &SharedSock,
        to: &SharedSock,
        first: &[u8],
        close: &[u8],
    ) -> io::Result<()> {
        let (mut from, mut to) = (from.clone(), to.clone());
        self.pass(&mut to, first).await?;
        let mut buf = vec![0; READ_BYTES];
        loop {
            if door.is_closing(self.link.origin) && self.walk.is_between() {
                to.write_all(close).await?;
                return drain(&mut from).await;
            }
            let read = tokio::select! {
                read = from.read(&mut buf) => read?,
                () = closing(door, self.link.origin), if self.walk.is_between() => continue,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.arm();
            self.pass(&mut to, &buf[..read]).await?;
        }
    }

    async fn pass(&mut self, to: &mut SharedSock, bytes: &[u8]) -> io::Result<()> {
        self.walk.walk(bytes);
        to.write_all(bytes).await
    }
}

/// Ready when the door has stopped accepting; the link is woken then.
async fn closing(door: &Door, origin: Origin) {
    poll_fn(|_| match door.is_closing(origin) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// After our close frame: what the peer still says (its own close frame, in the end) goes nowhere.
async fn drain(from: &mut SharedSock) -> io::Result<()> {
    let mut waste = [0u8; 1024];
    let read = async { while matches!(from.read(&mut waste).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(CLOSE_WAIT, read).await;
    Ok(())
}
