//! The replicas of a stage, and picking one: power of two choices among those with a free slot.

use std::rc::Rc;

use super::homes::{Homes, Move};
use super::{Ask, Cost, Replica, Score};
use crate::tables::ReplicaTable;

/// What a session's context is taken to cost where it has to be computed anew, as a share of the
/// mean service time: a home is left only for a replica whose wait is that much shorter.
const CONTEXT_SHARE: f64 = 0.5;

/// The replicas in the tables; those that left live on in their permits.
pub(super) struct Fleet {
    all: Vec<Rc<Replica>>,
    /// Those with a free slot, in no order.
    open: Vec<Rc<Replica>>,
    /// Some may be ejected: look at all.
    has_ejected: bool,
    homes: Homes,
    score: Box<dyn Score>,
    rng: fastrand::Rng,
}

impl Fleet {
    pub(super) fn new(score: Box<dyn Score>, seed: u64) -> Fleet {
        let rng = fastrand::Rng::with_seed(seed);
        Fleet {
            all: Vec::new(),
            open: Vec::new(),
            has_ejected: false,
            homes: Homes::default(),
            score,
            rng,
        }
    }

    pub(super) fn all(&self) -> &[Rc<Replica>] {
        &self.all
    }

    /// Takes a table over: the same id at the same address is the same replica.
    pub(super) fn apply(&mut self, tables: &[ReplicaTable]) {
        let mut before = std::mem::take(&mut self.all);
        for table in tables {
            let same = |replica: &Rc<Replica>| {
                replica.id() == table.id && replica.table().address == table.address
            };
            let replica = match before.iter().position(same) {
                Some(at) => before.swap_remove(at),
                None => Replica::new(table.clone()),
            };
            replica.set_table(table);
            self.all.push(replica);
        }
        for replica in before {
            replica.leave();
            self.refresh(&replica);
        }
        for at in 0..self.all.len() {
            self.refresh(&self.all[at].clone());
        }
    }

    /// Keeps the set of open replicas true after a change of one.
    pub(super) fn refresh(&mut self, replica: &Rc<Replica>) {
        self.has_ejected |= replica.is_ejected();
        match (replica.free_slots() > 0, replica.open_at.get()) {
            (true, None) => {
                replica.open_at.set(Some(self.open.len()));
                self.open.push(replica.clone());
            }
            (false, Some(at)) => {
                replica.open_at.set(None);
                self.open.swap_remove(at);
                if let Some(moved) = self.open.get(at) {
                    moved.open_at.set(Some(at));
                }
            }
            _ => {}
        }
    }

    /// The better of two drawn at random that have room; where neither has, the first found. The
    /// replica that served the session last is looked at too.
    pub(super) fn pick(
        &mut self,
        ask: &Ask,
        budget: Option<u64>,
        service_ns: f64,
    ) -> Option<Rc<Replica>> {
        let count = self.open.len();
        if count == 0 {
            return None;
        }
        let first = self.rng.usize(..count);
        let second = (first + self.rng.usize(..count.max(2) - 1) + 1) % count;
        let fits = |at: &usize| self.open[*at].has_room(ask.tokens, budget);
        let home = ask.session.and_then(|session| self.homes.find(session));
        let cost = |at: usize| self.cost(&self.open[at], ask, home, service_ns).total_ns();
        let at = match (fits(&first), fits(&second)) {
            (true, true) if cost(second) < cost(first) => second,
            (true, _) => first,
            (false, true) => second,
            // Few have room for much: look at all of them, from a random one on.
            (false, false) => (0..count).map(|step| (first + step) % count).find(fits)?,
        };
        let is_home = |at: &usize| Some(self.open[*at].key()) == home;
        let home_at = home.and_then(|_| (0..count).find(is_home)).filter(fits);
        let at = home_at.filter(|&home| cost(home) <= cost(at)).unwrap_or(at);
        Some(self.open[at].clone())
    }

    fn cost(&self, replica: &Replica, ask: &Ask, home: Option<u64>, service_ns: f64) -> Cost {
        let mut cost = self.score.cost(replica, ask, service_ns);
        if home.is_some_and(|home| home != replica.key()) {
            cost.prefill_ns += service_ns * CONTEXT_SHARE;
        }
        cost
    }

    /// A session's request goes to `replica`; None where it names no session.
    pub(super) fn settle(&mut self, session: Option<u64>, replica: &Replica) -> Option<Move> {
        session.map(|session| self.homes.settle(session, replica.key()))
    }

    /// The serving replica with the fewest open sessions per slot; the one that served `session`
    /// last unless it has more than twice as many.
    pub(super) fn pick_for_session(&self, session: Option<u64>) -> Option<Rc<Replica>> {
        let load = |replica: &Replica| replica.sessions.get() * 1000 / replica.slots();
        let serving = || self.all.iter().filter(|replica| replica.is_serving());
        let least = serving().min_by_key(|replica| (load(replica), replica.in_flight.get()))?;
        let home = session.and_then(|session| self.homes.find(session));
        let home = serving().find(|replica| Some(replica.key()) == home);
        let home = home.filter(|home| load(home) <= 2 * load(least) + 1000);
        Some(home.unwrap_or(least).clone())
    }

    pub(super) fn is_serving(&self) -> bool {
        self.all.iter().any(|replica| replica.is_serving())
    }

    /// Some replica is up: not only about to be tried again.
    pub(super) fn is_up(&self) -> bool {
        self.all.iter().any(|replica| replica.is_up())
    }

    pub(super) fn is_probing(&self) -> bool {
        self.all.iter().any(|replica| replica.is_probing())
    }

    /// Slots of the serving replicas.
    pub(super) fn slots(&self) -> usize {
        self.all
            .iter()
            .filter(|r| r.is_serving())
            .map(|r| r.slots())
            .sum()
    }

    /// Requests in flight on the serving replicas.
    pub(super) fn in_flight(&self) -> usize {
        self.all
            .iter()
            .filter(|r| r.is_serving())
            .map(|r| r.in_flight.get())
            .sum()
    }

    /// When the next ejected replica may be asked again.
    pub(super) fn next_probe_ns(&self) -> Option<u64> {
        if !self.has_ejected {
            return None;
        }
        self.all
            .iter()
            .filter_map(|replica| replica.ejected_until_ns())
            .min()
    }

    /// Half-opens those whose back-off is over.
    pub(super) fn wake_up(&mut self, now_ns: u64) {
        if !self.has_ejected {
            return;
        }
        for at in 0..self.all.len() {
            if self.all[at].wake_up(now_ns) {
                self.refresh(&self.all[at].clone());
            }
        }
        self.has_ejected = self.all.iter().any(|replica| replica.is_ejected());
    }
}
