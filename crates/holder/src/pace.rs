//! Keeps the holder cheap beside a chatty child: under sustained chatter it reads in batches.
//!
//! Each wake-up costs tens of microseconds, whatever was printed. While lines are few each is
//! stamped as it comes; beyond `PER_SECOND` for longer than a burst they are read every `WAIT_NS`,
//! after `LONG_NS` of that every `LONG_WAIT_NS`, and their stamps are as coarse.

use crate::clock::MS;

/// Reads per second that are always made at once.
const PER_SECOND: u64 = 25;
/// So many reads may come ahead of that rate: the first lines of a start are many.
const BURST: u64 = 60;
const WAIT_NS: u64 = 20 * MS;
/// Whoever chatters for so long is read more rarely.
const LONG_NS: u64 = 1000 * MS;
const LONG_WAIT_NS: u64 = 40 * MS;
const INTERVAL_NS: u64 = 1000 * MS / PER_SECOND;
/// More than this in one read is a flood: waiting would only slow the child down.
const FLOOD_BYTES: usize = 16 * 1024;

#[derive(Debug, Default)]
pub struct Pace {
    /// When the reads so far would have been due at the steady rate.
    due_ns: u64,
    /// Since when reads have been ahead of the steady rate.
    ahead_since_ns: Option<u64>,
}

impl Pace {
    /// Notes that so many bytes were read; how long to leave the child alone now.
    pub fn wait_ns(&mut self, now_ns: u64, bytes: usize) -> Option<u64> {
        if self.due_ns <= now_ns {
            self.ahead_since_ns = None;
        }
        self.due_ns = self.due_ns.max(now_ns) + INTERVAL_NS;
        let limit_ns = now_ns + BURST * INTERVAL_NS;
        let is_ahead = self.due_ns > limit_ns;
        self.due_ns = self.due_ns.min(limit_ns + INTERVAL_NS);
        if !is_ahead {
            return None;
        }
        let since_ns = *self.ahead_since_ns.get_or_insert(now_ns);
        let wait_ns = if now_ns >= since_ns + LONG_NS {
            LONG_WAIT_NS
        } else {
            WAIT_NS
        };
        (bytes < FLOOD_BYTES).then_some(wait_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lines_are_never_waited_with() {
        let mut pace = Pace::default();
        for n in 0..1000 {
            assert_eq!(pace.wait_ns(n * INTERVAL_NS, 100), None);
        }
    }

    #[test]
    fn a_burst_is_taken_at_once_and_what_follows_in_batches() {
        let mut pace = Pace::default();
        let at_once = (0..500)
            .filter(|n| pace.wait_ns(n * MS / 10, 100).is_none())
            .count();
        assert!((60..=70).contains(&at_once), "{at_once}");
        assert_eq!(pace.wait_ns(50 * MS, FLOOD_BYTES), None);
        assert_eq!(pace.wait_ns(60_000 * MS, 100), None);
    }

    #[test]
    fn a_child_that_never_stops_is_read_ever_more_rarely_until_it_pauses() {
        let mut pace = Pace::default();
        let (mut now_ns, mut waits) = (0, Vec::new());
        while now_ns < 4000 * MS {
            let wait = pace.wait_ns(now_ns, 100);
            waits.push(wait.unwrap_or(0));
            now_ns += wait.unwrap_or(MS);
        }
        waits.dedup();
        assert_eq!(waits, [0, WAIT_NS, LONG_WAIT_NS]);
        for burst_ns in [now_ns + 10_000 * MS, now_ns + 20_000 * MS] {
            let waits: Vec<_> = (0..70).map(|n| pace.wait_ns(burst_ns + n, 100)).collect();
            assert_eq!((waits[0], waits[69]), (None, Some(WAIT_NS)));
        }
    }
}
