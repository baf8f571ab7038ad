//! A request in flight: connect, write, read, record. Split from the loop that decides when.

use std::rc::Rc;

use rustix::io::Errno;

use super::engine::{Conn, Engine, due};
use super::exchange::{Exchange, Keep, Progress};
use super::record::Record;
use super::spec::Detail;
use super::transport::{Received, Transport};
use super::websocket;
use super::workload::Job;
use crate::clock::now_ns;
use crate::net;
use crate::poll::Ready;

impl Engine {
    /// Sends a call on an idle connection, or on a new one; there are no retries.
    pub(super) fn send(&mut self, job: Job) {
        let sequence = self.sequence;
        self.sequence += 1;
        let mut record = Record {
            kind: "request",
            sequence,
            run: job.run,
            call: job.call,
            template: job.template,
            tag: job.tag.clone(),
            warmup: job.warmup,
            in_flight: self.in_flight + 1,
            intended_ns: job.intended_ns,
            started_ns: now_ns(),
            ..Record::default()
        };
        if self.in_flight >= self.spec.max_in_flight {
            let limit = self.spec.max_in_flight;
            record.fail(
                "client_limit",
                format!("{limit} requests were in flight already"),
            );
            record.end_ns = now_ns();
            self.write(&mut record);
            return self.pause_after(&job);
        }
        self.change_in_flight(1);
        let out = self.prepared[job.template].bytes(sequence, &job.history);
        while let Some(token) = self.idle.pop() {
            if self.conns.get_mut(token).is_some() {
                record.reused = true;
                return self.launch(token, job, record, out);
            }
        }
        self.connect(job, record, out);
    }

    fn connect(&mut self, job: Job, mut record: Record, out: Rc<Vec<u8>>) {
        record.connect_ns = Some(now_ns());
        match net::connect(&self.address) {
            Ok((fd, connected)) => {
                self.connections += 1;
                let transport = match Transport::new(fd, self.tls.as_ref()) {
                    Ok(transport) => transport,
                    Err(error) => {
                        self.error = Some(error);
                        return;
                    }
                };
                let conn = Conn {
                    transport,
                    exchange: None,
                    job: Job::default(),
                    out: Rc::default(),
                    written: 0,
                    connecting: !connected,
                    watching_write: !connected,
                    deadline_ns: 0,
                };
                let token = self.conns.insert(conn);
                let Some(conn) = self.conns.get_mut(token) else {
                    return;
                };
                if let Err(error) = self.poller.add(&conn.transport.fd, token, !connected) {
                    self.error = Some(format!("epoll: {error}"));
                }
                self.launch(token, job, record, out);
            }
            Err(error) => {
                record.fail("connect", format!("{}: {error}", self.address));
                record.end_ns = now_ns();
                self.change_in_flight(-1);
                self.write(&mut record);
                self.pause_after(&job);
            }
        }
    }

    /// After a failure without a connection: through a timer, never by recursion.
    fn pause_after(&mut self, job: &Job) {
        self.after_call(job, true);
    }

    fn launch(&mut self, token: u64, job: Job, record: Record, out: Rc<Vec<u8>>) {
        let deadline = record.started_ns + (self.spec.timeout_s * 1e9) as i64;
        let prepared = &self.prepared[job.template];
        let (unit, script) = (prepared.unit, prepared.script.clone());
        let text = self.keep.text || prepared.turn.is_some();
        let keep = Keep { text, ..self.keep };
        let exchange = Exchange::new(record, prepared.is_head, keep).with(unit, script);
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        conn.exchange = Some(exchange);
        (conn.job, conn.out, conn.written, conn.deadline_ns) = (job, out, 0, deadline);
        let connecting = conn.connecting;
        self.timers.push(deadline, token, due::TIMEOUT);
        if !connecting {
            self.push_out(token);
        }
    }

    /// Writes what the kernel takes; the rest goes when the socket is writable again.
    fn push_out(&mut self, token: u64) {
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        let Some(exchange) = conn.exchange.as_mut() else {
            return;
        };
        // What TLS holds back, its own handshake too; an error shows at the next read.
        let _ = conn.transport.flush();
        while conn.written < conn.out.len() {
            match conn.transport.send(&conn.out[conn.written..]) {
                Ok(count) => conn.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The answer may have come before the body was taken: the read will tell.
                Err(_) => conn.written = conn.out.len() + 1,
            }
        }
        let done = conn.written >= conn.out.len() && !conn.transport.wants_write();
        if conn.written == conn.out.len() {
            exchange.record.sent_ns.get_or_insert_with(now_ns);
        }
        if done == conn.watching_write {
            conn.watching_write = !done;
            let _ = self.poller.modify(&conn.transport.fd, token, !done);
        }
    }

    /// Adds to what is being sent.
    fn append_out(&mut self, token: u64, bytes: &[u8]) {
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        let out = Rc::make_mut(&mut conn.out);
        if conn.written == out.len() {
            (conn.written, *out) = (0, Vec::new());
        }
        out.extend_from_slice(bytes);
        self.push_out(token);
    }

    /// After input on a WebSocket: pongs go out, and when it has just opened, the script begins.
    fn after_messages(&mut self, token: u64, at_ns: i64) {
        let Some(exchange) = self.conns.get_mut(token).and_then(|c| c.exchange.as_mut()) else {
            return;
        };
        let is_open = exchange.is_open();
        let Some(socket) = exchange.socket.as_mut() else {
            return;
        };
        let mut out = std::mem::take(&mut socket.replies);
        if is_open && socket.from_ns.is_none() {
            socket.from_ns = Some(at_ns);
            if let Some(first) = &socket.script.first {
                websocket::text(&mut out, first);
            }
            self.timers.push(at_ns, token, due::FRAME);
        }
        if !out.is_empty() {
            self.append_out(token, &out);
        }
    }

    /// Sends one frame of audio, meant for `meant_ns`; after the last one, the last text.
    pub(super) fn send_frame(&mut self, token: u64, meant_ns: i64) {
        let Some(exchange) = self.conns.get_mut(token).and_then(|c| c.exchange.as_mut()) else {
            return;
        };
        let Some(socket) = exchange.socket.as_mut() else {
            return;
        };
        let (script, index) = (Rc::clone(&socket.script), socket.sent);
        let Some(audio) = script.frame(index) else {
            return;
        };
        self.lag.send.record(now_ns() - meant_ns);
        socket.sent += 1;
        let mut out = Vec::new();
        websocket::binary(&mut out, audio);
        if script.frame(index + 1).is_some() {
            self.timers
                .push(meant_ns + script.frame_ns, token, due::FRAME);
        } else {
            exchange.record.audio_end_ns = Some(now_ns());
            if let Some(last) = &script.last {
                websocket::text(&mut out, last);
            }
        }
        self.append_out(token, &out);
    }

    pub(super) fn on_ready(&mut self, event: Ready, woke_ns: i64) {
        let Some(conn) = self.conns.get_mut(event.token) else {
            return;
        };
        if conn.connecting {
            if let Some(error) = net::connect_error(&conn.transport.fd) {
                let detail = format!("{}: {error}", self.address);
                return self.abort(event.token, "connect", &detail);
            }
            if !event.writable {
                return;
            }
            conn.connecting = false;
        }
        if event.writable {
            self.push_out(event.token);
        }
        if event.readable {
            self.on_readable(event.token, woke_ns);
        }
    }

    fn on_readable(&mut self, token: u64, woke_ns: i64) {
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        let result = conn.transport.receive(&mut self.buffer);
        let at_ns = now_ns();
        let Some(exchange) = conn.exchange.as_mut() else {
            // An idle connection that becomes readable was closed by the server (or babbles).
            self.conns.remove(token);
            return;
        };
        match result {
            Ok(Received::Nothing) => {}
            Ok(Received::End) => {
                exchange.on_close(at_ns);
                self.complete(token, false);
            }
            Ok(Received::Bytes(mut count)) => {
                self.lag.read.record(at_ns - woke_ns);
                let mut progress = exchange.on_read(&self.buffer[..count], at_ns);
                while progress == Progress::More {
                    count = conn.transport.more(&mut self.buffer);
                    if count == 0 {
                        break;
                    }
                    progress = exchange.on_read(&self.buffer[..count], at_ns);
                }
                let written = conn.written == conn.out.len();
                if exchange.socket.is_some() {
                    self.after_messages(token, at_ns);
                }
                if let Progress::Complete { keep_alive } = progress {
                    self.complete(token, keep_alive && written);
                }
            }
            Err(error) => self.abort(token, "reset", &error),
        }
    }

    /// Ends an exchange from our side (or because the socket failed) and drops its connection.
    pub(super) fn abort(&mut self, token: u64, kind: &'static str, detail: &str) {
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        let Some(exchange) = conn.exchange.as_mut() else {
            return;
        };
        exchange.record.fail(kind, detail);
        exchange.record.end_ns = now_ns();
        self.complete(token, false);
    }

    fn complete(&mut self, token: u64, keep_alive: bool) {
        let Some(conn) = self.conns.get_mut(token) else {
            return;
        };
        let Some(exchange) = conn.exchange.take() else {
            return;
        };
        let mut job = std::mem::take(&mut conn.job);
        conn.deadline_ns = 0;
        if keep_alive && self.spec.reuse {
            self.idle.push(token);
        } else {
            self.conns.remove(token);
        }
        self.change_in_flight(-1);
        let failed = exchange.record.failure.is_some();
        let mut record = exchange.record;
        if let Some(turn) = &self.prepared[job.template].turn {
            job.history = Rc::new(turn.history(&job.history, &record.text));
            if !self.keep.text {
                record.text.clear();
            }
        }
        self.write(&mut record);
        self.after_call(&job, failed);
        self.say_drained();
    }

    fn write(&mut self, record: &mut Record) {
        if !record.warmup {
            self.totals.add(record);
        }
        if self.spec.detail != Detail::Gaps {
            record.gaps_ns.clear();
        }
        if self.spec.detail == Detail::None {
            return;
        }
        if let Err(error) = self.output.record(record) {
            self.error
                .get_or_insert(format!("cannot write records: {error}"));
        }
    }
}
