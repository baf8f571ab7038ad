use super::*;

fn head(text: &str) -> Result<Option<Head>, u16> {
    read(text.as_bytes()).map_err(|reject| reject.status.as_u16())
}

fn framing(fields: &str) -> Result<Framing, u16> {
    let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    head(&text).map(|head| head.expect("complete").framing)
}

#[test]
fn an_ordinary_head_is_read_with_its_framing() {
    let text = "GET /a?b=c HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";
    assert_eq!(
        head(text),
        Ok(Some(Head {
            len: text.len(),
            framing: Framing::Length(0),
            length_at: (0, 0),
        }))
    );
    assert_eq!(framing("Content-Length: 12\r\n"), Ok(Framing::Length(12)));
    let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:  0012 \r\nX-A: 12\r\n\r\n";
    let (from, to) = head(text).unwrap().unwrap().length_at;
    assert_eq!((&text[from..to], &text[to..to + 3]), ("0012", " \r\n"));
    assert_eq!(
        framing("transfer-encoding: Chunked\r\n"),
        Ok(Framing::Chunked)
    );
}

#[test]
fn a_head_cut_anywhere_is_incomplete_and_never_refused() {
    let text = "POST /v1/x HTTP/1.1\r\nHost: a:1\r\nContent-Length: 3\r\nX-A: b\r\n\r\n";
    for cut in 0..text.len() {
        assert_eq!(head(&text[..cut]), Ok(None), "cut at {cut}");
    }
}

#[test]
fn a_length_has_one_reading_or_is_refused() {
    let refused = [
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: 1 2\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ];
    for fields in refused {
        assert_eq!(framing(fields), Err(400), "{fields:?}");
    }
}

#[test]
fn a_transfer_encoding_other_than_chunked_is_not_implemented() {
    for value in [
        "identity",
        "gzip, chunked",
        "chunked, chunked",
        "xchunked",
        "chunked;q=1",
    ] {
        assert_eq!(
            framing(&format!("Transfer-Encoding: {value}\r\n")),
            Err(501),
            "{value}"
        );
    }
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(head(old), Err(400));
}

#[test]
fn a_host_is_required_once_and_must_be_one() {
    assert_eq!(head("GET / HTTP/1.1\r\n\r\n"), Err(400));
    assert!(head("GET / HTTP/1.0\r\n\r\n").is_ok());
    for host in ["a", "a.b:80", "[::1]:80", "127.0.0.1", "", "x_y-z~"] {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert!(head(&text).is_ok(), "{host}");
    }
    for host in [
        "a b", "a/b", "user@a", "a:b", "a:123456", "[::1", "a,b\"", "a\\b", "<a>",
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(head(&text), Err(400), "{host}");
    }
    assert_eq!(
        head("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        Err(400)
    );
}

#[test]
fn request_lines_and_fields_follow_the_grammar() {
    let refused = [
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GE(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
    ];
    for (text, status) in refused {
        assert_eq!(head(text), Err(status), "{text:?}");
    }
    for text in [
        "GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert!(matches!(head(text), Ok(Some(_))), "{text:?}");
    }
}

#[test]
fn the_number_of_fields_is_bounded() {
    let text = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: a\r\n".repeat(100)
    );
    assert_eq!(head(&text), Err(431));
}
