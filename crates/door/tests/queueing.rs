//! The queue as clients and control meet it.

mod common;

use common::{Client, Door, Origin, eventually, tables};
use serde_json::{Value, json};

fn with_slots(origin: &Origin, slots: u64) -> Value {
    let mut tables = tables(&[origin]);
    tables["stages"]["s"]["replicas"] = json!([origin.replica_with(json!({"slots": slots}))]);
    tables["stages"]["s"]["max_wait_ms"] = json!(60_000);
    tables
}

fn post(door: &Door, target: &str, fields: &str) -> Client {
    let mut client = door.connect();
    client.send(&format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: 0\r\n\r\n"
    ));
    client
}

#[test]
fn one_waits_for_the_slot_of_another_and_is_told_so() {
    let origin = Origin::start();
    let door = Door::start(&with_slots(&origin, 1));
    let mut first = post(&door, "/1", "");
    let mut server = origin.accept();
    server.request();
    let mut second = post(&door, "/2", "");
    eventually("it waits", || door.state()["queued"] == 1);
    server.answer("1");
    assert_eq!(first.response().text(), "1");
    assert!(server.request().start.contains("/2"));
    server.answer("2");
    let response = second.response();
    assert_eq!(response.text(), "2");
    assert!(response.field("x-preroll-expected-wait").is_some());
    assert!(
        response
            .field("x-preroll-queue-ms")
            .unwrap()
            .parse::<u64>()
            .is_ok()
    );
}

#[test]
fn a_full_queue_refuses_with_429_and_a_deadline_in_the_queue_is_504() {
    let origin = Origin::start();
    let mut tables = with_slots(&origin, 1);
    tables["stages"]["s"]["max_queue"] = json!(1);
    tables["stages"]["s"]["default_service_ms"] = json!(1);
    let door = Door::start(&tables);
    let _first = post(&door, "/1", "");
    let mut server = origin.accept();
    server.request();
    let mut hurried = post(&door, "/2", "X-Request-Timeout: 0.5\r\n");
    eventually("it waits", || door.state()["queued"] == 1);
    let refused = post(&door, "/3", "").response();
    assert_eq!(
        (refused.status, refused.json()["error"]["type"].clone()),
        (429, json!("overloaded"))
    );
    let ms: u64 = refused.field("retry-after-ms").unwrap().parse().unwrap();
    assert!((1..=60_000).contains(&ms));
    assert!(refused.field("x-preroll-expected-wait").is_some());
    let late = hurried.response();
    assert_eq!(
        (late.status, late.json()["error"]["type"].clone()),
        (504, json!("deadline"))
    );
    assert_eq!(late.field("x-should-retry"), Some("false"));
    assert!(
        origin.try_accept().is_none(),
        "expired work never reaches a replica"
    );
}

#[test]
fn a_call_for_a_held_slot_goes_before_earlier_arrivals() {
    let origin = Origin::start();
    let door = Door::start(&with_slots(&origin, 2));
    let mut parent = post(&door, "/parent", "X-Request-Id: parent-1\r\n");
    let mut on_parent = origin.accept();
    on_parent.request();
    let mut other = post(&door, "/other", "");
    let mut on_other = origin.accept();
    on_other.request();
    let mut early = post(&door, "/early", "X-Preroll-Parent: parent-1\r\n");
    eventually("it waits", || door.state()["queued"] == 1);
    let mut call = door.connect_internal();
    call.send(
        "POST /call HTTP/1.1\r\nHost: a\r\nX-Preroll-Parent: parent-1\r\nContent-Length: 0\r\n\r\n",
    );
    eventually("both wait", || door.state()["queued"] == 2);
    on_other.answer("other");
    assert_eq!(other.response().text(), "other");
    assert!(
        on_other.request().start.contains("/call"),
        "the call for a held slot is first"
    );
    on_other.answer("call");
    assert_eq!(call.response().text(), "call");
    assert!(on_other.request().start.contains("/early"));
    on_other.answer("early");
    assert_eq!(early.response().text(), "early");
    on_parent.answer("parent");
    assert_eq!(parent.response().text(), "parent");
}

#[test]
fn a_request_is_held_for_a_start_and_control_is_told() {
    let origin = Origin::start();
    let mut tables = tables(&[]);
    tables["stages"]["s"]["start"] = json!({"expected_ms": 1500});
    let door = Door::start(&tables);
    let mut events = Client::new(&door.dir.join("admin"));
    events.send("GET /events?since=0 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut waiting = post(&door, "/", "");
    assert_eq!(events.head().status, 200);
    let event: Value = serde_json::from_slice(&events.chunk().expect("an event")).unwrap();
    assert_eq!(
        (&event["kind"], &event["stage"]),
        (&json!("demand"), &json!("s"))
    );
    assert_eq!(event["seq"], 1);
    tables["version"] = json!(2);
    tables["stages"]["s"]["replicas"] = json!([origin.replica()]);
    assert_eq!(door.admin("PUT", "/tables", &tables.to_string()).0, 200);
    let mut server = origin.accept();
    server.request();
    server.answer("started");
    assert_eq!(waiting.response().text(), "started");
}

#[test]
fn requests_in_flight_and_in_the_queue_survive_new_tables() {
    let (old, new) = (Origin::start(), Origin::start());
    let mut tables = with_slots(&old, 1);
    let door = Door::start(&tables);
    let mut running = post(&door, "/running", "");
    let mut server = old.accept();
    server.request();
    let mut queued = post(&door, "/queued", "");
    eventually("it waits", || door.state()["queued"] == 1);
    tables["version"] = json!(2);
    tables["stages"]["s"]["replicas"] = json!([new.replica()]);
    assert_eq!(
        door.admin("PUT", "/tables", &tables.to_string()),
        (200, "{\"version\":2}\n".into())
    );
    let mut on_new = new.accept();
    assert!(on_new.request().start.contains("/queued"));
    on_new.answer("by the new one");
    assert_eq!(queued.response().text(), "by the new one");
    server.answer("finished");
    assert_eq!(running.response().text(), "finished");
}

#[test]
fn wrong_or_old_tables_change_nothing() {
    let origin = Origin::start();
    let mut tables = tables(&[&origin]);
    let door = Door::start(&tables);
    tables["version"] = json!(0);
    assert_eq!(door.admin("PUT", "/tables", &tables.to_string()).0, 409);
    tables["version"] = json!(5);
    tables["routes"][0]["stage"] = json!("nope");
    let (status, body) = door.admin("PUT", "/tables", &tables.to_string());
    assert_eq!(status, 400);
    assert!(body.contains("routes[0].stage"), "{body}");
    let (_, health) = door.admin("GET", "/healthz", "");
    assert_eq!(
        serde_json::from_str::<Value>(&health).unwrap()["tables_version"],
        1
    );
}

#[test]
fn a_life_is_told_and_metrics_are_exposed() {
    let origin = Origin::start();
    let door = Door::start(&tables(&[&origin]));
    let mut client = post(&door, "/", "X-Request-Id: life-1\r\n");
    let mut server = origin.accept();
    server.request();
    server.send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
    for _ in 0..2 {
        server.send(&format!("{:x}\r\n{event}\r\n", event.len()));
    }
    server.send("0\r\n\r\n");
    assert!(client.response().is_whole);
    let (status, why) = door.admin("GET", "/why/life-1", "");
    let why: Value = serde_json::from_str(&why).unwrap();
    assert_eq!(
        (status, &why["status"], &why["outcome"]),
        (200, &json!(200), &json!("complete"))
    );
    assert_eq!(door.admin("GET", "/why/other", "").0, 404);
    let (_, metrics) = door.admin("GET", "/metrics", "");
    let line = |name: &str| {
        metrics
            .lines()
            .any(|line| line.starts_with(name) && line.ends_with(" 1"))
    };
    assert!(metrics.contains("# EOF"), "{metrics}");
    assert!(line("vllm:time_to_first_token_seconds_count"), "{metrics}");
}
