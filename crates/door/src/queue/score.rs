//! What sending a request to a replica is expected to cost; the smallest sum is picked.

use super::{Ask, Replica};

/// The expected time to first byte by parts, ns. Prefix and residency scores fill their own.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Work that is there already.
    pub wait_ns: f64,
    /// Prompt tokens that are not in its prefix cache.
    pub prefill_ns: f64,
    /// Weights or adapters that would have to be brought in.
    pub residency_ns: f64,
    /// Requests sent so lately that the other parts cannot show them yet.
    pub herding_ns: f64,
}

impl Cost {
    /// The sum that decides.
    pub fn total_ns(&self) -> f64 {
        self.wait_ns + self.prefill_ns + self.residency_ns + self.herding_ns
    }
}

/// Estimates a replica's cost for a request. `service_ns` is the stage's mean service time.
pub trait Score {
    fn cost(&self, replica: &Replica, ask: &Ask, service_ns: f64) -> Cost;
}

/// Least expected wait: occupancy times its own service time, unanswered requests counted twice
/// (the guard against herding), and trouble as a multiple, so that a replica that fails fast does
/// not look fast.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeastExpectedWait;

impl Score for LeastExpectedWait {
    fn cost(&self, replica: &Replica, _ask: &Ask, service_ns: f64) -> Cost {
        let own_ns = replica.service_ns().unwrap_or(service_ns);
        let trouble = f64::from(replica.trouble());
        let per_request_ns = own_ns.max(service_ns * trouble.min(1.0)) * (1.0 + trouble);
        let slots = replica.slots() as f64;
        Cost {
            wait_ns: per_request_ns * (replica.in_flight() as f64 + 1.0) / slots,
            herding_ns: per_request_ns * replica.pending() as f64 / slots,
            ..Cost::default()
        }
    }
}
