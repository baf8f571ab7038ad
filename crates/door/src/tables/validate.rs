//! What the tables must satisfy beyond their types; each complaint names its key path.

use std::collections::{BTreeSet, HashMap};

use super::{Limits, ReplicaTable, StageTable, Tables, TablesError};

impl Tables {
    pub(super) fn validate(&self) -> Result<(), TablesError> {
        let mut owners: HashMap<&str, &str> = HashMap::new();
        for (name, stage) in &self.stages {
            let at = format!("stages.{name}");
            check(is_name(name), &at, || {
                format!("stage name {name:?}: must be 1-64 characters of A-Z a-z 0-9 _ . -")
            })?;
            stage.validate(&at)?;
            for (i, model) in stage.models.iter().enumerate() {
                if let Some(other) = owners.insert(model, name).filter(|other| other != name) {
                    return Err(TablesError {
                        path: format!("{at}.models[{i}]"),
                        message: format!("model {model:?} is served by stage {other:?} already"),
                    });
                }
            }
        }
        self.validate_routes()?;
        self.validate_keys()?;
        self.limits.validate()
    }

    fn validate_routes(&self) -> Result<(), TablesError> {
        let mut seen = BTreeSet::new();
        for (i, route) in self.routes.iter().enumerate() {
            let at = format!("routes[{i}]");
            check(is_route_path(&route.path), &format!("{at}.path"), || {
                format!(
                    "path {:?}: must start with \"/\"; \"*\" only as a last \"/*\"",
                    route.path
                )
            })?;
            check(seen.insert(&route.path), &format!("{at}.path"), || {
                format!("path {:?} is routed twice", route.path)
            })?;
            check(
                self.stages.contains_key(&route.stage),
                &format!("{at}.stage"),
                || {
                    let known: Vec<_> = self.stages.keys().collect();
                    format!("stage {:?} is not in stages: one of {known:?}", route.stage)
                },
            )?;
            check(
                route.timeout_ms != Some(0),
                &format!("{at}.timeout_ms"),
                || "0: must be at least 1, or null".to_owned(),
            )?;
        }
        Ok(())
    }

    fn validate_keys(&self) -> Result<(), TablesError> {
        let mut seen = BTreeSet::new();
        for (i, key) in self.keys.iter().enumerate() {
            let hex = key.sha256.len() == 64 && key.sha256.bytes().all(|b| b.is_ascii_hexdigit());
            check(hex, &format!("keys[{i}].sha256"), || {
                format!(
                    "{} characters: must be 64 hexadecimal digits",
                    key.sha256.len()
                )
            })?;
            check(
                is_name(&key.id) && seen.insert(&key.id),
                &format!("keys[{i}].id"),
                || {
                    format!(
                        "id {:?}: must be a name of 1-64 characters, used once",
                        key.id
                    )
                },
            )?;
        }
        Ok(())
    }
}

impl StageTable {
    fn validate(&self, at: &str) -> Result<(), TablesError> {
        let positive = [
            ("max_wait_ms", self.max_wait_ms),
            ("default_service_ms", self.default_service_ms),
            ("start_hold_ms", self.start_hold_ms),
            ("stream_idle_timeout_ms", self.stream_idle_timeout_ms),
            ("kv_tokens", self.kv_tokens.unwrap_or(1)),
        ];
        for (key, value) in positive {
            check(
                (1..=MAX_MS).contains(&value),
                &format!("{at}.{key}"),
                || format!("{value}: must be from 1 to {MAX_MS}"),
            )?;
        }
        check(
            self.max_queue <= MAX_COUNT,
            &format!("{at}.max_queue"),
            || format!("{}: must be from 0 to {MAX_COUNT}", self.max_queue),
        )?;
        if let Some(start) = self.start {
            check(
                start.expected_ms <= MAX_MS,
                &format!("{at}.start.expected_ms"),
                || format!("{}: must be from 0 to {MAX_MS}", start.expected_ms),
            )?;
        }
        let cause_bytes = self.cause.as_ref().map_or(0, |cause| cause.len());
        check(
            cause_bytes <= MAX_CAUSE_BYTES,
            &format!("{at}.cause"),
            || format!("{cause_bytes} bytes: must be at most {MAX_CAUSE_BYTES}"),
        )?;
        let mut seen = BTreeSet::new();
        for (i, replica) in self.replicas.iter().enumerate() {
            let at = format!("{at}.replicas[{i}]");
            check(
                is_name(&replica.id) && seen.insert(&replica.id),
                &format!("{at}.id"),
                || {
                    format!(
                        "id {:?}: must be a name of 1-64 characters, used once",
                        replica.id
                    )
                },
            )?;
            replica.validate(&at)?;
        }
        Ok(())
    }
}

impl ReplicaTable {
    fn validate(&self, at: &str) -> Result<(), TablesError> {
        check(
            (1..=MAX_COUNT).contains(&self.slots),
            &format!("{at}.slots"),
            || format!("{}: must be from 1 to {MAX_COUNT}", self.slots),
        )?;
        for (key, value) in [("host", &self.host), ("authorization", &self.authorization)] {
            let fits = value.as_deref().is_none_or(is_header_value);
            check(fits, &format!("{at}.{key}"), || {
                "must be printable ASCII without line breaks, or null".to_owned()
            })?;
        }
        Ok(())
    }
}

impl Limits {
    fn validate(&self) -> Result<(), TablesError> {
        let ranges = [
            ("head_bytes", self.head_bytes as u64, 1 << 10, 16 << 20),
            ("head_timeout_ms", self.head_timeout_ms, 1, MAX_MS),
            ("body_timeout_ms", self.body_timeout_ms, 1, MAX_MS),
            (
                "body_budget_bytes",
                self.body_budget_bytes,
                self.body_bytes,
                u64::MAX,
            ),
            ("connections", self.connections as u64, 1, MAX_COUNT as u64),
            ("drain_accept_ms", self.drain_accept_ms, 0, MAX_MS),
        ];
        for (key, value, low, high) in ranges {
            check(
                (low..=high).contains(&value),
                &format!("limits.{key}"),
                || format!("{value}: must be from {low} to {high}"),
            )?;
        }
        Ok(())
    }
}

/// A year: times above it are mistakes, and sums of two stay far from overflow.
const MAX_MS: u64 = 366 * 24 * 3600 * 1000;
const MAX_COUNT: usize = 1 << 20;
/// A line of an engine's output; it goes into every refusal of its stage.
const MAX_CAUSE_BYTES: usize = 1 << 10;

fn check(holds: bool, path: &str, message: impl FnOnce() -> String) -> Result<(), TablesError> {
    if holds {
        Ok(())
    } else {
        Err(TablesError {
            path: path.to_owned(),
            message: message(),
        })
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

fn is_route_path(path: &str) -> bool {
    let stem = path.strip_suffix("/*").unwrap_or(path);
    path.starts_with('/') && !stem.contains('*') && stem.bytes().all(|b| b.is_ascii_graphic())
}

fn is_header_value(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| (0x20..0x7f).contains(&b))
}
