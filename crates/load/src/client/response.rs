//! HTTP/1.1 responses as they come: head, then the body by its framing.

use crate::chunked::Chunked;

const MAX_HEAD: usize = 64 << 10;

/// The head of a response, as far as a load client looks at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    pub status: u16,
    pub sse: bool,
    pub json: bool,
    pub keep_alive: bool,
    pub replica: Option<String>,
    pub queue_ms: Option<f64>,
    pub retry_after_s: Option<f64>,
}

#[derive(Debug)]
enum Framing {
    Head(Vec<u8>),
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Done,
}

/// What a piece of input was.
#[derive(Debug, PartialEq)]
pub enum Piece<'a> {
    /// More bytes are needed.
    Nothing,
    Head(Head),
    Data(&'a [u8]),
    End,
}

pub struct Response {
    framing: Framing,
    head_request: bool,
}

impl Response {
    pub fn new(head_request: bool) -> Self {
        Self {
            framing: Framing::Head(Vec::new()),
            head_request,
        }
    }

    /// Takes the next piece from the front of `input`; the rest is left for the next call.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, String> {
        match &mut self.framing {
            Framing::Head(_) => self.head(input),
            Framing::Length(0) | Framing::Done => {
                self.framing = Framing::Done;
                Ok(Piece::End)
            }
            _ if input.is_empty() => Ok(Piece::Nothing),
            Framing::Length(left) => {
                let take = (*left).min(input.len() as u64) as usize;
                *left -= take as u64;
                Ok(Piece::Data(take_front(input, take)))
            }
            Framing::UntilClose => Ok(Piece::Data(take_front(input, input.len()))),
            Framing::Chunked(decoder) => {
                let step = decoder.step(input).map_err(str::to_owned)?;
                *input = &input[step.used..];
                if step.ended {
                    self.framing = Framing::Done;
                    return Ok(Piece::End);
                }
                Ok(if step.data.is_empty() {
                    Piece::Nothing
                } else {
                    Piece::Data(step.data)
                })
            }
        }
    }

    /// Whether an end of the connection now is the proper end of the body.
    pub fn may_close(&self) -> bool {
        matches!(self.framing, Framing::UntilClose | Framing::Done)
    }

    fn head<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, String> {
        let Framing::Head(kept) = &mut self.framing else {
            return Ok(Piece::Nothing);
        };
        let before = kept.len();
        kept.extend_from_slice(input);
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut response = httparse::Response::new(&mut headers);
        let used = match response.parse(kept) {
            Ok(httparse::Status::Complete(used)) => used,
            Ok(httparse::Status::Partial) if kept.len() > MAX_HEAD => {
                return Err(format!("the response head is longer than {MAX_HEAD} bytes"));
            }
            Ok(httparse::Status::Partial) => {
                *input = &[];
                return Ok(Piece::Nothing);
            }
            Err(error) => return Err(format!("the response head is not HTTP: {error}")),
        };
        *input = &input[used - before..];
        let (head, framing) = read_head(&response, self.head_request)?;
        // 100 Continue and its like announce the real head.
        let informational = (100..200).contains(&head.status) && head.status != 101;
        self.framing = if informational {
            Framing::Head(Vec::new())
        } else {
            framing
        };
        if informational {
            self.head(input)
        } else {
            Ok(Piece::Head(head))
        }
    }
}

fn take_front<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (front, rest) = input.split_at(count);
    *input = rest;
    front
}

fn read_head(
    response: &httparse::Response<'_, '_>,
    head_request: bool,
) -> Result<(Head, Framing), String> {
    let status = response.code.unwrap_or_default();
    let mut head = Head {
        status,
        keep_alive: response.version == Some(1),
        ..Head::default()
    };
    let (mut length, mut chunked) = (None, false);
    for header in response.headers.iter() {
        let value = String::from_utf8_lossy(header.value);
        let value = value.trim();
        match header.name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let parsed = value
                    .parse()
                    .map_err(|_| format!("content-length: '{value}'"))?;
                length = Some(parsed);
            }
            "transfer-encoding" => chunked = value.to_ascii_lowercase().ends_with("chunked"),
            "connection" if value.eq_ignore_ascii_case("close") => head.keep_alive = false,
            "content-type" => {
                head.sse = value.starts_with("text/event-stream");
                head.json = value.contains("json");
            }
            "x-preroll-replica" => head.replica = Some(value.to_owned()),
            "x-preroll-queue-ms" => head.queue_ms = value.parse().ok(),
            "retry-after" => head.retry_after_s = value.parse().ok(),
            _ => {}
        }
    }
    let framing = match (chunked, length) {
        _ if head_request || status == 204 || status == 304 => Framing::Done,
        (true, _) => Framing::Chunked(Chunked::default()),
        (false, Some(length)) => Framing::Length(length),
        (false, None) => {
            head.keep_alive = false;
            Framing::UntilClose
        }
    };
    Ok((head, framing))
}

#[cfg(test)]
mod tests {
    use super::{Head, Piece, Response};

    fn parse(pieces: &[&[u8]]) -> Result<(Head, Vec<u8>, bool, bool), String> {
        let mut response = Response::new(false);
        let (mut head, mut body, mut ended) = (Head::default(), Vec::new(), false);
        for piece in pieces {
            let mut input = *piece;
            loop {
                match response.next(&mut input)? {
                    Piece::Nothing if input.is_empty() => break,
                    Piece::Nothing => {}
                    Piece::Head(found) => head = found,
                    Piece::Data(data) => body.extend_from_slice(data),
                    Piece::End => {
                        ended = true;
                        break;
                    }
                }
            }
        }
        Ok((head, body, ended, response.may_close()))
    }

    #[test]
    fn a_response_is_the_same_however_it_is_split() {
        let wire =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
            Transfer-Encoding: chunked\r\nx-preroll-queue-ms: 1.5\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        for cut in 0..wire.len() {
            let (head, body, ended, _) = parse(&[&wire[..cut], &wire[cut..]]).unwrap();
            assert!(ended && head.sse && head.keep_alive, "cut {cut}");
            assert_eq!(
                (head.status, body.as_slice(), head.queue_ms),
                (200, b"hello".as_slice(), Some(1.5))
            );
        }
    }

    #[test]
    fn a_body_without_length_ends_with_the_connection_and_a_short_one_does_not() {
        let (head, body, ended, may_close) = parse(&[b"HTTP/1.1 200 OK\r\n\r\nabc"]).unwrap();
        assert!(!head.keep_alive && !ended && may_close && body == b"abc");
        let short = parse(&[b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"]).unwrap();
        assert!(!short.2 && !short.3);
        assert!(parse(&[b"SSH-2.0-x\r\n"]).is_err());
        assert!(parse(&[b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]).is_err());
    }
}
