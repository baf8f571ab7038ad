//! The command line of the mock: `--name value` pairs, checked as one strict document.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::behaviour::{Behaviour, Mode};
use super::queueing::{Service, Station};
use crate::clock::ms;

/// Every option; the names are those of the command line with `_` for `-`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub listen: Vec<String>,
    pub ttft_ms: f64,
    pub gap_ms: f64,
    pub tokens: u32,
    pub tokens_per_event: u32,
    pub mode: Mode,
    pub seed: u64,
    /// Streams start at a random part of the gap, so that they do not tick together.
    pub spread: bool,
    pub max_buffered_body: usize,
    pub servers: usize,
    pub service: Service,
    pub service_ms: f64,
    pub degrade_above: usize,
    pub degrade_below: usize,
    pub degrade_factor: f64,
    /// `IN_FLIGHT:SHARE,…`: the share of requests whose first token is late by `slow_ms`.
    pub slow_curve: String,
    pub slow_ms: f64,
    /// The share of answers with one changed token when more than `flip_above` are in flight.
    pub flip_rate: f64,
    pub flip_above: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            ttft_ms: 0.0,
            gap_ms: 0.0,
            tokens: 16,
            tokens_per_event: 1,
            mode: Mode::Plain,
            seed: 1,
            spread: false,
            max_buffered_body: 8 << 20,
            servers: 0,
            service: Service::Exponential,
            service_ms: 10.0,
            degrade_above: usize::MAX,
            degrade_below: 0,
            degrade_factor: 1.0,
            slow_curve: String::new(),
            slow_ms: 1000.0,
            flip_rate: 0.0,
            flip_above: 1,
        }
    }
}

impl Options {
    /// Parses the arguments; an error names the option and what is allowed.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut fields = Map::new();
        let mut listen = Vec::new();
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let key = name
                .strip_prefix("--")
                .ok_or_else(|| format!("'{name}': options start with --"))?;
            let value = rest
                .next()
                .ok_or_else(|| format!("{name}: a value is missing"))?;
            if key == "listen" {
                listen.push(Value::from(value.as_str()));
                continue;
            }
            let number =
                serde_json::from_str::<Value>(value).unwrap_or(Value::from(value.as_str()));
            fields.insert(key.replace('-', "_"), number);
        }
        if listen.is_empty() {
            listen.push(Value::from("tcp:127.0.0.1:0"));
        }
        fields.insert("listen".into(), Value::Array(listen));
        serde_json::from_value(Value::Object(fields)).map_err(|e| e.to_string())
    }

    pub fn behaviour(&self) -> Behaviour {
        Behaviour {
            mode: self.mode,
            ttft_ns: ms(self.ttft_ms),
            gap_ns: ms(self.gap_ms),
            tokens: self.tokens,
            tokens_per_event: self.tokens_per_event.max(1),
            ..Behaviour::default()
        }
    }

    pub fn station(&self) -> Option<Station> {
        if self.servers == 0 {
            return None;
        }
        let mut station =
            Station::new(self.servers, self.service, self.service_ms * 1e6, self.seed);
        station.degrade_above = self.degrade_above;
        station.degrade_below = self.degrade_below;
        station.degrade_factor = self.degrade_factor;
        Some(station)
    }

    pub fn curve(&self) -> Result<Vec<(f64, f64)>, String> {
        let points = self.slow_curve.split(',').filter(|p| !p.is_empty());
        points
            .map(|point| {
                let parsed = point.split_once(':').map(|(n, p)| (n.parse(), p.parse()));
                match parsed {
                    Some((Ok(n), Ok(p))) => Ok((n, p)),
                    _ => Err(format!(
                        "--slow-curve: '{point}'; allowed: IN_FLIGHT:SHARE,…"
                    )),
                }
            })
            .collect()
    }
}

/// The share at `n` by linear interpolation; constant beyond both ends.
pub fn interpolate(curve: &[(f64, f64)], n: f64) -> f64 {
    let Some(upper) = curve.iter().position(|point| point.0 >= n) else {
        return curve.last().map_or(0.0, |point| point.1);
    };
    if upper == 0 {
        return curve[0].1;
    }
    let ((x0, y0), (x1, y1)) = (curve[upper - 1], curve[upper]);
    y0 + (y1 - y0) * (n - x0) / (x1 - x0)
}

#[cfg(test)]
mod tests {
    use super::{Options, interpolate};

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(
            &text
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn options_are_typed_and_an_unknown_one_is_an_error() {
        let options = parse("--ttft-ms 100 --mode role_first --slow-curve 8:0,16:0.5").unwrap();
        assert_eq!(options.behaviour().ttft_ns, 100_000_000);
        assert_eq!(options.curve().unwrap(), [(8.0, 0.0), (16.0, 0.5)]);
        assert!(parse("--tokns 3").unwrap_err().contains("tokns"));
        assert!(parse("--tokens many").is_err() && parse("--tokens").is_err());
    }

    #[test]
    fn the_curve_is_linear_between_its_points_and_flat_outside() {
        let curve = [(8.0, 0.0), (16.0, 0.5)];
        let shares = [1.0, 8.0, 12.0, 16.0, 99.0].map(|n| interpolate(&curve, n));
        assert_eq!(shares, [0.0, 0.0, 0.25, 0.5, 0.5]);
    }
}
