//! A Unix socket whose task is woken for what there is to read, and for room only when it ran out.
//!
//! Linux tells whoever waits for room on a Unix socket so at every read of the other side, whether it
//! had run out or not (on TCP only then). Asked for both from the start, as tokio does, each request
//! to a worker woke the door once more: when the worker had read it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// The most that one read takes.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    /// Read here first: the reader's buffer is not initialised, and clearing it costs more than
    /// copying what comes.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// A connected Unix stream socket.
pub struct UnixSock {
    sock: AsyncFd<OwnedFd>,
    /// The same socket, waiting for room: from a write that found none to the next that is whole.
    room: Option<AsyncFd<OwnedFd>>,
}

impl UnixSock {
    /// # Errors
    /// The kernel's.
    pub fn new(stream: UnixStream) -> io::Result<UnixSock> {
        let fd = OwnedFd::from(stream.into_std()?);
        Ok(UnixSock {
            sock: watched(fd, Interest::READABLE)?,
            room: None,
        })
    }

    /// Tries `write` until it is ready; `len` bytes are the whole of it.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        mut write: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = match &self.room {
                Some(room) => Some(ready!(room.poll_write_ready(cx))?),
                None => None,
            };
            match (write(self.sock.as_fd()), &mut guard) {
                (Ok(n), _) => {
                    if n == len {
                        self.room = None;
                    }
                    return Poll::Ready(Ok(n));
                }
                (Err(Errno::INTR), _) => {}
                (Err(Errno::AGAIN), Some(guard)) => guard.clear_ready(),
                (Err(Errno::AGAIN), None) => {
                    let fd = self.sock.get_ref().try_clone()?;
                    self.room = Some(watched(fd, Interest::WRITABLE)?);
                }
                (Err(error), _) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

/// The deprecated way is safe code; what it allows beyond that is a type whose descriptor changes, and
/// that of an `OwnedFd` does not.
#[allow(deprecated)]
fn watched(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

impl AsFd for UnixSock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sock.as_fd()
    }
}

impl AsyncRead for UnixSock {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = buf.remaining().min(READ_BYTES);
        loop {
            let mut guard = ready!(self.sock.poll_read_ready(cx))?;
            let read = SCRATCH.with_borrow_mut(|scratch| {
                let (_, n) = recv(&self.sock, &mut scratch[..most], RecvFlags::empty())?;
                buf.put_slice(&scratch[..n]);
                Ok(n)
            });
            match read {
                Ok(n) => {
                    // Less than there was room for: nothing is left, and what comes is told anew.
                    if 0 < n && n < most {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl AsyncWrite for UnixSock {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .poll_send(cx, buf.len(), |fd| send(fd, buf, SendFlags::NOSIGNAL))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.get_mut().poll_send(cx, len, |fd| {
            let mut nothing = SendAncillaryBuffer::default();
            sendmsg(fd, bufs, &mut nothing, SendFlags::NOSIGNAL)
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(&self.sock, Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream as StdUnix;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn on_runtime<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work)
    }

    /// Both ends, the other one blocking. Within a runtime.
    fn pair() -> (UnixSock, StdUnix) {
        let (ours, theirs) = StdUnix::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (
            UnixSock::new(UnixStream::from_std(ours).unwrap()).unwrap(),
            theirs,
        )
    }

    /// Whether an epoll of this process tells of room on `fd`, by the kernel's own list.
    fn is_told_of_room(fd: &impl AsRawFd) -> bool {
        const EPOLLOUT: u32 = 4;
        let mut told = Vec::new();
        for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
            // One that was closed meanwhile is another test's.
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            for line in text.lines() {
                if let ["tfd:", number, "events:", events, ..] =
                    line.split_whitespace().collect::<Vec<_>>()[..]
                    && number.parse() == Ok(fd.as_raw_fd())
                {
                    told.push(u32::from_str_radix(events, 16).unwrap() & EPOLLOUT != 0);
                }
            }
        }
        assert!(!told.is_empty(), "no epoll watches it");
        told.contains(&true)
    }

    #[test]
    fn room_is_told_only_while_it_is_waited_for() {
        on_runtime(async {
            let (mut sock, mut theirs) = pair();
            sock.write_all(b"request").await.unwrap();
            assert!(!is_told_of_room(&sock.sock) && sock.room.is_none());
            let block = vec![0; 1 << 20];
            let mut cx = Context::from_waker(std::task::Waker::noop());
            while Pin::new(&mut sock).poll_write(&mut cx, &block).is_ready() {}
            assert!(is_told_of_room(sock.room.as_ref().unwrap()));
            assert!(!is_told_of_room(&sock.sock));
            let reader = std::thread::spawn(move || {
                let mut buf = [0; 1 << 16];
                while theirs.read(&mut buf).unwrap() > 0 {}
            });
            sock.write_all(&block).await.unwrap();
            assert!(sock.room.is_none(), "the last write was whole");
            sock.shutdown().await.unwrap();
            reader.join().unwrap();
        });
    }

    #[test]
    fn more_than_the_kernel_holds_waits_for_room_and_arrives_whole() {
        on_runtime(async {
            let (mut sock, mut theirs) = pair();
            let sent: Vec<u8> = (0..4_000_000u32).map(|i| (i % 251) as u8).collect();
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                theirs.read_to_end(&mut all).unwrap();
                all
            });
            let (head, rest) = sent.split_at(3_000);
            let gathered = [IoSlice::new(head), IoSlice::new(rest)];
            let n = sock.write_vectored(&gathered).await.unwrap();
            assert!(n < sent.len(), "the kernel took all of it");
            sock.write_all(&sent[n..]).await.unwrap();
            sock.shutdown().await.unwrap();
            assert!(reader.join().unwrap() == sent);
        });
    }

    #[test]
    fn the_end_and_a_closed_other_side_are_told() {
        on_runtime(async {
            let (mut sock, mut theirs) = pair();
            theirs.write_all(b"last").unwrap();
            drop(theirs);
            let mut all = Vec::new();
            sock.read_to_end(&mut all).await.unwrap();
            assert_eq!(all, b"last");
            let error = sock.write_all(b"x").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        });
    }
}
