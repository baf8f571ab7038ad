//! Lines of an event stream across arbitrary chunk borders: `\n`, `\r\n` and lone `\r` end a line.

/// What the scanner is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A piece of a data line, without `data:` and the space behind it.
    Data {
        text: &'a [u8],
        is_first: bool,
        is_last: bool,
    },
    /// The value of an `event:` line, up to its first bytes.
    EventType(&'a [u8]),
    /// A comment or another field.
    Other,
    /// A blank line ended an event; `has_data`: it had a data line.
    End { has_data: bool },
}

/// The longest field name and what follows it: `event: error` and the bytes of a BOM fit.
const MAX_START: usize = 24;

/// Which line the stream stands in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At its start, or in so few bytes of it that its field is not known.
    #[default]
    Start,
    /// In the value of a data line; a piece of it was passed on already where `is_begun`.
    Data { is_begun: bool },
    /// In a line whose rest does not matter.
    Rest,
}

/// The splitter's state between chunks.
#[derive(Debug, Default)]
pub(super) struct Lines {
    place: Place,
    start: Vec<u8>,
    /// A `\n` next belongs to the `\r` before.
    skips_newline: bool,
    has_begun: bool,
    has_data: bool,
    has_lines: bool,
}

impl Lines {
    pub(super) fn is_mid_line(&self) -> bool {
        self.place != Place::Start || !self.start.is_empty()
    }

    /// A newline now would only complete a `\r\n`.
    pub(super) fn is_after_return(&self) -> bool {
        self.skips_newline
    }

    pub(super) fn is_mid_event(&self) -> bool {
        self.has_lines || self.is_mid_line()
    }

    /// Passes on what `chunk` completes.
    pub(super) fn feed(&mut self, mut chunk: &[u8], mut on: impl FnMut(Line<'_>)) {
        if self.skips_newline && !chunk.is_empty() {
            self.skips_newline = false;
            chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) {
            self.piece(&chunk[..end], true, &mut on);
            let is_return = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            if is_return {
                self.skips_newline = chunk.is_empty();
                chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
            }
        }
        if !chunk.is_empty() {
            self.piece(chunk, false, &mut on);
        }
    }

    /// A line, or the part of it that this chunk holds.
    fn piece(&mut self, text: &[u8], is_last: bool, on: &mut impl FnMut(Line<'_>)) {
        match self.place {
            Place::Rest => {}
            Place::Data { is_begun } => {
                // A space split off from its colon.
                let text = if is_begun {
                    text
                } else {
                    text.strip_prefix(b" ").unwrap_or(text)
                };
                if is_last || !text.is_empty() {
                    on(Line::Data {
                        text,
                        is_first: !is_begun,
                        is_last,
                    });
                    self.place = Place::Data { is_begun: true };
                }
            }
            Place::Start if self.start.is_empty() && (is_last || text.len() >= MAX_START) => {
                self.begin(text, is_last, on);
            }
            Place::Start => {
                let mut start = std::mem::take(&mut self.start);
                start.extend_from_slice(text);
                if is_last || start.len() >= MAX_START {
                    self.begin(&start, is_last, on);
                    start.clear();
                }
                self.start = start;
            }
        }
        if is_last {
            self.place = Place::Start;
        }
    }

    /// A line from its start on: at least enough of it to know its field.
    fn begin(&mut self, text: &[u8], is_last: bool, on: &mut impl FnMut(Line<'_>)) {
        let is_very_first = !std::mem::replace(&mut self.has_begun, true);
        let text = match text.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if is_very_first => rest,
            _ => text,
        };
        if text.is_empty() && is_last {
            on(Line::End {
                has_data: std::mem::take(&mut self.has_data),
            });
            self.has_lines = false;
            return;
        }
        self.has_lines = true;
        self.place = Place::Rest;
        if let Some(value) = text.strip_prefix(b"data:") {
            self.has_data = true;
            let value = value.strip_prefix(b" ").unwrap_or(value);
            self.place = Place::Data { is_begun: true };
            on(Line::Data {
                text: value,
                is_first: true,
                is_last,
            });
        } else if text == b"data" && is_last {
            self.has_data = true;
            on(Line::Data {
                text: b"",
                is_first: true,
                is_last,
            });
        } else if let Some(value) = text.strip_prefix(b"event:") {
            on(Line::EventType(value.strip_prefix(b" ").unwrap_or(value)));
        } else {
            on(Line::Other);
        }
    }
}
