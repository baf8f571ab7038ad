//! How steadily a paced stream reaches its listener: real-time factor, underruns, worst gap.
//!
//! Each chunk of the answer is a frame that plays for a known time. A listener starts to play at
//! the first one; one that comes after the last has been played to its end is an underrun: playing
//! stalls, and goes on from there. The worker of a Python stage measures the same where the frames
//! leave (`preroll_worker_stream_*`); this is what went to the client.

use serde::Serialize;

/// One stream's frames so far.
#[derive(Debug)]
pub struct Pace {
    frame_ns: u64,
    frames: u64,
    first_ns: u64,
    last_ns: u64,
    played_until_ns: u64,
    underruns: u64,
    gap_max_ns: u64,
}

/// A stream as its listener heard it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PaceReport {
    pub frames: u64,
    pub underruns: u64,
    /// Time from the first frame to the last, over the playing time of those before it: below 1
    /// it is made faster than it is played. None for fewer than two frames.
    pub realtime_factor: Option<f64>,
    /// Longest time between two frames.
    pub worst_gap_ms: f64,
}

impl Pace {
    pub fn new(frame_ns: u64) -> Pace {
        Pace {
            frame_ns,
            frames: 0,
            first_ns: 0,
            last_ns: 0,
            played_until_ns: 0,
            underruns: 0,
            gap_max_ns: 0,
        }
    }

    /// A frame passed.
    pub fn frame(&mut self, now_ns: u64) {
        if self.frames == 0 {
            self.first_ns = now_ns;
            self.played_until_ns = now_ns;
        } else {
            self.gap_max_ns = self.gap_max_ns.max(now_ns.saturating_sub(self.last_ns));
            if now_ns > self.played_until_ns {
                self.underruns += 1;
                self.played_until_ns = now_ns;
            }
        }
        self.played_until_ns += self.frame_ns;
        self.last_ns = now_ns;
        self.frames += 1;
    }

    pub fn gap_max_ns(&self) -> u64 {
        self.gap_max_ns
    }

    pub fn report(&self) -> PaceReport {
        let played_ns = self.frames.saturating_sub(1) * self.frame_ns;
        let took_ns = self.last_ns - self.first_ns;
        PaceReport {
            frames: self.frames,
            underruns: self.underruns,
            realtime_factor: (played_ns > 0).then(|| took_ns as f64 / played_ns as f64),
            worst_gap_ms: self.gap_max_ns as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn heard(frame_ms: u64, times_ms: &[u64]) -> PaceReport {
        let mut pace = Pace::new(frame_ms * MS);
        times_ms.iter().for_each(|ms| pace.frame(ms * MS));
        pace.report()
    }

    #[test]
    fn a_stream_ahead_of_its_listener_never_runs_dry() {
        let report = heard(20, &[100, 105, 110, 115, 120]);
        assert_eq!((report.frames, report.underruns), (5, 0));
        assert_eq!(report.realtime_factor, Some(0.25));
        assert_eq!(report.worst_gap_ms, 5.0);
    }

    #[test]
    fn a_frame_after_its_turn_is_an_underrun_and_playing_goes_on_from_it() {
        // Ahead by one frame, then 70 ms of nothing: dry since 160, late ones count from 200 on.
        let report = heard(20, &[100, 105, 130, 200, 219, 241]);
        assert_eq!((report.underruns, report.worst_gap_ms), (2, 70.0));
        assert_eq!(report.realtime_factor, Some(1.41));
    }

    #[test]
    fn one_frame_has_no_factor_and_none_is_none() {
        assert_eq!(heard(20, &[100]).realtime_factor, None);
        let silent = heard(20, &[]);
        assert_eq!((silent.frames, silent.worst_gap_ms), (0, 0.0));
    }
}
