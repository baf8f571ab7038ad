//! Speed of one M/M/k queue: `cargo run --release -p preroll-sim --example queue -- K REQUESTS`.
//!
//! Prints events per second of one thread and the mean wait: the loop to put under a profiler.

use preroll_sim::{Config, Pause, Sim};
use serde_json::json;

fn main() {
    let argument = |i: usize, default: f64| {
        std::env::args()
            .nth(i)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (servers, requests) = (argument(1, 1.0), argument(2, 2e7));
    let rate = 0.8 * servers;
    let one = json!({"kind": "constant", "value": 1.0});
    let exponential = json!({"kind": "exponential", "mean": 1.0});
    let arrivals = json!({"kind": "renewal", "gap": exponential, "rates": [[0.0, rate]],
                          "end_s": requests / rate, "prompt": one, "output": one});
    let service = json!({"kind": "slots", "slots": 1, "time": exponential});
    let endpoint = json!({"name": "q", "arrivals": arrivals, "service": service,
                          "replicas": servers as u32});
    let config = json!({"seed": 1, "endpoints": [endpoint]});
    let config: Config = serde_json::from_value(config).expect("a valid configuration");
    let mut sim = Sim::new(&config, vec![]).expect("a valid configuration");
    let begin = std::time::Instant::now();
    while sim.run(4_000_000) != Pause::Over {}
    let elapsed_s = begin.elapsed().as_secs_f64();
    let report = sim.report();
    let wait_s = report.endpoints[0].wait.mean_s.unwrap_or(0.0);
    println!(
        "M/M/{servers}: {:.2} million events/s, mean wait {wait_s:.6} s",
        report.events as f64 / elapsed_s / 1e6
    );
}
