//! A replica's answer: no bytes make the reader panic, and what it takes does not depend on what comes behind the head.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use preroll_door::io::answer;

fuzz_target!(|input: (bool, &[u8])| {
    let (is_to_head, data) = input;
    let mut held = BytesMut::from(data);
    let Ok(Some(whole)) = answer::take(&mut held, is_to_head) else {
        return;
    };
    let len = data.len() - held.len();
    assert_eq!(&held[..], &data[len..]);
    let mut held = BytesMut::from(&data[..len]);
    let alone = answer::take(&mut held, is_to_head).unwrap().unwrap();
    assert!(held.is_empty());
    assert_eq!(format!("{alone:?}"), format!("{whole:?}"));
    let mut held = BytesMut::from(&data[..len - 1]);
    assert!(matches!(answer::take(&mut held, is_to_head), Ok(None)));
    assert_eq!(held.len(), len - 1);
    if let Ok(fields) = answer::trailers(data) {
        assert!(fields.len() <= data.len());
    }
});
