//! A WebSocket client's frames (RFC 6455): paced audio out, messages in. No extensions.

use serde::Deserialize;

/// What is sent on one WebSocket: a first text, audio at its own pace, a last text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebSocket {
    /// Raw audio; sent in binary messages of `frame_bytes`, one every `frame_ms`.
    pub audio_file: String,
    pub frame_bytes: usize,
    pub frame_ms: f64,
    #[serde(default)]
    pub first: Option<String>,
    #[serde(default)]
    pub last: Option<String>,
    /// A message after the last text that contains this ends the exchange; without it, the server does.
    #[serde(default)]
    pub done: Option<String>,
    /// Messages that contain one of these are content; all of them when empty.
    #[serde(default)]
    pub content: Vec<String>,
}

/// The handshake's headers; the key is fixed, because it only has to be well formed.
pub const UPGRADE: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
sec-websocket-key: cHJlcm9sbC1sb2FkLWNsaQ==\r\n";

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const MAX_MESSAGE: usize = 16 << 20;
/// A client must mask; that the mask is unpredictable matters to browsers only.
const MASK: [u8; 4] = [0x5a, 0xa5, 0x3c, 0xc3];

/// Appends one masked frame.
fn frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(0x80 | opcode);
    match payload.len() {
        length @ 0..126 => out.push(0x80 | length as u8),
        length @ 126..0x1_0000 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    out.extend(
        payload
            .iter()
            .zip(MASK.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
}

pub fn text(out: &mut Vec<u8>, payload: &str) {
    frame(out, TEXT, payload.as_bytes());
}

pub fn binary(out: &mut Vec<u8>, payload: &[u8]) {
    frame(out, BINARY, payload);
}

pub fn close(out: &mut Vec<u8>) {
    frame(out, CLOSE, &1000_u16.to_be_bytes());
}

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    Message(Vec<u8>),
    Ping(Vec<u8>),
    /// The server's close code; 1005 when it gave none.
    Close(u16),
}

pub fn pong(out: &mut Vec<u8>, payload: &[u8]) {
    frame(out, PONG, payload);
}

/// Frames as they come, fragments put together.
#[derive(Default)]
pub struct Reader {
    kept: Vec<u8>,
    message: Vec<u8>,
}

impl Reader {
    pub fn feed(&mut self, data: &[u8]) {
        self.kept.extend_from_slice(data);
    }

    /// The next whole message or control frame; None: more bytes are needed.
    pub fn next(&mut self) -> Result<Option<Incoming>, String> {
        loop {
            let Some((first, payload)) = self.take_frame()? else {
                return Ok(None);
            };
            match first & 0x0f {
                0..=2 => {
                    self.message.extend_from_slice(&payload);
                    if self.message.len() > MAX_MESSAGE {
                        return Err(format!("a message is longer than {MAX_MESSAGE} bytes"));
                    }
                    if first & 0x80 != 0 {
                        return Ok(Some(Incoming::Message(std::mem::take(&mut self.message))));
                    }
                }
                CLOSE => {
                    let code = payload.first_chunk::<2>().map(|c| u16::from_be_bytes(*c));
                    return Ok(Some(Incoming::Close(code.unwrap_or(1005))));
                }
                PING => return Ok(Some(Incoming::Ping(payload))),
                PONG => {}
                opcode => return Err(format!("a frame has the unknown opcode {opcode}")),
            }
        }
    }

    fn take_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, String> {
        let [first, second, ..] = *self.kept.as_slice() else {
            return Ok(None);
        };
        if first & 0x70 != 0 || second & 0x80 != 0 {
            return Err("a frame has reserved bits or a mask, which a server must not send".into());
        }
        let (length, head) = match second {
            126 => match self.kept.get(2..4) {
                Some(bytes) => (usize::from(bytes[0]) << 8 | usize::from(bytes[1]), 4),
                None => return Ok(None),
            },
            127 => match self.kept.get(2..10).and_then(|bytes| bytes.try_into().ok()) {
                Some(bytes) => (
                    usize::try_from(u64::from_be_bytes(bytes)).unwrap_or(usize::MAX),
                    10,
                ),
                None => return Ok(None),
            },
            length => (usize::from(length), 2),
        };
        if length > MAX_MESSAGE {
            return Err(format!("a frame of {length} bytes; allowed: {MAX_MESSAGE}"));
        }
        if self.kept.len() < head + length {
            return Ok(None);
        }
        let payload = self.kept[head..head + length].to_vec();
        self.kept.drain(..head + length);
        Ok(Some((first, payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Incoming, Reader, binary, close};

    fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        if payload.len() < 126 {
            out.push(payload.len() as u8);
        } else {
            out.push(126);
            out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        }
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn messages_are_the_same_however_they_are_split() {
        let long = vec![7; 300];
        let mut wire = unmasked(0x01, b"hel");
        wire.extend(unmasked(0x89, b"p"));
        wire.extend(unmasked(0x80, b"lo"));
        wire.extend(unmasked(0x82, &long));
        wire.extend(unmasked(0x88, &[0x03, 0xf4]));
        for cut in 0..wire.len() {
            let (mut reader, mut found) = (Reader::default(), Vec::new());
            for part in [&wire[..cut], &wire[cut..]] {
                reader.feed(part);
                while let Some(one) = reader.next().unwrap() {
                    found.push(one);
                }
            }
            let expected = [
                Incoming::Ping(b"p".to_vec()),
                Incoming::Message(b"hello".to_vec()),
                Incoming::Message(long.clone()),
                Incoming::Close(1012),
            ];
            assert_eq!(found, expected, "cut {cut}");
        }
    }

    #[test]
    fn what_a_server_must_not_send_is_an_error() {
        for wrong in [
            vec![0xc1, 0x00],
            vec![0x81, 0x80, 0, 0, 0, 0],
            vec![0x83, 0x00],
            vec![0x82, 127, 0, 0, 1, 0, 0, 0, 0, 0],
        ] {
            let mut reader = Reader::default();
            reader.feed(&wrong);
            assert!(reader.next().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn frames_out_are_masked_and_carry_their_length() {
        let mut out = Vec::new();
        binary(&mut out, &[0; 3]);
        assert_eq!(out, [0x82, 0x83, 0x5a, 0xa5, 0x3c, 0xc3, 0x5a, 0xa5, 0x3c]);
        out.clear();
        binary(&mut out, &vec![0; 70_000]);
        assert_eq!(out[1..10], [0xff, 0, 0, 0, 0, 0, 1, 0x11, 0x70]);
        out.clear();
        close(&mut out);
        assert_eq!(out.len(), 8);
    }
}
