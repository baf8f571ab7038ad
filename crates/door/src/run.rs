//! The program's life: sockets, tables, serving, draining, the end.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{AbortHandle, JoinHandle};

use crate::accept::accept;
use crate::args::Args;
use crate::auth::{AdminGuard, AdminListener};
use crate::door::{Door, Phase, Refused};
use crate::io::link::Origin;
use crate::io::listen::Listener;
use crate::tables::Address;
use crate::{inherit, tls};

/// Between two looks at whether all connections are gone.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the door until it is drained.
///
/// # Errors
/// One line: what could not be opened or read.
pub async fn run(args: Args) -> Result<(), String> {
    raise_descriptor_limit();
    let door = Door::new(args)?;
    if let Some(path) = &door.args.tables {
        load_tables(&door, path)?;
    }
    let listeners = open_listeners(&door).await?;
    tokio::task::spawn_local(door.clone().tick());
    for (listener, origin, _) in &listeners {
        // The one thing said on stdout: what to connect to, for whoever asked for port 0.
        println!("listening {} {}", origin.name(), listener.address());
    }
    let accepting = serve(&door, listeners)?;
    wait_for_drain(&door).await?;
    drain(&door, accepting).await;
    Ok(())
}

/// A door that comes back alone has the tables of before; a file that is not there yet is no error.
fn load_tables(door: &Rc<Door>, path: &Path) -> Result<(), String> {
    let json = match std::fs::read(path) {
        Ok(json) => json,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("--tables {}: {error}", path.display())),
    };
    match door.apply(&json) {
        Ok(_) | Err(Refused::Older(_)) => Ok(()),
        Err(Refused::Invalid(error)) => Err(format!("--tables {}: {error}", path.display())),
    }
}

/// Each stream takes two descriptors; the soft limit of 1024 is for programs that use select().
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

/// A listener, whose requests it takes, and whether another process holds it too.
type Open = (Listener, Origin, bool);

async fn open_listeners(door: &Door) -> Result<Vec<Open>, String> {
    let mut open = Vec::new();
    for (name, fd) in inherit::take()? {
        let origin = match name.as_str() {
            "public" => Origin::Public,
            "internal" => Origin::Internal,
            "admin" => Origin::Admin,
            _ => {
                return Err(format!(
                    "LISTEN_FDNAMES: {name:?} is not public, internal or admin"
                ));
            }
        };
        let listener = Listener::from_fd(fd).map_err(|error| format!("socket {name}: {error}"))?;
        open.push((listener, origin, true));
    }
    let args = &door.args;
    let public = args.listen.iter().map(|address| (address, Origin::Public));
    let internal = args
        .internal
        .iter()
        .map(|address| (address, Origin::Internal));
    let is_admin_inherited = open.iter().any(|(_, origin, _)| *origin == Origin::Admin);
    let admin = args.admin.iter().filter(|_| !is_admin_inherited);
    let admin = admin.map(|address| (address, Origin::Admin));
    let admin_tcp = args
        .admin_tcp
        .iter()
        .map(|address| (address, Origin::AdminPort));
    for (address, origin) in public.chain(internal).chain(admin).chain(admin_tcp) {
        let listener = Listener::bind(address).await?;
        if let (Origin::AdminPort, Address::Tcp(host, _)) = (origin, address) {
            let token = args
                .admin_token_file
                .as_deref()
                .map(read_token)
                .transpose()?;
            *door.admin_guard.borrow_mut() = guard(host, listener.is_local(), token.as_deref())?;
        }
        open.push((listener, origin, false));
    }
    if open.is_empty() {
        return Err("nothing to listen on: give --listen or LISTEN_FDS; see --help".to_owned());
    }
    Ok(open)
}

fn read_token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("--admin-token-file {}: {error}", path.display()))?;
    let token = text.trim();
    if token.len() < 16 {
        return Err(format!(
            "--admin-token-file {}: {} characters: must be at least 16",
            path.display(),
            token.len()
        ));
    }
    Ok(token.to_owned())
}

/// Who may ask on the admin port: on loopback whoever names it rightly, elsewhere whoever has the
/// token.
fn guard(host: &str, is_local: bool, token: Option<&str>) -> Result<AdminGuard, String> {
    let listener = if is_local {
        AdminListener::Loopback
    } else {
        AdminListener::Remote
    };
    if !is_local && token.is_none() {
        return Err(format!(
            "--admin-tcp {host}: an address that is not loopback needs --admin-token-file"
        ));
    }
    Ok(AdminGuard::new(listener, token))
}

/// One accepting task per listener.
struct Accepting {
    task: AbortHandle,
    /// At a drain: whether it stops at once, because the next process answers on the same socket.
    stops_first: bool,
    /// It goes on while anything runs that may call a stage.
    stops_last: bool,
    socket: Option<std::path::PathBuf>,
}

fn serve(door: &Rc<Door>, listeners: Vec<Open>) -> Result<Vec<Accepting>, String> {
    let tls = match (&door.args.tls_cert, &door.args.tls_key) {
        (Some(cert), Some(key)) => Some(tls::load(cert, key)?),
        _ => None,
    };
    let tasks = listeners
        .into_iter()
        .map(|(listener, origin, is_inherited)| {
            let tls = tls.clone().filter(|_| origin == Origin::Public);
            let path = listener.address().strip_prefix("unix:").map(Into::into);
            let task: JoinHandle<()> =
                tokio::task::spawn_local(accept(door.clone(), listener, origin, tls));
            Accepting {
                task: task.abort_handle(),
                stops_first: is_inherited && origin.is_admin(),
                stops_last: origin == Origin::Internal,
                socket: path.filter(|_| !is_inherited),
            }
        });
    Ok(tasks.collect())
}

async fn wait_for_drain(door: &Door) -> Result<(), String> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = door.drain.notified() => {}
    }
    Ok(())
}

/// Readiness fails at once; accepting goes on for a while, because whoever sends requests here
/// learns of it late; then what runs is finished.
async fn drain(door: &Rc<Door>, accepting: Vec<Accepting>) {
    door.phase.set(Phase::Draining);
    accepting
        .iter()
        .filter(|one| one.stops_first)
        .for_each(|one| one.task.abort());
    let accept_ms = door.routing().tables.limits.drain_accept_ms;
    tokio::time::sleep(Duration::from_millis(accept_ms)).await;
    accepting
        .iter()
        .filter(|one| !one.stops_last)
        .for_each(stop);
    door.phase.set(Phase::Closing);
    while door.has_clients() {
        // Again and again: a connection whose task has not run yet hears it the next time.
        door.wake_links();
        tokio::time::sleep(LOOK).await;
    }
    accepting.iter().filter(|one| one.stops_last).for_each(stop);
    door.phase.set(Phase::Ending);
    while door.num_connections() > 0 {
        door.wake_links();
        tokio::time::sleep(LOOK).await;
    }
}

fn stop(one: &Accepting) {
    one.task.abort();
    if let Some(path) = &one.socket {
        let _ = std::fs::remove_file(path);
    }
}
