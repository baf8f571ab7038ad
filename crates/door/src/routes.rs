//! Which stage a request goes to: by path, else by model, else to the only one.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::queue::Stage;
use crate::tables::{RouteTable, StageTable, Tables};

/// One stage as the door runs it: its queue outlives changes of its table.
pub struct StageHandle {
    pub stage: Stage,
    pub table: StageTable,
}

/// The tables in force, arranged for look-ups.
pub struct Routing {
    pub tables: Tables,
    pub stages: BTreeMap<String, Rc<StageHandle>>,
    exact: HashMap<String, usize>,
    /// Stems of `/stem/*` with their route, longest first.
    prefixes: Vec<(String, usize)>,
    models: HashMap<String, Rc<StageHandle>>,
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
        Routing {
            tables,
            stages,
            exact,
            prefixes,
            models,
        }
    }

    /// The route that names `path` and its stage; an exact one goes before a prefix, a longer prefix before a
    /// shorter one.
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
