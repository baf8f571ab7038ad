//! Requests as bytes, built once.

use std::fmt::Write;
use std::rc::Rc;

use super::playback::Unit;
use super::spec::{Spec, Template};
use super::websocket::{UPGRADE, WebSocket};

const MARK: &[u8] = b"__SEQUENCE";

/// A request ready to be sent; a mark in it is replaced by the request's number.
pub struct Prepared {
    bytes: Rc<Vec<u8>>,
    mark: Option<usize>,
    pub is_head: bool,
    pub turn: Option<Turn>,
    pub unit: Option<Unit>,
    pub script: Option<Rc<Script>>,
}

/// One call of a conversation: its body depends on what was said before.
pub struct Turn {
    head: String,
    before: String,
    after: String,
    /// The user's message, for the history of the next call.
    message: String,
}

const HISTORY: &str = "__HISTORY";

impl Turn {
    fn new(message: &str, head: String, body: &str) -> Result<Self, String> {
        let (before, after) = body
            .split_once(HISTORY)
            .ok_or("turn: the body has no __HISTORY for what was said before")?;
        Ok(Self {
            head,
            before: before.to_owned(),
            after: after.to_owned(),
            message: message.to_owned(),
        })
    }

    fn bytes(&self, history: &str) -> Vec<u8> {
        let body = [&self.before, history, &self.after].concat();
        format!("{}content-length: {}\r\n\r\n{body}", self.head, body.len()).into_bytes()
    }

    /// What was said up to and with this call's answer.
    pub fn history(&self, before: &str, answer: &str) -> String {
        let said = serde_json::json!({"role": "assistant", "content": answer});
        format!("{before}{},{said},", self.message)
    }
}

/// What is sent on a WebSocket, read once.
pub struct Script {
    pub audio: Vec<u8>,
    pub frame_bytes: usize,
    pub frame_ns: i64,
    pub first: Option<String>,
    pub last: Option<String>,
    pub done: Option<Vec<u8>>,
    pub content: Vec<String>,
}

impl Script {
    fn new(socket: &WebSocket) -> Result<Self, String> {
        let path = &socket.audio_file;
        let audio = std::fs::read(path).map_err(|e| format!("audio_file '{path}': {e}"))?;
        if audio.is_empty() {
            return Err(format!("audio_file '{path}': empty"));
        }
        Ok(Self {
            audio,
            frame_bytes: socket.frame_bytes,
            frame_ns: crate::clock::ms(socket.frame_ms),
            first: socket.first.clone(),
            last: socket.last.clone(),
            done: socket.done.clone().map(String::into_bytes),
            content: socket.content.clone(),
        })
    }

    /// The audio of frame `index`; None behind the last.
    pub fn frame(&self, index: usize) -> Option<&[u8]> {
        self.audio.chunks(self.frame_bytes).nth(index)
    }
}

impl Prepared {
    pub fn all(spec: &Spec, host: &str) -> Result<Vec<Self>, String> {
        spec.requests
            .iter()
            .map(|template| Self::new(template, host, spec.reuse))
            .collect()
    }

    fn new(template: &Template, host: &str, reuse: bool) -> Result<Self, String> {
        let body = match &template.body_file {
            Some(path) => std::fs::read(path).map_err(|e| format!("body_file '{path}': {e}"))?,
            None => template.body.clone().into_bytes(),
        };
        let method = match template.websocket {
            Some(_) => "GET",
            None => template.method.as_str(),
        };
        let mut head = format!("{method} {} HTTP/1.1\r\nhost: {host}\r\n", template.path);
        for (name, value) in &template.headers {
            if name.contains(['\r', '\n', ':']) || value.contains(['\r', '\n']) {
                return Err(format!("headers: '{name}' has a line end or colon in it"));
            }
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let turn = template.turn.as_deref();
        let turn = turn
            .map(|message| Turn::new(message, head.clone(), &template.body))
            .transpose()?;
        let script = template.websocket.as_ref().map(Script::new).transpose()?;
        if script.is_some() {
            head.push_str(UPGRADE);
        } else if !body.is_empty() || template.method != "GET" {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        head.push_str(if reuse || script.is_some() {
            "\r\n"
        } else {
            "connection: close\r\n\r\n"
        });
        let mut bytes = head.into_bytes();
        if script.is_none() {
            bytes.extend_from_slice(&body);
        }
        let mark = memchr::memmem::find(&bytes, MARK);
        Ok(Self {
            bytes: Rc::new(bytes),
            mark,
            turn,
            is_head: template.method == "HEAD",
            unit: match (template.audio, template.event_ms) {
                (Some(audio), _) => Some(Unit::Audio(audio)),
                (None, Some(frame_ms)) => Some(Unit::Frame(crate::clock::ms(frame_ms))),
                (None, None) => None,
            },
            script: script.map(Rc::new),
        })
    }

    /// The bytes of request number `sequence` in a conversation of which `history` was said.
    pub fn bytes(&self, sequence: u64, history: &str) -> Rc<Vec<u8>> {
        if let Some(turn) = &self.turn {
            return Rc::new(turn.bytes(history));
        }
        let Some(at) = self.mark else {
            return Rc::clone(&self.bytes);
        };
        let mut own = self.bytes.as_ref().clone();
        own[at..at + MARK.len()].copy_from_slice(format!("{sequence:010}").as_bytes());
        Rc::new(own)
    }
}
