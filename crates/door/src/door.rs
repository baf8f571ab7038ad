//! The door's state: all of it on one thread, shared by every connection.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::args::Args;
use crate::auth::{AdminGuard, AdminListener};
use crate::clock::{now_ns, refresh_ns};
use crate::events::Events;
use crate::history::History;
use crate::io::alarms::Alarms;
use crate::io::link::{Link, Origin};
use crate::log::AccessLog;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::queue::{Stage, StageEvent};
use crate::routes::{Routing, StageHandle};
use crate::tables::{StageTable, Tables, TablesError};

/// How far a shutdown has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// Not ready any more, still accepting.
    Draining,
    /// No longer accepting; what runs is finished, and its stages may still call each other.
    Closing,
    /// Nothing runs any more that could call a stage: the internal listener ends too.
    Ending,
}

/// Why new tables were not taken.
#[derive(Debug)]
pub enum Refused {
    Invalid(TablesError),
    /// The version in force.
    Older(u64),
}

/// Ended requests that `why` can tell of.
const REMEMBERED: usize = 4096;

/// Everything that connections share.
pub struct Door {
    pub args: Args,
    pub pool: Pool,
    pub events: Events,
    pub phase: Cell<Phase>,
    /// Told when a drain is asked for.
    pub drain: Notify,
    /// Who may ask on the admin port.
    pub admin_guard: RefCell<AdminGuard>,
    /// Bytes of request bodies held now, door-wide.
    pub body_bytes: Cell<u64>,
    pub history: History,
    pub metrics: Metrics,
    pub log: Option<AccessLog>,
    pub alarms: Rc<Alarms>,
    routing: RefCell<Rc<Routing>>,
    /// By their place among the alarms.
    links: RefCell<HashMap<usize, Rc<Link>>>,
    seats: Cell<usize>,
    timers: RefCell<HashMap<String, AbortHandle>>,
}

/// One accepted connection, counted from before its task first runs.
pub struct Seat(Rc<Door>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.seats.set(self.0.seats.get() - 1);
    }
}

/// Takes one connection off the list when its task ends, whichever way.
pub struct LinkGuard {
    door: Rc<Door>,
    place: usize,
}

impl Drop for LinkGuard {
    fn drop(&mut self) {
        let link = self.door.links.borrow_mut().remove(&self.place);
        drop(link);
    }
}

impl Door {
    /// # Errors
    /// The access log that cannot be opened.
    pub fn new(args: Args) -> Result<Rc<Door>, String> {
        let log = args.access_log.as_deref();
        let log = log
            .map(|path| AccessLog::open(path, args.access_sample))
            .transpose()?;
        let empty = Tables {
            version: 0,
            stages: BTreeMap::new(),
            routes: Vec::new(),
            keys: Vec::new(),
            limits: Default::default(),
        };
        Ok(Rc::new(Door {
            args,
            pool: Pool::default(),
            events: Events::default(),
            phase: Cell::new(Phase::Serving),
            drain: Notify::new(),
            admin_guard: RefCell::new(AdminGuard::new(AdminListener::Remote, None)),
            body_bytes: Cell::new(0),
            history: History::new(REMEMBERED),
            metrics: Metrics::new(),
            log,
            alarms: Rc::default(),
            routing: RefCell::new(Rc::new(Routing::new(empty, BTreeMap::new()))),
            links: RefCell::default(),
            seats: Cell::new(0),
            timers: RefCell::default(),
        }))
    }

    /// The tables in force.
    pub fn routing(&self) -> Rc<Routing> {
        self.routing.borrow().clone()
    }

    /// Takes new tables over, whole or not at all.
    ///
    /// # Errors
    /// [`Refused`]: the tables in force stay.
    pub fn apply(self: &Rc<Self>, json: &[u8]) -> Result<u64, Refused> {
        let tables = Tables::parse(json).map_err(Refused::Invalid)?;
        let old = self.routing();
        if tables.version < old.tables.version {
            return Err(Refused::Older(old.tables.version));
        }
        let version = tables.version;
        let now = now_ns();
        let stages = tables.stages.iter();
        let stages = stages.map(|(name, table)| {
            let stage = match old.stages.get(name) {
                Some(handle) => handle.stage.clone(),
                None => self.open_stage(name, table),
            };
            (
                name.clone(),
                Rc::new(StageHandle::new(stage, table, &self.metrics)),
            )
        });
        let routing = Rc::new(Routing::new(tables.clone(), stages.collect()));
        *self.routing.borrow_mut() = routing.clone();
        for (name, handle) in &routing.stages {
            if old.stages.contains_key(name) {
                handle.stage.apply(&handle.table, now);
            }
        }
        for (name, handle) in &old.stages {
            if !routing.stages.contains_key(name) {
                handle.stage.close(now);
                self.metrics.forget(name);
                if let Some(timer) = self.timers.borrow_mut().remove(name) {
                    timer.abort();
                }
            }
        }
        Ok(version)
    }

    fn open_stage(self: &Rc<Self>, name: &str, table: &StageTable) -> Stage {
        let (door, owner) = (Rc::downgrade(self), name.to_owned());
        let sink = Rc::new(move |event: StageEvent| {
            if let Some(door) = door.upgrade() {
                door.events.push(&owner, &event);
            }
        });
        let stage = Stage::new(name, table, fastrand::u64(..), sink, now_ns());
        let timer = tokio::task::spawn_local(keep_time(stage.clone())).abort_handle();
        self.timers.borrow_mut().insert(name.to_owned(), timer);
        stage
    }

    /// Puts a connection on the list; it leaves with the guard.
    pub fn enlist(self: &Rc<Self>, link: Rc<Link>) -> LinkGuard {
        let place = link.place();
        self.links.borrow_mut().insert(place, link);
        LinkGuard {
            door: self.clone(),
            place,
        }
    }

    /// Counts a connection while the seat lives.
    pub fn seat(self: &Rc<Self>) -> Seat {
        self.seats.set(self.seats.get() + 1);
        Seat(self.clone())
    }

    /// Client connections open now, admin ones too.
    pub fn num_connections(&self) -> usize {
        self.seats.get()
    }

    /// Whether a connection of `origin` is to end as soon as it can.
    pub fn is_closing(&self, origin: Origin) -> bool {
        let last = match origin {
            Origin::Internal => Phase::Ending,
            _ => Phase::Closing,
        };
        self.phase.get() >= last
    }

    /// Whether there is a connection that is no stage's call, or one whose origin nobody knows yet.
    pub fn has_clients(&self) -> bool {
        let links = self.links.borrow();
        links.len() < self.seats.get() || links.values().any(|l| l.origin != Origin::Internal)
    }

    /// Wakes every connection, so that it sees a change of phase.
    pub fn wake_links(&self) {
        let links: Vec<_> = self.links.borrow().values().cloned().collect();
        links.iter().for_each(|link| link.wake());
    }

    /// Runs the coarse timers for ever: every bound of a connection, and the pool.
    pub async fn tick(self: Rc<Self>) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let now = refresh_ns();
            for place in self.alarms.over(now) {
                if let Some(link) = self.links.borrow().get(&place) {
                    link.expire();
                }
            }
            self.pool.sweep(now);
        }
    }
}

/// Bounds of connections are seconds: this much later is no harm, and a timer per chunk would be.
const TICK: Duration = Duration::from_millis(50);

/// Runs a stage's timers for ever: expired tickets, replicas to be probed.
async fn keep_time(stage: Stage) {
    loop {
        let now = now_ns();
        let next = stage
            .tick(now)
            .map_or(3_600_000_000_000, |at| at.saturating_sub(now));
        let sleep = tokio::time::sleep(Duration::from_nanos(next));
        let mut sleep = std::pin::pin!(sleep);
        let mut is_first = true;
        std::future::poll_fn(|cx| {
            if !std::mem::take(&mut is_first) {
                return Poll::Ready(());
            }
            stage.on_timer_change(cx.waker().clone());
            sleep.as_mut().poll(cx)
        })
        .await;
    }
}
