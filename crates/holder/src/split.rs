//! Splits a byte stream into lines at `\n`, `\r\n` and lone `\r`, in bounded memory.

/// A longer line is passed on in pieces.
pub const MAX_LINE: usize = 16 * 1024;
/// An unfinished line is passed on after this long.
pub const MAX_WAIT_NS: u64 = 200 * crate::clock::MS;

/// A piece of output: all of a line, or with `partial` a piece that a later one continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    pub t_ns: u64,
    pub text: &'a [u8],
    pub partial: bool,
}

/// What the last `\r` did, so that a `\n` after it is not a second line end.
#[derive(Debug, Default, PartialEq, Eq)]
enum Return {
    #[default]
    None,
    Ended,
    Empty,
}

#[derive(Debug, Default)]
pub struct Splitter {
    rest: Vec<u8>,
    /// When the first and the last byte of `rest` came.
    first_ns: u64,
    last_ns: u64,
    /// A partial piece of this line has been passed on.
    is_open: bool,
    last_return: Return,
}

impl Splitter {
    /// Takes bytes that were read at `t_ns` and emits the lines that they end.
    pub fn feed(&mut self, mut data: &[u8], t_ns: u64, emit: &mut impl FnMut(Piece<'_>)) {
        while let Some(end) = memchr::memchr2(b'\n', b'\r', data) {
            let (text, is_return) = (&data[..end], data[end] == b'\r');
            self.end_line(text, is_return, t_ns, emit);
            data = &data[end + 1..];
        }
        if !data.is_empty() {
            self.last_return = Return::None;
            self.keep(data, t_ns, emit);
        }
    }

    fn end_line(
        &mut self,
        text: &[u8],
        is_return: bool,
        t_ns: u64,
        emit: &mut impl FnMut(Piece<'_>),
    ) {
        let is_bare = text.is_empty() && self.rest.is_empty() && !self.is_open;
        let before = std::mem::take(&mut self.last_return);
        if is_bare && is_return {
            // A terminal turns `\r\n` into `\r\r\n`: a second return ends nothing more.
            self.last_return = if before == Return::Ended {
                before
            } else {
                Return::Empty
            };
            return;
        }
        if is_return {
            self.last_return = Return::Ended;
        } else if is_bare && before == Return::Ended {
            return;
        }
        if self.rest.is_empty() && text.len() <= MAX_LINE {
            emit(Piece {
                t_ns,
                text,
                partial: false,
            });
        } else {
            self.keep(text, t_ns, emit);
            emit(Piece {
                t_ns,
                text: &self.rest,
                partial: false,
            });
            self.rest.clear();
        }
        self.is_open = false;
    }

    fn keep(&mut self, mut data: &[u8], t_ns: u64, emit: &mut impl FnMut(Piece<'_>)) {
        if self.rest.is_empty() {
            self.first_ns = t_ns;
        }
        self.last_ns = t_ns;
        while self.rest.len() + data.len() > MAX_LINE {
            let (head, tail) = data.split_at(MAX_LINE - self.rest.len());
            self.rest.extend_from_slice(head);
            self.pass_on(t_ns, emit);
            data = tail;
        }
        self.rest.extend_from_slice(data);
    }

    /// Passes on all but a character that the cut would break.
    fn pass_on(&mut self, t_ns: u64, emit: &mut impl FnMut(Piece<'_>)) {
        let cut = whole_characters(&self.rest);
        emit(Piece {
            t_ns,
            text: &self.rest[..cut],
            partial: true,
        });
        self.rest.drain(..cut);
        self.first_ns = t_ns;
        self.is_open = true;
    }

    /// When the unfinished line is due to be passed on.
    pub fn due_ns(&self) -> Option<u64> {
        (!self.rest.is_empty()).then_some(self.first_ns + MAX_WAIT_NS)
    }

    /// Passes on an unfinished line that is due; its stamp is when its last byte came.
    pub fn expire(&mut self, now_ns: u64, emit: &mut impl FnMut(Piece<'_>)) {
        if self.due_ns().is_some_and(|due| due <= now_ns) {
            emit(Piece {
                t_ns: self.last_ns,
                text: &self.rest,
                partial: true,
            });
            self.rest.clear();
            self.is_open = true;
        }
    }

    /// The stream has ended: what is left is its last line.
    pub fn finish(&mut self, emit: &mut impl FnMut(Piece<'_>)) {
        if !self.rest.is_empty() {
            emit(Piece {
                t_ns: self.last_ns,
                text: &self.rest,
                partial: false,
            });
        }
        *self = Self::default();
    }
}

/// Length of `text` without an unfinished UTF-8 character at its end.
fn whole_characters(text: &[u8]) -> usize {
    for back in 1..=text.len().min(3) {
        let byte = text[text.len() - back];
        let needed = match byte {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            0x80..=0xBF => continue,
            _ => 1,
        };
        let is_cut = needed > back && text.len() > back;
        return if is_cut {
            text.len() - back
        } else {
            text.len()
        };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]]) -> Vec<(String, bool)> {
        let (mut splitter, mut lines) = (Splitter::default(), Vec::new());
        let mut emit = |piece: Piece<'_>| {
            lines.push((
                String::from_utf8_lossy(piece.text).into_owned(),
                piece.partial,
            ));
        };
        for (t, chunk) in chunks.iter().enumerate() {
            splitter.feed(chunk, t as u64, &mut emit);
        }
        splitter.finish(&mut emit);
        lines
    }

    fn whole(texts: &[&str]) -> Vec<(String, bool)> {
        texts
            .iter()
            .map(|text| ((*text).to_owned(), false))
            .collect()
    }

    #[test]
    fn splits_at_each_kind_of_line_end() {
        assert_eq!(split(&[b"a\nb\r\nc\rd\n"]), whole(&["a", "b", "c", "d"]));
        assert_eq!(split(&[b"a\r", b"\nb\r", b"c"]), whole(&["a", "b", "c"]));
        assert_eq!(
            split(&[b"a\n\nb\r\n\r\nc\n"]),
            whole(&["a", "", "b", "", "c"])
        );
        assert_eq!(split(&[b"a\r\r\nb\r\r\n"]), whole(&["a", "b"]));
        assert_eq!(split(&[b"\r10%\r20%\r"]), whole(&["10%", "20%"]));
    }

    #[test]
    fn an_unfinished_line_is_passed_on_with_the_time_of_its_bytes() {
        let (mut splitter, mut lines) = (Splitter::default(), Vec::new());
        let mut emit =
            |p: Piece<'_>| lines.push((p.t_ns, String::from_utf8_lossy(p.text).into(), p.partial));
        splitter.feed(b"Load", 5, &mut emit);
        assert_eq!(splitter.due_ns(), Some(5 + MAX_WAIT_NS));
        splitter.expire(5 + MAX_WAIT_NS - 1, &mut emit);
        splitter.expire(5 + MAX_WAIT_NS, &mut emit);
        assert_eq!(splitter.due_ns(), None);
        splitter.feed(b"ing\n", 7 + MAX_WAIT_NS, &mut emit);
        splitter.feed(b"x\n", 8 + MAX_WAIT_NS, &mut emit);
        let expected: [(u64, String, bool); 3] = [
            (5, "Load".into(), true),
            (7 + MAX_WAIT_NS, "ing".into(), false),
            (8 + MAX_WAIT_NS, "x".into(), false),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_end_of_a_passed_on_line_closes_it_even_when_nothing_is_left() {
        let (mut splitter, mut lines) = (Splitter::default(), Vec::new());
        let mut emit = |p: Piece<'_>| lines.push((p.text.to_vec(), p.partial));
        splitter.feed(b"a", 0, &mut emit);
        splitter.expire(MAX_WAIT_NS, &mut emit);
        splitter.feed(b"\nb\n", MAX_WAIT_NS, &mut emit);
        assert_eq!(
            lines,
            [
                (b"a".to_vec(), true),
                (b"".to_vec(), false),
                (b"b".to_vec(), false)
            ]
        );
    }

    #[test]
    fn a_cut_never_breaks_a_character() {
        let text = "é".repeat(MAX_LINE);
        let bytes = [b"x", text.as_bytes()].concat();
        let lines = split(&[&bytes]);
        assert!(lines.len() > 2 && lines.iter().all(|(text, _)| !text.contains('\u{FFFD}')));
        let joined: String = lines.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(joined, format!("x{text}"));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_chunks_keep_their_content(
            data in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>(), Just(b'a')], 0..400),
            cuts in proptest::collection::vec(1usize..50, 0..40),
        ) {
            let whole_lines = split(&[&data]);
            let (mut chunks, mut left) = (Vec::new(), &data[..]);
            for cut in cuts {
                let (head, tail) = left.split_at(cut.min(left.len()));
                chunks.push(head);
                left = tail;
            }
            chunks.push(left);
            prop_assert_eq!(split(&chunks), whole_lines);
        }

        #[test]
        fn memory_stays_bounded(chunks in proptest::collection::vec(0usize..40_000, 1..8)) {
            let mut splitter = Splitter::default();
            for size in chunks {
                splitter.feed(&vec![0x80; size], 0, &mut |p| assert!(p.text.len() <= MAX_LINE));
                prop_assert!(splitter.rest.len() <= MAX_LINE);
            }
        }
    }
}
