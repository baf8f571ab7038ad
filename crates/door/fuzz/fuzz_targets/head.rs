//! A request head: no bytes make the strict reader panic, read past its input, or change its mind when more come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preroll_door::io::head;

fuzz_target!(|data: &[u8]| {
    if let Ok(Some(found)) = head::read(data) {
        assert!(found.len <= data.len());
        assert!(data[..found.len].ends_with(b"\r\n\r\n"));
        assert_eq!(head::read(&data[..found.len]), Ok(Some(found)));
        assert_eq!(head::read(&data[..found.len - 1]), Ok(None));
    }
});
