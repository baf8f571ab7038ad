//! Streams: what is content, arbitrary splits, what is kept, and what a break leaves.

use proptest::prelude::*;

use super::*;

fn scan(stream: &str) -> StreamReport {
    let mut scanner = Scanner::new(u64::MAX);
    scanner.chunk(stream.as_bytes(), 1);
    scanner.finish()
}

fn is_content(data: &str) -> bool {
    scan(&format!("data: {data}\n\n"))
        .first_content_ns
        .is_some()
}

#[test]
fn what_a_user_sees_or_hears_is_content() {
    for data in [
        r#"{"choices":[{"delta":{"content":"Hi"}}]}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":"Hi"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"Hm"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning":"Hm","content":""}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":""}},{"index":1,"delta":{"content":"x"}}]}"#,
        r#"{"choices":[{"index":0,"text":" a"}]}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}"#,
        r#"{"type":"response.output_text.delta","delta":"Hi"}"#,
        r#"{"type":"speech.audio.delta","audio":"UklG"}"#,
        r#"{"content":"Hi","stop":false}"#,
        r#"{"step":3}"#,
        "plain text",
        "\"text\"",
        "7",
    ] {
        assert!(is_content(data), "{data}");
    }
}

#[test]
fn roles_blanks_and_bookkeeping_are_not() {
    for data in [
        r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
        r#"{"choices":[{"delta":{"content":null,"tool_calls":[]}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0}}"#,
        r#"{"choices":[{"index":0,"text":""}]}"#,
        r#"{"type":"message_start","message":{"role":"assistant","content":[]}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"response.created","response":{"id":"x"}}"#,
        r#"{"id":"x","object":"y","model":"m"}"#,
        r#"{"content":"","stop":true}"#,
        r#"{"error":{"message":"boom"}}"#,
        "[DONE]",
        "",
        "{}",
    ] {
        assert!(!is_content(data), "{data}");
    }
    assert_eq!(scan(": keep-alive\n\n: again\n\n").events, 0);
    assert!(scan("event: ping\n\n").first_content_ns.is_none());
}

#[test]
fn the_first_content_is_where_it_came() {
    let mut scanner = Scanner::new(100);
    let chunks = [
        (": hi\n\n", 10),
        (
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n",
            20,
        ),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}", 30),
        ("\n\n", 40),
        (": keep-alive\n\n", 50),
        (
            "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\ndata: x\n\n",
            60,
        ),
        (
            "data: {\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\n\n",
            360,
        ),
        (
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n",
            370,
        ),
        ("data: [DONE]\n\n", 380),
    ];
    let gaps: Vec<_> = chunks
        .iter()
        .map(|(text, at)| scanner.chunk(text.as_bytes(), *at))
        .collect();
    assert_eq!(
        gaps,
        [
            None,
            None,
            None,
            None,
            None,
            Some(20),
            Some(300),
            Some(10),
            None
        ]
    );
    assert!(!scanner.is_mid_event());
    let report = scanner.finish();
    assert_eq!(report.first_content_ns, Some(40));
    assert_eq!((report.content_events, report.events), (5, 7));
    assert_eq!((report.gap_max_ns, report.stalls), (300, 1));
    assert_eq!(
        (report.is_done, report.is_cut, report.error),
        (true, false, None)
    );
    let usage = Usage {
        prompt_tokens: 9,
        completion_tokens: 4,
        cached_tokens: 0,
    };
    assert_eq!(report.usage, Some(usage));
}

#[test]
fn usage_is_read_in_every_dialect() {
    let anthropic = "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":3,\
        \"output_tokens\":7,\"cache_read_input_tokens\":2}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    let responses = "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":3,\
        \"output_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":2}}}}\n\n";
    let llama =
        "data: {\"content\":\"\",\"timings\":{\"prompt_n\":1,\"cache_n\":2,\"predicted_n\":7}}\n\n";
    let cached = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":7,\
        \"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\ndata: [DONE]\n\n";
    let expected = Usage {
        prompt_tokens: 3,
        completion_tokens: 7,
        cached_tokens: 2,
    };
    for stream in [anthropic, responses, llama, cached] {
        assert_eq!(scan(stream).usage, Some(expected), "{stream}");
    }
    assert!(scan(anthropic).is_done && scan(responses).is_done);
    assert_eq!(
        scan("data: {\"choices\":[],\"usage\":null}\n\ndata: [DONE]\n\n").usage,
        None
    );
}

#[test]
fn errors_are_seen_at_any_time() {
    let content = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    for error in [
        "data: {\"error\": {\"message\": \"boom\", \"code\": 500}}\n\n",
        "data: {\"error\":\"boom\"}\n\n",
        "event: error\ndata: {\"message\":\"boom\"}\n\n",
        "data: {\"object\":\"error\",\"message\":\"boom\"}\n\n",
        "data: {\"object\": \"error\", \"message\": \"boom\"}\n\n",
        "event: error\ndata: boom\n\n",
    ] {
        for stream in [
            error.to_owned(),
            format!("{content}{error}"),
            format!("{error}{content}"),
        ] {
            assert_eq!(scan(&stream).error.as_deref(), Some("boom"), "{stream}");
        }
    }
    let null = format!("{content}data: {{\"error\": null, \"choices\":[]}}\n\n");
    assert_eq!(scan(&null).error, None);
    let long = format!("event: error\ndata: {}\n\n", "é".repeat(5000));
    assert!(scan(&long).error.unwrap().len() <= MAX_ERROR);
}

#[test]
fn every_line_end_and_a_bom_are_understood() {
    for end in ["\n", "\r\n", "\r"] {
        let stream =
            format!("\u{feff}data:{{\"a\":{end}data: 1}}{end}{end}data{end}{end}data: x{end}{end}");
        let report = scan(&stream);
        assert_eq!((report.events, report.content_events), (3, 3), "{end:?}");
    }
    assert_eq!(
        scan("data: a\n\n\u{feff}data: b\n\n").events,
        1,
        "a BOM only at the start"
    );
}

#[test]
fn a_broken_stream_is_ended_where_it_stands() {
    let cases = [
        ("data: {\"a\":1}\n\n", ""),
        ("data: {\"a\":1}\n", "\n"),
        ("data: {\"a\":1", "\n\n"),
        ("da", "\n\n"),
        (": comment\n", "\n"),
        ("data: x\r", "\n\n"),
        ("data: x\r\r", ""),
        ("", ""),
    ];
    for (stream, end) in cases {
        let mut scanner = Scanner::new(1);
        scanner.chunk(stream.as_bytes(), 1);
        assert_eq!(
            scanner.last_words("{}"),
            format!("{end}event: error\ndata: {{}}\n\n")
        );
        assert_eq!(scanner.finish().is_cut, !end.is_empty(), "{stream:?}");
    }
}

#[test]
fn a_huge_event_is_content_and_is_not_kept() {
    let mut scanner = Scanner::new(1);
    scanner.chunk(b"data: {\"choices\":[{\"delta\":{\"content\":\"", 1);
    let block = vec![b'x'; 1 << 20];
    (0..100).for_each(|i| assert_eq!(scanner.chunk(&block, i), None));
    assert!(scanner.event.data.capacity() <= 2 * MAX_PARSED);
    assert!(scanner.kept[1].capacity() <= 2 * MAX_KEPT);
    scanner.chunk(b"\"}}]}\n\n", 500);
    assert_eq!(
        scanner.event.data.capacity(),
        0,
        "freed after the first content"
    );
    let report = scanner.finish();
    assert_eq!((report.first_content_ns, report.usage), (Some(500), None));
}

#[test]
fn a_line_without_end_is_not_kept() {
    let mut scanner = Scanner::new(1);
    let block = vec![b':'; 1 << 20];
    (0..50).for_each(|i| assert_eq!(scanner.chunk(&block, i), None));
    assert!(scanner.is_mid_line() && scanner.kept[1].is_empty() && scanner.event.data.is_empty());
}

const PIECES: [&str; 14] = [
    "data: ",
    "data:",
    "data",
    "event: error",
    "event: x",
    ": c",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}",
    "{\"error\":\"e\"}",
    "[DONE]",
    "{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn splits_change_nothing(
        pieces in proptest::collection::vec(0..PIECES.len(), 0..40),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
    ) {
        let stream: String = pieces.iter().map(|&piece| PIECES[piece]).collect();
        let whole = scan(&stream);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let mut scanner = Scanner::new(u64::MAX);
        for pair in cuts.windows(2) {
            scanner.chunk(&stream.as_bytes()[pair[0]..pair[1]], 1);
        }
        prop_assert_eq!(scanner.finish(), whole);
    }

    #[test]
    fn no_bytes_make_it_panic_and_last_words_always_stand_alone(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..10),
    ) {
        let mut scanner = Scanner::new(1);
        for chunk in &chunks {
            scanner.chunk(chunk, 1);
        }
        let words = scanner.last_words("{\"message\":\"broke\"}");
        let mut stream: Vec<u8> = chunks.concat();
        stream.extend(words.bytes());
        let mut again = Scanner::new(1);
        again.chunk(&stream, 1);
        prop_assert!(!again.is_mid_event());
        prop_assert!(again.finish().error.is_some());
    }
}

#[test]
#[ignore = "prints a measurement: cargo test --release -- --ignored --nocapture sse_cost"]
fn sse_cost() {
    let event = "data: {\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1,\
        \"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"finish_reason\":null}]}\n\n";
    let mut scanner = Scanner::new(u64::MAX);
    let rounds = 1_000_000u64;
    let begin = std::time::Instant::now();
    for now in 0..rounds {
        scanner.chunk(std::hint::black_box(event.as_bytes()), now);
    }
    println!(
        "{} ns per chunk of one event",
        begin.elapsed().as_nanos() as u64 / rounds
    );
    assert_eq!(scanner.finish().content_events, rounds);
}
