//! Requests as they arrive: head by httparse, body buffered or counted and thrown away.

use crate::chunked::Chunked;

/// What the mock needs of a request head.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub method: String,
    pub path: String,
    pub length: u64,
    pub chunked: bool,
    pub json: bool,
    pub close: bool,
    pub expect: bool,
}

/// Parses a head at the start of `input`; Ok(None) when more bytes are needed.
pub fn head(input: &[u8]) -> Result<Option<(Head, usize)>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(used) = request.parse(input)? else {
        return Ok(None);
    };
    let mut head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: request.path.unwrap_or_default().to_owned(),
        close: request.version == Some(0),
        ..Head::default()
    };
    for header in request.headers.iter() {
        let value = String::from_utf8_lossy(header.value);
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            head.length = value
                .trim()
                .parse()
                .map_err(|_| httparse::Error::HeaderValue)?;
        } else if is("transfer-encoding") {
            head.chunked = value.to_ascii_lowercase().contains("chunked");
        } else if is("content-type") {
            head.json = value.contains("json");
        } else if is("connection") {
            head.close |= value.eq_ignore_ascii_case("close");
        } else if is("expect") {
            head.expect = true;
        }
    }
    Ok(Some((head, used)))
}

/// The body of one request on its way in.
pub struct Body {
    left: Option<u64>,
    chunked: Chunked,
    pub kept: Vec<u8>,
    pub received: u64,
    keep: usize,
}

impl Body {
    /// `keep`: how many bytes are kept at most; the rest is only counted.
    pub fn new(head: &Head, keep: usize) -> Self {
        Self {
            left: (!head.chunked).then_some(head.length),
            chunked: Chunked::default(),
            kept: Vec::with_capacity(keep.min(head.length as usize)),
            received: 0,
            keep,
        }
    }

    /// Takes bytes; returns how many were used and whether the body is complete.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, bool), &'static str> {
        if let Some(left) = self.left {
            let take = left.min(input.len() as u64) as usize;
            self.take(&input[..take]);
            self.left = Some(left - take as u64);
            return Ok((take, left == take as u64));
        }
        let mut used = 0;
        while used < input.len() {
            let step = self.chunked.step(&input[used..])?;
            used += step.used;
            self.take(step.data);
            if step.ended {
                return Ok((used, true));
            }
        }
        Ok((used, false))
    }

    fn take(&mut self, data: &[u8]) {
        self.received += data.len() as u64;
        let room = self.keep.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&data[..room.min(data.len())]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Body, Head, head};

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let wire = b"POST /v1/x HTTP/1.1\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\nhello";
        assert!(head(&wire[..30]).unwrap().is_none());
        let (parsed, used) = head(wire).unwrap().unwrap();
        assert_eq!(
            (parsed.method.as_str(), parsed.length, parsed.json),
            ("POST", 5, true)
        );
        let mut body = Body::new(&parsed, 3);
        assert_eq!(body.feed(&wire[used..]), Ok((5, true)));
        assert_eq!(
            (body.kept.as_slice(), body.received),
            (b"hel".as_slice(), 5)
        );
    }

    #[test]
    fn a_chunked_body_is_decoded_across_reads() {
        let mut body = Body::new(
            &Head {
                chunked: true,
                ..Head::default()
            },
            100,
        );
        assert_eq!(body.feed(b"3\r\nab"), Ok((5, false)));
        assert_eq!(body.feed(b"c\r\n0\r\n\r\nGET"), Ok((8, true)));
        assert_eq!(body.kept, b"abc");
    }
}
