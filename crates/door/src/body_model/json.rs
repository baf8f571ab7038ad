//! JSON bodies: the top level of one object.

use std::borrow::Cow;
use std::ops::Range;

use super::{BodyError, Facts, name};

/// Nesting beyond this is no request.
const MAX_DEPTH: usize = 1024;

/// Reads an object's own keys; another document (an array, a number) has no facts.
///
/// # Errors
/// [`BodyError`]: not UTF-8, not one whole JSON value, `model` twice or no name. Values other than
/// `model` are not checked further than their brackets and quotes.
pub fn from_json(body: &[u8]) -> Result<Facts, BodyError> {
    let text = std::str::from_utf8(body).map_err(|error| BodyError::Syntax {
        at: error.valid_up_to(),
        message: "not UTF-8",
    })?;
    let start = if body.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let mut scan = Scan {
        text,
        body,
        at: start,
    };
    let mut facts = Facts::default();
    let mut choices = 1u64;
    scan.space();
    if scan.peek() != Some(b'{') {
        scan.value()?;
        scan.end()?;
        return Ok(facts);
    }
    scan.at += 1;
    scan.space();
    if scan.peek() == Some(b'}') {
        scan.at += 1;
    } else {
        while scan.member(&mut facts, &mut choices)? {}
    }
    scan.end()?;
    facts.max_tokens = facts
        .max_tokens
        .map(|tokens| tokens.saturating_mul(choices));
    Ok(facts)
}

struct Scan<'a> {
    text: &'a str,
    /// The same.
    body: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn wrong<T>(&self, message: &'static str) -> Result<T, BodyError> {
        Err(BodyError::Syntax {
            at: self.at,
            message,
        })
    }

    fn expect(&mut self, byte: u8, message: &'static str) -> Result<(), BodyError> {
        self.space();
        if self.peek() != Some(byte) {
            return self.wrong(message);
        }
        self.at += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), BodyError> {
        self.space();
        if self.at == self.body.len() {
            Ok(())
        } else {
            self.wrong("text after the document")
        }
    }

    /// One `"key": value` and what follows it; false after the last.
    fn member(&mut self, facts: &mut Facts, choices: &mut u64) -> Result<bool, BodyError> {
        self.space();
        let key = self.string()?;
        let key = self.text(key)?;
        self.expect(b':', "a colon is missing after a key")?;
        self.space();
        let value = self.value()?;
        self.note(&key, value, facts, choices)?;
        self.space();
        match self.peek() {
            Some(b',') => self.at += 1,
            Some(b'}') => {
                self.at += 1;
                return Ok(false);
            }
            _ => return self.wrong("a comma or a closing brace is missing"),
        }
        Ok(true)
    }

    fn note(
        &self,
        key: &str,
        value: Range<usize>,
        facts: &mut Facts,
        choices: &mut u64,
    ) -> Result<(), BodyError> {
        let bytes = &self.body[value.clone()];
        let number = || self.text.get(value.clone())?.parse::<u64>().ok();
        match key {
            "model" if facts.model_span.is_some() => return Err(BodyError::TwoModels),
            "model" => {
                facts.model_span = Some(value.clone());
                facts.model = match bytes[0] {
                    b'"' => Some(name(self.text(value)?)?),
                    _ if bytes == b"null" => None,
                    _ => return Err(BodyError::NoName("is not a string")),
                };
            }
            "stream" => facts.stream = bytes == b"true",
            "max_tokens" | "max_completion_tokens" | "max_output_tokens" => {
                facts.max_tokens = number().or(facts.max_tokens);
            }
            "n" => *choices = number().unwrap_or(1).max(1),
            "messages" | "prompt" | "input" | "tools" => facts.prompt_bytes += value.len(),
            _ => {}
        }
        Ok(())
    }

    /// The text of a string that was scanned.
    fn text(&self, span: Range<usize>) -> Result<Cow<'a, str>, BodyError> {
        let inner = span.start + 1..span.end - 1;
        let wrong = BodyError::Syntax {
            at: span.start,
            message: "not a JSON string",
        };
        let is_odd = |&byte: &u8| byte == b'\\' || byte < 0x20;
        if self.body[inner.clone()].iter().any(is_odd) {
            let text: Result<String, _> = serde_json::from_slice(&self.body[span]);
            return text.map(Cow::Owned).map_err(|_| wrong);
        }
        self.text.get(inner).map(Cow::Borrowed).ok_or(wrong)
    }

    /// Skips a string; its span with the quotes.
    fn string(&mut self) -> Result<Range<usize>, BodyError> {
        if self.peek() != Some(b'"') {
            return self.wrong("a string was expected");
        }
        let start = self.at;
        self.at += 1;
        loop {
            let Some(step) = quote_or_backslash(&self.body[self.at..]) else {
                self.at = self.body.len();
                return self.wrong("a string does not end");
            };
            self.at += step;
            if self.body[self.at] == b'"' {
                self.at += 1;
                return Ok(start..self.at);
            }
            // A backslash and what it escapes; at the very end the search comes up empty.
            self.at = (self.at + 2).min(self.body.len());
        }
    }

    /// Skips any value; its span.
    fn value(&mut self) -> Result<Range<usize>, BodyError> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => return self.string(),
            Some(b'{' | b'[') => self.nested()?,
            Some(_) => self.bare()?,
            None => return self.wrong("a value is missing"),
        }
        Ok(start..self.at)
    }

    fn bare(&mut self) -> Result<(), BodyError> {
        let start = self.at;
        let is_part = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        while self.peek().is_some_and(is_part) {
            self.at += 1;
        }
        let word = &self.body[start..self.at];
        let is_literal = matches!(word, b"true" | b"false" | b"null");
        if is_literal || serde_json::from_slice::<serde_json::Number>(word).is_ok() {
            return Ok(());
        }
        self.at = start;
        self.wrong("neither a value nor a number")
    }

    /// Skips an object or array: brackets must match, strings are stepped over.
    fn nested(&mut self) -> Result<(), BodyError> {
        let mut closers = Vec::new();
        loop {
            let Some(step) = self.body[self.at..]
                .iter()
                .position(|&byte| IS_STRUCTURE[byte as usize])
            else {
                self.at = self.body.len();
                return self.wrong("an object or array does not end");
            };
            self.at += step;
            match self.body[self.at] {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' => closers.push(b'}'),
                b'[' => closers.push(b']'),
                closer if closers.pop() != Some(closer) => {
                    return self.wrong("a bracket does not match");
                }
                _ => {}
            }
            if closers.len() > MAX_DEPTH {
                return self.wrong("nested too deeply");
            }
            self.at += 1;
            if closers.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Escapes in prose and code are near to each other, where a vector search spends its time starting:
/// the first words are looked at one by one.
fn quote_or_backslash(text: &[u8]) -> Option<usize> {
    const NEAR: usize = 4;
    for (at, word) in text.chunks_exact(8).take(NEAR).enumerate() {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        let word = u64::from_le_bytes(bytes);
        let found = zero_bytes(word ^ repeat(b'"')) | zero_bytes(word ^ repeat(b'\\'));
        if found != 0 {
            return Some(at * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let seen = (text.len() / 8).min(NEAR) * 8;
    memchr::memchr2(b'"', b'\\', &text[seen..]).map(|at| seen + at)
}

const fn repeat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The high bit of each zero byte, exact up to the first.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeat(1)) & !word & repeat(0x80)
}

static IS_STRUCTURE: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"\"{}[]";
    let mut i = 0;
    while i < bytes.len() {
        table[bytes[i] as usize] = true;
        i += 1;
    }
    table
};
