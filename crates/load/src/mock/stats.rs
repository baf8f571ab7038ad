//! What the mock counted, and the pages that are not answers.

use super::queueing::Station;

/// Counters since the start or the last `POST /reset`; `active` is a level.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub requests: u64,
    pub aborts: u64,
    pub active: u64,
    pub max_active: u64,
    pub chunks: u64,
    pub connections: u64,
    pub bytes_in: u64,
    pub slow: u64,
    pub flipped: u64,
}

impl Stats {
    pub fn begin(&mut self) {
        self.requests += 1;
        self.active += 1;
        self.max_active = self.max_active.max(self.active);
    }

    /// The body of a page (`METHOD PATH`), None when the path is a route that gets an answer.
    pub fn page(&mut self, route: &str, station: Option<&Station>) -> Option<String> {
        let waiting = station.map_or(0, Station::waiting);
        match route {
            "GET /stats" => Some(self.json(waiting)),
            "POST /reset" => {
                *self = Self {
                    active: self.active,
                    max_active: self.active,
                    ..Self::default()
                };
                Some(self.json(waiting))
            }
            "GET /v1/models" => Some(MODELS.to_owned()),
            "GET /metrics" => Some(self.metrics(waiting)),
            _ if route.starts_with("GET ") => Some(SERVER_INFO.to_owned()),
            _ => None,
        }
    }

    fn json(&self, waiting: usize) -> String {
        format!(
            "{{\"requests\":{},\"aborts\":{},\"active\":{},\"max_active\":{},\"waiting\":{waiting},\"chunks\":{},\"connections\":{},\"bytes_in\":{},\"slow\":{},\"flipped\":{}}}",
            self.requests,
            self.aborts,
            self.active,
            self.max_active,
            self.chunks,
            self.connections,
            self.bytes_in,
            self.slow,
            self.flipped
        )
    }

    fn metrics(&self, waiting: usize) -> String {
        let running = self.active - waiting as u64;
        format!(
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{model_name=\"mock\"}} {running}\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{model_name=\"mock\"}} {waiting}\n"
        )
    }
}

const MODELS: &str = r#"{"object":"list","data":[{"id":"mock","object":"model","created":1700000000,"owned_by":"preroll","root":"mock","max_model_len":131072}]}"#;

/// What routers ask a backend before they use it: harmless to every other client.
const SERVER_INFO: &str = r#"{"status":"ok","model_path":"mock","served_model_name":"mock","model_id":"mock","tokenizer_path":"mock","is_generation":true,"version":"0.5","max_total_num_tokens":1000000,"dp_size":1}"#;
