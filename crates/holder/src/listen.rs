//! Sockets that the holder binds for its child, so that they outlive any one process of it.

use std::net::ToSocketAddrs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::launch::FIRST_FD;
use crate::spec;

/// Connections that may wait for a child that restarts.
const BACKLOG: i32 = 4096;

/// The bound sockets in the order of the specification, and the files that they leave.
pub struct Sockets {
    pub fds: Vec<OwnedFd>,
    names: String,
    files: Vec<PathBuf>,
    /// The addresses in the same order; a port that was 0 is the one that the kernel gave.
    pub bound: Vec<spec::Listen>,
    /// Keep the numbers that the child's sockets will get from being used for anything else.
    _reserved: Vec<OwnedFd>,
}

impl Sockets {
    pub fn bind(listen: &[spec::Listen]) -> Result<Self, String> {
        let first_free = FIRST_FD + i32::try_from(listen.len()).unwrap_or(i32::MAX);
        let reserved = reserve(first_free).map_err(|error| format!("listen: {error}"))?;
        let names: Vec<&str> = listen.iter().map(|one| one.name.as_str()).collect();
        let mut sockets = Self {
            fds: Vec::new(),
            names: names.join(":"),
            files: Vec::new(),
            bound: Vec::new(),
            _reserved: reserved,
        };
        for spec::Listen { name, address } in listen {
            let fd = bind_one(address, &mut sockets.files)
                .and_then(|fd| move_above(fd, first_free).map_err(|error| error.to_string()))
                .map_err(|error| format!("listen {name}: {address}: {error}"))?;
            sockets.bound.push(spec::Listen {
                name: name.clone(),
                address: with_its_port(address, &fd),
            });
            sockets.fds.push(fd);
        }
        Ok(sockets)
    }

    /// What the child's environment says of them; LISTEN_PID is added at the fork.
    pub fn environment(&self) -> Vec<(String, String)> {
        if self.fds.is_empty() {
            return Vec::new();
        }
        vec![
            ("LISTEN_FDS".to_owned(), self.fds.len().to_string()),
            ("LISTEN_FDNAMES".to_owned(), self.names.clone()),
        ]
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for file in &self.files {
            // Whoever removed it first had the same in mind.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Occupies all free descriptors below `end`.
fn reserve(end: i32) -> rustix::io::Result<Vec<OwnedFd>> {
    let mut reserved = Vec::new();
    loop {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/null", flags, Mode::empty())?;
        if fd.as_raw_fd() >= end {
            return Ok(reserved);
        }
        reserved.push(fd);
    }
}

/// The reservation alone would do in a process of one thread; a descriptor that another thread
/// closes in between must not give its number to a socket.
fn move_above(fd: OwnedFd, first_free: i32) -> rustix::io::Result<OwnedFd> {
    if fd.as_raw_fd() >= first_free {
        return Ok(fd);
    }
    rustix::io::fcntl_dupfd_cloexec(&fd, first_free)
}

fn bind_one(address: &str, files: &mut Vec<PathBuf>) -> Result<OwnedFd, String> {
    if let Some(path) = address.strip_prefix("unix:") {
        let listener = bind_unix(Path::new(path))?;
        files.push(PathBuf::from(path));
        rustix::net::listen(&listener, BACKLOG).map_err(|error| error.to_string())?;
        return Ok(listener.into());
    }
    let host = address
        .strip_prefix("tcp:")
        .ok_or("an address is tcp:HOST:PORT or unix:/path")?;
    bind_tcp(host)
}

fn bind_tcp(host: &str) -> Result<OwnedFd, String> {
    let address = host
        .to_socket_addrs()
        .map_err(|error| error.to_string())?
        .next()
        .ok_or("the name has no address")?;
    let bind = || {
        let family = if address.is_ipv6() {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    bind().map_err(|error: rustix::io::Errno| error.to_string())
}

/// A TCP address whose port was left to the kernel, with the port that it chose.
fn with_its_port(address: &str, fd: &OwnedFd) -> String {
    let name = rustix::net::getsockname(fd).map(std::net::SocketAddr::try_from);
    match (address.strip_suffix(":0"), name) {
        (Some(host), Ok(Ok(bound))) => format!("{host}:{}", bound.port()),
        _ => address.to_owned(),
    }
}

/// Binds a Unix socket; a file that nobody answers on is a leftover and is replaced.
pub fn bind_unix(path: &Path) -> Result<UnixListener, String> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    if let Ok(meta) = std::fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(format!("{} exists and is not a socket", path.display()));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(format!("{} is in use by a running process", path.display()));
        }
        std::fs::remove_file(path).map_err(|error| error.to_string())?;
    }
    let listener = UnixListener::bind(path).map_err(|error| error.to_string())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|error| error.to_string())?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(address: &str) -> spec::Listen {
        spec::Listen {
            name: "public".to_owned(),
            address: address.to_owned(),
        }
    }

    #[test]
    fn sockets_stay_clear_of_the_numbers_they_will_get() {
        let dir = tempfile::tempdir().unwrap();
        let unix = format!("unix:{}/a.sock", dir.path().display());
        let sockets = Sockets::bind(&[listen("tcp:127.0.0.1:0"), listen(&unix)]).unwrap();
        assert!(sockets.fds.iter().all(|fd| fd.as_raw_fd() >= FIRST_FD + 2));
        assert_eq!(sockets.environment()[1].1, "public:public");
        let port = sockets.bound[0].address.strip_prefix("tcp:127.0.0.1:");
        assert!(port.unwrap().parse::<u16>().unwrap() > 0);
        assert_eq!(sockets.bound[1].address, unix);
        drop(sockets);
        assert!(!dir.path().join("a.sock").exists());
    }

    #[test]
    fn a_socket_that_got_a_low_number_is_moved() {
        let low = OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let above = low.as_raw_fd() + 50;
        assert!(move_above(low, above).unwrap().as_raw_fd() >= above);
    }

    #[test]
    fn a_taken_port_and_a_wrong_address_are_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp:{}", taken.local_addr().unwrap());
        let error = Sockets::bind(&[listen(&address)]).err().unwrap();
        assert!(
            error.contains("public") && error.contains(&address),
            "{error}"
        );
        assert!(
            Sockets::bind(&[listen("udp:x")])
                .err()
                .unwrap()
                .contains("tcp:HOST:PORT")
        );
    }

    #[test]
    fn a_leftover_socket_is_replaced_and_a_live_one_respected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(bind_unix(&path).unwrap());
        let live = bind_unix(&path).unwrap();
        assert!(bind_unix(&path).unwrap_err().contains("in use"));
        drop(live);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "data").unwrap();
        assert!(bind_unix(&path).unwrap_err().contains("not a socket"));
    }
}
