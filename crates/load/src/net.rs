//! Addresses and sockets: TCP and Unix, all non-blocking descriptors.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// Where to connect or listen: `tcp:HOST:PORT` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(String),
}

impl Address {
    /// Parses `tcp:HOST:PORT`, `HOST:PORT` or `unix:/path`; names are resolved once.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.to_owned()));
        }
        let rest = text.strip_prefix("tcp:").unwrap_or(text);
        let mut found = rest
            .to_socket_addrs()
            .map_err(|e| format!("address '{text}': {e}; allowed: tcp:HOST:PORT, unix:/path"))?;
        found
            .next()
            .map(Self::Tcp)
            .ok_or_else(|| format!("address '{text}': no such host"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// Binds and listens; a stale Unix socket file is replaced. Returns the descriptor and where it is.
pub fn listen(address: &Address) -> io::Result<(OwnedFd, Address)> {
    match address {
        Address::Tcp(at) => {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            net::listen(&listener, 4096)?;
            let bound = Address::Tcp(listener.local_addr()?);
            Ok((listener.into(), bound))
        }
        Address::Unix(path) => {
            let _ = std::fs::remove_file(path);
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            net::listen(&listener, 4096)?;
            Ok((listener.into(), address.clone()))
        }
    }
}

/// Accepts one connection, or None when nobody waits (or descriptors ran out).
pub fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    let fd = net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).ok()?;
    let _ = sockopt::set_tcp_nodelay(&fd, true);
    Some(fd)
}

/// Starts a connection; true: already connected, false: wait until writable.
pub fn connect(address: &Address) -> Result<(OwnedFd, bool), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let open = |family| net::socket_with(family, SocketType::STREAM, flags, None);
    let (fd, result) = match address {
        Address::Tcp(at) => {
            let fd = open(if at.is_ipv4() {
                AddressFamily::INET
            } else {
                AddressFamily::INET6
            })?;
            sockopt::set_tcp_nodelay(&fd, true)?;
            let result = net::connect(&fd, at);
            (fd, result)
        }
        Address::Unix(path) => {
            let fd = open(AddressFamily::UNIX)?;
            let result = net::connect(&fd, &net::SocketAddrUnix::new(path.as_str())?);
            (fd, result)
        }
    };
    match result {
        Ok(()) => Ok((fd, true)),
        Err(Errno::INPROGRESS) => Ok((fd, false)),
        Err(error) => Err(error),
    }
}

/// The error of a connection that was started, None when it stands.
pub fn connect_error(fd: &OwnedFd) -> Option<Errno> {
    match sockopt::socket_error(fd) {
        Ok(Ok(())) => None,
        Ok(Err(error)) | Err(error) => Some(error),
    }
}

/// Sends what the kernel takes now, without a signal on a closed pipe.
pub fn send(fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    net::send(fd, bytes, SendFlags::NOSIGNAL)
}

/// Reads what is there, at most `buffer`; 0 is the end of the stream.
pub fn recv(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    net::recv(fd, buffer, RecvFlags::empty()).map(|(_, length)| length)
}

/// Makes the next close a reset instead of an orderly end.
pub fn reset_on_close(fd: &OwnedFd) {
    let _ = sockopt::set_socket_linger(fd, Some(std::time::Duration::ZERO));
}
