//! xoshiro256++ (Blackman and Vigna, public domain algorithm): the same numbers on every machine.

use std::sync::LazyLock;

/// One stream of random numbers. Every part of a simulation owns one, so that a change in one
/// part does not shift the numbers of another.
#[derive(Clone, Debug)]
pub struct Stream {
    state: [u64; 4],
}

impl Stream {
    /// The stream of `part` number `index` under `seed`.
    pub fn new(seed: u64, part: u64, index: u64) -> Self {
        let mut x = mix(mix(seed ^ mix(part)) ^ index);
        let mut next = || {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(x)
        };
        Self {
            state: [next(), next(), next(), next() | 1],
        }
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in (0, 1): never 0, so that its logarithm is finite.
    #[inline]
    pub fn open01(&mut self) -> f64 {
        ((self.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
    }

    /// Exponential with mean 1, by the ziggurat (Marsaglia and Tsang 2000): a logarithm only in the tail.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        let layers = &*LAYERS;
        loop {
            let bits = self.next_u64();
            let layer = (bits & 0xFF) as usize;
            // The low bits choose the layer; the high 52 are independent of them.
            let x = ((bits >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64) * layers.x[layer];
            if x < layers.x[layer + 1] {
                return x;
            }
            if layer == 0 {
                return TAIL - self.open01().ln();
            }
            let (low, high) = (layers.f[layer], layers.f[layer + 1]);
            if low + (high - low) * self.open01() < (-x).exp() {
                return x;
            }
        }
    }

    /// Standard normal (Box and Muller; one of the pair is thrown away to keep no state).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.open01()).cos()
    }

    /// Gamma with the given shape and mean 1 (Marsaglia and Tsang 2000; boosted below shape 1).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = self.open01().powf(1.0 / shape);
            return self.gamma(shape + 1.0) * ((shape + 1.0) / shape) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.open01().ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v / shape;
            }
        }
    }
}

/// Where the ziggurat's tail begins, and the area of each of its 256 layers.
const TAIL: f64 = 7.697_117_470_131_05;
const AREA: f64 = 3.949_659_822_581_572e-3;

/// Right ends of the layers, widest first, and the density there.
struct Layers {
    x: [f64; 257],
    f: [f64; 257],
}

static LAYERS: LazyLock<Layers> = LazyLock::new(|| {
    let (mut x, mut f) = ([0.0; 257], [1.0; 257]);
    (x[0], x[1]) = (AREA * TAIL.exp(), TAIL);
    for i in 2..256 {
        x[i] = -(AREA / x[i - 1] + (-x[i - 1]).exp()).ln();
    }
    for i in 0..256 {
        f[i] = (-x[i]).exp();
    }
    Layers { x, f }
});

/// The finaliser of splitmix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The gamma function for x > 0 (Lanczos, g = 7, n = 9; relative error below 1e-13).
pub fn gamma_function(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let mut sum = 0.999_999_999_999_809_9;
    for (i, c) in COEFFICIENTS.iter().enumerate() {
        sum += c / (x + i as f64);
    }
    let t = x + 6.5;
    std::f64::consts::TAU.sqrt() * t.powf(x - 0.5) * (-t).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_have_their_moments_and_their_tail() {
        let mut stream = Stream::new(7, 1, 0);
        let n = 4_000_000;
        let (mut sums, mut beyond) = ([0.0; 3], [0u32; 5]);
        for _ in 0..n {
            let x = stream.exponential();
            assert!(x > 0.0);
            for (power, sum) in sums.iter_mut().enumerate() {
                *sum += x.powi(power as i32 + 1);
            }
            for (count, at) in beyond.iter_mut().zip([0.1, 1.0, 3.0, 7.5, 9.0]) {
                *count += u32::from(x > at);
            }
        }
        // Moments of an exponential: k!, within five standard errors of a sample this large.
        for (power, (sum, (moment, error))) in sums
            .iter()
            .zip([(1.0, 0.0025), (2.0, 0.0112), (6.0, 0.066)])
            .enumerate()
        {
            let mean = sum / f64::from(n);
            assert!(
                (mean - moment).abs() < error,
                "moment {}: {mean}",
                power + 1
            );
        }
        for (count, at) in beyond.iter().zip([0.1f64, 1.0, 3.0, 7.5, 9.0]) {
            let expected = f64::from(n) * (-at).exp();
            let error = 5.0 * expected.sqrt();
            assert!(
                (f64::from(*count) - expected).abs() < error,
                "beyond {at}: {count}"
            );
        }
    }
}
