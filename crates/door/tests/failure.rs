//! Replicas that break, refuse, or are not there.

mod common;

use common::{Client, Door, Origin, asked, eventually, tables};
use serde_json::{Value, json};

/// The client's view of an answer that breaks after `sent`.
fn broken(content_type: &str, sent: &str) -> (Vec<u8>, bool) {
    let (_origin, _door, mut client, mut server) = asked();
    server.send(&format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{sent}\r\n",
        sent.len()
    ));
    let head = client.head();
    assert_eq!(head.status, 200);
    drop(server);
    let (body, is_whole) = client.chunks();
    assert!(client.rest().is_empty());
    (body, is_whole)
}

#[test]
fn a_broken_event_stream_ends_its_event_says_so_and_has_no_last_chunk() {
    let partial = "data: {\"a\": 1}\n\ndata: {\"b\"";
    let (body, is_whole) = broken("text/event-stream", partial);
    assert!(!is_whole);
    let text = String::from_utf8(body).unwrap();
    let rest = text
        .strip_prefix(partial)
        .expect("what came before has left");
    assert!(rest.starts_with("\n\nevent: error\ndata: {"), "{rest:?}");
    assert!(rest.ends_with("}\n\n"));
    let error: Value = serde_json::from_str(rest.trim().split_once("data: ").unwrap().1).unwrap();
    assert_eq!(error["error"]["code"], 502);
}

#[test]
fn a_broken_body_of_another_kind_has_no_last_chunk_and_nothing_added() {
    let (body, is_whole) = broken("application/json", "{\"a\": ");
    assert_eq!((body.as_slice(), is_whole), (&b"{\"a\": "[..], false));
}

#[test]
fn a_body_with_a_length_that_breaks_stays_short() {
    let (_origin, _door, mut client, mut server) = asked();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(client.head().status, 200);
    drop(server);
    assert_eq!(client.rest(), b"abc");
}

#[test]
fn a_written_request_that_meets_the_end_is_a_502_and_is_not_sent_again() {
    let (origin, door, mut client, server) = asked();
    drop(server);
    let response = client.response();
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["error"]["type"], "upstream_error");
    assert!(origin.try_accept().is_none());
    assert_eq!(door.state()["in_flight"], 0);
}

#[test]
fn a_connection_that_the_replica_closed_while_idle_is_not_used() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    for round in ["one", "two", "three"] {
        client.post("/", "{}");
        let mut server = origin.accept();
        server.request();
        server.answer(round);
        assert_eq!(client.response().text(), round);
        // Closed on the replica's side, as a server with a short keep-alive does.
        drop(server);
    }
}

#[test]
fn a_replica_that_cannot_be_reached_is_ejected_and_another_serves() {
    let (dead, alive) = (Origin::start(), Origin::start());
    let mut tables = tables(&[&dead, &alive]);
    let nowhere = dead.replica_with(json!({"address": "unix:/nonexistent/socket", "id": "dead"}));
    tables["stages"]["s"]["replicas"][0] = nowhere;
    let door = Door::start(&tables);
    let mut client = door.connect();
    client.post("/", "{}");
    let mut server = alive.accept();
    server.request();
    server.answer("1");
    assert_eq!(client.response().text(), "1");
    for round in 0..20 {
        client.post("/", "{}");
        server.request();
        server.answer("ok");
        assert_eq!(client.response().status, 200, "round {round}");
    }
    let (_, why) = door.admin("GET", "/recent?limit=30", "");
    let lives: Vec<Value> = serde_json::from_str(&why).unwrap();
    assert_eq!(lives.len(), 21);
}

#[test]
fn when_nothing_can_serve_the_refusal_says_when_to_come_back() {
    let mut tables = tables(&[]);
    tables["stages"]["s"]["replicas"] = json!([]);
    let door = Door::start(&tables);
    let mut client = door.connect();
    client.post("/", "{}");
    let response = client.response();
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["error"]["type"], "unavailable");
    let after: u64 = response.field("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&after));
    assert_eq!(response.field("x-should-retry"), Some("true"));
}

#[test]
fn an_engines_own_429_passes_with_retry_after_and_does_not_eject() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.post("/", "{}");
    let mut server = origin.accept();
    for _ in 0..5 {
        server.request();
        server.send("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\nno");
        let response = client.response();
        assert_eq!((response.status, response.text().as_str()), (429, "no"));
        assert!(response.field("retry-after").is_some());
        assert!(response.field("retry-after-ms").is_some());
        client.post("/", "{}");
    }
    server.request();
    server.send("HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().field("retry-after"), Some("7"));
    let replicas = door.state()["replicas"].clone();
    assert!(
        replicas
            .as_object()
            .unwrap()
            .values()
            .all(|replica| replica["ejected"] == false)
    );
}

#[test]
fn the_time_to_the_first_byte_is_bounded_by_the_clients_own_timeout() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send(concat!(
        "POST / HTTP/1.1\r\nHost: a\r\nX-Stainless-Timeout: 0.3\r\nContent-Type: application/json\r\n",
        "Content-Length: 2\r\n\r\n{}"
    ));
    let mut server = origin.accept();
    server.request();
    let response = client.response();
    assert_eq!(response.status, 504);
    assert_eq!(response.field("x-should-retry"), Some("false"));
    assert!(server.rest().is_empty());
}

#[test]
fn an_explicit_deadline_bounds_the_whole_stream() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Preroll-Deadline-Ms: 500\r\n\r\n");
    let mut server = origin.accept();
    server.request();
    server.send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(client.head().status, 200);
    server.send("9\r\ndata: 1\n\n\r\n");
    let (body, is_whole) = client.chunks();
    assert!(!is_whole);
    assert!(String::from_utf8(body).unwrap().contains("event: error"));
    assert!(server.rest().is_empty());
}

#[test]
fn a_silent_stream_is_cut_at_its_idle_timeout() {
    let origin = Origin::start();
    let mut tables = tables(&[&origin]);
    tables["stages"]["s"]["stream_idle_timeout_ms"] = json!(300);
    let door = Door::start(&tables);
    let mut client = door.connect();
    client.post("/", "{}");
    let mut server = origin.accept();
    server.request();
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    client.head();
    assert_eq!(client.chunks(), (b"a".to_vec(), false));
    let mut second: Client = door.connect();
    second.post("/", "{}");
    let mut silent = origin.accept();
    silent.request();
    assert_eq!(second.response().status, 504, "before the head, too");
}

#[test]
fn a_refused_connect_with_a_streamed_upload_is_tried_elsewhere() {
    let (dead, alive) = (Origin::start(), Origin::start());
    let mut tables = tables(&[&dead]);
    tables["stages"]["s"]["replicas"] =
        json!([dead.replica_with(json!({"address": "unix:/nonexistent/socket", "id": "dead"}))]);
    tables["stages"]["s"]["start"] = json!({"expected_ms": 1000});
    let door = Door::start(&tables);
    let mut client = door.connect();
    client.send("PUT /file HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    eventually("it is held", || door.state()["queued"] == 1);
    tables["version"] = json!(2);
    tables["stages"]["s"]["replicas"] = json!([alive.replica()]);
    assert_eq!(door.admin("PUT", "/tables", &tables.to_string()).0, 200);
    let mut server = alive.accept();
    assert_eq!(server.request().text(), "abc");
    server.answer("kept");
    assert_eq!(client.response().text(), "kept");
}

#[test]
fn a_client_that_does_not_read_is_cut_at_the_idle_timeout() {
    let origin = Origin::start();
    let mut tables = tables(&[&origin]);
    tables["stages"]["s"]["stream_idle_timeout_ms"] = json!(300);
    let door = Door::start(&tables);
    let mut client = door.connect();
    client.post("/", "{}");
    let mut server = origin.accept();
    server.request();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
    let block = vec![b'x'; 1 << 16];
    // Until the door closes the connection, which it does when the client has taken nothing for a
    // while.
    while std::io::Write::write_all(&mut server.stream, &block).is_ok() {}
    door.await_in_flight(0);
    drop(client);
}

#[test]
fn clients_that_leave_in_an_upload_are_no_fault_of_the_replica() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    for number in 0..12 {
        let mut client = door.connect();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
        let mut server = origin.accept();
        server.until(b"abc");
        if number % 2 == 0 {
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        drop(client);
        server.rest();
        door.await_in_flight(0);
    }
    let mut client = door.connect();
    client.post("/", "{}");
    let mut server = origin.accept();
    server.request();
    server.answer("x");
    assert_eq!(client.response().status, 200);
}
