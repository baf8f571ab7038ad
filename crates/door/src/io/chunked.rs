//! Where a chunked body ends: a strict walk over the chunk grammar of RFC 9112, section 7.1.
//!
//! Of a client's body hyper decodes the data; this only finds the end of the message, so that the next
//! request on the connection is not taken for part of this one, and refuses what another parser may
//! read differently. Of a replica's answer it takes the framing off.

use std::ops::Range;

/// An extension or a trailer section longer than this serves nobody.
const MAX_LINE: u32 = 512;
const MAX_TRAILERS: u32 = 8 << 10;
/// 16 hexadecimal digits overflow; no body of 2^52 bytes passes the body limit anyway.
const MAX_DIGITS: u32 = 13;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size {
        digits: u32,
    },
    /// Blanks between a size and the end of its line, which some servers pad it with.
    Blank {
        len: u32,
    },
    Extension {
        len: u32,
    },
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a trailer line (or of the last, empty one).
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
}

/// The walk's place in a body.
#[derive(Debug)]
pub struct ChunkWalk {
    state: State,
    left: u64,
    trailer_bytes: u32,
    data_bytes: u64,
    allows_blanks: bool,
}

/// What [`ChunkWalk::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Where a chunk's data lies, all of it or what is there of it; empty: there is none.
    pub data: Range<usize>,
    /// Bytes looked at, up to the end of the data.
    pub used: usize,
    /// They end with the line of the last chunk: trailers follow, or the blank line.
    pub is_over: bool,
}

/// The grammar was broken.
#[derive(Debug, PartialEq, Eq)]
pub struct BadChunk;

impl Default for ChunkWalk {
    fn default() -> Self {
        ChunkWalk {
            state: State::Size { digits: 0 },
            left: 0,
            trailer_bytes: 0,
            data_bytes: 0,
            allows_blanks: false,
        }
    }
}

impl ChunkWalk {
    /// Of an answer: a size may be padded with blanks, as servers have done and hyper allows.
    pub fn of_replica() -> ChunkWalk {
        ChunkWalk {
            allows_blanks: true,
            ..ChunkWalk::default()
        }
    }

    /// Walks to the next data in `bytes`, or to the end of the last chunk's line, or to their end.
    ///
    /// # Errors
    /// [`BadChunk`] when the grammar is broken.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Step, BadChunk> {
        let mut at = 0;
        while at < bytes.len() && !matches!(self.state, State::Data | State::TrailerStart) {
            self.state = self.step(bytes[at])?;
            at += 1;
        }
        let is_data = self.state == State::Data;
        let len = if is_data {
            self.take_data(bytes.len() - at)
        } else {
            0
        };
        Ok(Step {
            data: at..at + len,
            used: at + len,
            is_over: self.state == State::TrailerStart,
        })
    }

    /// How much of the next `most` bytes is data of this chunk.
    fn take_data(&mut self, most: usize) -> usize {
        let step = self.left.min(most as u64);
        self.left -= step;
        if self.left == 0 {
            self.state = State::DataCr;
        }
        step as usize
    }

    /// Whether the message has ended.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Bytes of data announced so far (a chunk counts when its size is known).
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Walks over `bytes`; how many of them belong to this message.
    ///
    /// # Errors
    /// [`BadChunk`] when the grammar is broken.
    pub fn walk(&mut self, bytes: &[u8]) -> Result<usize, BadChunk> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            if self.state == State::Data {
                at += self.take_data(bytes.len() - at);
            } else {
                self.state = self.step(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<State, BadChunk> {
        use State::*;
        Ok(match (self.state, byte) {
            (Size { digits }, _) if byte.is_ascii_hexdigit() && digits < MAX_DIGITS => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.left = self.left * 16 + u64::from(digit);
                Size { digits: digits + 1 }
            }
            (Size { digits: 1.. }, b'\r') => SizeLf,
            (Size { digits: 1.. } | Blank { .. }, b';') => Extension { len: 0 },
            (Size { digits: 1.. }, b' ' | b'\t') if self.allows_blanks => Blank { len: 0 },
            (Blank { len }, b' ' | b'\t') if len < MAX_LINE => Blank { len: len + 1 },
            (Blank { .. }, b'\r') => SizeLf,
            (Extension { .. }, b'\r') => SizeLf,
            (Extension { len }, b'\t' | 0x20..=0x7e | 0x80..) if len < MAX_LINE => {
                Extension { len: len + 1 }
            }
            (SizeLf, b'\n') if self.left == 0 => TrailerStart,
            (SizeLf, b'\n') => {
                self.data_bytes = self.data_bytes.saturating_add(self.left);
                Data
            }
            (DataCr, b'\r') => DataLf,
            (DataLf, b'\n') => Size { digits: 0 },
            (TrailerStart, b'\r') => EndLf,
            (TrailerStart | Trailer, b'\t' | 0x20..=0x7e | 0x80..) => self.trailer()?,
            (Trailer, b'\r') => TrailerLf,
            (TrailerLf, b'\n') => TrailerStart,
            (EndLf, b'\n') => Done,
            _ => return Err(BadChunk),
        })
    }

    fn trailer(&mut self) -> Result<State, BadChunk> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > MAX_TRAILERS {
            Err(BadChunk)
        } else {
            Ok(State::Trailer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(body: &[u8], step: usize) -> Result<(usize, bool), BadChunk> {
        let mut walk = ChunkWalk::default();
        let mut taken = 0;
        for part in body.chunks(step) {
            taken += walk.walk(part)?;
        }
        Ok((taken, walk.is_done()))
    }

    #[test]
    fn the_end_is_found_however_the_bytes_are_cut() {
        let body =
            b"5\r\nhello\r\n1a;x=\"y\"\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nA: b\r\n\r\nGET / ";
        for step in 1..body.len() {
            assert_eq!(walk(body, step), Ok((body.len() - 6, true)), "step {step}");
        }
    }

    #[test]
    fn each_chunk_is_found_by_itself_however_the_bytes_are_cut() {
        let body = b"5 \r\nhello\r\n1;x=y\r\n,\r\n006\r\n world\r\n0\r\nA: b\r\n\r\nHTTP";
        let end = body.len() - b"A: b\r\n\r\nHTTP".len();
        for step in 1..=body.len() {
            let (mut walk, mut pieces) = (ChunkWalk::of_replica(), Vec::new());
            let (mut at, mut is_over) = (0, false);
            while !is_over {
                let part = &body[at..body.len().min(at - at % step + step)];
                let found = walk.next(part).unwrap();
                pieces.push(&part[found.data]);
                (at, is_over) = (at + found.used, found.is_over);
            }
            assert_eq!(at, end, "step {step}");
            assert_eq!(pieces.concat(), b"hello, world");
            pieces.retain(|piece| !piece.is_empty());
            assert!(step < body.len() || pieces == [&b"hello"[..], b",", b" world"]);
        }
    }

    #[test]
    fn data_is_counted_when_its_size_is_known() {
        let mut walk = ChunkWalk::default();
        assert_eq!(walk.walk(b"ff\r\nabc"), Ok(7));
        assert_eq!(walk.data_bytes(), 255);
    }

    #[test]
    fn what_another_parser_may_read_differently_is_refused() {
        let bodies: [&[u8]; 13] = [
            b"5\nhello\r\n0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhelloX\r\n0\r\n\r\n",
            b"5 \r\nhello\r\n0\r\n\r\n",
            b" 5\r\nhello\r\n",
            b"0x5\r\nhello\r\n",
            b"-5\r\nhello\r\n",
            b"+5\r\nhello\r\n",
            b"\r\nhello",
            b"fffffffffffffffff\r\n",
            b"5;\x00\r\nhello\r\n",
            b"5;a\nb\r\nhello\r\n",
            b"0\r\n\n",
        ];
        for body in bodies {
            let text = String::from_utf8_lossy(body);
            assert_eq!(walk(body, body.len()), Err(BadChunk), "{text:?}");
            let mut walk = ChunkWalk::of_replica();
            let (mut at, mut is_over, mut is_wrong) = (0, false, false);
            while at < body.len() && !is_over && !is_wrong {
                match walk.next(&body[at..]) {
                    Ok(found) => (at, is_over) = (at + found.used, found.is_over),
                    Err(BadChunk) => is_wrong = true,
                }
            }
            // What follows the last chunk's line is hyper's, and a padded size is allowed.
            let is_allowed = body.starts_with(b"5 ") || body.starts_with(b"0\r");
            assert_eq!(is_wrong, !is_allowed, "{text:?}");
        }
    }

    #[test]
    fn extensions_and_trailers_are_bounded() {
        let long = [b"1;".to_vec(), vec![b'x'; 600], b"\r\na\r\n".to_vec()].concat();
        assert_eq!(walk(&long, 64), Err(BadChunk));
        let trailers = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(3000)].concat();
        assert_eq!(walk(&trailers, 64), Err(BadChunk));
    }
}
