//! Listening sockets of either kind.

use std::io;
use std::net::TcpListener as StdTcp;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdUnix;
use std::path::Path;

use rustix::net::{AddressFamily, sockopt};
use tokio::net::{TcpListener, UnixListener};

use super::sock::Sock;
use crate::tables::Address;

/// A bound socket.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds `address`; a Unix socket left behind by a dead process is replaced, its mode is 0600.
    ///
    /// # Errors
    /// The address and what the kernel said.
    pub async fn bind(address: &Address) -> Result<Listener, String> {
        let bound = match address {
            Address::Unix(path) => bind_unix(path).map(Listener::Unix),
            Address::Tcp(host, port) => TcpListener::bind((host.as_str(), *port))
                .await
                .map(Listener::Tcp),
        };
        bound.map_err(|error| format!("cannot listen on {address}: {error}"))
    }

    /// Takes over a socket that another process bound.
    ///
    /// # Errors
    /// The kernel's.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Listener> {
        if sockopt::socket_domain(&fd)? == AddressFamily::UNIX {
            let listener = StdUnix::from(fd);
            listener.set_nonblocking(true)?;
            return Ok(Listener::Unix(UnixListener::from_std(listener)?));
        }
        let listener = StdTcp::from(fd);
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(TcpListener::from_std(listener)?))
    }

    /// The next connection and where it comes from.
    ///
    /// # Errors
    /// The kernel's: of one connection, or that descriptors ran out.
    pub async fn accept(&self) -> io::Result<(Sock, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Sock::Tcp(stream), peer.to_string()))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Sock::Unix(stream), "unix".to_owned()))
            }
        }
    }

    /// Where it listens, as the command line would say it.
    pub fn address(&self) -> String {
        match self {
            Listener::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| "tcp:?".to_owned(), |a| format!("tcp:{a}")),
            Listener::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|a| a.as_pathname());
                path.map_or_else(|| "unix:?".to_owned(), |p| format!("unix:{}", p.display()))
            }
        }
    }

    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Listener::Tcp(listener) => listener
                .local_addr()
                .is_ok_and(|address| address.ip().is_loopback()),
            Listener::Unix(_) => true,
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
