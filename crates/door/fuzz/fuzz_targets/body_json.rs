//! A JSON body: what a full parse takes, the scan takes and reads alike (where a key is not given twice).
#![no_main]

use libfuzzer_sys::fuzz_target;
use preroll_door::body_model::{BodyError, from_json};
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let scanned = from_json(data);
    if let Ok(facts) = &scanned
        && let Some(span) = &facts.model_span
    {
        let value: Value = serde_json::from_slice(&data[span.clone()]).expect("a JSON value");
        assert_eq!(facts.model.as_deref(), value.as_str());
    }
    let Ok(document) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    match scanned {
        Ok(facts) => assert_eq!(facts.model.as_deref(), document["model"].as_str()),
        Err(BodyError::TwoModels | BodyError::NoName(_)) => {}
        Err(error) => panic!("{error}"),
    }
});
