//! A real door on real sockets, a scripted origin, and a client that sees every byte.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use preroll_door::args::Args;
use preroll_door::tables::Address;
use serde_json::{Value, json};

/// Long enough for a loaded machine; nothing waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(30);

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Polls `holds` until it is true.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory of its own for each door.
pub struct Dir(PathBuf);

impl Dir {
    pub fn new() -> Dir {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("pd-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A door under test; it is drained and its end awaited when this is dropped.
pub struct Door {
    pub dir: Dir,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Door {
    /// A door with `tables` (see [`tables`]) in force.
    pub fn start(tables: &Value) -> Door {
        Door::start_with(Dir::new(), tables, |_| {})
    }

    pub fn start_with(dir: Dir, tables: &Value, adjust: impl FnOnce(&mut Args)) -> Door {
        let file = dir.join("tables.json");
        std::fs::write(&file, tables.to_string()).unwrap();
        let mut args = Args {
            tables: Some(file),
            listen: vec![Address::Unix(dir.join("public"))],
            internal: Some(Address::Unix(dir.join("internal"))),
            admin: Some(Address::Unix(dir.join("admin"))),
            ..Args::default()
        };
        adjust(&mut args);
        let thread = std::thread::spawn(move || preroll_door::serve(args));
        let door = Door {
            dir,
            thread: Some(thread),
        };
        eventually("the door listens", || {
            UnixStream::connect(door.dir.join("admin")).is_ok()
        });
        door
    }

    pub fn connect(&self) -> Client {
        Client::new(&self.dir.join("public"))
    }

    pub fn connect_internal(&self) -> Client {
        Client::new(&self.dir.join("internal"))
    }

    /// One admin request; the status and the body.
    pub fn admin(&self, method: &str, target: &str, body: &str) -> (u16, String) {
        let mut client = Client::new(&self.dir.join("admin"));
        let length = body.len();
        client.send(&format!(
            "{method} {target} HTTP/1.1\r\nHost: door\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        let response = client.response();
        (response.status, String::from_utf8(response.body).unwrap())
    }

    /// `GET /state` of stage `s`.
    pub fn state(&self) -> Value {
        let (status, body) = self.admin("GET", "/state", "");
        assert_eq!(status, 200);
        serde_json::from_str::<Value>(&body).unwrap()["s"].clone()
    }

    /// Waits until stage `s` has `count` requests in flight.
    pub fn await_in_flight(&self, count: u64) {
        eventually(&format!("{count} in flight"), || {
            self.state()["in_flight"] == count
        });
    }

    pub fn drain(&self) {
        assert_eq!(self.admin("POST", "/drain", "").0, 202);
    }

    /// Waits for the end; what the program would have exited with.
    pub fn join(&mut self) -> Result<(), String> {
        let thread = self.thread.take().expect("joined once");
        eventually("the door ends", || thread.is_finished());
        thread.join().expect("no panic")
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            let _ = self.admin("POST", "/drain", "");
            let ended = self.join();
            assert_eq!(ended, Ok(()));
        }
    }
}

/// Tables of one stage `s` that every path leads to, served by `replicas`.
pub fn tables(replicas: &[&Origin]) -> Value {
    let replicas: Vec<Value> = replicas.iter().map(|origin| origin.replica()).collect();
    json!({
        "version": 1,
        "stages": {"s": {"replicas": replicas}},
        "routes": [{"path": "/*", "stage": "s"}],
        "limits": {"drain_accept_ms": 0},
    })
}

/// A request that the replica has taken and not answered.
pub fn asked() -> (Origin, Door, Client, Client) {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.post("/", "{}");
    let mut server = origin.accept();
    server.request();
    (origin, door, client, server)
}

/// A server that hands each connection to the test.
pub struct Origin {
    pub path: PathBuf,
    connections: Receiver<UnixStream>,
    _dir: Dir,
}

impl Origin {
    pub fn start() -> Origin {
        let dir = Dir::new();
        let path = dir.join("origin");
        let listener = UnixListener::bind(&path).unwrap();
        let (give, connections): (Sender<UnixStream>, _) = channel();
        // Ends with the process: a blocking accept cannot be ended from outside.
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if give.send(stream).is_err() {
                    return;
                }
            }
        });
        Origin {
            path,
            connections,
            _dir: dir,
        }
    }

    pub fn replica(&self) -> Value {
        self.replica_with(json!({}))
    }

    /// Its entry in the tables, with `fields` on top.
    pub fn replica_with(&self, fields: Value) -> Value {
        let mut replica = json!({
            "id": format!("r{}", self.path.parent().unwrap().to_string_lossy().replace('/', ".")),
            "address": format!("unix:{}", self.path.display()),
            "slots": 4,
            "state": "ready",
        });
        for (key, value) in fields.as_object().unwrap() {
            replica[key] = value.clone();
        }
        replica
    }

    /// The next connection that the door opens.
    pub fn accept(&self) -> Client {
        let stream = self
            .connections
            .recv_timeout(PATIENCE)
            .expect("the door connects");
        Client::of(stream)
    }

    /// Whether a connection waits to be taken.
    pub fn try_accept(&self) -> Option<Client> {
        self.connections.try_recv().ok().map(Client::of)
    }
}

/// One message as it stood on the wire.
#[derive(Debug, Clone)]
pub struct Message {
    pub start: String,
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The body without its framing ended as it should.
    pub is_whole: bool,
}

impl Message {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut all = self
            .fields
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let first = all.next()?;
        assert!(
            all.next().is_none(),
            "{name} stands twice: {:?}",
            self.fields
        );
        Some(&first.1)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Either end of a connection.
pub struct Client {
    pub stream: UnixStream,
    held: Vec<u8>,
}

impl Client {
    pub fn new(path: &Path) -> Client {
        Client::of(UnixStream::connect(path).unwrap())
    }

    pub fn of(stream: UnixStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream,
            held: Vec::new(),
        }
    }

    pub fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes());
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads more; 0 at the end.
    pub fn fill(&mut self) -> usize {
        let mut part = [0; 65536];
        match self.stream.read(&mut part) {
            Ok(read) => {
                self.held.extend_from_slice(&part[..read]);
                read
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("read: {error}"),
        }
    }

    /// Waits until the other side closes; what it still said.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() > 0 {}
        std::mem::take(&mut self.held)
    }

    /// The bytes up to and with `mark`.
    pub fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.held, mark) {
                return self.held.drain(..at + mark.len()).collect();
            }
            let held = String::from_utf8_lossy(&self.held).into_owned();
            assert!(
                self.fill() > 0,
                "ended before {:?}: {held:?}",
                String::from_utf8_lossy(mark)
            );
        }
    }

    /// A head, without its body.
    pub fn head(&mut self) -> Message {
        let head = String::from_utf8(self.until(b"\r\n\r\n")).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let start = lines.next().unwrap().to_owned();
        let status = start
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0);
        let fields = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_owned(), value.trim().to_owned())
        });
        Message {
            start,
            status,
            fields: fields.collect(),
            body: Vec::new(),
            is_whole: true,
        }
    }

    /// A whole request.
    pub fn request(&mut self) -> Message {
        self.message(false)
    }

    /// A whole response to anything but HEAD.
    pub fn response(&mut self) -> Message {
        self.message(true)
    }

    fn message(&mut self, is_response: bool) -> Message {
        let mut message = self.head();
        let is_bare = is_response && matches!(message.status, 100..200 | 204 | 304);
        if message.field("transfer-encoding").is_some() {
            (message.body, message.is_whole) = self.chunks();
        } else if let Some(length) = message.field("content-length") {
            let length = length.parse().unwrap();
            while self.held.len() < length && self.fill() > 0 {}
            let got = length.min(self.held.len());
            message.body = self.held.drain(..got).collect();
            message.is_whole = got == length;
        } else if is_response && !is_bare {
            message.body = self.rest();
        }
        message
    }

    /// A chunked body and whether its last chunk came.
    pub fn chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let Some(chunk) = self.chunk() else {
                return (body, false);
            };
            if chunk.is_empty() {
                return (body, true);
            }
            body.extend(chunk);
        }
    }

    /// The next chunk: empty at the end, None when the connection ended before.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.held, b"\r\n") {
                let size = String::from_utf8_lossy(&self.held[..at]).into_owned();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                let whole = at + 2 + size + 2;
                if size == 0 {
                    let end = self.until(b"\r\n\r\n");
                    assert!(end.starts_with(b"0\r\n"));
                    return Some(Vec::new());
                }
                if self.held.len() >= whole {
                    let chunk = self.held[at + 2..at + 2 + size].to_vec();
                    self.held.drain(..whole);
                    return Some(chunk);
                }
            }
            if self.fill() == 0 {
                return None;
            }
        }
    }

    pub fn get(&mut self, target: &str) -> Message {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.response()
    }

    pub fn post(&mut self, target: &str, body: &str) {
        let length = body.len();
        self.send(&format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
    }

    /// Answers as an origin, with a length.
    pub fn answer(&mut self, body: &str) {
        let length = body.len();
        self.send(&format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
    }

    /// Whether the other side has closed, without waiting.
    pub fn is_closed(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let mut part = [0; 4096];
        let closed = loop {
            match self.stream.read(&mut part) {
                Ok(0) => break true,
                Ok(read) => self.held.extend_from_slice(&part[..read]),
                Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
            }
        };
        self.stream.set_nonblocking(false).unwrap();
        closed
    }
}
