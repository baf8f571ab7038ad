//! `preroll-load mock`: an OpenAI-shaped backend whose every time and count is known.

mod answer;
mod behaviour;
mod conn;
mod events;
mod options;
mod queueing;
mod request;
mod server;
mod stats;
mod stream;

use std::io::Write;

use crate::net::{Address, listen};
use options::Options;
use server::Server;

/// Listens, prints one JSON line with the addresses, serves until killed.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let options = Options::parse(arguments).map_err(|e| format!("preroll-load mock: {e}"))?;
    let mut sockets = Vec::new();
    let mut bound = Vec::new();
    for text in &options.listen {
        let address = Address::parse(text)?;
        let (fd, at) = listen(&address).map_err(|e| format!("cannot listen on {address}: {e}"))?;
        sockets.push(fd);
        bound.push(at.to_string());
    }
    let mut server = Server::new(options, sockets)?;
    let line = serde_json::json!({"listening": bound, "pid": std::process::id()});
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .map_err(|e| e.to_string())?;
    server.run().map_err(|e| format!("preroll-load mock: {e}"))
}
