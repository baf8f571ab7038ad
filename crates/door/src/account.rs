//! One request's account: what it held and what became of it, settled exactly once, whichever way
//! it ends.

use std::rc::Rc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use serde_json::json;

use crate::clock::recent_ns;
use crate::door::Door;
use crate::forward::RequestId;
use crate::history::Life;
use crate::log::Line;
use crate::metrics::Phase;
use crate::pace::Pace;
use crate::pool::Backend;
use crate::proxy::Stop;
use crate::queue::{Fault, Move, Outcome, Permit, SessionPermit};
use crate::routes::StageHandle;
use crate::sse::{Scanner, StreamReport, Usage};
use crate::tail::{self, Tail};

const EVENT_STREAM: &[u8] = b"text/event-stream";
const JSON: &[u8] = b"application/json";

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client got the replica's answer, whole.
    Complete,
    /// The replica's own 429 or 503 was passed on.
    Rejected,
    /// The replica's answer was another server error.
    Errored,
    /// The door refused it, or told what was wrong with it.
    Refused,
    /// The client left before the end.
    ClientGone,
    /// An explicit deadline cut it.
    Deadline,
    Failed(Fault),
    /// The door itself was at fault.
    Panicked,
}

impl Ending {
    fn outcome(self) -> Outcome {
        match self {
            Ending::Complete => Outcome::Completed,
            Ending::Rejected => Outcome::Rejected,
            Ending::Errored => Outcome::Errored,
            Ending::ClientGone | Ending::Deadline | Ending::Refused | Ending::Panicked => {
                Outcome::ClientGone
            }
            Ending::Failed(fault) => Outcome::Failed(fault),
        }
    }

    /// As metrics say it: few words.
    fn kind(self) -> &'static str {
        match self {
            Ending::Errored => "error_status",
            Ending::Failed(_) => "failed",
            Ending::Panicked => "other",
            other => other.name(),
        }
    }

    /// As logs and the history say it.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Complete => "complete",
            Ending::Rejected => "rejected",
            Ending::Errored => "errored",
            Ending::Refused => "refused",
            Ending::ClientGone => "client_gone",
            Ending::Deadline => "deadline",
            Ending::Panicked => "panicked",
            Ending::Failed(Fault::Connect) => "unreachable",
            Ending::Failed(Fault::Broken) => "broken",
            Ending::Failed(Fault::Stalled) => "stalled",
        }
    }
}

/// What is known of a request from its head on.
pub struct Account {
    pub door: Rc<Door>,
    pub handle: Rc<StageHandle>,
    pub request_id: RequestId,
    pub life: Rc<Life>,
    arrived_ns: u64,
    /// Kept where there is a log that may want to tell it.
    target: Option<(Method, Uri)>,
    permit: Option<Permit>,
    replica: Option<Rc<str>>,
    waited_ns: u64,
    attempts: u32,
    status: u16,
    watch: Watch,
    report: Option<StreamReport>,
    first_byte_ns: Option<u64>,
    bytes_out: u64,
    usage: Option<Usage>,
    /// Of streams that are played as they come.
    pace: Option<Box<Pace>>,
    /// It opened a session, which holds no slot.
    is_session: bool,
    ending: Option<Ending>,
}

/// What is looked for in the bytes of an answer.
enum Watch {
    Nothing,
    Events(Box<Scanner>),
    Json(Tail),
}

impl Account {
    pub fn new(
        door: &Rc<Door>,
        handle: &Rc<StageHandle>,
        parts: &Parts,
        request_id: RequestId,
    ) -> Box<Account> {
        let now = recent_ns();
        Box::new(Account {
            door: door.clone(),
            handle: handle.clone(),
            life: door.history.begin(request_id.as_str(), &handle.name, now),
            request_id,
            arrived_ns: now,
            target: (door.log.as_ref()).map(|_| (parts.method.clone(), parts.uri.clone())),
            permit: None,
            replica: None,
            waited_ns: 0,
            attempts: 0,
            status: 0,
            watch: Watch::Nothing,
            report: None,
            first_byte_ns: None,
            bytes_out: 0,
            usage: None,
            pace: None,
            is_session: false,
            ending: None,
        })
    }

    /// Each chunk of the answer plays for so long; a route's word goes before its stage's.
    pub fn set_frame(&mut self, route_frame_us: Option<u64>) {
        let frame_us = route_frame_us.or(self.handle.table.frame_us);
        self.pace = frame_us.map(|us| Box::new(Pace::new(us.saturating_mul(1000))));
    }

    /// It has to wait for a slot.
    pub fn queued(&self, expected_ns: u64) {
        self.life.queued(expected_ns, recent_ns());
    }

    /// A slot is held from now on.
    pub fn admitted(&mut self, permit: Permit, backend: &Backend) {
        self.waited_ns = permit.waited_ns();
        self.attempts = permit.attempt();
        self.life
            .admitted(&backend.name, permit.attempt(), recent_ns());
        self.replica = Some(backend.name.clone());
        self.handle
            .metrics
            .admitted(permit.waited_ns(), permit.expected_wait_ns());
        self.moved(permit.session_move());
        self.permit = Some(permit);
    }

    /// A session was opened, which holds no slot.
    pub fn connected(&mut self, session: &SessionPermit, backend: &Backend) {
        self.is_session = true;
        self.attempts = 1;
        self.life.connected(&backend.name);
        self.replica = Some(backend.name.clone());
        self.moved(session.session_move());
    }

    fn moved(&self, session_move: Option<Move>) {
        if let Some(session_move) = session_move {
            self.handle.metrics.session_moved(session_move);
        }
    }

    /// Gives the slot up to be asked for again.
    pub fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// The replica's head came.
    pub fn answered(&mut self, status: StatusCode, content_type: Option<&[u8]>) {
        let now = recent_ns();
        self.status = status.as_u16();
        if let Some(permit) = &mut self.permit {
            permit.first_byte(now);
        }
        self.first_byte_ns = Some(now);
        self.life.first_byte(now);
        let is_of = |kind: &[u8]| content_type.is_some_and(|given| given.starts_with(kind));
        if is_of(EVENT_STREAM) {
            self.watch = Watch::Events(Box::new(Scanner::new(self.handle.stall_ns)));
        } else if is_of(JSON) && status.is_success() {
            self.watch = Watch::Json(Tail::default());
        }
    }

    /// Bytes of the answer passed; `is_last`: it is whole with them.
    pub fn passed(&mut self, data: &[u8], now: u64, is_last: bool) {
        #[cfg(test)]
        assert_ne!(data, b"panic", "a test asks for a panic here");
        let is_first = self.bytes_out == 0;
        self.bytes_out += data.len() as u64;
        if let Some(pace) = &mut self.pace {
            pace.frame(now);
        }
        let scanner = match &mut self.watch {
            Watch::Nothing => return,
            Watch::Json(_) if is_first && is_last => {
                self.usage = tail::usage_in(data);
                self.watch = Watch::Nothing;
                return;
            }
            Watch::Json(tail) => return tail.passed(data),
            Watch::Events(scanner) => scanner,
        };
        let had_content = scanner.has_content();
        let gap = scanner.chunk(data, now);
        let metrics = &self.handle.metrics;
        if let Some(gap_ns) = gap {
            metrics.gap(gap_ns);
        } else if !had_content && scanner.has_content() {
            metrics.first_content(now.saturating_sub(self.arrived_ns));
        }
    }

    /// What a broken event stream is ended with: the end of a partial event, then an error event.
    pub fn last_words(&self, message: &str) -> Option<Bytes> {
        let Watch::Events(scanner) = &self.watch else {
            return None;
        };
        let error = json!({"error": {"message": message, "type": "upstream_error", "code": 502,
            "param": null, "request_id": self.request_id.as_str()}});
        Some(Bytes::from(scanner.last_words(&error.to_string())))
    }

    /// It goes no further: what the client is told.
    pub fn stopped(&mut self, stop: &Stop) {
        self.status = stop.status().map_or(0, |status| status.as_u16());
        self.end(if let Stop::Gone = stop {
            Ending::ClientGone
        } else {
            Ending::Refused
        });
        if let Stop::Refused(refusal) = stop {
            self.handle.metrics.refused(refusal.kind);
        }
    }

    /// Settles what the request held; later calls change nothing.
    pub fn end(&mut self, ending: Ending) {
        if self.ending.is_some() {
            return;
        }
        match std::mem::replace(&mut self.watch, Watch::Nothing) {
            Watch::Nothing => {}
            Watch::Events(scanner) => {
                let report = scanner.finish();
                self.usage = report.usage;
                self.report = Some(report);
            }
            Watch::Json(tail) if ending == Ending::Complete => self.usage = tail.usage(),
            Watch::Json(_) => {}
        }
        let is_told = self.report.as_ref().is_some_and(|report| report.is_done);
        let ending = match ending {
            Ending::Complete if matches!(self.status, 429 | 503) => Ending::Rejected,
            Ending::Complete if self.status >= 500 => Ending::Errored,
            // Clients hang up at `[DONE]`, before the engine has ended its answer.
            Ending::ClientGone if is_told => Ending::Complete,
            other => other,
        };
        self.ending = Some(ending);
        if let Some(permit) = self.permit.take() {
            permit.finish(ending.outcome(), recent_ns());
        }
    }

    /// The pace of an answer that was a stream of frames.
    fn heard(&self) -> Option<&Pace> {
        let is_success = (200..300).contains(&self.status);
        self.pace
            .as_deref()
            .filter(|_| is_success && self.bytes_out > 0)
    }

    /// What the metrics learn, once.
    fn count(&self, ending: Ending, now: u64) {
        let metrics = &self.handle.metrics;
        if ending == Ending::ClientGone {
            metrics.cancelled(
                match (self.replica.is_some(), self.first_byte_ns.is_some()) {
                    (false, _) => Phase::Queued,
                    (true, false) => Phase::Prefill,
                    (true, true) => Phase::Stream,
                },
            );
        }
        let duration_ns = now.saturating_sub(self.arrived_ns);
        if self.is_session {
            metrics.session_ended(ending.kind(), duration_ns);
        } else if ending != Ending::Refused {
            metrics.finished(ending.kind(), duration_ns, self.attempts);
        }
        if let Some(pace) = self.heard() {
            let objective_us = self.handle.table.slo.and_then(|slo| slo.pace_us);
            let is_off = objective_us.is_some_and(|us| pace.gap_max_ns() > us * 1000);
            metrics.paced(&pace.report(), is_off);
        }
        if let Some(report) = &self.report {
            metrics.stalled(report.stalls);
        }
        if let Some(usage) = &self.usage {
            metrics.tokens(usage);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.end(match std::thread::panicking() {
            true => Ending::Panicked,
            false => Ending::ClientGone,
        });
        let now = recent_ns();
        let ending = self.ending.unwrap_or(Ending::ClientGone);
        if let Some(pace) = self.heard() {
            self.life.set_pace(pace.report());
        }
        self.life.end(self.status, ending.name(), now);
        self.count(ending, now);
        let is_error = self.status >= 400 || ending != Ending::Complete;
        let Some(log) = self.door.log.as_ref().filter(|log| log.takes(is_error)) else {
            return;
        };
        let Some((method, uri)) = &self.target else {
            return;
        };
        let ms = |ns: u64| ns as f64 / 1e6;
        let report = self.report.as_ref();
        let first_content = report.and_then(|r| r.first_content_ns);
        let usage = self.usage.as_ref();
        log.write(&Line {
            request_id: self.request_id.as_str(),
            method: method.as_str(),
            path: uri.path(),
            stage: self.handle.stage.name(),
            replica: self.replica.as_deref(),
            status: self.status,
            outcome: ending.name(),
            attempts: self.attempts,
            queue_ms: ms(self.waited_ns),
            first_byte_ms: self
                .first_byte_ns
                .map(|at| ms(at.saturating_sub(self.arrived_ns))),
            ttft_ms: first_content.map(|at| ms(at.saturating_sub(self.arrived_ns))),
            total_ms: ms(now.saturating_sub(self.arrived_ns)),
            bytes_out: self.bytes_out,
            gap_max_ms: report.map(|r| ms(r.gap_max_ns)),
            stalls: report.map(|r| r.stalls),
            prompt_tokens: usage.map(|u| u.prompt_tokens),
            cached_tokens: usage.map(|u| u.cached_tokens),
            completion_tokens: usage.map(|u| u.completion_tokens),
            session: self.life.session(),
            pace: self.heard().map(Pace::report),
        });
    }
}
