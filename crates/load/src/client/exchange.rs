//! One request and its answer, without sockets: bytes and stamps in, a record out.

use std::rc::Rc;

use super::content;
use super::playback::{Playback, Unit};
use super::prepared::Script;
use super::record::Record;
use super::response::{Head, Piece, Response};
use super::socket::{Heard, Socket};
use super::sse::Sse;

/// How much of a JSON or error body is kept to look for usage and messages.
const MAX_KEPT: usize = 1 << 20;
const MAX_TEXT: usize = 1 << 20;

/// Where an exchange stands after some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    More,
    Complete { keep_alive: bool },
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    pub gaps: bool,
    pub text: bool,
}

pub struct Exchange {
    pub record: Record,
    response: Response,
    sse: Sse,
    head: Head,
    kept: Vec<u8>,
    keep: Keep,
    playback: Option<Playback>,
    pub socket: Option<Socket>,
}

impl Exchange {
    pub fn new(record: Record, head_request: bool, keep: Keep) -> Self {
        Self {
            record,
            response: Response::new(head_request),
            sse: Sse::default(),
            head: Head::default(),
            kept: Vec::new(),
            keep,
            playback: None,
            socket: None,
        }
    }

    /// What the content stands for, and what is sent on a WebSocket.
    pub fn with(mut self, unit: Option<Unit>, script: Option<Rc<Script>>) -> Self {
        self.playback = unit.map(Playback::new);
        self.socket = script.map(Socket::new);
        self
    }

    /// Takes the bytes of one read that was stamped `at_ns` before anything was parsed.
    pub fn on_read(&mut self, mut input: &[u8], at_ns: i64) -> Progress {
        self.record.reads += 1;
        self.record.first_byte_ns.get_or_insert(at_ns);
        let mut events = 0;
        let progress = loop {
            match self.response.next(&mut input) {
                Ok(Piece::Nothing) if input.is_empty() => break Progress::More,
                Ok(Piece::Nothing) => {}
                Ok(Piece::Head(head)) => self.on_head(head),
                Ok(Piece::Data(data)) if self.is_open() => {
                    let heard = self.on_messages(data, at_ns);
                    events += heard.contents;
                    if heard.ended {
                        break Progress::Complete { keep_alive: false };
                    }
                }
                Ok(Piece::Data(data)) => events += self.on_data(data, at_ns),
                Ok(Piece::End) => {
                    break Progress::Complete {
                        keep_alive: self.head.keep_alive,
                    };
                }
                Err(detail) => {
                    self.record.fail("protocol", detail);
                    break Progress::Complete { keep_alive: false };
                }
            }
        };
        self.record.content(events, at_ns, self.keep.gaps);
        if let Some(playback) = &mut self.playback {
            playback.frames(events, at_ns);
        }
        if let Progress::Complete { keep_alive } = progress {
            self.finish(at_ns);
            // Bytes after the answer belong to nobody: the connection cannot be trusted.
            return Progress::Complete {
                keep_alive: keep_alive && input.is_empty(),
            };
        }
        progress
    }

    /// The peer ended the connection.
    pub fn on_close(&mut self, at_ns: i64) {
        if self.is_open() || !self.response.may_close() {
            let detail = match self.record.first_byte_ns {
                None => "the server closed the connection before it answered",
                Some(_) => "the server closed the connection in the middle of its answer",
            };
            self.record.fail("closed", detail);
        }
        self.finish(at_ns);
    }

    fn on_head(&mut self, head: Head) {
        self.record.status = Some(head.status);
        self.record.replica.clone_from(&head.replica);
        self.record.queue_ms = head.queue_ms;
        self.record.retry_after_s = head.retry_after_s;
        self.head = head;
    }

    /// Takes decoded body bytes; returns how many content events they completed.
    fn on_data(&mut self, data: &[u8], at_ns: i64) -> u64 {
        self.record.body_bytes += data.len() as u64;
        let ok = self.head.status < 400;
        if ok && self.head.sse {
            return self.on_events(data);
        }
        if self.head.json || !ok {
            let room = MAX_KEPT.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&data[..room.min(data.len())]);
            return 0;
        }
        if let Some(playback) = &mut self.playback {
            playback.bytes(data, at_ns);
        }
        u64::from(!data.is_empty())
    }

    /// Whether the WebSocket's handshake has succeeded.
    pub fn is_open(&self) -> bool {
        self.head.status == 101 && self.socket.is_some()
    }

    fn on_messages(&mut self, data: &[u8], at_ns: i64) -> Heard {
        let Some(socket) = &mut self.socket else {
            return Heard::default();
        };
        self.record.body_bytes += data.len() as u64;
        let (record, keep_text) = (&mut self.record, self.keep.text);
        let playback = &mut self.playback;
        let is_last = record.audio_end_ns.is_some();
        let heard = socket.hear(data, is_last, &mut |message| {
            if let Some(playback) = playback {
                playback.bytes(message, at_ns);
            }
            if keep_text && record.text.len() < MAX_TEXT {
                record.text.push_str(&String::from_utf8_lossy(message));
                record.text.push('\n');
            }
        });
        heard.unwrap_or_else(|(kind, detail)| {
            self.record.fail(kind, detail);
            Heard {
                contents: 0,
                ended: true,
            }
        })
    }

    fn on_events(&mut self, data: &[u8]) -> u64 {
        let (record, keep) = (&mut self.record, self.keep);
        let mut contents = 0;
        self.sse.feed(data, &mut |event| {
            let Some(event) = event else {
                record.oversize_events += 1;
                contents += 1;
                return;
            };
            let facts = content::read(event);
            contents += u64::from(facts.is_content());
            note(record, facts, keep.text);
        });
        contents
    }

    fn finish(&mut self, at_ns: i64) {
        self.record.end_ns = at_ns;
        self.record.played = self.playback.as_ref().map(|p| p.played.clone());
        let status = self.record.status.unwrap_or_default();
        let facts = content::read(&self.kept);
        if status >= 400 {
            let body = String::from_utf8_lossy(&self.kept[..self.kept.len().min(200)]).into_owned();
            self.record.fail(
                "status",
                format!("status {status}: {}", facts.error.unwrap_or(body)),
            );
            return;
        }
        if self.head.json {
            if facts.is_content() || !self.kept.is_empty() {
                self.record.content(1, at_ns, false);
            }
            note(&mut self.record, facts, self.keep.text);
        }
        if self.socket.is_some() && status != 101 {
            self.record
                .fail("websocket", format!("status {status} instead of 101"));
        }
        if (self.head.sse || self.is_open()) && self.record.content_events == 0 {
            self.record
                .fail("no_content", "the stream ended without any content");
        }
    }
}

fn note(record: &mut Record, facts: content::Facts<'_>, keep_text: bool) {
    record.done_seen |= facts.done;
    record.completion_tokens = facts.completion_tokens.or(record.completion_tokens);
    record.prompt_tokens = facts.prompt_tokens.or(record.prompt_tokens);
    if let Some(error) = facts.error {
        record.fail("stream_error", error);
    }
    if let (true, Some(text)) = (keep_text && record.text.len() < MAX_TEXT, facts.text) {
        record.text.push_str(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::{Exchange, Keep, Progress};
    use crate::client::record::Record;

    const HEAD: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

    fn chunk(text: &str) -> String {
        format!("{:x}\r\n{text}\r\n", text.len())
    }

    fn token(text: &str) -> String {
        chunk(&format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
        ))
    }

    fn exchange(reads: &[(&str, i64)]) -> (Record, Progress) {
        let keep = Keep {
            gaps: true,
            text: true,
        };
        let mut exchange = Exchange::new(Record::default(), false, keep);
        let mut progress = Progress::More;
        for (bytes, at) in reads {
            progress = exchange.on_read(bytes.as_bytes(), *at);
        }
        (exchange.record, progress)
    }

    #[test]
    fn the_first_token_is_the_first_content_not_the_role_or_a_comment() {
        let role = chunk(
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        );
        let (a, b) = (token("a"), token("b"));
        let end =
            chunk("data: {\"choices\":[],\"usage\":{\"completion_tokens\":5}}\n\ndata: [DONE]\n\n");
        let end = format!("{end}0\r\n\r\n");
        let comment = chunk(": ping\n\n");
        let reads = [
            (HEAD, 10),
            (&role, 20),
            (&comment, 25),
            (&a, 30),
            (&b, 42),
            (&end, 50),
        ];
        let (record, progress) = exchange(&reads);
        assert_eq!(progress, Progress::Complete { keep_alive: true });
        assert_eq!(
            (record.first_byte_ns, record.first_content_ns),
            (Some(10), Some(30))
        );
        assert_eq!(
            (record.content_events, record.gaps_ns.as_slice()),
            (2, [12].as_slice())
        );
        assert_eq!((record.completion_tokens, record.end_ns), (Some(5), 50));
        assert!(record.done_seen && record.failure.is_none() && record.text == "ab");
    }

    #[test]
    fn several_events_in_one_read_are_counted_as_such() {
        let both = format!("{HEAD}{}{}", token("a"), token("b"));
        let (record, _) = exchange(&[(&both, 5), (&token("c"), 9)]);
        assert_eq!((record.content_events, record.multi_reads), (3, 1));
        assert_eq!(record.gaps_ns, [4]);
    }

    #[test]
    fn an_error_after_200_and_a_stream_without_content_are_failures() {
        let error = format!(
            "{HEAD}{}{}0\r\n\r\n",
            token("a"),
            chunk("data: {\"error\":{\"message\":\"x\"}}\n\n")
        );
        assert_eq!(
            exchange(&[(&error, 5)]).0.failure.unwrap().kind,
            "stream_error"
        );
        let empty = format!("{HEAD}{}0\r\n\r\n", chunk("data: [DONE]\n\n"));
        assert_eq!(
            exchange(&[(&empty, 5)]).0.failure.unwrap().kind,
            "no_content"
        );
    }

    #[test]
    fn a_stream_that_is_cut_is_a_failure_and_so_is_garbage() {
        let mut cut = Exchange::new(Record::default(), false, Keep::default());
        cut.on_read(format!("{HEAD}{}", token("a")).as_bytes(), 5);
        cut.on_close(9);
        assert_eq!(cut.record.failure.unwrap().kind, "closed");
        assert_eq!(
            exchange(&[("hello there\r\n\r\n", 5)])
                .0
                .failure
                .unwrap()
                .kind,
            "protocol"
        );
    }

    #[test]
    fn a_json_answer_carries_usage_and_a_refusal_its_message() {
        let body = r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"completion_tokens":2}}"#;
        let ok = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (record, _) = exchange(&[(&ok, 5)]);
        assert_eq!(
            (record.completion_tokens, record.content_events),
            (Some(2), 1)
        );
        let refusal =
            "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\nretry-after: 3\r\n\r\nbusy";
        let (record, _) = exchange(&[(refusal, 5)]);
        assert_eq!(
            (record.status, record.retry_after_s),
            (Some(429), Some(3.0))
        );
        assert!(record.failure.unwrap().detail.contains("busy"));
    }
}
