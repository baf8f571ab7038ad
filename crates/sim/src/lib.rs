//! A discrete-event simulator of model endpoints: queues, slots, batches, starts, clients.
//!
//! Time is integer nanoseconds. Events happen in one order (time, priority, sequence), every part
//! draws from a seeded stream of its own, and a run repeats bit by bit. Policies live outside: the
//! loop pauses at control ticks. Statistics are streamed, so memory does not grow with requests.

mod batch;
mod client;
pub mod config;
mod dist;
mod endpoint;
mod engine;
mod events;
mod fleet;
mod histogram;
mod levels;
mod prefix;
mod replica;
mod report;
mod request;
mod rng;
mod slots;
mod source;
mod stats;

pub use config::Config;
pub use dist::Dist;
pub use engine::{Pause, Sim};
pub use events::{Events, Kind};
pub use histogram::Histogram;
pub use prefix::PrefixCache;
pub use report::{EndpointReport, Observation, Quantiles, Report};
pub use rng::Stream;
pub use source::Trace;
