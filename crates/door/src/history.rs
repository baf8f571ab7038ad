//! The lives of recent requests, for `preroll why REQUEST`.
//!
//! Bounded: a ring of ended requests, and those that live (bounded by connections). Who the
//! neighbours were is worked out when asked, so that a request pays only for its own notes.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};

use serde::Serialize;

use crate::pace::PaceReport;

/// Ids beyond this are cut: a bound on memory, not a rule (see `auth::request_id`).
const MAX_ID_BYTES: usize = 128;
/// So many neighbours are named; all are counted.
const MAX_NEIGHBOURS: usize = 16;

/// Times of one request, ns; 0: not yet.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    arrived: u64,
    queued: u64,
    admitted: u64,
    first_byte: u64,
    ended: u64,
}

/// One request's life; notes are taken as it goes.
#[derive(Debug)]
pub struct Life {
    id: Rc<str>,
    /// Another life of the same id that began before and still goes on.
    earlier: RefCell<Option<Rc<Life>>>,
    stage: Rc<str>,
    times: Cell<Times>,
    replica: RefCell<Option<Rc<str>>>,
    session: OnceCell<Box<str>>,
    pace: OnceCell<Box<PaceReport>>,
    attempts: Cell<u32>,
    priority: Cell<i32>,
    expected_wait_ns: Cell<u64>,
    status: Cell<u16>,
    outcome: Cell<&'static str>,
    home: Weak<RefCell<Book>>,
}

/// What `GET /why/REQUEST` shows; times are CLOCK_MONOTONIC, ns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LifeView {
    pub id: String,
    pub stage: String,
    pub arrived_ns: u64,
    pub queued_ns: Option<u64>,
    pub admitted_ns: Option<u64>,
    pub first_byte_ns: Option<u64>,
    pub ended_ns: Option<u64>,
    /// From arrival to admission, or to now, or to the end.
    pub queue_ms: f64,
    pub expected_wait_ms: f64,
    /// From arrival to the first byte.
    pub first_byte_ms: Option<f64>,
    pub total_ms: f64,
    pub replica: Option<String>,
    /// The conversation that it says it belongs to.
    pub session: Option<String>,
    /// How a paced stream was heard, once it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceReport>,
    pub attempts: u32,
    pub priority: i32,
    pub status: Option<u16>,
    pub outcome: &'static str,
    /// Others that were on the same replica while this one was, among those remembered.
    pub neighbours: usize,
    pub neighbour_ids: Vec<String>,
}

#[derive(Debug, Default)]
struct Book {
    capacity: usize,
    /// The latest life of each id.
    live: HashMap<Rc<str>, Rc<Life>>,
    ended: VecDeque<Rc<Life>>,
}

/// The lives of one door.
#[derive(Debug, Clone)]
pub struct History(Rc<RefCell<Book>>);

impl History {
    /// Remembers the last `capacity` that ended.
    pub fn new(capacity: usize) -> History {
        History(Rc::new(RefCell::new(Book {
            capacity,
            ..Book::default()
        })))
    }

    /// A request came. End it with [`Life::end`]; two of one id are two lives.
    pub fn begin(&self, id: &str, stage: &Rc<str>, now_ns: u64) -> Rc<Life> {
        let life = Rc::new(Life {
            id: cut(id).into(),
            earlier: RefCell::default(),
            stage: stage.clone(),
            times: Cell::new(Times {
                arrived: now_ns,
                ..Times::default()
            }),
            replica: RefCell::default(),
            session: OnceCell::new(),
            pace: OnceCell::new(),
            attempts: Cell::new(0),
            priority: Cell::new(0),
            expected_wait_ns: Cell::new(0),
            status: Cell::new(0),
            outcome: Cell::new("running"),
            home: Rc::downgrade(&self.0),
        });
        let mut book = self.0.borrow_mut();
        let earlier = book.live.insert(life.id.clone(), life.clone());
        if earlier.is_some() {
            *life.earlier.borrow_mut() = earlier;
        }
        life
    }

    /// The living request of an id, the latest of several.
    pub fn live(&self, id: &str) -> Option<Rc<Life>> {
        self.0.borrow().live.get(cut(id)).cloned()
    }

    /// The latest life of an id, if it is remembered.
    pub fn why(&self, id: &str, now_ns: u64) -> Option<LifeView> {
        let book = self.0.borrow();
        let id = cut(id);
        let ended = || {
            book.ended
                .iter()
                .rev()
                .find(|life| &*life.id == id)
                .cloned()
        };
        let living = book.live.get(id).cloned();
        Some(book.view(&*living.or_else(ended)?, now_ns))
    }

    /// The latest `limit` that ended, newest first.
    pub fn recent(&self, limit: usize, now_ns: u64) -> Vec<LifeView> {
        let book = self.0.borrow();
        book.ended
            .iter()
            .rev()
            .take(limit)
            .map(|life| book.view(life, now_ns))
            .collect()
    }

    /// How many live.
    pub fn num_live(&self) -> usize {
        self.0.borrow().living().count()
    }
}

impl Book {
    fn end(&mut self, life: &Rc<Life>) {
        self.bury(life);
        if self.ended.len() >= self.capacity {
            self.ended.pop_front();
        }
        if self.capacity > 0 {
            self.ended.push_back(life.clone());
        }
    }

    /// Takes a life off the living.
    fn bury(&mut self, life: &Rc<Life>) {
        let earlier = life.earlier.take();
        let Some(latest) = self.live.get_mut(&life.id) else {
            return;
        };
        if Rc::ptr_eq(latest, life) {
            match earlier {
                Some(earlier) => *latest = earlier,
                None => drop(self.live.remove(&life.id)),
            }
            return;
        }
        let mut later = latest.clone();
        loop {
            let Some(next) = later.earlier.borrow().clone() else {
                return;
            };
            if Rc::ptr_eq(&next, life) {
                *later.earlier.borrow_mut() = earlier;
                return;
            }
            later = next;
        }
    }

    fn living(&self) -> impl Iterator<Item = Rc<Life>> + '_ {
        let lives = |latest: &Rc<Life>| {
            std::iter::successors(Some(latest.clone()), |life| life.earlier.borrow().clone())
        };
        self.live.values().flat_map(lives)
    }

    fn view(&self, life: &Life, now_ns: u64) -> LifeView {
        let times = life.times.get();
        let at = |ns: u64| (ns > 0).then_some(ns);
        let ms = |to: u64| to.saturating_sub(times.arrived) as f64 / 1e6;
        let end = at(times.ended).unwrap_or(now_ns);
        let everyone = self.ended.iter().cloned().chain(self.living());
        let neighbours: Vec<_> = everyone
            .filter(|other| !std::ptr::eq(&**other, life) && other.met(life, now_ns))
            .collect();
        LifeView {
            id: life.id.to_string(),
            stage: life.stage.to_string(),
            arrived_ns: times.arrived,
            queued_ns: at(times.queued),
            admitted_ns: at(times.admitted),
            first_byte_ns: at(times.first_byte),
            ended_ns: at(times.ended),
            queue_ms: ms(at(times.admitted).unwrap_or(end)),
            expected_wait_ms: life.expected_wait_ns.get() as f64 / 1e6,
            first_byte_ms: at(times.first_byte).map(ms),
            total_ms: ms(end),
            replica: life.replica.borrow().as_deref().map(str::to_owned),
            session: life.session().map(str::to_owned),
            pace: life.pace.get().map(|pace| **pace),
            attempts: life.attempts.get(),
            priority: life.priority.get(),
            status: Some(life.status.get()).filter(|&status| status > 0),
            outcome: life.outcome.get(),
            neighbours: neighbours.len(),
            neighbour_ids: neighbours
                .iter()
                .take(MAX_NEIGHBOURS)
                .map(|n| n.id.to_string())
                .collect(),
        }
    }
}

impl Life {
    pub fn id(&self) -> &str {
        &self.id
    }

    /// For the calls that it makes.
    pub fn priority(&self) -> i32 {
        self.priority.get()
    }

    pub fn set_priority(&self, priority: i32) {
        self.priority.set(priority);
    }

    /// The conversation that it says it belongs to.
    pub fn session(&self) -> Option<&str> {
        self.session.get().map(|name| &**name)
    }

    /// It belongs to a conversation; a second name changes nothing.
    pub fn set_pace(&self, pace: PaceReport) {
        self.pace.get_or_init(|| pace.into());
    }

    pub fn set_session(&self, name: &str) {
        self.session.get_or_init(|| name.into());
    }

    /// It holds a slot now.
    pub fn is_admitted(&self) -> bool {
        let times = self.times.get();
        times.admitted > 0 && times.ended == 0
    }

    fn note(&self, change: impl FnOnce(&mut Times)) {
        let mut times = self.times.get();
        change(&mut times);
        self.times.set(times);
    }

    /// It had to wait, this long as far as was known.
    pub fn queued(&self, expected_wait_ns: u64, now_ns: u64) {
        self.expected_wait_ns.set(expected_wait_ns);
        self.note(|times| times.queued = now_ns);
    }

    /// It got a slot of `replica`, at its `attempt`th.
    pub fn admitted(&self, replica: &Rc<str>, attempt: u32, now_ns: u64) {
        *self.replica.borrow_mut() = Some(replica.clone());
        self.attempts.set(attempt);
        self.note(|times| times.admitted = now_ns);
    }

    /// It opened a session on `replica`, which holds no slot.
    pub fn connected(&self, replica: &Rc<str>) {
        *self.replica.borrow_mut() = Some(replica.clone());
        self.attempts.set(1);
    }

    /// The answer began.
    pub fn first_byte(&self, now_ns: u64) {
        self.note(|times| {
            if times.first_byte == 0 {
                times.first_byte = now_ns;
            }
        });
    }

    /// It is over; later calls change nothing. `status` 0: none was sent.
    pub fn end(self: &Rc<Self>, status: u16, outcome: &'static str, now_ns: u64) {
        if self.times.get().ended > 0 {
            return;
        }
        self.status.set(status);
        self.outcome.set(outcome);
        self.note(|times| times.ended = now_ns.max(1));
        if let Some(book) = self.home.upgrade() {
            book.borrow_mut().end(self);
        }
    }

    /// Both were on one replica at one time.
    fn met(&self, other: &Life, now_ns: u64) -> bool {
        let span = |life: &Life| {
            let times = life.times.get();
            let ended = if times.ended > 0 {
                times.ended
            } else {
                now_ns.saturating_add(1)
            };
            (times.admitted, ended)
        };
        let (mine, theirs) = (span(self), span(other));
        mine.0 > 0
            && theirs.0 > 0
            && mine.0 < theirs.1
            && theirs.0 < mine.1
            && self.stage == other.stage
            && *self.replica.borrow() == *other.replica.borrow()
    }
}

/// At most [`MAX_ID_BYTES`] of an id.
fn cut(id: &str) -> &str {
    let mut end = id.len().min(MAX_ID_BYTES);
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    &id[..end]
}

#[cfg(test)]
mod tests;
