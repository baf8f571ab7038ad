//! Bounds on what a client may take: time, bytes, connections; and who may come in at all.

mod common;

use common::{Client, Dir, Door, Origin, eventually, tables};
use serde_json::{Value, json};

fn with_limits(origin: &Origin, limits: Value) -> Value {
    let mut tables = tables(&[origin]);
    for (key, value) in limits.as_object().unwrap() {
        tables["limits"][key] = value.clone();
    }
    tables
}

#[test]
fn a_slow_head_is_a_408_and_a_silent_connection_is_closed() {
    let origin = Origin::start();
    let door = Door::start(&with_limits(&origin, json!({"head_timeout_ms": 200})));
    let mut slow = door.connect();
    slow.send("GET / HTTP/1.1\r\nHost:");
    let mut silent = door.connect();
    assert_eq!(slow.response().status, 408);
    assert!(slow.rest().is_empty());
    assert!(silent.rest().is_empty());
}

#[test]
fn a_head_that_is_too_large_is_a_431() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    for fields in [
        format!("X: {}\r\n", "x".repeat(70_000)),
        "X: y\r\n".repeat(101),
    ] {
        let mut client = door.connect();
        client.send(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(client.response().status, 431);
    }
    let mut client = door.connect();
    client.send(&format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "x".repeat(60_000)
    ));
    let mut server = origin.accept();
    assert_eq!(server.request().field("x").map(str::len), Some(60_000));
    server.answer("");
    assert_eq!(client.response().status, 200);
}

#[test]
fn a_body_over_its_bound_is_a_413_with_a_length_or_without() {
    let origin = Origin::start();
    let limits = json!({"body_bytes": 1000, "body_budget_bytes": 1500});
    let door = Door::start(&with_limits(&origin, limits));
    let mut announced = door.connect();
    announced.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
    assert_eq!(announced.response().status, 413);
    let mut chunked = door.connect();
    chunked.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    for _ in 0..3 {
        chunked.send(&chunk);
    }
    assert_eq!(chunked.response().status, 413);
    eventually("its slot is free", || door.state()["in_flight"] == 0);
}

#[test]
fn bodies_that_are_held_share_one_budget() {
    let origin = Origin::start();
    let mut tables = with_limits(
        &origin,
        json!({"body_bytes": 1000, "body_budget_bytes": 1500}),
    );
    tables["routes"] = json!([]);
    tables["stages"]["s"]["models"] = json!(["m"]);
    let door = Door::start(&tables);
    let body = json!({"model": "m", "x": "y".repeat(900)}).to_string();
    let mut first = door.connect();
    first.post("/", &body);
    let mut server = origin.accept();
    server.request();
    let mut second = door.connect();
    second.post("/", &body);
    let refused = second.response();
    assert_eq!(refused.status, 429);
    assert!(refused.field("retry-after").is_some());
    server.answer("ok");
    assert_eq!(first.response().text(), "ok");
    let mut third = door.connect();
    third.post("/", &body);
    server.request();
    server.answer("ok");
    assert_eq!(third.response().text(), "ok", "the budget came back");
}

#[test]
fn a_body_that_stands_still_is_a_408_and_frees_its_slot() {
    let origin = Origin::start();
    let door = Door::start(&with_limits(&origin, json!({"body_timeout_ms": 200})));
    let mut client = door.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    let mut server = origin.accept();
    server.head();
    assert_eq!(client.response().status, 408);
    server.rest();
    door.await_in_flight(0);
}

#[test]
fn connections_beyond_the_limit_are_told_so() {
    let origin = Origin::start();
    let door = Door::start(&with_limits(&origin, json!({"connections": 4})));
    let held: Vec<Client> = (0..4).map(|_| door.connect()).collect();
    let mut beyond = door.connect();
    let response = beyond.response();
    assert_eq!(
        (response.status, response.field("retry-after")),
        (503, Some("1"))
    );
    drop(held);
    eventually("there is room again", || {
        let mut client = door.connect();
        client.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response().status == 200
    });
}

#[test]
fn keys_are_asked_for_on_the_public_listener_only() {
    let origin = Origin::start();
    let mut tables = tables(&[&origin]);
    let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"; // of "secret"
    tables["keys"] = json!([{"id": "team", "sha256": digest}]);
    let door = Door::start(&tables);
    for field in [
        "",
        "Authorization: Bearer wrong\r\n",
        "Authorization: secret\r\n",
    ] {
        let mut client = door.connect();
        client.send(&format!(
            "GET /v1/models HTTP/1.1\r\nHost: a\r\n{field}\r\n"
        ));
        let response = client.response();
        assert_eq!(
            (response.status, response.field("www-authenticate")),
            (401, Some("Bearer"))
        );
    }
    let mut client = door.connect();
    client.send("GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(door.connect().get("/healthz").status, 200);
    assert_eq!(door.connect_internal().get("/v1/models").status, 200);
}

#[test]
fn the_admin_port_checks_host_origin_and_token() {
    let origin = Origin::start();
    let dir = Dir::new();
    let token = dir.join("token");
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let _door = Door::start_with(dir, &tables(&[&origin]), |args| {
        args.admin_tcp = Some(preroll_door::tables::Address::Tcp("127.0.0.1".into(), port));
        args.admin_token_file = Some(token);
    });
    let ask = |fields: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let text = format!("GET /state HTTP/1.1\r\n{fields}Connection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        answer[9..12].parse::<u16>().unwrap()
    };
    let key = "Authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(ask(&format!("Host: localhost:{port}\r\n{key}")), 200);
    assert_eq!(ask("Host: localhost\r\n"), 401);
    assert_eq!(ask(&format!("Host: evil.example\r\n{key}")), 403);
    assert_eq!(
        ask(&format!(
            "Host: localhost\r\nOrigin: http://evil.example\r\n{key}"
        )),
        403
    );
}

#[test]
fn a_drain_fails_readiness_serves_on_for_a_while_and_finishes_what_runs() {
    let origin = Origin::start();
    let mut door = Door::start(&with_limits(&origin, json!({"drain_accept_ms": 1500})));
    let mut running = door.connect();
    running.post("/", "{}");
    let mut server = origin.accept();
    server.request();
    let mut idle = door.connect();
    assert_eq!(idle.get("/readyz").status, 200);
    door.drain();
    eventually("readiness fails", || {
        door.connect().get("/readyz").status == 503
    });
    let mut late = door.connect();
    late.post("/late", "{}");
    let mut on_late = origin.accept();
    on_late.request();
    on_late.answer("still served");
    let response = late.response();
    assert_eq!(
        (response.text().as_str(), response.field("connection")),
        ("still served", Some("close"))
    );
    assert!(idle.rest().is_empty(), "idle connections end");
    server.answer("finished");
    assert_eq!(running.response().text(), "finished");
    assert_eq!(door.join(), Ok(()));
}

#[test]
fn the_access_log_keeps_errors_and_the_sample() {
    let origin = Origin::start();
    let dir = Dir::new();
    let log = dir.join("access");
    let file = log.clone();
    let mut door = Door::start_with(dir, &tables(&[&origin]), |args| {
        args.access_log = Some(log);
        args.access_sample = 0.0;
    });
    let mut client = door.connect();
    client.post("/fine", "{}");
    let mut server = origin.accept();
    server.request();
    server.answer("ok");
    client.response();
    client.post("/broken", "{}");
    server.request();
    drop(server);
    assert_eq!(client.response().status, 502);
    drop(client);
    door.drain();
    assert_eq!(door.join(), Ok(()));
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert_eq!(
        (&lines[0]["path"], &lines[0]["status"]),
        (&json!("/broken"), &json!(502))
    );
    assert_eq!(lines[0]["outcome"], "broken");
}

#[test]
fn a_body_over_its_bound_says_nothing_of_the_next_request() {
    let origin = Origin::start();
    let mut tables = tables(&[&origin]);
    tables["limits"]["body_bytes"] = json!(10);
    let door = Door::start(&tables);
    let mut client = door.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 413);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the next request arrives", || {
        let Some(mut server) = origin.try_accept() else {
            return false;
        };
        let is_next = server.head().start.starts_with("GET ");
        if is_next {
            server.answer("x");
        }
        is_next
    });
    assert_eq!(client.response().status, 200);
}

#[test]
fn a_replica_that_falls_silent_is_noticed_after_an_upload_beside_its_answer() {
    for framing in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let origin = Origin::start();
        let mut tables = tables(&[&origin]);
        tables["stages"]["s"]["stream_idle_timeout_ms"] = json!(500);
        let door = Door::start(&tables);
        let mut client = door.connect();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\nabc");
        let mut server = origin.accept();
        server.until(b"abc");
        server.send(&format!(
            "HTTP/1.1 200 OK\r\n{framing}\r\n\r\n5\r\nhello\r\n"
        ));
        client.until(b"hello");
        client.send(&"x".repeat(997));
        door.state(); // It answers by the same loop: what was sent before has been read.
        client.send(&"x".repeat(39_000));
        client.rest();
        door.await_in_flight(0);
    }
}
