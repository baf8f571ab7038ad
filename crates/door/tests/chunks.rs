//! Chunked answers, whose data goes past hyper: whatever it is, however it is cut, whoever reads it.

mod common;

use common::{Door, Origin, asked, tables};

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

#[test]
fn an_answer_is_the_same_wherever_it_is_cut_and_the_connection_serves_again() {
    let answer = format!("{HEAD}5\r\nhello\r\n1 ;x=y\r\n,\r\n6\r\n world\r\n0\r\n\r\n");
    let (_origin, door, mut client, mut server) = asked();
    for cut in 1..answer.len() {
        server.send(&answer[..cut]);
        door.state(); // It answers by the same loop: what was sent before has been read.
        server.send(&answer[cut..]);
        assert_eq!(client.head().status, 200, "cut at {cut}");
        let mut body = Vec::new();
        while body.len() < 12 {
            body.extend(client.chunk().expect("a chunk"));
        }
        assert_eq!(body, b"hello, world", "cut at {cut}");
        assert_eq!(client.chunk().as_deref(), Some(&b""[..]), "cut at {cut}");
        client.post("/", "{}");
        server.request();
    }
    server.answer("the end");
    assert_eq!(client.response().body, b"the end");
}

#[test]
fn heads_before_the_answers_own_are_not_taken_for_it() {
    let (_origin, _door, mut client, mut server) = asked();
    server.send("HTTP/1.1 103 Early Hints\r\nX-Note: chunked\r\n\r\n");
    server.send(&format!("{HEAD}{}0\r\n\r\n", chunk("data: x\n\n")));
    let mut head = client.head();
    while head.status == 103 {
        head = client.head();
    }
    assert_eq!(head.status, 200);
    assert_eq!(client.chunks(), (b"data: x\n\n".to_vec(), true));
}

#[test]
fn an_older_client_gets_the_data_alone() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    let mut server = origin.accept();
    server.request();
    server.send(&format!("{HEAD}{}", chunk("one,")));
    assert_eq!(client.head().field("transfer-encoding"), None);
    client.until(b"one,");
    server.send(&chunk("two,"));
    client.until(b"two,");
    server.send("0\r\n\r\n");
    assert_eq!(client.rest(), b"");
}

#[test]
fn another_coding_below_the_chunks_passes() {
    let (_origin, _door, mut client, mut server) = asked();
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
    server.send(&format!("{}0\r\n\r\n", chunk("not looked into")));
    client.head();
    assert_eq!(client.chunks(), (b"not looked into".to_vec(), true));
}

#[test]
fn a_client_that_does_not_read_loses_nothing_and_holds_nobody_up() {
    let (_origin, door, mut client, mut server) = asked();
    let piece = "x".repeat(100_000);
    let sending = std::thread::spawn(move || {
        server.send(HEAD);
        for number in 0..20 {
            server.send(&chunk(&format!("data: {number} {piece}\n\n")));
        }
        server.send("0\r\n\r\n");
        server
    });
    client.until(b"data: 0 ");
    for _ in 0..20 {
        assert_eq!(
            door.state()["in_flight"],
            1,
            "others are answered meanwhile"
        );
    }
    let body = client.until(b"\r\n0\r\n\r\n");
    let text = String::from_utf8(body).unwrap();
    for number in 1..20 {
        assert!(text.contains(&format!("data: {number} x")));
    }
    assert_eq!(text.bytes().filter(|b| *b == b'x').count(), 20 * 100_000);
    sending.join().unwrap();
    door.await_in_flight(0);
}

#[test]
fn a_client_that_leaves_with_data_unread_frees_its_slot() {
    let (_origin, door, mut client, mut server) = asked();
    server.send(HEAD);
    server.send(&chunk("data: x\n\n"));
    client.until(b"data: x\n\n");
    let sending = std::thread::spawn(move || {
        let piece = chunk(&"y".repeat(100_000));
        let mut sent = 0;
        while std::io::Write::write_all(&mut server.stream, piece.as_bytes()).is_ok() {
            sent += 1;
            assert!(
                sent < 10_000,
                "nobody reads: the socket fills, and then breaks"
            );
        }
    });
    client.until(b"yyyy");
    drop(client);
    door.await_in_flight(0);
    sending.join().unwrap();
}

#[test]
fn framing_that_is_none_breaks_the_stream_and_the_connection() {
    for wrong in ["zz\r\n", "5\n", "-1\r\n", "ffffffffffffffff\r\n", "\r\n"] {
        let (_origin, door, mut client, mut server) = asked();
        server.send(&format!("{HEAD}{}", chunk("data: x\n\n")));
        client.until(b"data: x\n\n\r\n");
        server.send(wrong);
        let (rest, is_whole) = client.chunks();
        assert!(!is_whole, "{wrong:?}");
        assert!(rest.starts_with(b"event: error\n"), "{wrong:?}");
        assert!(
            server.rest().is_empty(),
            "the replica's connection is closed"
        );
        door.await_in_flight(0);
    }
}

#[test]
fn an_answer_that_begins_before_the_request_is_whole_goes_on_beside_it() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(&chunk("up 0"));
    let mut server = origin.accept();
    server.head();
    assert_eq!(server.chunk().as_deref(), Some(&b"up 0"[..]));
    server.send(HEAD);
    client.head();
    for number in 1..20 {
        let (up, down) = (format!("up {number}"), format!("down {number}"));
        server.send(&chunk(&down));
        assert_eq!(client.chunk().as_deref(), Some(down.as_bytes()));
        client.send(&chunk(&up));
        assert_eq!(server.chunk().as_deref(), Some(up.as_bytes()));
    }
    client.send("0\r\n\r\n");
    assert_eq!(server.chunk().as_deref(), Some(&b""[..]));
    server.send(&format!("{}0\r\n\r\n", chunk("last")));
    assert_eq!(client.chunks(), (b"last".to_vec(), true));
}
