//! Durations in log-linear buckets: 128 per octave, so a quantile is off by less than 0.4 %.

use serde::Serialize;

const SUB_BITS: u32 = 7;
const SUB: u64 = 1 << SUB_BITS;

#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
    sum: f64,
}

/// Quantiles in nanoseconds; all zero when nothing was recorded.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Quantiles {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: u64,
}

impl Histogram {
    /// Records a duration; a negative one counts as 0.
    pub fn record(&mut self, value_ns: i64) {
        let value = value_ns.max(0) as u64;
        let index = index_of(value);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.total += 1;
        self.max = self.max.max(value);
        self.sum += value as f64;
    }

    pub fn quantile(&self, share: f64) -> f64 {
        let rank = share * self.total.saturating_sub(1) as f64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            if *count > 0 && (seen + count - 1) as f64 >= rank {
                let (low, width) = bounds(index);
                let within = (rank - seen as f64 + 0.5).max(0.0) / *count as f64;
                return (low as f64 + width as f64 * within.min(1.0)).min(self.max as f64);
            }
            seen += count;
        }
        self.max as f64
    }

    pub fn quantiles(&self) -> Quantiles {
        if self.total == 0 {
            return Quantiles::default();
        }
        Quantiles {
            count: self.total,
            mean: self.sum / self.total as f64,
            p50: self.quantile(0.50),
            p90: self.quantile(0.90),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            max: self.max,
        }
    }
}

fn index_of(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros() - SUB_BITS;
    ((u64::from(exponent) << SUB_BITS) + (value >> exponent)) as usize
}

/// The lower bound and the width of a bucket.
fn bounds(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < 2 * SUB {
        return (index, 1);
    }
    let exponent = (index >> SUB_BITS) - 1;
    ((index - (exponent << SUB_BITS)) << exponent, 1 << exponent)
}

#[cfg(test)]
mod tests {
    use super::{Histogram, bounds, index_of};

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..5000).chain([1 << 20, (1 << 40) + 12345, u64::MAX >> 2]) {
            let (low, width) = bounds(index_of(value));
            assert!(
                low <= value && value < low + width,
                "{value}: {low} + {width}"
            );
        }
    }

    #[test]
    fn quantiles_are_close_to_the_exact_ones() {
        let mut histogram = Histogram::default();
        for value in 1..=10_000 {
            histogram.record(value * 1000);
        }
        for (share, exact) in [(0.5, 5_000_500.0), (0.99, 9_900_010.0)] {
            let found = histogram.quantile(share);
            assert!((found / exact - 1.0_f64).abs() < 0.004, "{share}: {found}");
        }
        assert_eq!(histogram.quantile(1.0), 10_000_000.0);
        assert_eq!(Histogram::default().quantiles().p99, 0.0);
    }
}
