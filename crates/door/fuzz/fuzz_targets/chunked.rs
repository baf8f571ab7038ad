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
    assert_eq!(
        unwrapped(data, data.len().max(1)),
        unwrapped(data, usize::from(step).max(1))
    );
    assert_eq!(walked, taken);
    if taken.is_ok() {
        assert_eq!(split.is_done(), whole.is_done());
        assert_eq!(split.data_bytes(), whole.data_bytes());
    }
});

/// The data of an answer and where it ends, taken in parts of `step` bytes; None: it is broken.
fn unwrapped(data: &[u8], step: usize) -> Option<(Vec<u8>, usize, bool)> {
    let mut walk = ChunkWalk::of_replica();
    let (mut found, mut at, mut is_over) = (Vec::new(), 0, false);
    while at < data.len() && !is_over {
        let part = &data[at..data.len().min(at + step)];
        let next = walk.next(part).ok()?;
        assert!(next.data.end <= next.used && next.used <= part.len() && next.used > 0);
        found.extend_from_slice(&part[next.data]);
        (at, is_over) = (at + next.used, next.is_over);
    }
    Some((found, at, is_over))
}
