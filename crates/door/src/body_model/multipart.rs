//! Multipart bodies: the field `model`, and nothing that two readers could disagree about.

use memchr::memmem;

use super::{BodyError, Facts, name};

/// RFC 2046's bound.
const MAX_BOUNDARY: usize = 70;
const MAX_PART_HEAD: usize = 8 << 10;
const MAX_PARTS: usize = 1000;

/// Reads the form fields `model` and `stream` of a multipart/form-data body.
///
/// # Errors
/// [`BodyError`]: no usable boundary in `content_type`, parts that do not follow it, `model` twice,
/// as a file, or no name.
pub fn from_multipart(body: &[u8], content_type: &str) -> Result<Facts, BodyError> {
    let boundary = boundary(content_type)?;
    let delimiter = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(delimiter.as_bytes());
    let mut facts = Facts::default();
    let mut at = first_part(body, &delimiter)?;
    for _ in 0..MAX_PARTS {
        match body.get(at..at + 2) {
            Some(b"--") => return Ok(facts),
            Some(b"\r\n") => at += 2,
            _ => return wrong(at, "a boundary is not followed by a line end"),
        }
        let head_end = head_end(body, at)?;
        let head = &body[at..head_end];
        let content = head_end + if head.is_empty() { 2 } else { 4 };
        let Some(length) = finder.find(&body[content - 2..]) else {
            return wrong(at, "the last boundary is missing");
        };
        // The blank line's own line end may be the delimiter's: an empty part.
        let end = (content - 2 + length).max(content);
        part(body, head, content..end, &mut facts)?;
        at = content - 2 + length + delimiter.len();
    }
    wrong(at, "more than 1000 parts")
}

fn wrong<T>(at: usize, message: &'static str) -> Result<T, BodyError> {
    Err(BodyError::Syntax { at, message })
}

/// The position behind the first delimiter; a preamble is allowed.
fn first_part(body: &[u8], delimiter: &str) -> Result<usize, BodyError> {
    let bare = &delimiter.as_bytes()[2..];
    if body.starts_with(bare) {
        return Ok(bare.len());
    }
    match memmem::find(body, delimiter.as_bytes()) {
        Some(at) => Ok(at + delimiter.len()),
        None => wrong(0, "the boundary of the content type does not occur"),
    }
}

/// The end of a part's header lines; the blank line follows.
fn head_end(body: &[u8], at: usize) -> Result<usize, BodyError> {
    let window = &body[at..body.len().min(at + MAX_PART_HEAD)];
    if window.starts_with(b"\r\n") {
        return Ok(at);
    }
    match memmem::find(window, b"\r\n\r\n") {
        Some(length) => Ok(at + length),
        None => wrong(at, "a part's header does not end within 8 KiB"),
    }
}

fn part(
    body: &[u8],
    head: &[u8],
    span: std::ops::Range<usize>,
    facts: &mut Facts,
) -> Result<(), BodyError> {
    let Some(disposition) = header(head, "content-disposition") else {
        return Ok(());
    };
    let disposition = String::from_utf8_lossy(disposition);
    let content = &body[span.clone()];
    match parameter(&disposition, "name").as_deref() {
        Some("model") if facts.model_span.is_some() => Err(BodyError::TwoModels),
        Some("model") if parameter(&disposition, "filename").is_some() => {
            Err(BodyError::NoName("is a file; send it as a plain field"))
        }
        Some("model") => {
            let Ok(text) = std::str::from_utf8(content) else {
                return Err(BodyError::NoName("is not UTF-8"));
            };
            facts.model = Some(name(text.into())?);
            facts.model_span = Some(span);
            Ok(())
        }
        Some("stream") => {
            facts.stream = content.eq_ignore_ascii_case(b"true") || content == b"1";
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The value of a header line, by its name in lower case.
fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    head.split(|&byte| byte == b'\n').find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        line[..colon]
            .trim_ascii()
            .eq_ignore_ascii_case(name.as_bytes())
            .then(|| line[colon + 1..].trim_ascii())
    })
}

/// The boundary that a content type names.
fn boundary(content_type: &str) -> Result<String, BodyError> {
    let is_allowed = |b: u8| b.is_ascii_graphic() || b == b' ';
    match parameter(content_type, "boundary") {
        Some(text) if text.is_empty() || text.len() > MAX_BOUNDARY || text.ends_with(' ') => wrong(
            0,
            "the boundary of the content type must have 1 to 70 characters",
        ),
        Some(text) if text.bytes().all(is_allowed) => Ok(text),
        Some(_) => wrong(
            0,
            "the boundary of the content type has characters that are not allowed",
        ),
        None => wrong(0, "the content type names no boundary"),
    }
}

/// The value of `key` among the `; key=value` parameters of a header, quoted or not.
fn parameter(value: &str, key: &str) -> Option<String> {
    let mut rest = value;
    loop {
        rest = rest[next_semicolon(rest)?..].trim_start_matches([';', ' ', '\t']);
        let (name, after) = rest.split_once('=')?;
        if name.trim().eq_ignore_ascii_case(key) {
            return Some(unquoted(after.trim_start()));
        }
    }
}

/// The next semicolon outside of quotes.
fn next_semicolon(text: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.bytes().position(|byte| {
        let was_escaped = std::mem::replace(&mut is_escaped, is_quoted && byte == b'\\');
        if was_escaped {
            is_escaped = false;
        } else if byte == b'"' {
            is_quoted = !is_quoted;
        }
        byte == b';' && !is_quoted
    })
}

fn unquoted(text: &str) -> String {
    let Some(inner) = text.strip_prefix('"') else {
        return text.split([';', ' ', '\t']).next().unwrap_or("").to_owned();
    };
    let mut result = String::new();
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => break,
            '\\' => result.extend(characters.next()),
            c => result.push(c),
        }
    }
    result
}
