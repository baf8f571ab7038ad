use super::*;

fn taken(bytes: &str, is_to_head: bool) -> Result<Option<Answer>, BadAnswer> {
    take(&mut BytesMut::from(bytes), is_to_head)
}

fn taken_whole(bytes: &str) -> Answer {
    taken(bytes, false).unwrap().unwrap()
}

#[test]
fn the_end_of_a_body_is_found_as_the_standard_says() {
    let cases = [
        ("200 OK\r\nContent-Length: 5\r\n", "Length(5)", true),
        (
            "200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
            "Length(5)",
            true,
        ),
        ("200 OK\r\nContent-Length: 5, 5\r\n", "Length(5)", true),
        ("200 OK\r\nContent-Length: 0\r\n", "Nothing", true),
        (
            "200 OK\r\nContent-Length: 5\r\nConnection: x, Close\r\n",
            "Length(5)",
            false,
        ),
        ("200 OK\r\nTransfer-Encoding: Chunked\r\n", "Chunks", true),
        (
            "200 OK\r\nTransfer-Encoding: gzip, chunked\r\n",
            "Chunks",
            true,
        ),
        (
            "200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            "Chunks",
            true,
        ),
        (
            "200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Chunks",
            true,
        ),
        ("200 OK\r\nTransfer-Encoding: gzip\r\n", "UntilClose", false),
        ("200 OK\r\n", "UntilClose", false),
        ("204 No Content\r\nContent-Length: 5\r\n", "Nothing", true),
        ("304 Not Modified\r\nContent-Length: 5\r\n", "Nothing", true),
        (
            "103 Early Hints\r\nTransfer-Encoding: chunked\r\n",
            "Nothing",
            true,
        ),
        (
            "101 Switching Protocols\r\nUpgrade: websocket\r\n",
            "Nothing",
            true,
        ),
    ];
    for (text, rest, keeps_alive) in cases {
        let answer = taken_whole(&format!("HTTP/1.1 {text}\r\n"));
        let found = format!("{:?}", answer.rest);
        assert!(found.starts_with(rest), "{text:?}: {found}");
        assert_eq!(answer.keeps_alive, keeps_alive, "{text:?}");
    }
    let to_head = taken("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true);
    assert!(matches!(to_head.unwrap().unwrap().rest, Rest::Nothing));
}

#[test]
fn an_old_server_keeps_a_connection_only_where_it_says_so() {
    let silent = taken_whole("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n");
    assert!(!silent.keeps_alive);
    assert_eq!(silent.head.version(), Version::HTTP_10);
    let asked = "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\n\r\n";
    assert!(taken_whole(asked).keeps_alive);
}

#[test]
fn a_length_that_does_not_hold_or_is_said_twice_does_not_go_on() {
    let both = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n";
    assert!(
        !taken_whole(both)
            .head
            .headers()
            .contains_key(CONTENT_LENGTH)
    );
    let twice = taken_whole("HTTP/1.1 200 OK\r\nContent-Length: 05, 5\r\n\r\n");
    let lengths: Vec<_> = twice
        .head
        .headers()
        .get_all(CONTENT_LENGTH)
        .iter()
        .collect();
    assert_eq!(lengths, ["5"]);
}

#[test]
fn what_has_no_one_meaning_is_no_answer() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: \x01\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        "data: x\n\n",
    ] {
        assert!(taken(text, false).is_err(), "{text:?}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(HEAD_BYTES));
    assert!(taken(&endless, false).is_err());
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}\r\n",
        "a: b\r\n".repeat(MAX_FIELDS + 1)
    );
    assert!(taken(&many, false).is_err());
}

#[test]
fn a_head_is_taken_when_it_is_whole_and_what_follows_stays() {
    let text = "HTTP/1.1 201 Made\r\nX-A: 1\r\nx-empty:\r\nX-A: \u{b5}\r\nContent-Length: 9\r\n\r\nthe body";
    let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let end = bytes.len() - "the body".len();
    for cut in 0..end {
        let mut held = BytesMut::from(&bytes[..cut]);
        assert!(take(&mut held, false).unwrap().is_none(), "{cut}");
        assert_eq!(held.len(), cut, "nothing is lost");
    }
    let mut held = BytesMut::from(&bytes[..]);
    let head = take(&mut held, false).unwrap().unwrap().head;
    assert_eq!(&held[..], b"the body");
    assert_eq!(head.status(), 201);
    let values: Vec<_> = head
        .headers()
        .get_all("x-a")
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    assert_eq!(values, [&b"1"[..], b"\xb5"]);
    assert_eq!(head.headers()["x-empty"], "");
}

#[test]
fn fields_behind_the_last_chunk_are_read() {
    assert!(trailers(b"\r\n").unwrap().is_empty());
    let fields = trailers(b"X-Sum: 6\r\nx-b: c\r\n\r\n").unwrap();
    assert_eq!((fields.len(), &fields["x-sum"]), (2, &HeaderValue::from(6)));
    assert!(trailers(b"no field\r\n\r\n").is_err());
}
