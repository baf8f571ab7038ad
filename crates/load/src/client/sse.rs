//! Server-sent events, parsed as bytes come; any of the three line ends, any split.

/// Events longer than this are counted but not looked into.
pub const MAX_EVENT: usize = 4 << 20;

#[derive(Default)]
pub struct Sse {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    oversize: bool,
}

impl Sse {
    /// Takes bytes and hands the data of every event that they complete to `event`.
    ///
    /// The data of an event longer than [`MAX_EVENT`] comes as None.
    pub fn feed(&mut self, mut bytes: &[u8], event: &mut impl FnMut(Option<&[u8]>)) {
        if self.after_cr && bytes.first() == Some(&b'\n') {
            bytes = &bytes[1..];
        }
        if !bytes.is_empty() {
            self.after_cr = false;
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', bytes) {
            if self.line.is_empty() && !self.oversize {
                self.end_line(&bytes[..at], event);
            } else {
                self.keep(&bytes[..at]);
                let line = std::mem::take(&mut self.line);
                self.end_line(&line, event);
                self.line = line;
                self.line.clear();
            }
            let crlf = bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n');
            self.after_cr = bytes[at] == b'\r' && at + 1 == bytes.len();
            bytes = &bytes[at + 1 + usize::from(crlf)..];
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() > MAX_EVENT {
            self.oversize = true;
            self.has_data = true;
            self.line.clear();
        }
        if !self.oversize {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self, line: &[u8], event: &mut impl FnMut(Option<&[u8]>)) {
        if line.is_empty() && !self.oversize_line() {
            self.end_event(event);
        } else if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            if self.has_data && !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.has_data = true;
            if self.data.len() + value.len() > MAX_EVENT {
                self.oversize = true;
            } else {
                self.data.extend_from_slice(value);
            }
        }
    }

    /// An oversize line was thrown away and looks empty: it must not end the event.
    fn oversize_line(&mut self) -> bool {
        let dropped = self.oversize && self.data.is_empty();
        if dropped {
            self.data.push(b'!');
        }
        dropped
    }

    fn end_event(&mut self, event: &mut impl FnMut(Option<&[u8]>)) {
        if self.has_data {
            event(if self.oversize {
                None
            } else {
                Some(&self.data)
            });
        }
        self.data.clear();
        self.data.shrink_to(64 << 10);
        self.line.shrink_to(64 << 10);
        (self.has_data, self.oversize) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_EVENT, Sse};

    fn events(pieces: &[&[u8]]) -> Vec<Option<String>> {
        let (mut sse, mut out) = (Sse::default(), Vec::new());
        for piece in pieces {
            sse.feed(piece, &mut |data| {
                out.push(data.map(|d| String::from_utf8_lossy(d).into_owned()));
            });
        }
        out
    }

    #[test]
    fn events_are_the_same_for_every_line_end_and_every_split() {
        let text = ": comment\nevent: x\ndata: one\n\ndata:two\ndata: more\n\n: only a comment\n\ndata: [DONE]\n\n";
        let expected: Vec<_> = ["one", "two\nmore", "[DONE]"]
            .map(|s| Some(s.to_owned()))
            .into();
        for end in ["\n", "\r\n", "\r"] {
            let wire = text.replace('\n', end);
            for cut in 0..wire.len() {
                let (a, b) = wire.as_bytes().split_at(cut);
                assert_eq!(events(&[a, b]), expected, "end {end:?} cut {cut}");
            }
        }
    }

    #[test]
    fn an_event_without_its_empty_line_is_none() {
        assert!(events(&[b"data: half"]).is_empty());
    }

    #[test]
    fn an_oversize_event_is_counted_once_and_memory_stays_bounded() {
        let (mut sse, mut found) = (Sse::default(), Vec::new());
        let mut note = |data: Option<&[u8]>| found.push(data.map(<[u8]>::len));
        sse.feed(b"data: ", &mut note);
        let block = vec![b'x'; 1 << 20];
        for _ in 0..6 {
            sse.feed(&block, &mut note);
            assert!(sse.line.capacity() <= 2 * MAX_EVENT);
        }
        sse.feed(b"\n\ndata: ok\n\n", &mut note);
        assert_eq!(found, [None, Some(2)]);
    }
}
