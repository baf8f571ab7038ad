//! Would a listener have heard it without a break? Content that stands for playing time.

use serde::{Deserialize, Serialize};

/// Raw 16-bit little-endian samples in a body.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audio {
    /// Samples per second of one channel.
    pub rate: u32,
    #[serde(default = "one")]
    pub channels: u32,
    /// Bytes before the first sample: 44 for a plain WAV header.
    #[serde(default)]
    pub skip: u64,
    /// The least magnitude that counts as audible.
    #[serde(default = "audible")]
    pub threshold: u16,
}

fn one() -> u32 {
    1
}

/// −40 dB of full scale: above the noise of recordings, below the softest consonant.
fn audible() -> u16 {
    328
}

/// What a content event stands for.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    Audio(Audio),
    /// Each event is a frame of this many nanoseconds.
    Frame(i64),
}

/// Part of the record. Playing starts with the first content and waits when nothing is left.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Played {
    pub first_audible_ns: Option<i64>,
    /// Playing time of all that came.
    pub playing_ns: i64,
    /// How often and how long in all playing stood still.
    pub underruns: u64,
    pub still_ns: i64,
    pub worst_still_ns: i64,
}

pub struct Playback {
    unit: Unit,
    pub played: Played,
    started_ns: Option<i64>,
    bytes: u64,
    samples: i64,
    half: Option<u8>,
}

impl Playback {
    pub fn new(unit: Unit) -> Self {
        Self {
            unit,
            played: Played::default(),
            started_ns: None,
            bytes: 0,
            samples: 0,
            half: None,
        }
    }

    /// Body bytes that came at `at_ns`; frames are counted by `frames` instead.
    pub fn bytes(&mut self, mut data: &[u8], at_ns: i64) {
        let Unit::Audio(audio) = self.unit else {
            return;
        };
        let skipped = audio.skip.saturating_sub(self.bytes).min(data.len() as u64);
        self.bytes += data.len() as u64;
        data = &data[skipped as usize..];
        let whole = (data.len() + usize::from(self.half.is_some())) / 2;
        if self.played.first_audible_ns.is_none() && self.is_audible(data, audio.threshold) {
            self.played.first_audible_ns = Some(at_ns);
        }
        if (data.len() + usize::from(self.half.is_some())) % 2 == 1 {
            self.half = data.last().copied();
        } else {
            self.half = None;
        }
        let per_second = i64::from(audio.rate.max(1)) * i64::from(audio.channels.max(1));
        // From the sum: a part of a nanosecond lost per read would add up.
        self.samples += whole as i64;
        let until_ns = (i128::from(self.samples) * 1_000_000_000 / i128::from(per_second)) as i64;
        self.add(until_ns - self.played.playing_ns, at_ns);
    }

    /// `count` content events that came at `at_ns`.
    pub fn frames(&mut self, count: u64, at_ns: i64) {
        if let Unit::Frame(frame_ns) = self.unit {
            self.add(frame_ns * count as i64, at_ns);
        }
    }

    fn is_audible(&self, data: &[u8], threshold: u16) -> bool {
        let loud = |pair: [u8; 2]| i16::from_le_bytes(pair).unsigned_abs() >= threshold;
        let (first, rest) = match (self.half, data.split_first()) {
            (Some(low), Some((high, rest))) => (loud([low, *high]), rest),
            _ => (false, data),
        };
        first || rest.chunks_exact(2).any(|pair| loud([pair[0], pair[1]]))
    }

    fn add(&mut self, playing_ns: i64, at_ns: i64) {
        if playing_ns == 0 {
            return;
        }
        let started = *self.started_ns.get_or_insert(at_ns);
        let empty_ns = started + self.played.playing_ns + self.played.still_ns;
        if at_ns > empty_ns && self.played.playing_ns > 0 {
            let still = at_ns - empty_ns;
            self.played.underruns += 1;
            self.played.still_ns += still;
            self.played.worst_still_ns = self.played.worst_still_ns.max(still);
        }
        self.played.playing_ns += playing_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::{Audio, Playback, Unit};

    const MS: i64 = 1_000_000;

    fn audio(skip: u64) -> Playback {
        Playback::new(Unit::Audio(Audio {
            rate: 1000,
            channels: 1,
            skip,
            threshold: 300,
        }))
    }

    #[test]
    fn silence_is_heard_of_nobody_and_a_sample_split_between_reads_is_whole() {
        let mut playback = audio(4);
        playback.bytes(b"RIFF\0\0\0\0", 10);
        assert_eq!(playback.played.first_audible_ns, None);
        let loud = 400_i16.to_le_bytes();
        playback.bytes(&[0, 0, loud[0]], 20);
        assert_eq!(playback.played.first_audible_ns, None);
        playback.bytes(&[loud[1]], 30);
        assert_eq!(playback.played.first_audible_ns, Some(30));
        assert_eq!(playback.played.playing_ns, 4 * MS);
    }

    #[test]
    fn playing_stands_still_when_nothing_is_left_and_goes_on_where_it_was() {
        let mut playback = audio(0);
        playback.bytes(&[1; 20], 0);
        playback.bytes(&[1; 20], 5 * MS);
        playback.bytes(&[1; 20], 23 * MS);
        playback.bytes(&[1; 20], 33 * MS);
        let played = &playback.played;
        assert_eq!((played.underruns, played.still_ns), (1, 3 * MS));
        assert_eq!(played.playing_ns, 40 * MS);
        playback.bytes(&[1; 2], 50 * MS);
        assert_eq!(
            (playback.played.still_ns, playback.played.worst_still_ns),
            (10 * MS, 7 * MS)
        );
    }

    #[test]
    fn frames_are_playing_time_too() {
        let mut playback = Playback::new(Unit::Frame(40 * MS));
        for at_ms in [0, 40, 90, 100] {
            playback.frames(1, at_ms * MS);
        }
        assert_eq!(
            (playback.played.underruns, playback.played.worst_still_ns),
            (1, 10 * MS)
        );
    }
}
