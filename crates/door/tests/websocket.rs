//! WebSocket sessions through the door.

mod common;

use common::{Client, Door, Origin, eventually, tables};
use serde_json::json;

const HANDSHAKE: &str = concat!(
    "GET /v1/realtime?model=m HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
);
const ACCEPT: &str = concat!(
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
);

fn open(door: &Door, origin: &Origin) -> (Client, Client) {
    let mut client = door.connect();
    // The first frame may come right behind the handshake, from either side.
    client.send(&format!("{HANDSHAKE}early"));
    let mut server = origin.accept();
    let request = server.head();
    assert_eq!(request.field("upgrade"), Some("websocket"));
    assert_eq!(request.field("connection"), Some("upgrade"));
    assert_eq!(
        request.field("sec-websocket-key"),
        Some("dGhlIHNhbXBsZSBub25jZQ==")
    );
    server.send(ACCEPT);
    server.send_bytes(b"\x81\x02hi");
    let response = client.head();
    assert_eq!(response.status, 101);
    assert_eq!(response.field("upgrade"), Some("websocket"));
    assert_eq!(
        response.field("sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    assert_eq!(response.field("transfer-encoding"), None);
    assert_eq!(client.until(b"hi"), b"\x81\x02hi");
    assert_eq!(server.until(b"early"), b"early");
    (client, server)
}

#[test]
fn bytes_pass_both_ways_and_a_session_takes_no_slot() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let (mut client, mut server) = open(&door, &origin);
    let state = door.state();
    assert_eq!(
        (&state["sessions"], &state["in_flight"]),
        (&json!(1), &json!(0))
    );
    for n in 0..100 {
        client.send(&format!("ping{n}."));
        server.until(format!("ping{n}.").as_bytes());
        server.send(&format!("pong{n}."));
        client.until(format!("pong{n}.").as_bytes());
    }
    drop(client);
    assert!(server.rest().is_empty());
    eventually("the session is over", || door.state()["sessions"] == 0);
}

#[test]
fn the_replicas_end_ends_the_session() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let (mut client, mut server) = open(&door, &origin);
    server.send_bytes(b"\x88\x02\x03\xe8");
    drop(server);
    assert_eq!(client.rest(), b"\x88\x02\x03\xe8");
    eventually("the session is over", || door.state()["sessions"] == 0);
}

#[test]
fn sessions_beyond_the_limit_are_refused_at_once() {
    let origin = Origin::start();
    let mut tables = tables(&[&origin]);
    tables["stages"]["s"]["max_sessions"] = json!(1);
    let door = Door::start(&tables);
    let _session = open(&door, &origin);
    let mut second = door.connect();
    second.send(HANDSHAKE);
    let response = second.response();
    assert_eq!(response.status, 429);
    assert!(response.field("retry-after").is_some());
}

#[test]
fn a_replica_may_decline_the_handshake() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send(HANDSHAKE);
    let mut server = origin.accept();
    server.head();
    server.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (403, "no"));
    eventually("the session is over", || door.state()["sessions"] == 0);
}

#[test]
fn a_drain_closes_both_sides_with_1012_between_two_frames() {
    let origin = Origin::start();
    let mut door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send(HANDSHAKE);
    let mut server = origin.accept();
    server.head();
    server.send(ACCEPT);
    client.head();
    // A frame of five bytes of which three have come: no boundary yet.
    server.send_bytes(b"\x82\x05abc");
    assert_eq!(client.until(b"abc"), b"\x82\x05abc");
    door.drain();
    // The client's direction is at a boundary: the replica is told at once.
    assert_eq!(
        server.until(&[0x03, 0xf4]),
        [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xf4]
    );
    server.send_bytes(b"de");
    assert_eq!(client.until(&[0x03, 0xf4]), b"de\x88\x02\x03\xf4");
    client.send_bytes(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xf4]);
    drop(client);
    drop(server);
    assert_eq!(door.join(), Ok(()));
}

#[test]
fn another_upgrade_is_ignored() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n");
    let mut server = origin.accept();
    let request = server.request();
    assert_eq!(
        (request.field("upgrade"), request.field("http2-settings")),
        (None, None)
    );
    server.answer("plain");
    assert_eq!(client.response().text(), "plain");
}

#[test]
fn a_handshake_with_a_body_is_refused() {
    // The replica would take the next request on that connection for the body.
    for body in ["", "0123456789"] {
        let origin = Origin::start();
        let door = Door::start(&tables(&[&origin]));
        let mut client = door.connect();
        client.send(&format!(
            "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 10\r\n\r\n{body}"
        ));
        assert_eq!(client.response().status, 400, "{body:?}");
        assert!(origin.try_accept().is_none());
    }
}
