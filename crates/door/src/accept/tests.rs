//! A fault in one connection is that connection's alone.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream as StdUnix;
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::args::Args;
use crate::door::Phase;
use crate::io::unix::UnixSock;
use crate::tables::Address;

const PATIENCE: Duration = Duration::from_secs(30);

/// Answers each request with what its path says: `/panic` with the word that makes a test build of
/// the door panic while it holds a slot.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                while let Some(head) = read_head(&mut stream) {
                    let body = if head.starts_with("GET /panic") {
                        "panic"
                    } else {
                        "calm!"
                    };
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// A head of a message without a body; None at the end.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}

fn get(stream: &mut (impl Read + Write), path: &str) -> Option<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let head = read_head(stream)?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    String::from_utf8(body).ok()
}

/// A door on a free port with one stage of one slot: the port and the path of its admin socket.
fn door(dir: &std::path::Path) -> (u16, std::path::PathBuf) {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let replica = json!({"id": "r", "address": format!("tcp:127.0.0.1:{}", origin()), "slots": 1,
        "state": "ready"});
    let tables = json!({"version": 1, "stages": {"s": {"replicas": [replica]}},
        "routes": [{"path": "/*", "stage": "s"}]});
    let (file, admin) = (dir.join("tables.json"), dir.join("admin"));
    std::fs::write(&file, tables.to_string()).unwrap();
    let args = Args {
        tables: Some(file),
        listen: vec![Address::Tcp("127.0.0.1".to_owned(), port)],
        admin: Some(Address::Unix(admin.clone())),
        ..Args::default()
    };
    std::thread::spawn(move || crate::serve(args));
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "the door listens");
        std::thread::sleep(Duration::from_millis(5));
    }
    (port, admin)
}

#[test]
fn a_panic_ends_its_connection_alone_gives_its_slot_back_and_is_counted() {
    let dir = std::env::temp_dir().join(format!("pd-panic-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (port, admin) = door(&dir);
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut other = connect();
    assert_eq!(get(&mut other, "/a").as_deref(), Some("calm!"));
    for _ in 0..3 {
        assert_eq!(get(&mut connect(), "/panic"), None, "its connection ends");
        assert_eq!(
            get(&mut other, "/b").as_deref(),
            Some("calm!"),
            "the slot is free"
        );
    }
    let mut admin = StdUnix::connect(admin).unwrap();
    let metrics = get(&mut admin, "/metrics").unwrap();
    for line in [
        "preroll_door_panics_total 3",
        "preroll_requests_in_flight{stage=\"s\",model_name=\"s\"} 0",
        "preroll_requests_total{stage=\"s\",kind=\"complete\"} 4",
        "preroll_requests_total{stage=\"s\",kind=\"other\"} 3",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// What a client reads that sent `request` to a door which accepted it at its very end.
async fn at_the_end(request: &str) -> String {
    let door = Door::new(Args::default()).unwrap();
    door.phase.set(Phase::Closing);
    let (ours, mut theirs) = StdUnix::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.write_all(request.as_bytes()).unwrap();
    let sock = UnixSock::new(tokio::net::UnixStream::from_std(ours).unwrap()).unwrap();
    let alarm = door.alarms.take();
    let link = Link::new(Sock::Unix(sock), Origin::Public, String::new(), alarm);
    let serving = tokio::task::spawn_local(serve(door.clone(), Rc::new(link)));
    while !serving.is_finished() {
        tokio::task::yield_now().await;
        door.wake_links();
    }
    let mut answer = String::new();
    theirs.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_request_that_came_with_its_connection_is_answered_even_at_the_end() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let answer = at_the_end("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer:?}");
        assert_eq!(at_the_end("GET /heal").await, "");
        assert_eq!(at_the_end("").await, "");
    });
}
