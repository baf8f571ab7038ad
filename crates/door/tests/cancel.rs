//! A client that leaves: its replica is told at once and its slot is free, in every phase.

mod common;

use std::net::Shutdown;
use std::time::{Duration, Instant};

use common::{Client, Door, Origin, PATIENCE, eventually, tables};
use serde_json::{Value, json};

fn one_slot(origin: &Origin) -> Value {
    let mut tables = tables(&[origin]);
    tables["stages"]["s"]["replicas"] = json!([origin.replica_with(json!({"slots": 1}))]);
    tables["stages"]["s"]["max_wait_ms"] = json!(60_000);
    tables
}

/// The replica's connection ends, soon. The promise is 100 ms; a loaded machine gets more here, and
/// the time-out of a silent stream (300 s) is far away.
fn assert_closed(server: &mut Client) {
    let start = Instant::now();
    assert!(server.rest().len() < 1 << 20);
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
}

#[test]
fn leaving_during_prefill_closes_upstream_and_frees_the_slot() {
    let origin = Origin::start();
    let door = Door::start(&one_slot(&origin));
    for shutdown_only in [false, true] {
        let mut client = door.connect();
        client.post("/", "{}");
        let mut server = origin.accept();
        server.request();
        door.await_in_flight(1);
        if shutdown_only {
            client.stream.shutdown(Shutdown::Write).unwrap();
        } else {
            drop(client);
        }
        assert_closed(&mut server);
        door.await_in_flight(0);
    }
}

#[test]
fn leaving_during_a_stream_closes_upstream() {
    let origin = Origin::start();
    let door = Door::start(&one_slot(&origin));
    let mut client = door.connect();
    client.post("/", "{}");
    let mut server = origin.accept();
    server.request();
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    client.head();
    assert_eq!(client.chunk().as_deref(), Some(&b"a"[..]));
    drop(client);
    assert_closed(&mut server);
    door.await_in_flight(0);
}

#[test]
fn leaving_with_pipelined_requests_unread_is_noticed() {
    let origin = Origin::start();
    let door = Door::start(&one_slot(&origin));
    let mut client = door.connect();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HT");
    let mut server = origin.accept();
    server.request();
    drop(client);
    assert_closed(&mut server);
    door.await_in_flight(0);
    assert!(
        origin.try_accept().is_none(),
        "the later requests never ran"
    );
}

#[test]
fn leaving_while_queued_never_reaches_a_replica() {
    let origin = Origin::start();
    let door = Door::start(&one_slot(&origin));
    let mut first = door.connect();
    first.post("/first", "{}");
    let mut server = origin.accept();
    server.request();
    let mut queued = door.connect();
    queued.post("/queued", "{}");
    // A body that nobody reads while it waits, with the end behind it.
    let mut uploading = door.connect();
    uploading.send("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    uploading.send(&"x".repeat(50_000));
    eventually("both wait", || door.state()["queued"] == 2);
    drop(queued);
    eventually("one left", || door.state()["queued"] == 1);
    drop(uploading);
    eventually("nobody waits", || door.state()["queued"] == 0);
    server.answer("ok");
    assert_eq!(first.response().text(), "ok");
    assert!(origin.try_accept().is_none());
    assert_eq!(door.state()["cancelled_total"], 2);
}

#[test]
fn leaving_during_an_upload_that_the_replica_does_not_read_is_noticed() {
    let origin = Origin::start();
    let door = Door::start(&one_slot(&origin));
    let mut client = door.connect();
    client.send("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 60000000\r\n\r\n");
    let mut server = origin.accept();
    server.head();
    // Until every buffer between here and the origin is full.
    client.stream.set_nonblocking(true).unwrap();
    let block = vec![b'x'; 1 << 16];
    let mut refusals = 0;
    while refusals < 20 {
        match std::io::Write::write(&mut client.stream, &block) {
            Ok(_) => refusals = 0,
            Err(_) => {
                refusals += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    drop(client);
    door.await_in_flight(0);
}

#[test]
fn a_client_that_stays_and_reuses_its_connection_is_not_cut() {
    let origin = Origin::start();
    let door = Door::start(&one_slot(&origin));
    let mut client = door.connect();
    for round in 0..50 {
        client.post("/", "{}");
        if round == 0 {
            let mut server = origin.accept();
            std::thread::spawn(move || {
                for _ in 0..50 {
                    server.request();
                    server.answer("ok");
                }
            });
        }
        assert_eq!(client.response().text(), "ok", "round {round}");
    }
}
