//! Distributions of times and sizes: what a configuration says, and how it is sampled.

use serde::{Deserialize, Serialize};

use crate::rng::{Stream, gamma_function};

/// A distribution over values >= 0, in the unit of its field (seconds or tokens).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Dist {
    Constant {
        value: f64,
    },
    Exponential {
        mean: f64,
    },
    Gamma {
        mean: f64,
        cv: f64,
    },
    Lognormal {
        mean: f64,
        cv: f64,
    },
    Weibull {
        mean: f64,
        shape: f64,
    },
    Uniform {
        low: f64,
        high: f64,
    },
    /// One of the measured samples, each as likely as the others.
    Empirical {
        samples: Vec<f64>,
    },
}

impl Dist {
    pub fn constant(value: f64) -> Self {
        Self::Constant { value }
    }

    pub fn exponential(mean: f64) -> Self {
        Self::Exponential { mean }
    }

    pub fn mean(&self) -> f64 {
        match self {
            Self::Constant { value } => *value,
            Self::Exponential { mean }
            | Self::Gamma { mean, .. }
            | Self::Lognormal { mean, .. }
            | Self::Weibull { mean, .. } => *mean,
            Self::Uniform { low, high } => 0.5 * (low + high),
            Self::Empirical { samples } => samples.iter().sum::<f64>() / samples.len() as f64,
        }
    }

    /// Says what is wrong with the parameters of `field`, if anything is.
    pub fn check(&self, field: &str) -> Result<(), String> {
        let positive = |name: &str, value: f64| within(field, name, value, f64::MIN_POSITIVE);
        match self {
            Self::Constant { value } => within(field, "value", *value, 0.0),
            Self::Exponential { mean } => within(field, "mean", *mean, 0.0),
            Self::Gamma { mean, cv } | Self::Lognormal { mean, cv } => {
                within(field, "mean", *mean, 0.0)?;
                positive("cv", *cv)
            }
            Self::Weibull { mean, shape } => {
                within(field, "mean", *mean, 0.0)?;
                // below 0.05 the mean of a Weibull comes from events that no run will see
                within(field, "shape", *shape, 0.05)
            }
            Self::Uniform { low, high } => {
                within(field, "low", *low, 0.0)?;
                within(field, "high", *high, *low)
            }
            Self::Empirical { samples } if samples.is_empty() => {
                Err(format!("{field}: no samples; at least one is needed"))
            }
            Self::Empirical { samples } => samples
                .iter()
                .try_for_each(|s| within(field, "sample", *s, 0.0)),
        }
    }

    pub fn sampler(&self) -> Sampler {
        match self {
            Self::Constant { value } => Sampler::Constant(*value),
            Self::Exponential { mean } => Sampler::Exponential(*mean),
            Self::Gamma { mean, cv } => Sampler::Gamma {
                mean: *mean,
                shape: 1.0 / (cv * cv),
            },
            Self::Lognormal { mean, cv } => {
                let variance = (cv * cv).ln_1p();
                Sampler::Lognormal {
                    mu: mean.ln() - 0.5 * variance,
                    sigma: variance.sqrt(),
                }
            }
            Self::Weibull { mean, shape } => Sampler::Weibull {
                scale: mean / gamma_function(1.0 + 1.0 / shape),
                power: 1.0 / shape,
            },
            Self::Uniform { low, high } => Sampler::Uniform {
                low: *low,
                width: high - low,
            },
            Self::Empirical { samples } => Sampler::Empirical(samples.clone().into()),
        }
    }
}

const MAX_VALUE: f64 = 1e9;

pub(crate) fn within(field: &str, name: &str, value: f64, low: f64) -> Result<(), String> {
    if value >= low && value <= MAX_VALUE {
        return Ok(());
    }
    Err(format!(
        "{field}: {name} is {value}; {low} to {MAX_VALUE} is allowed"
    ))
}

/// A distribution with its constants worked out once.
#[derive(Clone, Debug)]
pub enum Sampler {
    Constant(f64),
    Exponential(f64),
    Gamma { mean: f64, shape: f64 },
    Lognormal { mu: f64, sigma: f64 },
    Weibull { scale: f64, power: f64 },
    Uniform { low: f64, width: f64 },
    Empirical(Box<[f64]>),
}

impl Sampler {
    #[inline]
    pub fn sample(&self, stream: &mut Stream) -> f64 {
        match self {
            Self::Exponential(mean) => mean * stream.exponential(),
            Self::Constant(value) => *value,
            Self::Gamma { mean, shape } => mean * stream.gamma(*shape),
            Self::Lognormal { mu, sigma } => (mu + sigma * stream.normal()).exp(),
            Self::Weibull { scale, power } => scale * stream.exponential().powf(*power),
            Self::Uniform { low, width } => low + width * stream.open01(),
            Self::Empirical(samples) => {
                samples[(stream.next_u64() % samples.len() as u64) as usize]
            }
        }
    }

    /// Samples seconds, as integer nanoseconds.
    #[inline]
    pub fn sample_ns(&self, stream: &mut Stream) -> u64 {
        ns(self.sample(stream))
    }
}

/// Seconds to the nearest nanosecond.
#[inline]
pub fn ns(seconds: f64) -> u64 {
    (seconds * 1e9 + 0.5) as u64
}

/// Nanoseconds to seconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
