//! Bodies: what is read, what is refused, and that a scan agrees with a parse.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn model(body: &str) -> Option<String> {
    from_json(body.as_bytes()).unwrap().model
}

#[test]
fn a_chat_request_is_read() {
    let body = json!({"model": "m-1", "stream": true, "max_tokens": 100, "n": 2,
        "messages": [{"role": "user", "content": "hello"}], "metadata": {"model": "inner"}});
    let text = body.to_string();
    let facts = from_json(text.as_bytes()).unwrap();
    assert_eq!(facts.model.as_deref(), Some("m-1"));
    assert_eq!(&text[facts.model_span.clone().unwrap()], "\"m-1\"");
    assert!(facts.stream);
    assert_eq!(facts.max_tokens, Some(200));
    let prompt_bytes = body["messages"].to_string().len();
    assert_eq!(facts.tokens(), (prompt_bytes as u64).div_ceil(4) + 200);
}

#[test]
fn the_model_is_found_wherever_it_stands_and_however_it_is_written() {
    for body in [
        r#"{"model":"m"}"#,
        "\u{feff}  {\n\"a\" : [1, {\"model\": \"x\"}, \"]}\\\"\"], \"model\"\t:\r\n\"m\" }  ",
        r#"{"mod\u0065l": "m"}"#,
        r#"{"model": "\u006d"}"#,
        r#"{"prompt": "\"model\": \"x\", \\", "model": "m"}"#,
        r#"{"x": -1.5e3, "y": null, "z": {}, "model": "m"}"#,
    ] {
        assert_eq!(model(body).as_deref(), Some("m"), "{body}");
    }
}

#[test]
fn no_model_is_no_error() {
    for body in [
        "{}",
        "[]",
        "[{\"model\": \"m\"}]",
        "3",
        "\"model\"",
        r#"{"model": null}"#,
    ] {
        assert_eq!(model(body), None, "{body}");
    }
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    for body in [
        r#"{"model": "a", "model": "b"}"#,
        r#"{"model": "a", "mod\u0065l": "b"}"#,
        r#"{"model": null, "model": "b"}"#,
    ] {
        assert_eq!(
            from_json(body.as_bytes()),
            Err(BodyError::TwoModels),
            "{body}"
        );
    }
}

#[test]
fn a_model_that_is_no_name_is_refused() {
    let long = format!(r#"{{"model": "{}"}}"#, "x".repeat(257));
    for body in [
        r#"{"model": 1}"#,
        r#"{"model": ["m"]}"#,
        r#"{"model": ""}"#,
        &long,
    ] {
        assert!(
            matches!(from_json(body.as_bytes()), Err(BodyError::NoName(_))),
            "{body}"
        );
    }
    assert!(matches!(
        from_json(br#"{"model": "a\nb"}"#),
        Err(BodyError::NoName(_))
    ));
}

#[test]
fn broken_documents_are_refused_with_the_place() {
    for body in [
        "",
        "{",
        "{\"",
        "{\"model",
        "{\"model\"",
        "{\"model\":",
        "{\"model\":\"m",
        "{\"model\":\"m\"",
        "{\"model\":\"m\"} x",
        "{\"model\":\"m\"}{}",
        "{\"a\":[}]}",
        "{\"a\":[1}",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "nul",
        "{\"a\":tru}",
        "{\"a\":01}",
        "{\"a\":\"\\",
        "]",
        "{\"model\":\"m\" \"x\":1}",
        "\u{feff}\u{feff}{}",
    ] {
        assert!(
            matches!(from_json(body.as_bytes()), Err(BodyError::Syntax { .. })),
            "{body}"
        );
    }
    let bytes = b"{\"model\": \"m\", \"prompt\": \"\xff\"}";
    assert_eq!(
        from_json(bytes),
        Err(BodyError::Syntax {
            at: 26,
            message: "not UTF-8"
        })
    );
    let deep = "[".repeat(100_000);
    assert!(from_json(deep.as_bytes()).is_err());
}

#[test]
fn replacing_the_model_keeps_the_rest() {
    let body = r#"{"a": 1, "model": "old", "b": "é"}"#;
    let span = from_json(body.as_bytes()).unwrap().model_span.unwrap();
    let name = json_string("new \"quoted\"");
    let text = format!("{}{name}{}", &body[..span.start], &body[span.end..]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value, json!({"a": 1, "model": "new \"quoted\"", "b": "é"}));
}

fn form(parts: &[(&str, &str)]) -> Vec<u8> {
    let part = |(head, content): &(&str, &str)| format!("--XX\r\n{head}\r\n\r\n{content}\r\n");
    let mut text: String = parts.iter().map(part).collect();
    text.push_str("--XX--\r\n");
    text.into_bytes()
}

fn of_form(parts: &[(&str, &str)]) -> Result<Facts, BodyError> {
    from_multipart(&form(parts), "multipart/form-data; boundary=XX")
}

const FILE: &str =
    "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav";
const MODEL: &str = "Content-Disposition: form-data; name=\"model\"";

#[test]
fn a_forms_model_is_found() {
    let audio = "\r\n--X not the boundary \r\n\r\n--X";
    for parts in [
        [(FILE, audio), (MODEL, "whisper")],
        [(MODEL, "whisper"), (FILE, audio)],
    ] {
        let facts = of_form(&parts).unwrap();
        assert_eq!(facts.model.as_deref(), Some("whisper"));
        assert_eq!(&form(&parts)[facts.model_span.unwrap()], b"whisper");
    }
    for head in [
        "content-DISPOSITION:form-data;name=model",
        "X: y\r\nContent-Disposition: form-data; x=\"a;name=q\\\";\"; Name=\"model\"",
        "Content-Disposition: form-data; name=\"mod\\el\"",
    ] {
        assert_eq!(
            of_form(&[(head, "m")]).unwrap().model.as_deref(),
            Some("m"),
            "{head}"
        );
    }
    let stream = "Content-Disposition: form-data; name=\"stream\"";
    assert!(of_form(&[(stream, "true")]).unwrap().stream);
}

#[test]
fn forms_without_a_model_and_odd_shapes_are_read() {
    assert_eq!(of_form(&[(FILE, "")]).unwrap().model, None);
    assert_eq!(of_form(&[]).unwrap().model, None);
    let body = b"preamble\r\n--a b\r\n\r\nno header\r\n--a b--epilogue";
    let facts = from_multipart(body, "multipart/form-data; charset=x; BOUNDARY=\"a b\"").unwrap();
    assert_eq!(facts, Facts::default());
}

#[test]
fn ambiguous_and_broken_forms_are_refused() {
    assert_eq!(
        of_form(&[(MODEL, "a"), (FILE, ""), (MODEL, "b")]),
        Err(BodyError::TwoModels)
    );
    let as_file = "Content-Disposition: form-data; name=\"model\"; filename=\"m\"";
    assert!(matches!(
        of_form(&[(as_file, "a")]),
        Err(BodyError::NoName(_))
    ));
    assert!(matches!(of_form(&[(MODEL, "")]), Err(BodyError::NoName(_))));
    for content_type in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=YY",
        "multipart/form-data; boundary=\"a\r\nb\"",
    ] {
        let result = from_multipart(&form(&[(MODEL, "m")]), content_type);
        assert!(
            matches!(result, Err(BodyError::Syntax { .. })),
            "{content_type}"
        );
    }
    let whole = form(&[(MODEL, "m"), (FILE, "data")]);
    for cut in 0..whole.len() - 4 {
        assert!(
            from_multipart(&whole[..cut], "x; boundary=XX").is_err(),
            "{cut}"
        );
    }
    let endless = [b"--XX\r\nA: ".as_slice(), &vec![b'x'; 10_000]].concat();
    assert!(from_multipart(&endless, "x; boundary=XX").is_err());
    let many = b"--XX\r\n\r\n\r\n".repeat(1001);
    assert!(from_multipart(&many, "x; boundary=XX").is_err());
}

#[test]
fn a_querys_model_is_decoded() {
    let found = |query| from_query(query).unwrap();
    assert_eq!(
        found("a=b&model=org%2Fname+x&c"),
        Some("org/name x".to_owned())
    );
    assert_eq!(found("m%6fdel=m"), Some("m".to_owned()));
    assert_eq!(found("models=m&xmodel=m&%zz=1"), None);
    assert_eq!(from_query("model=a&model=a"), Err(BodyError::TwoModels));
    for query in [
        "model",
        "model=",
        "model=%",
        "model=%f",
        "model=%gg",
        "model=%ff",
        "model=%0a",
    ] {
        assert!(
            matches!(from_query(query), Err(BodyError::NoName(_))),
            "{query}"
        );
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[\\\\\"\\[\\]{}:,\n]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map("(model|stream|\\PC{0,4})", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_scan_agrees_with_a_parse(document in value(), is_pretty: bool) {
        let text = if is_pretty {
            serde_json::to_string_pretty(&document).unwrap()
        } else {
            document.to_string()
        };
        let expected = document.get("model");
        match from_json(text.as_bytes()) {
            Ok(facts) => {
                prop_assert_eq!(facts.model.as_deref(), expected.and_then(Value::as_str));
                prop_assert_eq!(facts.stream, document.get("stream") == Some(&Value::Bool(true)));
                if let Some(span) = facts.model_span {
                    let value: Value = serde_json::from_str(&text[span]).unwrap();
                    prop_assert_eq!(Some(&value), expected);
                }
            }
            Err(BodyError::NoName(_)) => prop_assert!(expected.is_some_and(|v| !v.is_null())),
            Err(other) => prop_assert!(false, "{} {}", other, text),
        }
    }

    #[test]
    fn whatever_a_parse_takes_the_scan_takes(text in "[\\[\\]{}\":,0-9a\\\\ ]{0,24}") {
        if serde_json::from_str::<Value>(&text).is_ok() {
            prop_assert!(from_json(text.as_bytes()).is_ok(), "{}", text);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = from_json(&bytes);
        let _ = from_multipart(&bytes, &String::from_utf8_lossy(&bytes));
        let _ = from_query(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_form_makes_it_panic(text in "(--|XX|\r\n|--XX|: |content-disposition|name=|\"|model|;|a){0,30}") {
        let _ = from_multipart(text.as_bytes(), "multipart/form-data; boundary=XX");
        let _ = from_multipart(text.as_bytes(), &text);
    }

    #[test]
    fn a_forms_fields_come_back(
        model in "[a-z/.-]{1,20}", before in proptest::collection::vec("\\PC{0,30}", 0..3),
    ) {
        let mut parts: Vec<_> = before.iter().map(|text| (FILE, text.as_str())).collect();
        parts.push((MODEL, &model));
        prop_assume!(!before.iter().any(|text| text.contains("--XX")));
        prop_assert_eq!(of_form(&parts).unwrap().model, Some(model.clone()));
    }
}

#[test]
#[ignore = "prints a measurement: cargo test --release -- --ignored --nocapture body_cost"]
fn body_cost() {
    let words = "the quick brown fox says \"hello\"\n".repeat(4000);
    let body = json!({"messages": [{"role": "user", "content": words}], "model": "m"}).to_string();
    let begin = std::time::Instant::now();
    (0..1000).for_each(|_| assert!(from_json(std::hint::black_box(body.as_bytes())).is_ok()));
    println!(
        "{} KB: {} µs",
        body.len() / 1000,
        begin.elapsed().as_micros() / 1000
    );
}
