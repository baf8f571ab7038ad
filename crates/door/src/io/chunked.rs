//! Where a chunked body ends: a strict walk over the chunk grammar of RFC 9112, section 7.1.
//!
//! hyper decodes the data; this only finds the end of the message, so that the next request on the
//! connection is not taken for part of this one, and refuses what another parser may read
//! differently.

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
        }
    }
}

impl ChunkWalk {
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
                let step = self.left.min((bytes.len() - at) as u64);
                self.left -= step;
                at += step as usize;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
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
            (Size { digits: 1.. }, b';') => Extension { len: 0 },
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
            assert_eq!(
                walk(body, body.len()),
                Err(BadChunk),
                "{:?}",
                String::from_utf8_lossy(body)
            );
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
