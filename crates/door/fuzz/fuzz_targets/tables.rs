//! Tables: no document makes the reader panic, and one that is taken is the same after a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preroll_door::tables::Tables;

fuzz_target!(|data: &[u8]| {
    if let Ok(tables) = Tables::parse(data) {
        let again = serde_json::to_vec(&tables).expect("tables are JSON");
        assert_eq!(Tables::parse(&again).as_ref(), Ok(&tables));
    }
});
