//! The door's tables: what control tells the door about stages, replicas, routes, keys and limits.
//!
//! One JSON document (docs/protocol.md), applied whole or not at all. Unknown fields are ignored so
//! that two versions can meet; an error names the key path, the value and what is allowed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

mod validate;

/// Why tables were not taken: the key path and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablesError {
    /// Where, such as `stages.chat.replicas[0].slots`; empty for the document itself.
    pub path: String,
    /// What is wrong: the value and what is allowed.
    pub message: String,
}

impl fmt::Display for TablesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "tables: {}", self.message)
        } else {
            write!(f, "tables: {}: {}", self.path, self.message)
        }
    }
}

impl std::error::Error for TablesError {}

/// Everything the door knows from control.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tables {
    /// Rises with every change; an older one than that in force is refused.
    pub version: u64,
    #[serde(default)]
    pub stages: BTreeMap<String, StageTable>,
    #[serde(default)]
    pub routes: Vec<RouteTable>,
    /// Empty: no authentication.
    #[serde(default)]
    pub keys: Vec<KeyTable>,
    #[serde(default)]
    pub limits: Limits,
}

/// One stage: its limits and its replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTable {
    /// What `model` may say for this stage.
    #[serde(default)]
    pub models: Vec<String>,
    #[serde(default = "defaults::max_queue")]
    pub max_queue: usize,
    #[serde(default = "defaults::max_wait_ms")]
    pub max_wait_ms: u64,
    #[serde(default = "defaults::max_sessions")]
    pub max_sessions: usize,
    /// Expected service time until there are samples.
    #[serde(default = "defaults::default_service_ms")]
    pub default_service_ms: u64,
    /// None: nothing can be started.
    #[serde(default)]
    pub start: Option<StartTable>,
    /// How long a request without a deadline may be held for a start.
    #[serde(default = "defaults::start_hold_ms")]
    pub start_hold_ms: u64,
    #[serde(default = "defaults::stream_idle_timeout_ms")]
    pub stream_idle_timeout_ms: u64,
    #[serde(default)]
    pub slo: Option<SloTable>,
    /// How long one chunk of a stream plays; None: its streams have no pace.
    #[serde(default)]
    pub frame_us: Option<u64>,
    /// KV budget per replica, in tokens; None: slots alone decide.
    #[serde(default)]
    pub kv_tokens: Option<u64>,
    #[serde(default)]
    pub replicas: Vec<ReplicaTable>,
    /// Why nothing serves, where control knows: the last words of replicas that fail to start.
    #[serde(default)]
    pub cause: Option<Box<str>>,
}

/// What a start of one more replica is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartTable {
    pub expected_ms: u64,
    /// When the running start began; None: a demand event would begin one.
    #[serde(default)]
    pub started_ns: Option<u64>,
}

/// Objectives, for the metrics and the stall threshold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SloTable {
    #[serde(default)]
    pub ttft_ms: Option<u64>,
    #[serde(default)]
    pub itl_ms: Option<u64>,
    /// No two frames of a paced stream further apart.
    #[serde(default)]
    pub pace_us: Option<u64>,
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaTable {
    pub id: String,
    pub address: Address,
    pub slots: usize,
    pub state: ReplicaState,
    /// How long the server keeps an idle connection; the door's pool stays below it.
    #[serde(default = "defaults::keepalive_ms")]
    pub keepalive_ms: u64,
    /// The Host header of requests to it; None: the client's own.
    #[serde(default)]
    pub host: Option<String>,
    /// The name that the engine knows the model by; None: as the client says it.
    #[serde(default)]
    pub model: Option<String>,
    /// The Authorization header of requests to it; None: none is sent.
    #[serde(default)]
    pub authorization: Option<String>,
}

/// Whether a replica takes new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaState {
    Ready,
    Draining,
}

/// Where a replica listens: `unix:/path` or `tcp:host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    Unix(PathBuf),
    /// A host without brackets, and a port.
    Tcp(String, u16),
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong =
            || format!("address {text:?}: must be \"unix:/absolute/path\" or \"tcp:HOST:PORT\"");
        if let Some(path) = text.strip_prefix("unix:") {
            let fits = path.starts_with('/') && path.len() <= 107 && !path.contains('\0');
            return if fits {
                Ok(Address::Unix(path.into()))
            } else {
                Err(wrong())
            };
        }
        let rest = text.strip_prefix("tcp:").ok_or_else(wrong)?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or_else(wrong)?,
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let printable = host.bytes().all(|b| b.is_ascii_graphic());
        if host.is_empty() || !printable || port == 0 {
            return Err(wrong());
        }
        Ok(Address::Tcp(host.to_owned(), port))
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host, port) if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// One route: a path, or a prefix that ends in `/*`, and its stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTable {
    pub path: String,
    pub stage: String,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub strip_prefix: bool,
    /// Goes before the stage's own.
    #[serde(default)]
    pub frame_us: Option<u64>,
    #[serde(default)]
    pub priority: i32,
}

/// One API key, known by its SHA-256 alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyTable {
    pub id: String,
    /// 64 hexadecimal digits.
    pub sha256: String,
}

/// The door-wide limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub head_bytes: usize,
    pub head_timeout_ms: u64,
    pub body_bytes: u64,
    pub body_budget_bytes: u64,
    pub body_timeout_ms: u64,
    pub connections: usize,
    pub drain_accept_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes: 64 << 10,
            head_timeout_ms: 15_000,
            body_bytes: 64 << 20,
            body_budget_bytes: 256 << 20,
            body_timeout_ms: 60_000,
            connections: 10_000,
            drain_accept_ms: 2_000,
        }
    }
}

mod defaults {
    pub fn max_queue() -> usize {
        1024
    }
    pub fn max_wait_ms() -> u64 {
        2_000
    }
    pub fn max_sessions() -> usize {
        256
    }
    pub fn default_service_ms() -> u64 {
        1_000
    }
    pub fn start_hold_ms() -> u64 {
        60_000
    }
    pub fn stream_idle_timeout_ms() -> u64 {
        300_000
    }
    pub fn keepalive_ms() -> u64 {
        4_000
    }
}

impl Tables {
    /// Reads and validates a document.
    ///
    /// # Errors
    /// [`TablesError`] with the key path: not JSON, a missing or mistyped field, a value outside
    /// its range, a reference to a stage that is not there, or one model served by two stages.
    pub fn parse(json: &[u8]) -> Result<Tables, TablesError> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let tables: Tables = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let path = if path == "." { String::new() } else { path };
            TablesError {
                path,
                message: error.into_inner().to_string(),
            }
        })?;
        reader.end().map_err(|error| TablesError {
            path: String::new(),
            message: error.to_string(),
        })?;
        tables.validate()?;
        Ok(tables)
    }

    /// The stage that serves each model name.
    pub fn models(&self) -> HashMap<&str, &str> {
        let pairs = self.stages.iter().flat_map(|(name, stage)| {
            stage
                .models
                .iter()
                .map(move |model| (model.as_str(), name.as_str()))
        });
        pairs.collect()
    }
}

#[cfg(test)]
mod tests;
