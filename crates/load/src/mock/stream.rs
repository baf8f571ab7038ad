//! One streamed answer as a machine: every step appends bytes and says when the next one is due.

use super::behaviour::{Behaviour, Mode};
use super::events::{self, Api, chunk};

/// What happens after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Call again this many nanoseconds after the time that was due.
    Wait(i64),
    Done,
    /// End the connection, orderly or by reset.
    Close {
        reset: bool,
    },
    /// Nothing more, ever.
    Hang,
}

const TICK_NS: i64 = 1_000_000;
const EVENTS_TOGETHER: u32 = 4;

pub struct Stream {
    behaviour: Behaviour,
    api: Api,
    usage: bool,
    logprobs: bool,
    sent: u32,
    flip_at: Option<u32>,
    started: bool,
    ended: bool,
    comment_due: bool,
    /// Encoded bytes that go out piecemeal (split and drip).
    pending: Vec<u8>,
    cut: bool,
    audio: bool,
}

impl Stream {
    pub fn new(behaviour: Behaviour, api: Api, usage: bool, logprobs: bool) -> Self {
        Self {
            behaviour,
            api,
            usage,
            logprobs,
            sent: 0,
            flip_at: None,
            started: false,
            ended: false,
            comment_due: true,
            pending: Vec::new(),
            cut: false,
            audio: false,
        }
    }

    /// A stream of raw audio: each event becomes `gap` worth of 24 kHz 16-bit mono.
    pub fn audio(behaviour: Behaviour) -> Self {
        Self {
            audio: true,
            ..Self::new(behaviour, Api::Chat, false, false)
        }
    }

    /// Plants another token at `position`.
    pub fn flip(&mut self, position: u32) {
        self.flip_at = Some(position);
    }

    pub fn tokens_sent(&self) -> u32 {
        self.sent
    }

    /// Writes what is due now.
    pub fn step(&mut self, out: &mut Vec<u8>) -> After {
        if !self.started {
            self.started = true;
            return self.start(out);
        }
        if !self.pending.is_empty() {
            return self.piecemeal(out);
        }
        if self.ended {
            return After::Done;
        }
        match self.behaviour.mode {
            Mode::Stall => After::Hang,
            Mode::Comments if std::mem::take(&mut self.comment_due) => self.comment(out),
            mode => {
                self.comment_due = true;
                self.token_step(mode, out)
            }
        }
    }

    fn start(&mut self, out: &mut Vec<u8>) -> After {
        let mode = self.behaviour.mode;
        if mode == Mode::Never {
            return After::Hang;
        }
        out.extend_from_slice(if self.audio {
            events::AUDIO_HEAD
        } else {
            events::SSE_HEAD
        });
        if mode == Mode::RoleFirst {
            chunk(out, events::role);
        }
        let wait = self.behaviour.ttft_ns;
        let wait = if mode == Mode::Comments {
            wait / 2
        } else {
            wait
        };
        if wait > 0 {
            After::Wait(wait)
        } else {
            self.step(out)
        }
    }

    fn comment(&mut self, out: &mut Vec<u8>) -> After {
        chunk(out, |b| b.extend_from_slice(b": keep-alive\n\n"));
        let gap = if self.sent == 0 {
            self.behaviour.ttft_ns
        } else {
            self.behaviour.gap_ns
        };
        After::Wait(gap / 2)
    }

    fn token_step(&mut self, mode: Mode, out: &mut Vec<u8>) -> After {
        let (half, total) = (self.behaviour.tokens / 2, self.behaviour.tokens);
        if self.sent >= half {
            match mode {
                Mode::CloseEarly => return After::Close { reset: false },
                Mode::Reset => return After::Close { reset: true },
                Mode::ErrorAfter => return self.error(out),
                _ => {}
            }
        }
        let together = if mode == Mode::Coalesced {
            EVENTS_TOGETHER
        } else {
            1
        };
        let mut bytes = std::mem::take(&mut self.pending);
        for _ in 0..together {
            if self.sent < total {
                self.event(&mut bytes);
            }
        }
        if self.sent >= total {
            self.end(&mut bytes);
        }
        self.hand_out(mode, bytes, out)
    }

    fn hand_out(&mut self, mode: Mode, mut bytes: Vec<u8>, out: &mut Vec<u8>) -> After {
        match mode {
            Mode::Split | Mode::Drip => {
                self.pending = bytes;
                self.piecemeal(out)
            }
            _ => {
                out.append(&mut bytes);
                self.pending = bytes;
                let gap = self.behaviour.gap_ns;
                match (self.ended, mode) {
                    (true, _) => After::Done,
                    (false, Mode::Comments) => After::Wait(gap / 2),
                    (false, _) => After::Wait(gap),
                }
            }
        }
    }

    /// One event of the answer, encoded as one HTTP chunk.
    fn event(&mut self, out: &mut Vec<u8>) {
        let b = &self.behaviour;
        if self.audio {
            let bytes = (b.gap_ns.max(TICK_NS) * 48_000 / 1_000_000_000) as usize & !1;
            let level = (self.sent % 100) as u8;
            chunk(out, |o| {
                o.extend(std::iter::repeat_n([level, 1], bytes / 2).flatten())
            });
            self.sent += 1;
            return;
        }
        let count = b.tokens_per_event.min(b.tokens - self.sent);
        let flipped = |i| self.flip_at == Some(i);
        let mut text: String = (self.sent..self.sent + count)
            .map(|i| events::token_text(i, flipped(i)))
            .collect();
        if b.mode == Mode::Huge {
            text = "x".repeat(b.huge_bytes);
        }
        let reasoning = b.mode == Mode::Reasoning && self.sent < b.tokens / 2;
        let margin = if (self.sent..self.sent + count).any(flipped) {
            -0.7
        } else {
            -0.1
        };
        let logprobs = self.logprobs.then_some(margin);
        let (api, crlf) = (self.api, b.mode == Mode::Crlf);
        chunk(out, |o| {
            let start = o.len();
            events::content(o, api, &text, reasoning, logprobs);
            if crlf {
                to_crlf(o, start);
            }
        });
        self.sent += count;
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.ended = true;
        let (b, api) = (self.behaviour, self.api);
        if !self.audio {
            chunk(out, |o| {
                events::finish(o, api);
                if self.usage && b.mode != Mode::NoUsage {
                    events::usage(
                        o,
                        if b.mode == Mode::LieUsage {
                            b.tokens * 10
                        } else {
                            b.tokens
                        },
                    );
                }
                if b.mode != Mode::NoDone {
                    o.extend_from_slice(b"data: [DONE]\n\n");
                }
            });
        }
        out.extend_from_slice(events::LAST_CHUNK);
    }

    fn error(&mut self, out: &mut Vec<u8>) -> After {
        self.ended = true;
        chunk(out, |o| {
            o.extend_from_slice(
                b"data: {\"error\":{\"message\":\"planted\",\"type\":\"server_error\",\"code\":500}}\n\ndata: [DONE]\n\n",
            );
        });
        out.extend_from_slice(events::LAST_CHUNK);
        After::Done
    }

    fn piecemeal(&mut self, out: &mut Vec<u8>) -> After {
        self.cut = !self.cut;
        let take = match (self.behaviour.mode, self.cut) {
            (Mode::Drip, _) => 1,
            (_, true) => self.pending.len().div_ceil(2),
            (_, false) => self.pending.len(),
        };
        out.extend(self.pending.drain(..take));
        match (self.pending.is_empty(), self.ended) {
            (true, true) => After::Done,
            (true, false) => After::Wait((self.behaviour.gap_ns - TICK_NS).max(0)),
            (false, _) => After::Wait(TICK_NS),
        }
    }
}

fn to_crlf(out: &mut Vec<u8>, start: usize) {
    let text = String::from_utf8_lossy(&out[start..])
        .replace("data: ", "data:")
        .replace('\n', "\r\n");
    out.truncate(start);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::{After, Stream};
    use crate::mock::behaviour::{Behaviour, Mode};
    use crate::mock::events::Api;

    fn run(mode: Mode) -> (String, Vec<After>) {
        let behaviour = Behaviour {
            mode,
            tokens: 6,
            ttft_ns: 10,
            gap_ns: 4,
            ..Behaviour::default()
        };
        let mut stream = Stream::new(behaviour, Api::Chat, true, false);
        let (mut out, mut steps) = (Vec::new(), Vec::new());
        for _ in 0..100_000 {
            let after = stream.step(&mut out);
            steps.push(after);
            if !matches!(after, After::Wait(_)) {
                break;
            }
        }
        (String::from_utf8(out).unwrap(), steps)
    }

    #[test]
    fn a_plain_stream_sends_every_token_usage_and_done() {
        let (text, steps) = run(Mode::Plain);
        assert_eq!(text.matches("\"tok").count(), 6);
        assert!(text.contains("\"completion_tokens\":6") && text.ends_with("0\r\n\r\n"));
        assert_eq!(steps[0], After::Wait(10));
        assert_eq!(steps.last(), Some(&After::Done));
        assert_eq!(steps.len(), 7);
    }

    #[test]
    fn awkward_modes_differ_where_their_name_says() {
        assert!(run(Mode::RoleFirst).0.contains("\"role\":\"assistant\""));
        assert!(!run(Mode::NoDone).0.contains("[DONE]"));
        assert!(!run(Mode::NoUsage).0.contains("usage"));
        assert!(run(Mode::LieUsage).0.contains("\"completion_tokens\":60"));
        assert_eq!(
            run(Mode::Reasoning).0.matches("reasoning_content").count(),
            3
        );
        assert_eq!(run(Mode::Comments).0.matches(": keep-alive").count(), 6);
        assert_eq!(run(Mode::Never), (String::new(), vec![After::Hang]));
        assert_eq!(
            run(Mode::CloseEarly).1.last(),
            Some(&After::Close { reset: false })
        );
        assert_eq!(
            run(Mode::Reset).1.last(),
            Some(&After::Close { reset: true })
        );
        let (text, steps) = run(Mode::ErrorAfter);
        assert!(text.contains("planted") && steps.last() == Some(&After::Done));
        assert_eq!(run(Mode::Drip).0, run(Mode::Plain).0);
        assert_eq!(run(Mode::Split).0, run(Mode::Plain).0);
    }
}
