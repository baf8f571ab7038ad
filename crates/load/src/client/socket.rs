//! The WebSocket side of an exchange: the script to send, the messages that come.

use std::rc::Rc;

use super::prepared::Script;
use super::websocket::{self, Incoming, Reader};

/// What some input was worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub contents: u64,
    pub ended: bool,
}

pub struct Socket {
    pub script: Rc<Script>,
    /// Frames of audio sent so far.
    pub sent: usize,
    /// When the first frame was meant to go; the others follow at the script's interval.
    pub from_ns: Option<i64>,
    /// Control frames that must go out.
    pub replies: Vec<u8>,
    reader: Reader,
}

impl Socket {
    pub fn new(script: Rc<Script>) -> Self {
        Self {
            script,
            sent: 0,
            from_ns: None,
            replies: Vec::new(),
            reader: Reader::default(),
        }
    }

    /// Takes bytes; `is_last`: all audio and the last text have been sent. An error is a failure's
    /// kind and detail.
    pub fn hear(
        &mut self,
        data: &[u8],
        is_last: bool,
        message: &mut dyn FnMut(&[u8]),
    ) -> Result<Heard, (&'static str, String)> {
        self.reader.feed(data);
        let mut heard = Heard::default();
        while let Some(incoming) = self.reader.next().map_err(|e| ("protocol", e))? {
            match incoming {
                Incoming::Message(payload) => {
                    if self.is_content(&payload) {
                        heard.contents += 1;
                    }
                    message(&payload);
                    if is_last && self.is_done(&payload) {
                        websocket::close(&mut self.replies);
                        heard.ended = true;
                        return Ok(heard);
                    }
                }
                Incoming::Ping(payload) => websocket::pong(&mut self.replies, &payload),
                Incoming::Close(_) if is_last && self.script.done.is_none() => {
                    heard.ended = true;
                    return Ok(heard);
                }
                Incoming::Close(code) => {
                    let when = if is_last {
                        "before its last message"
                    } else {
                        "before all audio was sent"
                    };
                    return Err((
                        "closed",
                        format!("the server closed with code {code} {when}"),
                    ));
                }
            }
        }
        Ok(heard)
    }

    fn is_content(&self, payload: &[u8]) -> bool {
        let marks = &self.script.content;
        let found = |mark: &String| memchr::memmem::find(payload, mark.as_bytes()).is_some();
        marks.is_empty() || marks.iter().any(found)
    }

    fn is_done(&self, payload: &[u8]) -> bool {
        let done = self.script.done.as_deref();
        done.is_some_and(|mark| memchr::memmem::find(payload, mark).is_some())
    }
}
