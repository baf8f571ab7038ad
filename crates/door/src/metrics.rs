//! Counters, gauges and histograms, in Prometheus' text form.
//!
//! Label values come from tables and from this file, never from a client, so their number is
//! bounded. A stage's handles are resolved once: recording costs a lock-free add or one uncontended
//! lock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

mod families;
mod stage;

pub use stage::{Phase, StageMetrics};

use families::{Families, KindLabels};

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything the door counts.
pub struct Metrics {
    registry: Registry,
    families: Families,
    stages: RefCell<HashMap<String, Rc<StageMetrics>>>,
    http_refusals: Family<KindLabels, Counter>,
    /// Client connections open now.
    pub connections: Gauge,
    /// Request bytes held in memory now.
    pub body_bytes: Gauge,
    /// Connections that ended in a panic: faults of the door itself.
    pub panics: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        let families = Families::new(&mut registry);
        let metrics = Metrics {
            families,
            stages: RefCell::default(),
            http_refusals: Family::default(),
            connections: Gauge::default(),
            body_bytes: Gauge::default(),
            panics: Counter::default(),
            registry,
        };
        metrics.register()
    }

    fn register(mut self) -> Metrics {
        self.registry.register(
            "preroll_door_connections",
            "Client connections open now",
            self.connections.clone(),
        );
        self.registry.register(
            "preroll_door_body_bytes",
            "Request bodies held in memory, bytes",
            self.body_bytes.clone(),
        );
        self.registry.register(
            "preroll_door_panics",
            "Connections that ended in a fault of the door itself",
            self.panics.clone(),
        );
        self.registry.register(
            "preroll_http_refusals",
            "Requests answered by the door without a stage, by kind",
            self.http_refusals.clone(),
        );
        self
    }

    /// A stage's handles; `model` is the name that `vllm:` metrics carry.
    pub fn stage(&self, name: &str, model: &str) -> Rc<StageMetrics> {
        let mut stages = self.stages.borrow_mut();
        if let Some(stage) = stages.get(name).filter(|stage| stage.model() == model) {
            return stage.clone();
        }
        if let Some(old) = stages.remove(name) {
            self.families.forget(&old);
        }
        let stage = Rc::new(self.families.stage(name, model));
        stages.insert(name.to_owned(), stage.clone());
        stage
    }

    /// A stage left the tables: its series end.
    pub fn forget(&self, name: &str) {
        if let Some(stage) = self.stages.borrow_mut().remove(name) {
            self.families.forget(&stage);
        }
    }

    /// A request that the door answered itself before any stage: `kind` is a word of the program,
    /// such as `unauthorized`.
    pub fn http_refused(&self, kind: &'static str) {
        self.http_refusals.get_or_create(&KindLabels { kind }).inc();
    }

    /// The exposition. Set the stages' levels first.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(16 << 10);
        // Writing into a String does not fail; a part that could would only be missing.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests;
