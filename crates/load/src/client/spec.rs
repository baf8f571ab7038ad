//! What to send, how fast, and when to stop: the document that `preroll-load run` reads.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::playback::Audio;
use super::transport::Tls;
use super::websocket::WebSocket;

/// One request that may be sent many times.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    #[serde(default = "post")]
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Text of the body; `__SEQUENCE` (ten bytes) becomes the request's number in ten digits.
    #[serde(default)]
    pub body: String,
    /// A file whose bytes are the body instead.
    #[serde(default)]
    pub body_file: Option<String>,
    /// The user's message as JSON, in a body with `__HISTORY` before it: the run is a conversation, and
    /// what was said in its earlier calls goes where the mark is.
    #[serde(default)]
    pub turn: Option<String>,
    /// The body is raw audio: when it is audible, and whether playing it would stand still.
    #[serde(default)]
    pub audio: Option<Audio>,
    /// Each content event is a frame of so many milliseconds: whether playing would stand still.
    #[serde(default)]
    pub event_ms: Option<f64>,
    /// The request is a WebSocket's handshake; `body` is not sent.
    #[serde(default)]
    pub websocket: Option<WebSocket>,
}

fn post() -> String {
    "POST".to_owned()
}

/// How arrivals are spaced around their rate.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    #[default]
    Poisson,
    Constant,
    Gamma,
}

/// The load. Closed: so many runs at once. Open: so many runs per second, whatever happens.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Load {
    Closed {
        connections: usize,
        #[serde(default)]
        think_ms: f64,
        /// Reached linearly over `ramp_s` from `connections`.
        #[serde(default)]
        ramp_to: Option<usize>,
        #[serde(default)]
        ramp_s: f64,
    },
    Open {
        rate: f64,
        #[serde(default)]
        arrivals: Arrivals,
        #[serde(default = "one")]
        cv: f64,
        #[serde(default)]
        ramp_to: Option<f64>,
        #[serde(default)]
        ramp_s: f64,
    },
    Replay {
        /// Seconds from the start, not decreasing, and which template each sends.
        at_s: Vec<f64>,
        #[serde(default)]
        requests: Vec<usize>,
    },
}

fn one() -> f64 {
    1.0
}

/// When the run ends; the first that comes true.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Amount {
    pub requests: Option<u64>,
    pub seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    #[default]
    Cycle,
    Random,
}

/// How much of each request is recorded.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Nothing per request, only the summary.
    None,
    #[default]
    Requests,
    /// Also the list of gaps, in nanoseconds.
    Gaps,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub version: u32,
    /// `tcp:HOST:PORT` or `unix:/path`.
    pub target: String,
    pub host: Option<String>,
    #[serde(default)]
    pub tls: Option<Tls>,
    pub requests: Vec<Template>,
    #[serde(default)]
    pub pick: Pick,
    pub load: Load,
    #[serde(default = "one_call")]
    pub calls_per_run: u32,
    #[serde(default)]
    pub stop: Amount,
    #[serde(default)]
    pub warmup: Amount,
    #[serde(default = "sixty")]
    pub timeout_s: f64,
    #[serde(default = "yes")]
    pub reuse: bool,
    #[serde(default)]
    pub seed: u64,
    #[serde(default)]
    pub detail: Detail,
    /// Where records go: a file; without it, standard output.
    #[serde(default)]
    pub records: Option<String>,
    #[serde(default)]
    pub keep_text: bool,
    /// Commands are read from standard input: `{"op":"level","connections":N,"tag":T}`, `{"op":"stop"}`.
    #[serde(default)]
    pub control: bool,
    #[serde(default = "ten_thousand")]
    pub max_in_flight: usize,
}

fn one_call() -> u32 {
    1
}

fn sixty() -> f64 {
    60.0
}

fn yes() -> bool {
    true
}

fn ten_thousand() -> usize {
    10_000
}

impl Spec {
    /// Checks what types cannot say.
    pub fn check(self) -> Result<Self, String> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(format!("{name}: {value}; allowed: a finite number above 0"))
            }
        };
        if self.version != 1 {
            return Err(format!("version: {}; allowed: 1", self.version));
        }
        if self.requests.is_empty() {
            return Err("requests: empty; at least one is needed".into());
        }
        positive("timeout_s", self.timeout_s)?;
        for template in &self.requests {
            positive("event_ms", template.event_ms.unwrap_or(1.0))?;
            if let Some(socket) = &template.websocket {
                positive("websocket.frame_ms", socket.frame_ms)?;
                positive("websocket.frame_bytes", socket.frame_bytes as f64)?;
            }
        }
        match &self.load {
            Load::Closed { connections: 0, .. } if !self.control => {
                return Err("load.connections: 0; allowed: 1 or more".into());
            }
            Load::Closed { .. } => {}
            Load::Open {
                rate, cv, ramp_to, ..
            } => {
                positive("load.rate", *rate)?;
                positive("load.cv", *cv)?;
                positive("load.ramp_to", ramp_to.unwrap_or(1.0))?;
            }
            Load::Replay { at_s, requests } => check_replay(at_s, requests, self.requests.len())?,
        }
        let bounded = self.stop.requests.is_some() || self.stop.seconds.is_some();
        if !bounded && !self.control && !matches!(self.load, Load::Replay { .. }) {
            return Err("stop: without `requests` or `seconds` the run would never end".into());
        }
        Ok(self)
    }
}

fn check_replay(at_s: &[f64], requests: &[usize], num_templates: usize) -> Result<(), String> {
    if at_s.is_empty() || at_s.windows(2).any(|pair| pair[1] < pair[0]) || at_s[0] < 0.0 {
        return Err("load.at_s: allowed: at least one time, none decreasing, none negative".into());
    }
    if let Some(index) = requests.iter().find(|index| **index >= num_templates) {
        return Err(format!(
            "load.requests: {index}; allowed: 0 to {}",
            num_templates - 1
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Spec;

    fn parse(load: &str, stop: &str) -> Result<Spec, String> {
        let text = format!(
            r#"{{"version":1,"target":"tcp:127.0.0.1:1","requests":[{{"path":"/"}}],"load":{load},"stop":{stop}}}"#
        );
        serde_json::from_str::<Spec>(&text)
            .map_err(|e| e.to_string())?
            .check()
    }

    #[test]
    fn wrong_values_are_named() {
        assert!(parse(r#"{"mode":"closed","connections":1}"#, r#"{"requests":1}"#).is_ok());
        let cases = [
            (
                r#"{"mode":"closed","connections":0}"#,
                r#"{"requests":1}"#,
                "connections",
            ),
            (
                r#"{"mode":"open","rate":-1}"#,
                r#"{"requests":1}"#,
                "load.rate",
            ),
            (
                r#"{"mode":"open","rate":1,"burst":2}"#,
                r#"{"requests":1}"#,
                "burst",
            ),
            (r#"{"mode":"closed","connections":1}"#, "{}", "never end"),
            (r#"{"mode":"replay","at_s":[2,1]}"#, "{}", "at_s"),
            (r#"{"mode":"replay","at_s":[1],"requests":[4]}"#, "{}", "4"),
        ];
        for (load, stop, part) in cases {
            let error = parse(load, stop).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
