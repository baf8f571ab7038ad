//! A multipart body and its content type: no bytes make it panic; what it finds is where it says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preroll_door::body_model::{from_multipart, from_query};

fuzz_target!(|input: (&str, &[u8])| {
    let (content_type, body) = input;
    for content_type in [content_type, "multipart/form-data; boundary=X"] {
        if let Ok(facts) = from_multipart(body, content_type)
            && let Some(span) = facts.model_span
        {
            assert_eq!(facts.model.as_deref().map(str::as_bytes), Some(&body[span]));
        }
    }
    let _ = from_query(content_type);
});
