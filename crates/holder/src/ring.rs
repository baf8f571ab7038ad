//! The last lines, for whoever adopts or follows: bounded in lines and in bytes.

use std::collections::VecDeque;

use crate::split::Piece;

/// Bytes of text that are kept at most, whatever the number of lines.
const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
    Pty,
}

impl Stream {
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::Err => "err",
            Self::Pty => "pty",
        }
    }
}

#[derive(Debug)]
pub struct Line {
    pub t_ns: u64,
    pub stream: Stream,
    pub partial: bool,
    pub text: Box<[u8]>,
}

/// Lines are numbered from 1; a number never repeats.
#[derive(Debug)]
pub struct Ring {
    lines: VecDeque<Line>,
    bytes: usize,
    max_lines: usize,
    first: u64,
}

impl Ring {
    pub fn new(max_lines: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            bytes: 0,
            max_lines: max_lines.max(1),
            first: 1,
        }
    }

    pub fn push(&mut self, stream: Stream, piece: Piece<'_>) {
        self.bytes += piece.text.len();
        let Piece {
            t_ns,
            text,
            partial,
        } = piece;
        self.lines.push_back(Line {
            t_ns,
            stream,
            partial,
            text: text.into(),
        });
        while self.lines.len() > self.max_lines || self.bytes > MAX_BYTES {
            let Some(line) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= line.text.len();
            self.first += 1;
        }
    }

    /// Number of the oldest line kept, or of the next one when none is.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Number that the next line will have.
    pub fn next(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    pub fn get(&self, number: u64) -> Option<&Line> {
        self.lines
            .get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    pub fn last_ns(&self) -> Option<u64> {
        self.lines.back().map(|line| line.t_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(ring: &mut Ring, text: &[u8]) {
        ring.push(
            Stream::Out,
            Piece {
                t_ns: 1,
                text,
                partial: false,
            },
        );
    }

    #[test]
    fn keeps_the_last_lines_under_their_own_numbers() {
        let mut ring = Ring::new(3);
        for text in [b"a", b"b", b"c", b"d"] {
            push(&mut ring, text);
        }
        assert_eq!((ring.first(), ring.next()), (2, 5));
        assert!(ring.get(1).is_none() && ring.get(5).is_none() && ring.get(0).is_none());
        assert_eq!(&*ring.get(2).unwrap().text, b"b");
    }

    #[test]
    fn long_lines_are_bounded_in_bytes() {
        let mut ring = Ring::new(1_000_000);
        for _ in 0..1000 {
            push(&mut ring, &[b'x'; 16 * 1024]);
        }
        assert!(ring.bytes <= MAX_BYTES);
        assert_eq!(ring.next(), 1001);
    }
}
