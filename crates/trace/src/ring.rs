//! The kernel's ring-buffer pages (`per_cpu/cpuN/trace_pipe_raw`), as a sequence of stamped records.
//!
//! Layout as printed by `events/header_page` and `events/header_event` of tracefs.

const HEADER: usize = 16;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const COMMIT_MASK: u64 = 0xFFFF_FFFF >> 2;
const MISSED_EVENTS: u64 = 1 << 31;
const DELTA_BITS: u32 = 27;

/// What one page held.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PageFacts {
    /// Records handed out.
    pub records: usize,
    /// The kernel says that it dropped records before this page.
    pub missed: bool,
    /// The page did not follow the layout and was abandoned at some record.
    pub damaged: bool,
}

fn u32_at(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(page.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(page: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(page.get(at..at + 8)?.try_into().ok()?))
}

/// Calls `record(t_ns, payload)` for every data record of one page.
pub fn read_page(page: &[u8], mut record: impl FnMut(u64, &[u8])) -> PageFacts {
    let mut facts = PageFacts::default();
    let (Some(start), Some(commit)) = (u64_at(page, 0), u64_at(page, 8)) else {
        facts.damaged = !page.is_empty();
        return facts;
    };
    facts.missed = commit & MISSED_EVENTS != 0;
    let end = HEADER + (commit & COMMIT_MASK) as usize;
    let Some(page) = page.get(..end) else {
        facts.damaged = true;
        return facts;
    };
    let (mut at, mut now) = (HEADER, start);
    while at < end {
        let Some(step) = read_record(page, at, &mut now) else {
            facts.damaged = true;
            return facts;
        };
        if let Some(payload) = step.payload {
            facts.records += 1;
            record(now, payload);
        }
        if step.length == 0 {
            return facts;
        }
        at += step.length;
    }
    facts
}

struct Step<'a> {
    /// Bytes to the next record; 0 ends the page.
    length: usize,
    payload: Option<&'a [u8]>,
}

fn read_record<'a>(page: &'a [u8], at: usize, now: &mut u64) -> Option<Step<'a>> {
    let head = u32_at(page, at)?;
    let (kind, delta) = (head & 31, u64::from(head >> 5));
    let data = |begin: usize, length: usize| {
        Some(Step {
            length: begin - at + length,
            payload: Some(page.get(begin..begin + length)?),
        })
    };
    match kind {
        PADDING if delta == 0 => Some(Step {
            length: 0,
            payload: None,
        }),
        PADDING => {
            *now += delta;
            Some(Step {
                length: 4 + u32_at(page, at + 4)? as usize,
                payload: None,
            })
        }
        TIME_EXTEND => {
            *now += delta + (u64::from(u32_at(page, at + 4)?) << DELTA_BITS);
            Some(Step {
                length: 8,
                payload: None,
            })
        }
        TIME_STAMP => {
            // The upper five bits of an absolute stamp are those of the page's.
            let low = delta + (u64::from(u32_at(page, at + 4)?) << DELTA_BITS);
            *now = low | (*now & (0x1F << 59));
            Some(Step {
                length: 8,
                payload: None,
            })
        }
        0 => {
            *now += delta;
            let length = u32_at(page, at + 4)? as usize;
            data(at + 8, length.checked_sub(4)?)
        }
        words => {
            *now += delta;
            data(at + 4, words as usize * 4)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(start: u64, body: &[u8]) -> Vec<u8> {
        let mut out = start.to_le_bytes().to_vec();
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(body);
        out
    }

    fn word(kind: u32, delta: u32) -> [u8; 4] {
        (kind | delta << 5).to_le_bytes()
    }

    fn collect(page: &[u8]) -> (Vec<(u64, Vec<u8>)>, PageFacts) {
        let mut seen = Vec::new();
        let facts = read_page(page, |t, data| seen.push((t, data.to_vec())));
        (seen, facts)
    }

    #[test]
    fn deltas_accumulate_over_short_and_long_records() {
        let mut body = Vec::new();
        body.extend(word(1, 5));
        body.extend([1, 2, 3, 4]);
        body.extend(word(0, 7));
        body.extend(12u32.to_le_bytes());
        body.extend([9; 8]);
        let (seen, facts) = collect(&page(1000, &body));
        assert_eq!(seen, vec![(1005, vec![1, 2, 3, 4]), (1012, vec![9; 8])]);
        assert_eq!(
            facts,
            PageFacts {
                records: 2,
                missed: false,
                damaged: false
            }
        );
    }

    #[test]
    fn a_time_extend_adds_and_an_absolute_stamp_replaces() {
        let mut body = Vec::new();
        body.extend(word(TIME_EXTEND, 1));
        body.extend(2u32.to_le_bytes());
        body.extend(word(1, 3));
        body.extend([0; 4]);
        body.extend(word(TIME_STAMP, 77));
        body.extend(0u32.to_le_bytes());
        body.extend(word(1, 1));
        body.extend([0; 4]);
        let times: Vec<u64> = collect(&page(10, &body))
            .0
            .into_iter()
            .map(|r| r.0)
            .collect();
        assert_eq!(times, vec![10 + 1 + (2 << 27) + 3, 78]);
    }

    #[test]
    fn padding_ends_the_page_and_lost_events_are_told() {
        let mut data = page(5, &word(PADDING, 0));
        data[8..16].copy_from_slice(&(4u64 | MISSED_EVENTS).to_le_bytes());
        let (seen, facts) = collect(&data);
        assert!(seen.is_empty() && facts.missed && !facts.damaged);
    }

    proptest! {
        #[test]
        fn no_page_makes_the_reader_panic(data in proptest::collection::vec(any::<u8>(), 0..600)) {
            collect(&data);
        }
    }
}
