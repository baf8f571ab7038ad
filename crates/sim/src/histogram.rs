//! Quantiles of any number of durations in fixed memory.

/// Sub-buckets per power of two: a quantile is off by less than 1 / 128.
const BITS: u32 = 6;
const SUB: u64 = 1 << BITS;
const BUCKETS: usize = ((64 - BITS + 1) as usize) << BITS;

/// A log-linear histogram of nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into(),
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean, exact; None of nothing.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The value that a share `q` of the values does not exceed; None of nothing.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (i, &n) in self.counts.iter().enumerate() {
            seen += n;
            if n > 0 && seen >= rank {
                return Some(middle(i).min(self.max as f64));
            }
        }
        None
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - BITS;
    (((shift as u64 + 1) << BITS) + ((value >> shift) - SUB)) as usize
}

fn middle(bucket: usize) -> f64 {
    let (octave, rest) = (bucket as u64 >> BITS, bucket as u64 & (SUB - 1));
    if octave == 0 {
        return rest as f64;
    }
    let shift = octave - 1;
    ((SUB + rest) as f64 + 0.5) * (1u64 << shift) as f64
}
