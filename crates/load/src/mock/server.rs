//! The mock's one loop: accept, read, answer, and the timers of streams.

use std::io;
use std::os::fd::OwnedFd;

use fastrand::Rng;
use rustix::io::Errno;

use super::answer::answer;
use super::behaviour::{Asked, Behaviour, Mode};
use super::conn::{Conn, Reply, Waiting};
use super::events;
use super::options::{Options, interpolate};
use super::queueing::{Admitted, Station};
use super::request::{Body, head};
use super::stats::Stats;
use super::stream::After;
use crate::clock::{ms, now_ns};
use crate::net;
use crate::poll::{Poller, Ready};
use crate::slab::Slab;
use crate::timers::Timers;

const LISTENER: u64 = 1 << 63;
const READ_BYTES: usize = 256 << 10;
/// A client that reads slower than we write holds at most this much of ours.
const MAX_UNSENT: usize = 1 << 20;
const RETRY_NS: i64 = 1_000_000;

pub struct Server {
    poller: Poller,
    listeners: Vec<OwnedFd>,
    conns: Slab<Conn>,
    timers: Timers,
    station: Option<Station>,
    curve: Vec<(f64, f64)>,
    defaults: Behaviour,
    options: Options,
    rng: Rng,
    pub stats: Stats,
    buffer: Vec<u8>,
    /// Connections whose next request may already be in their input.
    again: Vec<u64>,
}

impl Server {
    pub fn new(options: Options, listeners: Vec<OwnedFd>) -> Result<Self, String> {
        let poller = Poller::new().map_err(|e| e.to_string())?;
        for (index, listener) in listeners.iter().enumerate() {
            let token = LISTENER + index as u64;
            poller
                .add(listener, token, false)
                .map_err(|e| e.to_string())?;
        }
        Ok(Self {
            poller,
            listeners,
            conns: Slab::default(),
            timers: Timers::default(),
            station: options.station(),
            curve: options.curve()?,
            defaults: options.behaviour(),
            rng: Rng::with_seed(options.seed),
            options,
            stats: Stats::default(),
            buffer: vec![0; READ_BYTES],
            again: Vec::new(),
        })
    }

    /// Serves for ever.
    pub fn run(&mut self) -> io::Result<()> {
        let mut ready = Vec::with_capacity(512);
        loop {
            self.poller
                .wait(self.timers.next_ns(), now_ns(), &mut ready)?;
            for event in &ready {
                self.event(*event);
            }
            let now = now_ns();
            while let Some(due) = self.timers.pop_due(now) {
                self.pump(due.token, due.at_ns);
            }
            while let Some(token) = self.again.pop() {
                self.advance(token);
            }
        }
    }

    fn event(&mut self, event: Ready) {
        if event.token >= LISTENER {
            self.accept((event.token - LISTENER) as usize);
            return;
        }
        if event.writable {
            self.flush(event.token);
        }
        if event.readable {
            self.read(event.token);
        }
    }

    fn accept(&mut self, listener: usize) {
        while let Some(fd) = net::accept(&self.listeners[listener]) {
            let token = self.conns.insert(Conn::new(fd));
            let Some(conn) = self.conns.get_mut(token) else {
                return;
            };
            if self.poller.add(&conn.fd, token, false).is_err() {
                self.conns.remove(token);
                return;
            }
            self.stats.connections += 1;
        }
    }

    fn read(&mut self, token: u64) {
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        match net::recv(&conn.fd, &mut self.buffer) {
            Ok(0) => self.drop_conn(token),
            Ok(count) => {
                self.stats.bytes_in += count as u64;
                conn.input.extend_from_slice(&self.buffer[..count]);
                self.advance(token);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.drop_conn(token),
        }
    }

    /// Takes as many whole requests out of the input as can be answered now.
    fn advance(&mut self, token: u64) {
        while let Some(request) = self.next_request(token) {
            self.respond(token, request);
        }
    }

    fn next_request(&mut self, token: u64) -> Option<Waiting> {
        let conn = self.conns.get_mut(token)?;
        if conn.is_busy() || conn.close {
            return None;
        }
        if conn.head.is_none() {
            let Ok(parsed) = head(&conn.input) else {
                self.drop_conn(token);
                return None;
            };
            let (found, used) = parsed?;
            conn.input.drain(..used);
            if self.defaults.mode == Mode::EarlyAnswer {
                return self.answer_early(token);
            }
            if found.expect {
                conn.out.extend_from_slice(events::CONTINUE);
                let _ = conn.flush();
            }
            let keep = if found.json {
                self.options.max_buffered_body
            } else {
                0
            };
            conn.body = Some(Body::new(&found, keep));
            conn.head = Some(found);
        }
        let body = conn.body.as_mut()?;
        let Ok((used, whole)) = body.feed(&conn.input) else {
            self.drop_conn(token);
            return None;
        };
        conn.input.drain(..used);
        if !whole {
            return None;
        }
        let (head, body) = (conn.head.take()?, conn.body.take()?);
        let asked = Asked::read(&body.kept, self.defaults);
        let path = format!("{} {}", head.method, head.path);
        Some(Waiting {
            asked,
            path,
            received: body.received,
            close: head.close,
        })
    }

    fn answer_early(&mut self, token: u64) -> Option<Waiting> {
        let conn = self.conns.get_mut(token)?;
        events::document(
            &mut conn.out,
            "413 Content Too Large",
            "text/plain",
            "too large\n",
            true,
        );
        conn.close = true;
        self.flush(token);
        None
    }

    fn respond(&mut self, token: u64, request: Waiting) {
        if let Some(body) = self.stats.page(&request.path, self.station.as_ref()) {
            let Some(conn) = self.conns.get_mut(token) else {
                return;
            };
            let kind = if body.starts_with('{') {
                "application/json"
            } else {
                "text/plain"
            };
            events::document(&mut conn.out, "200 OK", kind, &body, request.close);
            conn.close = request.close;
            self.flush(token);
            return;
        }
        self.stats.begin();
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        conn.waiting = Some(request);
        match &mut self.station {
            None => self.begin(token, None),
            Some(station) => {
                let admitted = station.arrive(token);
                self.admit(admitted);
            }
        }
    }

    fn admit(&mut self, admitted: Option<Admitted>) {
        if let Some(Admitted { token, service_ns }) = admitted {
            self.begin(token, Some(service_ns));
        }
    }

    /// Starts the answer to the request that waits on this connection.
    fn begin(&mut self, token: u64, service_ns: Option<i64>) {
        let in_flight = self.stats.active;
        let slow = interpolate(&self.curve, in_flight as f64);
        let is_slow = !self.curve.is_empty() && self.rng.f64() < slow;
        let flips = self.options.flip_rate > 0.0
            && in_flight > self.options.flip_above as u64
            && self.rng.f64() < self.options.flip_rate;
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        let Some(mut request) = conn.waiting.take() else {
            return;
        };
        if is_slow {
            self.stats.slow += 1;
            request.asked.behaviour.ttft_ns += ms(self.options.slow_ms);
        }
        let tokens = request.asked.behaviour.tokens;
        let flip = (flips && tokens > 0).then(|| self.rng.u32(0..tokens));
        self.stats.flipped += u64::from(flip.is_some());
        let planned = answer(&request, service_ns, flip);
        conn.close = request.close;
        conn.serving = service_ns.is_some();
        conn.reply = Some(planned.reply);
        let spread = if self.options.spread {
            self.rng.i64(0..self.defaults.gap_ns.max(1))
        } else {
            0
        };
        let start = now_ns() + planned.delay_ns + spread;
        if planned.delay_ns + spread > 0 {
            self.timers.push(start, token, 0);
        } else {
            self.pump(token, start);
        }
    }

    /// Does what is due on a connection: the next step of its stream, or its document.
    fn pump(&mut self, token: u64, due_ns: i64) {
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        if conn.unsent() > MAX_UNSENT {
            self.timers.push(due_ns + RETRY_NS, token, 0);
            return;
        }
        let after = match conn.reply.as_mut() {
            None => return,
            Some(Reply::Document(bytes)) => {
                conn.out.append(bytes);
                After::Done
            }
            Some(Reply::Stream(stream)) => {
                let before = stream.tokens_sent();
                let after = stream.step(&mut conn.out);
                self.stats.chunks += u64::from(stream.tokens_sent() > before);
                after
            }
        };
        if self.flush(token) {
            self.after(token, due_ns, after);
        }
    }

    fn after(&mut self, token: u64, due_ns: i64, after: After) {
        match after {
            After::Wait(0) => self.timers.push(now_ns(), token, 0),
            After::Wait(wait) => self.timers.push(due_ns + wait, token, 0),
            After::Hang => {}
            After::Done => self.finish(token),
            After::Close { reset } => {
                if let (true, Some(conn)) = (reset, self.conns.get_mut(token)) {
                    net::reset_on_close(&conn.fd);
                }
                self.finish(token);
                self.drop_conn(token);
            }
        }
    }

    fn finish(&mut self, token: u64) {
        self.stats.active -= 1;
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        conn.reply = None;
        let (served, close) = (std::mem::take(&mut conn.serving), conn.close);
        if close && conn.unsent() == 0 {
            self.conns.remove(token);
        } else if !conn.input.is_empty() {
            self.again.push(token);
        }
        if let (true, Some(station)) = (served, &mut self.station) {
            let next = station.finish();
            self.admit(next);
        }
    }

    /// Sends; false: the connection is gone.
    fn flush(&mut self, token: u64) -> bool {
        let Some(conn) = self.conns.get_mut(token) else {
            return false;
        };
        match conn.flush() {
            Err(_) => {
                self.drop_conn(token);
                false
            }
            Ok(done) => {
                if done == conn.watching_write {
                    conn.watching_write = !done;
                    let _ = self.poller.modify(&conn.fd, token, !done);
                }
                if done && conn.close && !conn.is_busy() {
                    self.conns.remove(token);
                }
                true
            }
        }
    }

    fn drop_conn(&mut self, token: u64) {
        let Some(conn) = self.conns.remove(token) else {
            return;
        };
        if !conn.is_busy() {
            return;
        }
        self.stats.active -= 1;
        self.stats.aborts += 1;
        let Some(station) = &mut self.station else {
            return;
        };
        let next = if conn.serving {
            station.finish()
        } else {
            station.abandon(token);
            None
        };
        self.admit(next);
    }
}
