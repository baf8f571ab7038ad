//! One socket of either kind, with or without TLS.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::unix::UnixSock;

/// A connected stream socket.
pub enum Sock {
    Tcp(TcpStream),
    Unix(UnixSock),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Sock {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Sock::Tcp(s) => s.as_fd(),
            Sock::Unix(s) => s.as_fd(),
            Sock::Tls(s) => s.get_ref().0.as_fd(),
        }
    }

    /// Whether the peer has closed its side, even when unread bytes lie before the end.
    pub fn is_peer_gone(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut fds, Some(&now)), Ok(n) if n > 0)
    }

    /// Writes several pieces by one call. Small ones are put together first: copying them costs
    /// less than the kernel takes to walk a list.
    pub fn poll_write_gathered(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut sock = Pin::new(self);
        let mut filled = bufs.iter().filter(|buf| !buf.is_empty());
        if let (Some(one), None) = (filled.next(), filled.next()) {
            return sock.poll_write(cx, one);
        }
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        if total > GATHER_BYTES {
            return sock.poll_write_vectored(cx, bufs);
        }
        let mut whole = [0; GATHER_BYTES];
        let mut at = 0;
        for buf in bufs {
            whole[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        sock.as_mut().poll_write(cx, &whole[..at])
    }
}

/// Writes up to this size are put together: most heads and chunks.
const GATHER_BYTES: usize = 2048;

/// A socket that its connection's parts share, each borrowing it for one call. All on one thread.
#[derive(Clone)]
pub struct SharedSock(Rc<RefCell<Sock>>);

impl SharedSock {
    pub fn new(sock: Sock) -> SharedSock {
        SharedSock(Rc::new(RefCell::new(sock)))
    }

    /// Whether its end is told by a message of its own.
    pub fn is_tls(&self) -> bool {
        matches!(*self.0.borrow(), Sock::Tls(_))
    }

    /// As [`Sock::is_peer_gone`].
    pub fn is_peer_gone(&self) -> bool {
        self.0.borrow().is_peer_gone()
    }

    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_read(cx, buf)
    }

    pub fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write(cx, buf)
    }

    /// As [`Sock::poll_write_gathered`].
    pub fn poll_write_gathered(
        &self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write_gathered(cx, bufs)
    }

    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_flush(cx)
    }

    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(cx)
    }
}

impl AsyncRead for SharedSock {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        SharedSock::poll_read(&self, cx, buf)
    }
}

impl AsyncWrite for SharedSock {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        SharedSock::poll_write(&self, cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        SharedSock::poll_flush(&self, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        SharedSock::poll_shutdown(&self, cx)
    }
}

macro_rules! each {
    ($self:expr, $s:ident => $call:expr) => {
        match $self.get_mut() {
            Sock::Tcp($s) => $call,
            Sock::Unix($s) => $call,
            Sock::Tls($s) => $call,
        }
    };
}

impl AsyncRead for Sock {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, s => Pin::new(s).poll_read(cx, buf))
    }
}

impl AsyncWrite for Sock {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, s => Pin::new(s).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, s => Pin::new(s).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => Pin::new(s).poll_shutdown(cx))
    }
}
