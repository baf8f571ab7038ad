//! The end of a JSON answer: the counts found do not depend on how it is cut, and no bytes make it panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preroll_door::tail::{Tail, usage_in};

fuzz_target!(|input: (u8, &[u8])| {
    let (step, data) = input;
    let mut tail = Tail::default();
    data.chunks(usize::from(step).max(1)).for_each(|part| tail.passed(part));
    assert_eq!(tail.usage(), usage_in(data));
});
