//! An event stream: the splits change nothing, and what ends a broken one stands alone.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preroll_door::sse::Scanner;

fuzz_target!(|input: (u8, &[u8])| {
    let (step, data) = input;
    let mut whole = Scanner::new(1);
    whole.chunk(data, 1);
    let mut split = Scanner::new(1);
    for chunk in data.chunks(usize::from(step).max(1)) {
        split.chunk(chunk, 1);
    }
    let words = split.last_words("{\"message\":\"broke\"}");
    assert_eq!(words, whole.last_words("{\"message\":\"broke\"}"));
    let mut ended = Scanner::new(1);
    ended.chunk(&[data, words.as_bytes()].concat(), 1);
    assert!(!ended.is_mid_event());
    assert!(ended.finish().error.is_some());
    assert_eq!(whole.finish(), split.finish());
});
