//! Requests and answers through the door: framing, hop-by-hop fields, keep-alive, pipelining.

mod common;

use common::{Client, Door, Origin, tables};
use serde_json::json;

#[test]
fn a_request_and_its_answer_pass_with_ids_and_without_hop_by_hop_fields() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send(concat!(
        "POST /a/b?c=d HTTP/1.1\r\nHost: example\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n",
        "Keep-Alive: timeout=5\r\nTE: gzip\r\nX-Request-Id: my-id\r\nX-Kept: v\r\nAuthorization: Bearer x\r\n",
        "X-Preroll-Parent: p\r\nContent_Length: 9\r\nContent-Length: 3\r\n\r\nabc"
    ));
    let mut server = origin.accept();
    let request = server.request();
    assert_eq!(request.start, "POST /a/b?c=d HTTP/1.1");
    assert_eq!(request.text(), "abc");
    assert_eq!(request.field("x-request-id"), Some("my-id"));
    assert_eq!(request.field("x-kept"), Some("v"));
    let trace = request.field("traceparent").expect("made");
    assert_eq!((trace.len(), &trace[..3]), (55, "00-"));
    for gone in [
        "x-hop",
        "keep-alive",
        "te",
        "connection",
        "authorization",
        "x-preroll-parent",
        "content_length",
    ] {
        assert_eq!(request.field(gone), None, "{gone}");
    }
    server.send(concat!(
        "HTTP/1.1 201 Created\r\nConnection: X-Private\r\nX-Private: 1\r\nX-Own: 2\r\n",
        "X-Preroll-Replica: forged\r\nContent-Length: 2\r\n\r\nok"
    ));
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (201, "ok"));
    assert_eq!(response.field("x-request-id"), Some("my-id"));
    assert_eq!(response.field("x-own"), Some("2"));
    assert_eq!(response.field("x-private"), None);
    assert!(
        response
            .field("x-preroll-replica")
            .is_some_and(|id| id.starts_with('r'))
    );
    assert_eq!(response.field("x-preroll-queue-ms"), Some("0"));
}

#[test]
fn chunks_leave_one_by_one_as_they_come_and_trailers_follow() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    let mut server = origin.accept();
    assert_eq!(server.request().field("te"), Some("trailers"));
    server.send("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(client.head().status, 200);
    for part in ["a", "bc", "def"] {
        // The next one is sent only when this one has arrived: nothing may hold it back.
        server.send(&format!("{:x}\r\n{part}\r\n", part.len()));
        assert_eq!(client.chunk().as_deref(), Some(part.as_bytes()));
    }
    server.send("0\r\nX-Sum: 6\r\n\r\n");
    let end = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
    assert_eq!(end.to_ascii_lowercase(), "0\r\nx-sum: 6\r\n\r\n");
}

#[test]
fn an_upload_streams_in_chunks_before_it_is_whole() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    let mut server = origin.accept();
    let head = server.head();
    assert_eq!(head.field("transfer-encoding"), Some("chunked"));
    assert_eq!(head.field("content-length"), None);
    assert_eq!(server.chunk().as_deref(), Some(&b"abc"[..]));
    client.send("2\r\nde\r\n0\r\n\r\n");
    assert_eq!(server.chunk().as_deref(), Some(&b"de"[..]));
    assert_eq!(server.chunk().as_deref(), Some(&b""[..]));
    server.answer("done");
    assert_eq!(client.response().text(), "done");
}

#[test]
fn continue_is_said_when_the_body_is_wanted_and_not_to_a_refused_request() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: ";
    client.send(&format!("{head}5\r\n\r\n"));
    assert_eq!(client.head().status, 100);
    client.send("hello");
    let mut server = origin.accept();
    let request = server.request();
    assert_eq!(
        (request.text().as_str(), request.field("expect")),
        ("hello", None)
    );
    server.answer("ok");
    assert_eq!(client.response().status, 200);
    let mut refused = door.connect();
    refused.send(&format!("{head}99999999999\r\n\r\n"));
    assert_eq!(refused.head().status, 413);
}

#[test]
fn head_and_bodiless_answers_keep_the_connection_usable() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = origin.accept();
    assert!(server.head().start.starts_with("HEAD "));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n");
    assert_eq!(client.head().field("content-length"), Some("1234"));
    for status in ["204 No Content", "304 Not Modified"] {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        server.request();
        server.send(&format!("HTTP/1.1 {status}\r\n\r\n"));
        assert!(client.response().start.contains(status));
    }
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.request();
    server.answer("last");
    assert_eq!(client.response().text(), "last");
    assert!(
        origin.try_accept().is_none(),
        "one connection served all four"
    );
}

#[test]
fn pipelined_requests_are_answered_in_order_and_one_at_a_time() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send(concat!(
        "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nyy",
        "GET /3 HTTP/1.1\r\nHost: a\r\n\r\nGET /4 HTTP/1.1\r\nHo"
    ));
    let mut server = origin.accept();
    for (target, body) in [("/1", "x"), ("/2", "yy"), ("/3", "")] {
        let request = server.request();
        assert!(request.start.contains(target), "{}", request.start);
        assert_eq!(request.text(), body);
        assert!(origin.try_accept().is_none());
        server.answer(target);
        assert_eq!(client.response().text(), target);
    }
    client.send("st: a\r\n\r\n");
    assert!(server.request().start.contains("/4"));
    server.answer("/4");
    assert_eq!(client.response().text(), "/4");
}

#[test]
fn a_bad_request_behind_a_good_one_leaves_the_good_answer_whole() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\n\r\n");
    let mut server = origin.accept();
    server.request();
    let body = "x".repeat(300_000);
    server.answer(&body);
    assert_eq!(client.response().text(), body);
    assert_eq!(client.response().status, 400);
    assert!(client.rest().is_empty());
}

#[test]
fn large_bodies_pass_unchanged_both_ways() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let body: String = (0..400_000).map(|n| format!("{n:x}")).collect();
    let mut client = door.connect();
    let (sent, expected) = (body.clone(), body.clone());
    let sender = std::thread::spawn(move || {
        client.post("/", &sent);
        client.response().text()
    });
    let mut server = origin.accept();
    assert_eq!(server.request().text(), body);
    server.answer(&body);
    assert_eq!(sender.join().unwrap(), expected);
}

#[test]
fn messages_with_two_readings_are_refused_and_reach_no_replica() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let cases = [
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
            501,
        ),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
    ];
    for (text, status) in cases {
        let mut client = door.connect();
        client.send(text);
        let response = client.response();
        assert_eq!(response.status, status, "{text:?}");
        assert_eq!(response.json()["error"]["code"], status, "{text:?}");
        assert!(client.rest().is_empty(), "{text:?}");
    }
    assert!(origin.try_accept().is_none());
}

#[test]
fn a_broken_chunked_upload_breaks_the_upstream_request_too() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    let mut server = origin.accept();
    server.head();
    assert_eq!(server.chunk().as_deref(), Some(&b"abc"[..]));
    client.send("3 \r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 400);
    assert_eq!(server.chunk(), None, "no last chunk");
    door.await_in_flight(0);
}

#[test]
fn a_path_prefix_is_stripped_and_the_replicas_host_and_key_are_set() {
    let origin = Origin::start();
    let replica = origin.replica_with(json!({"host": "engine:1", "authorization": "Bearer up"}));
    let mut tables = tables(&[&origin]);
    tables["stages"]["s"]["replicas"] = json!([replica]);
    tables["routes"] = json!([{"path": "/echo/*", "stage": "s", "strip_prefix": true}]);
    let door = Door::start(&tables);
    let mut client = door.connect();
    client.send(
        "GET http://front/echo/x?y=1 HTTP/1.1\r\nHost: front\r\nAuthorization: Bearer mine\r\n\r\n",
    );
    let mut server = origin.accept();
    let request = server.request();
    assert_eq!(request.start, "GET /x?y=1 HTTP/1.1");
    assert_eq!(request.field("host"), Some("engine:1"));
    assert_eq!(request.field("authorization"), Some("Bearer up"));
    server.answer("");
    assert_eq!(client.response().status, 200);
}

#[test]
fn the_model_picks_the_stage_and_is_renamed_for_the_engine() {
    let (one, two) = (Origin::start(), Origin::start());
    let stage = |origin: &Origin, models: &[&str], name: Option<&str>| json!({"models": models, "replicas": [origin.replica_with(json!({"model": name}))]});
    let tables = json!({
        "version": 1,
        "stages": {"a": stage(&one, &["ma"], None), "b": stage(&two, &["mb"], Some("engine\"s"))},
        "limits": {"drain_accept_ms": 0},
    });
    let door = Door::start(&tables);
    let mut client = door.connect();
    client.post(
        "/v1/chat/completions",
        r#"{"x": {"model": "ma"}, "model" : "mb", "stream": true}"#,
    );
    let mut server = two.accept();
    let request = server.request();
    assert_eq!(
        request.text(),
        r#"{"x": {"model": "ma"}, "model" : "engine\"s", "stream": true}"#
    );
    server.answer("b");
    assert_eq!(client.response().text(), "b");
    client.send("GET /v1/realtime?model=ma HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut server = one.accept();
    server.request();
    server.answer("a");
    assert_eq!(client.response().text(), "a");
    client.post("/v1/chat/completions", r#"{"model": "mc"}"#);
    let response = client.response();
    assert_eq!(response.status, 404);
    assert_eq!(response.json()["error"]["type"], "model_not_found");
    let list = client.get("/v1/models").json();
    assert_eq!(list["data"][1]["id"], "mb");
}

#[test]
fn a_form_names_its_model_too() {
    let origin = Origin::start();
    let tables = json!({
        "version": 1,
        "stages": {"a": {"models": ["whisper"], "replicas": [origin.replica()]}, "b": {}},
        "limits": {"drain_accept_ms": 0},
    });
    let door = Door::start(&tables);
    let form = concat!(
        "--BB\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\0\0\r\n",
        "--BB\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--BB--\r\n"
    );
    let mut client = door.connect();
    client.send(&format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=BB\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    ));
    let mut server = origin.accept();
    assert_eq!(server.request().text(), form);
    server.answer("text");
    assert_eq!(client.response().text(), "text");
}

#[test]
fn fragmented_heads_are_put_together() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client: Client = door.connect();
    for byte in b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n" {
        client.send_bytes(&[*byte]);
        std::thread::yield_now();
    }
    let mut server = origin.accept();
    assert_eq!(server.request().start, "GET /slow HTTP/1.1");
    server.answer("ok");
    assert_eq!(client.response().text(), "ok");
}

#[test]
fn two_requests_with_bodies_stay_apart_wherever_they_are_cut() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = door.connect();
    let post = |body: &str| {
        let length = body.len();
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 00{length}\r\n\r\n{body}")
    };
    let both = post("first") + &post("the second");
    client.post("/", "{}");
    let mut server = origin.accept();
    server.request();
    server.answer("x");
    client.response();
    for cut in 1..both.len() {
        client.send(&both[..cut]);
        door.state(); // It answers by the same loop: what was sent before has been read.
        client.send(&both[cut..]);
        for body in ["first", "the second"] {
            let got = server.request();
            assert_eq!(got.text(), body, "cut at {cut}");
            let length: usize = got.field("content-length").unwrap().parse().unwrap();
            assert_eq!(length, body.len(), "cut at {cut}");
            server.answer(body);
            assert_eq!(client.response().text(), body, "cut at {cut}");
        }
    }
}

#[test]
fn connection_names_no_length_away() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: content-length, transfer-encoding\r\nContent-Length: {}\r\n\r\n",
        smuggled.len()
    );
    for is_whole in [true, false] {
        let origin = Origin::start();
        let door = Door::start(&tables(&[&origin]));
        let mut client = door.connect();
        client.send(&head);
        if !is_whole {
            door.state(); // It answers by the same loop: the head has been read alone.
        }
        client.send(smuggled);
        let mut server = origin.accept();
        let got = server.request();
        assert!(got.start.starts_with("POST "));
        assert_eq!(got.text(), smuggled, "{got:?}");
        server.answer("x");
        assert_eq!(client.response().status, 200);
    }
}
