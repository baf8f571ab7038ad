//! When arrivals are meant to happen: absolute offsets, drawn once, independent of what the server does.

use fastrand::Rng;

use super::spec::Arrivals;

/// A rate that is constant or moves linearly from `rate` to `end_rate` over `ramp_s`, then stays.
pub struct Schedule {
    rate: f64,
    end_rate: f64,
    ramp_s: f64,
    arrivals: Arrivals,
    shape: f64,
    rng: Rng,
    /// Expected arrivals so far: the schedule is drawn at unit rate and mapped to time.
    expected: f64,
}

impl Schedule {
    pub fn new(
        rate: f64,
        arrivals: Arrivals,
        cv: f64,
        ramp: Option<(f64, f64)>,
        seed: u64,
    ) -> Self {
        let (end_rate, ramp_s) = ramp.unwrap_or((rate, 0.0));
        Self {
            rate,
            end_rate,
            ramp_s,
            arrivals,
            shape: 1.0 / (cv * cv),
            rng: Rng::with_seed(seed),
            expected: 0.0,
        }
    }

    /// The offset of the next arrival from the start, in nanoseconds.
    pub fn next_ns(&mut self) -> i64 {
        self.expected += match self.arrivals {
            Arrivals::Constant => 1.0,
            Arrivals::Poisson => exponential(&mut self.rng),
            Arrivals::Gamma => gamma(&mut self.rng, self.shape) / self.shape,
        };
        (self.time_of(self.expected) * 1e9) as i64
    }

    /// When `expected` arrivals are due: the inverse of the integral of the rate.
    fn time_of(&self, expected: f64) -> f64 {
        let in_ramp = 0.5 * (self.rate + self.end_rate) * self.ramp_s;
        if expected >= in_ramp {
            return self.ramp_s + (expected - in_ramp) / self.end_rate;
        }
        let slope = (self.end_rate - self.rate) / self.ramp_s;
        if slope.abs() < 1e-12 {
            return expected / self.rate;
        }
        ((self.rate * self.rate + 2.0 * slope * expected).sqrt() - self.rate) / slope
    }
}

fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// Gamma(shape, 1) by Marsaglia and Tsang (2000); below shape 1 by their boost.
fn gamma(rng: &mut Rng, shape: f64) -> f64 {
    if shape < 1.0 {
        let boost = (1.0 - rng.f64()).powf(1.0 / shape);
        return gamma(rng, shape + 1.0) * boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - rng.f64()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

fn normal(rng: &mut Rng) -> f64 {
    let radius = (2.0 * exponential(rng)).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::{Arrivals, Schedule};

    fn gaps(arrivals: Arrivals, cv: f64) -> (f64, f64) {
        let mut schedule = Schedule::new(100.0, arrivals, cv, None, 3);
        let mut last = 0;
        let gaps: Vec<f64> = (0..40_000)
            .map(|_| {
                let at = schedule.next_ns();
                (std::mem::replace(&mut last, at), at)
            })
            .map(|(before, at)| (at - before) as f64 / 1e9)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn gaps_have_the_mean_and_variation_that_were_asked_for() {
        for (arrivals, cv) in [
            (Arrivals::Constant, 0.0),
            (Arrivals::Poisson, 1.0),
            (Arrivals::Gamma, 2.5),
        ] {
            let (mean, found) = gaps(arrivals, if cv == 0.0 { 1.0 } else { cv });
            assert!(
                (mean * 100.0 - 1.0).abs() < 0.05,
                "{arrivals:?} mean {mean}"
            );
            assert!((found - cv).abs() < 0.12, "{arrivals:?} cv {found}");
        }
    }

    #[test]
    fn a_ramp_has_the_area_of_its_trapezoid() {
        let mut schedule = Schedule::new(10.0, Arrivals::Constant, 1.0, Some((30.0, 10.0)), 1);
        let times: Vec<i64> = (0..400).map(|_| schedule.next_ns()).collect();
        let within = |s: i64| times.iter().filter(|t| **t <= s * 1_000_000_000).count() as i64;
        assert!((within(5) - 75).abs() <= 1, "{}", within(5));
        assert!((within(10) - 200).abs() <= 1, "{}", within(10));
        assert!((within(12) - 260).abs() <= 1, "{}", within(12));
    }
}
