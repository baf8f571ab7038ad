//! A station of k servers with one FIFO queue: a backend whose capacity is known exactly.
//!
//! With exponential service of mean S and N clients that think no time, an arrival waits for N - k
//! completions at rate k / S, so the wait is Erlang(N - k, k / S) and every threshold has a closed form.

use std::collections::VecDeque;

use fastrand::Rng;
use serde::Deserialize;

/// How service times are distributed around their mean.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    Constant,
    #[default]
    Exponential,
}

/// The station; `degrade_above` requests in it make it slow until only `degrade_below` are left.
pub struct Station {
    pub servers: usize,
    pub service: Service,
    pub mean_ns: f64,
    pub degrade_above: usize,
    pub degrade_below: usize,
    pub degrade_factor: f64,
    rng: Rng,
    waiting: VecDeque<u64>,
    busy: usize,
    degraded: bool,
}

/// A request whose service starts now, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub token: u64,
    pub service_ns: i64,
}

impl Station {
    pub fn new(servers: usize, service: Service, mean_ns: f64, seed: u64) -> Self {
        Self {
            servers,
            service,
            mean_ns,
            degrade_above: usize::MAX,
            degrade_below: 0,
            degrade_factor: 1.0,
            rng: Rng::with_seed(seed),
            waiting: VecDeque::new(),
            busy: 0,
            degraded: false,
        }
    }

    pub fn arrive(&mut self, token: u64) -> Option<Admitted> {
        self.waiting.push_back(token);
        self.degraded |= self.in_system() >= self.degrade_above;
        self.next()
    }

    /// A service has ended (or its client left): the next in line starts.
    pub fn finish(&mut self) -> Option<Admitted> {
        self.busy -= 1;
        self.recover();
        self.next()
    }

    /// Takes a request out of the queue; false: it was not waiting.
    pub fn abandon(&mut self, token: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|t| *t != token);
        self.recover();
        self.waiting.len() < before
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn in_system(&self) -> usize {
        self.busy + self.waiting.len()
    }

    fn recover(&mut self) {
        if self.in_system() <= self.degrade_below {
            self.degraded = false;
        }
    }

    fn next(&mut self) -> Option<Admitted> {
        if self.busy >= self.servers {
            return None;
        }
        let token = self.waiting.pop_front()?;
        self.busy += 1;
        let draw = match self.service {
            Service::Constant => 1.0,
            Service::Exponential => -(1.0 - self.rng.f64()).ln(),
        };
        let factor = if self.degraded {
            self.degrade_factor
        } else {
            1.0
        };
        Some(Admitted {
            token,
            service_ns: (self.mean_ns * draw * factor) as i64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Service, Station};

    #[test]
    fn requests_beyond_the_servers_wait_in_order_and_the_abandoned_never_run() {
        let mut station = Station::new(1, Service::Constant, 100.0, 1);
        assert_eq!(
            station.arrive(1).map(|a| (a.token, a.service_ns)),
            Some((1, 100))
        );
        assert!(station.arrive(2).is_none() && station.arrive(3).is_none());
        assert!(station.abandon(2) && !station.abandon(2));
        assert_eq!(station.finish().map(|a| a.token), Some(3));
        assert!(station.finish().is_none());
    }

    #[test]
    fn degradation_starts_above_and_ends_only_below() {
        let mut station = Station::new(4, Service::Constant, 100.0, 1);
        (
            station.degrade_above,
            station.degrade_below,
            station.degrade_factor,
        ) = (3, 1, 5.0);
        assert_eq!(station.arrive(1).unwrap().service_ns, 100);
        assert_eq!(station.arrive(2).unwrap().service_ns, 100);
        assert_eq!(station.arrive(3).unwrap().service_ns, 500);
        station.finish();
        assert_eq!(station.arrive(4).unwrap().service_ns, 500);
        station.finish();
        station.finish();
        assert_eq!(station.arrive(5).unwrap().service_ns, 100);
    }

    #[test]
    fn exponential_service_has_its_mean() {
        let mut station = Station::new(1, Service::Exponential, 1e6, 7);
        let mut sum = 0;
        for token in 0..20_000 {
            sum += station.arrive(token).unwrap().service_ns;
            station.finish();
        }
        let mean = sum as f64 / 20_000.0;
        assert!((mean / 1e6 - 1.0).abs() < 0.03, "{mean}");
    }
}
