//! Answers in every form that HTTP/1 knows, and what is none: the door's own client to replicas.

mod common;

use common::{Client, Door, Origin, asked, eventually, tables};

/// The next exchange is on another connection.
fn serves_on_another(client: &mut Client, origin: &Origin) {
    client.post("/", "{}");
    let mut next = origin.accept();
    next.request();
    next.answer("next");
    assert_eq!(client.response().text(), "next");
}

/// The same client and the same replica have another exchange, on the connection that they had.
fn serves_again(client: &mut Client, server: &mut Client) {
    client.post("/again", "{}");
    assert!(server.request().start.starts_with("POST /again "));
    server.answer("again");
    assert_eq!(client.response().text(), "again");
}

#[test]
fn an_answer_is_the_same_wherever_it_is_cut() {
    let (_origin, door, mut client, mut server) = asked();
    let answer = "HTTP/1.1 201 Made\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello";
    for cut in 1..answer.len() {
        server.send(&answer[..cut]);
        door.state(); // It answers by the same loop: what was sent before has been read.
        server.send(&answer[cut..]);
        let got = client.response();
        assert_eq!((got.status, got.field("x-a")), (201, Some("b")), "{cut}");
        assert_eq!(got.text(), "hello", "cut at {cut}");
        client.post("/", "{}");
        server.request();
    }
}

#[test]
fn an_answer_ends_where_it_says_and_the_connection_serves_again() {
    let answers = [
        ("200 OK\r\nContent-Length: 2\r\n\r\nab", "ab"),
        (
            "200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
            "ab",
        ),
        ("200 OK\r\nContent-Length: 0\r\n\r\n", ""),
        ("204 No Content\r\n\r\n", ""),
        ("304 Not Modified\r\nETag: x\r\n\r\n", ""),
        (
            "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            "ab",
        ),
        (
            "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 1\r\n\r\n",
            "ab",
        ),
        (
            "200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            "ab",
        ),
        (
            "103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
            "ab",
        ),
    ];
    for (answer, body) in answers {
        let (_origin, _door, mut client, mut server) = asked();
        server.send(&format!("HTTP/1.1 {answer}"));
        assert_eq!(client.response().text(), body, "{answer:?}");
        serves_again(&mut client, &mut server);
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_passes_and_the_next_is_on_another() {
    for head in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    ] {
        let (origin, _door, mut client, mut server) = asked();
        server.send(&format!("{head}one,"));
        let got = client.head();
        assert_eq!(got.field("transfer-encoding"), Some("chunked"), "{head:?}");
        assert_eq!(client.chunk().as_deref(), Some(&b"one,"[..]));
        server.send("two");
        drop(server);
        assert_eq!(client.chunks(), (b"two".to_vec(), true), "{head:?}");
        serves_on_another(&mut client, &origin);
    }
}

#[test]
fn a_connection_that_the_replica_will_close_is_not_used_again() {
    let (origin, _door, mut client, mut server) = asked();
    server.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(client.response().text(), "ab");
    serves_on_another(&mut client, &origin);
    assert_eq!(server.rest(), b"", "nothing more was said there");
}

#[test]
fn what_is_said_behind_an_answer_or_unasked_is_no_answer_to_the_next() {
    let extra = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    for is_later in [false, true] {
        let (origin, door, mut client, mut server) = asked();
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        if is_later {
            server.send(answer);
            assert_eq!(client.response().text(), "ab");
            server.send(extra);
            door.state(); // What was sent before has come.
        } else {
            server.send(&format!("{answer}{extra}"));
            assert_eq!(client.response().text(), "ab");
        }
        serves_on_another(&mut client, &origin);
    }
}

#[test]
fn an_answer_to_head_has_no_body_whatever_it_announces() {
    let (_origin, _door, mut client, mut server) = asked();
    server.answer("x");
    client.response();
    for length in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        client.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(server.head().start.starts_with("HEAD /a "));
        server.send(&format!(
            "HTTP/1.1 200 OK\r\n{length}\r\nX-Is: head\r\n\r\n"
        ));
        assert_eq!(client.head().field("x-is"), Some("head"));
        serves_again(&mut client, &mut server);
    }
}

#[test]
fn what_has_no_one_meaning_is_a_502_and_its_connection_is_closed() {
    for wrong in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 OK\r\n\r\n",
        "\r\n\r\n\x00",
    ] {
        let (_origin, door, mut client, mut server) = asked();
        server.send(wrong);
        assert_eq!(client.response().status, 502, "{wrong:?}");
        assert_eq!(server.rest(), b"", "{wrong:?}");
        door.await_in_flight(0);
    }
}

#[test]
fn a_head_without_an_end_is_a_502() {
    let (_origin, _door, mut client, mut server) = asked();
    let sending = std::thread::spawn(move || {
        let field = format!("X-A: {}\r\n", "a".repeat(1000));
        std::io::Write::write_all(&mut server.stream, b"HTTP/1.1 200 OK\r\n").unwrap();
        for _ in 0..80 {
            if std::io::Write::write_all(&mut server.stream, field.as_bytes()).is_err() {
                break;
            }
        }
        server.rest();
    });
    assert_eq!(client.response().status, 502);
    sending.join().unwrap();
}

#[test]
fn an_answer_that_comes_before_the_upload_is_whole_reaches_the_client() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbegin");
    let mut server = origin.accept();
    server.until(b"begin");
    server.send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbig!");
    drop(server);
    let got = client.response();
    assert_eq!((got.status, got.text()), (413, "big!".to_owned()));
    door.await_in_flight(0);
}

#[test]
fn an_upload_and_its_trailers_arrive_as_they_were() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Host\r\n\r\n",
    );
    client.send("3\r\nabc\r\n0\r\nX-Sum: 6\r\nHost: evil\r\nX-Unsaid: 1\r\n\r\n");
    let mut server = origin.accept();
    server.head();
    let sent = server.until(b"\r\n\r\n");
    assert_eq!(sent, b"3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n");
    server.answer("x");
    assert_eq!(client.response().status, 200);
}

#[test]
fn a_large_body_passes_a_slow_replica_whole() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    let body = format!("\"{}\"", "0123456789".repeat(300_000));
    let sending = {
        let mut stream = client.stream.try_clone().unwrap();
        let text = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        std::thread::spawn(move || std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap())
    };
    let mut server = origin.accept();
    server.head();
    eventually(
        "others are answered while the replica does not read",
        || door.state()["in_flight"] == 1,
    );
    let got = server.until(b"9\"");
    assert_eq!(got, body.as_bytes());
    sending.join().unwrap();
    server.answer("x");
    assert_eq!(client.response().status, 200);
}

#[test]
fn what_lies_there_before_a_byte_was_sent_answers_something_else() {
    let (origin, _door, mut client, mut server) = asked();
    server.answer("x");
    assert_eq!(client.response().text(), "x");
    // The door's next write finds that nobody reads, and none of it leaves.
    server.stream.shutdown(std::net::Shutdown::Read).unwrap();
    client.post("/b", "{}");
    let mut next = origin.accept();
    next.request();
    let _ = std::io::Write::write_all(
        &mut server.stream,
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    );
    next.answer("next");
    assert_eq!(client.response().text(), "next");
}
