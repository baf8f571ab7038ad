//! A chunked body: where its end is found does not depend on how it is cut, and nothing is read past it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preroll_door::io::chunked::ChunkWalk;

fuzz_target!(|input: (u8, &[u8])| {
    let (step, data) = input;
    let mut whole = ChunkWalk::default();
    let taken = whole.walk(data);
    let mut split = ChunkWalk::default();
    let mut walked = Ok(0);
    for part in data.chunks(usize::from(step).max(1)) {
        let before = split.is_done();
        match split.walk(part) {
            Ok(n) => {
                assert!(n <= part.len() && (!before || n == 0));
                walked = walked.map(|sum: usize| sum + n);
            }
            Err(error) => {
                walked = Err(error);
                break;
            }
        }
    }
    assert_eq!(walked, taken);
    if taken.is_ok() {
        assert_eq!(split.is_done(), whole.is_done());
        assert_eq!(split.data_bytes(), whole.data_bytes());
    }
});
