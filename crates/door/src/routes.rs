//! Which stage a request goes to: by path, else by model, else to the only one.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::auth::Keys;
use crate::metrics::{Metrics, StageMetrics};
use crate::queue::Stage;
use crate::tables::{RouteTable, StageTable, Tables};

/// One stage as the door runs it: its queue outlives changes of its table.
pub struct StageHandle {
    pub name: Rc<str>,
    pub stage: Stage,
    pub table: StageTable,
    pub metrics: Rc<StageMetrics>,
    /// A gap between two chunks longer than this is a stall.
    pub stall_ns: u64,
}

/// Where no objective says what a stall is: a pause that a reader notices.
const STALL_NS: u64 = 1_000_000_000;

impl StageHandle {
    pub fn new(stage: Stage, table: &StageTable, metrics: &Metrics) -> StageHandle {
        let model = table.models.first().map_or(stage.name(), String::as_str);
        let itl_ms = table.slo.and_then(|slo| slo.itl_ms);
        StageHandle {
            name: stage.name().into(),
            metrics: metrics.stage(stage.name(), model),
            // Five times the objective: what a listener or reader takes for a hang.
            stall_ns: itl_ms.map_or(STALL_NS, |ms| ms.saturating_mul(5_000_000)),
            stage,
            table: table.clone(),
        }
    }

    /// Whether JSON bodies must be read though the path decides: to rename the model, or to count
    /// tokens.
    pub fn reads_bodies(&self) -> bool {
        let renames = self
            .table
            .replicas
            .iter()
            .any(|replica| replica.model.is_some());
        renames || self.table.kv_tokens.is_some()
    }
}

/// The tables in force, arranged for look-ups.
pub struct Routing {
    pub tables: Tables,
    pub stages: BTreeMap<String, Rc<StageHandle>>,
    exact: HashMap<String, usize>,
    /// Stems of `/stem/*` with their route, longest first.
    prefixes: Vec<(String, usize)>,
    models: HashMap<String, Rc<StageHandle>>,
    pub keys: Keys,
}

impl Routing {
    pub fn new(tables: Tables, stages: BTreeMap<String, Rc<StageHandle>>) -> Routing {
        let (mut exact, mut prefixes) = (HashMap::new(), Vec::new());
        for (at, route) in tables.routes.iter().enumerate() {
            match route.path.strip_suffix("/*") {
                Some(stem) => prefixes.push((stem.to_owned(), at)),
                None => drop(exact.insert(route.path.clone(), at)),
            }
        }
        prefixes.sort_by_key(|(stem, _)| std::cmp::Reverse(stem.len()));
        let models = tables.models().into_iter();
        let models = models
            .map(|(model, name)| (model.to_owned(), stages[name].clone()))
            .collect();
        let keys = Keys::new(&tables.keys);
        Routing {
            keys,
            tables,
            stages,
            exact,
            prefixes,
            models,
        }
    }

    /// The route that names `path` and its stage; an exact one goes before a prefix, a longer
    /// prefix before a shorter one.
    pub fn by_path(&self, path: &str) -> Option<(&RouteTable, &Rc<StageHandle>)> {
        let at = self.exact.get(path).copied().or_else(|| {
            let is_below = |stem: &str| {
                path.strip_prefix(stem)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            self.prefixes
                .iter()
                .find(|(stem, _)| is_below(stem))
                .map(|(_, at)| *at)
        })?;
        let route = &self.tables.routes[at];
        Some((route, &self.stages[&route.stage]))
    }

    /// The stage that serves `model`.
    pub fn by_model(&self, model: &str) -> Option<&Rc<StageHandle>> {
        self.models.get(model)
    }

    /// The stage, when there is one only.
    pub fn only(&self) -> Option<&Rc<StageHandle>> {
        if self.stages.len() == 1 {
            self.stages.values().next()
        } else {
            None
        }
    }

    /// All model names, in order.
    pub fn model_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.models.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

/// What `strip_prefix` takes off a path that matched `route`.
pub fn prefix_of(route: &RouteTable) -> Option<&str> {
    if !route.strip_prefix {
        return None;
    }
    Some(route.path.strip_suffix("/*").unwrap_or(&route.path)).filter(|stem| !stem.is_empty())
}
