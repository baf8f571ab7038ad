//! Tables: what is taken, and what an error names.

use proptest::prelude::*;

use super::*;

const MINIMAL: &str = r#"{"version": 3, "stages": {"chat": {"models": ["m"], "replicas": [
    {"id": "chat-1", "address": "unix:/run/chat.http", "slots": 8, "state": "ready", "later": 1}]}},
    "routes": [{"path": "/echo/*", "stage": "chat"}], "new_field": {}}"#;

/// The error of MINIMAL with one text replaced.
fn error(from: &str, to: &str) -> TablesError {
    assert!(MINIMAL.contains(from));
    Tables::parse(MINIMAL.replacen(from, to, 1).as_bytes()).expect_err(to)
}

#[test]
fn unknown_fields_are_ignored_and_defaults_fill_the_rest() {
    let tables = Tables::parse(MINIMAL.as_bytes()).unwrap();
    let chat = &tables.stages["chat"];
    assert_eq!(chat.max_queue, 1024);
    assert_eq!(
        chat.replicas[0].address,
        Address::Unix("/run/chat.http".into())
    );
    assert_eq!(tables.limits.body_bytes, 64 << 20);
    assert_eq!(tables.models()["m"], "chat");
}

#[test]
fn tables_survive_a_round_trip() {
    let tables = Tables::parse(MINIMAL.as_bytes()).unwrap();
    let text = serde_json::to_vec(&tables).unwrap();
    assert_eq!(Tables::parse(&text).unwrap(), tables);
}

#[test]
fn an_error_names_the_key_path() {
    let cases = [
        (
            "\"slots\": 8",
            "\"slots\": 0",
            "stages.chat.replicas[0].slots",
        ),
        (
            "\"slots\": 8",
            "\"slots\": \"x\"",
            "stages.chat.replicas[0].slots",
        ),
        (
            "unix:/run/chat.http",
            "http://x",
            "stages.chat.replicas[0].address",
        ),
        ("\"ready\"", "\"gone\"", "stages.chat.replicas[0].state"),
        (
            "\"stage\": \"chat\"",
            "\"stage\": \"cat\"",
            "routes[0].stage",
        ),
        ("/echo/*", "echo", "routes[0].path"),
        ("/echo/*", "/e*ho", "routes[0].path"),
        (
            "\"models\": [\"m\"]",
            "\"max_wait_ms\": 0",
            "stages.chat.max_wait_ms",
        ),
        ("\"version\": 3,", "", ""),
        (
            "\"new_field\": {}",
            "\"keys\": [{\"id\": \"a\", \"sha256\": \"12\"}]",
            "keys[0].sha256",
        ),
        (
            "\"new_field\": {}",
            "\"limits\": {\"body_budget_bytes\": 1}",
            "limits.body_budget_bytes",
        ),
    ];
    for (from, to, path) in cases {
        assert_eq!(error(from, to).path, path, "{to}");
    }
}

#[test]
fn a_missing_field_is_named() {
    let complaint = error("\"slots\": 8, ", "").to_string();
    assert!(complaint.contains("stages.chat.replicas[0]"), "{complaint}");
    assert!(complaint.contains("slots"), "{complaint}");
}

#[test]
fn one_model_has_one_stage() {
    let twice = r#"{"version": 1, "stages": {"a": {"models": ["m"]}, "b": {"models": ["m"]}}}"#;
    assert_eq!(
        Tables::parse(twice.as_bytes()).unwrap_err().path,
        "stages.b.models[0]"
    );
}

#[test]
fn text_after_the_document_is_an_error() {
    assert!(Tables::parse(format!("{MINIMAL} x").as_bytes()).is_err());
}

#[test]
fn header_values_cannot_carry_line_breaks() {
    let path = error("\"later\": 1", "\"authorization\": \"Bearer a\\r\\nx: y\"").path;
    assert_eq!(path, "stages.chat.replicas[0].authorization");
}

#[test]
fn addresses_round_trip() {
    for text in [
        "unix:/a/b.sock",
        "tcp:127.0.0.1:80",
        "tcp:[::1]:8080",
        "tcp:node-3:9001",
    ] {
        let address = Address::try_from(text.to_owned()).unwrap();
        assert_eq!(address.to_string(), text);
    }
    for text in [
        "unix:rel",
        "tcp:::1:80",
        "tcp:host",
        "tcp::80",
        "tcp:h:0",
        "tcp:h:99999",
        "x",
    ] {
        assert!(Address::try_from(text.to_owned()).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Tables::parse(&bytes);
    }

    #[test]
    fn no_address_makes_it_panic(text in "(unix|tcp):.{0,20}") {
        let _ = Address::try_from(text);
    }
}
