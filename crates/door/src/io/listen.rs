//! Listening sockets of either kind.

use std::io;
use std::net::TcpListener as StdTcp;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdUnix;
use std::path::Path;

use rustix::net::{AddressFamily, listen, sockopt};
use tokio::net::{TcpListener, UnixListener};

use super::sock::Sock;
use super::unix::UnixSock;
use crate::tables::Address;

/// Connections that the kernel may hold until they are accepted. A SYN beyond it is dropped, and its
/// client tries again a second later; the kernel's own bound (`net.core.somaxconn`) applies too.
const BACKLOG: i32 = 4096;

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
        let deep = bound.and_then(Listener::deepen);
        deep.map_err(|error| format!("cannot listen on {address}: {error}"))
    }

    /// Takes over a socket that another process bound.
    ///
    /// # Errors
    /// The kernel's.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Listener> {
        if sockopt::socket_domain(&fd)? == AddressFamily::UNIX {
            let listener = StdUnix::from(fd);
            listener.set_nonblocking(true)?;
            return Listener::Unix(UnixListener::from_std(listener)?).deepen();
        }
        let listener = StdTcp::from(fd);
        listener.set_nonblocking(true)?;
        Listener::Tcp(TcpListener::from_std(listener)?).deepen()
    }

    /// Listening again changes nothing but the backlog, whatever the one who bound it asked for.
    fn deepen(self) -> io::Result<Listener> {
        match &self {
            Listener::Tcp(listener) => listen(listener, BACKLOG)?,
            Listener::Unix(listener) => listen(listener, BACKLOG)?,
        }
        Ok(self)
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
                Ok((Sock::Unix(UnixSock::new(stream)?), "unix".to_owned()))
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

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// More than tokio's own backlog, and than the soft limit of descriptors that most systems set.
    const RUSH: usize = 1200;

    #[test]
    fn a_rush_of_connections_waits_to_be_accepted_instead_of_being_dropped() {
        let kernel_bound = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        if kernel_bound.trim().parse::<usize>().unwrap() < RUSH {
            return; // The kernel would drop them, whatever is asked for.
        }
        let maximum = getrlimit(Resource::Nofile).maximum;
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(Resource::Nofile, raised).unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let address = Address::Tcp("127.0.0.1".to_owned(), 0);
        let listener = runtime.block_on(Listener::bind(&address)).unwrap();
        let bound = listener.address();
        let bound: SocketAddr = bound.strip_prefix("tcp:").unwrap().parse().unwrap();
        let rush: Vec<_> = (0..RUSH)
            .map(|_| TcpStream::connect_timeout(&bound, Duration::from_secs(10)).unwrap())
            .collect();
        assert_eq!(rush.len(), RUSH);
    }
}
