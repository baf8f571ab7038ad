//! A request on its way to a replica.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, TE, TRAILER,
    TRANSFER_ENCODING,
};
use http::{Request, request};
use http_body::{Body, Frame};
use hyper::body::Incoming;

use super::link::Link;
use super::sock::Sock;
use super::tokens::tokens;

const LINE_END: &[u8] = b"\r\n";
/// A head is mostly smaller.
const HEAD_BYTES: usize = 1024;
/// A body up to this size is put behind its head: copying it costs less than a list of pieces.
const SMALL_BYTES: usize = 2048;
/// Behind the body these would say something of the message, or of who sends it.
const NEVER_BEHIND: [HeaderName; 7] = [
    AUTHORIZATION,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    HOST,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
];

/// What is sent: nothing, bytes held by the door, or the client's body as it comes.
pub enum SendBody {
    Empty,
    Full(Bytes),
    Stream(ClientBody),
}

/// A client's body with its bound.
pub struct ClientBody {
    body: Incoming,
    left: u64,
    link: Rc<Link>,
}

impl ClientBody {
    /// `most` bytes may come; one more is an error, and marks the link.
    pub fn new(body: Incoming, most: u64, link: Rc<Link>) -> ClientBody {
        ClientBody {
            body,
            left: most,
            link,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Unsent>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => return Poll::Ready(Some(Err(Unsent))),
            None => return Poll::Ready(None),
        };
        let len = frame.data_ref().map_or(0, |data| data.len() as u64);
        let Some(left) = self.left.checked_sub(len) else {
            self.link.is_body_over.set(true);
            return Poll::Ready(Some(Err(Unsent)));
        };
        self.left = left;
        Poll::Ready(Some(Ok(frame)))
    }
}

/// The client's body broke off, or was larger than its bound.
#[derive(Debug)]
pub struct Unsent;

/// Bytes that go out together.
#[derive(Default)]
struct Piece {
    before: Vec<u8>,
    data: Bytes,
    after: &'static [u8],
    written: usize,
}

impl Piece {
    /// What of it was not written yet.
    fn rest(&self) -> [IoSlice<'_>; 3] {
        let mut skip = self.written;
        [&self.before, &self.data[..], self.after].map(|part| {
            let skipped = skip.min(part.len());
            skip -= skipped;
            IoSlice::new(&part[skipped..])
        })
    }

    fn len(&self) -> usize {
        self.before.len() + self.data.len() + self.after.len()
    }
}

/// What of a request is still to be sent.
pub struct Sending {
    piece: Piece,
    body: SendBody,
    is_chunked: bool,
    /// The fields that the head says will follow the last chunk.
    announced: Vec<HeaderName>,
    /// Some of it was written.
    is_begun: bool,
    /// All of it was.
    is_whole: bool,
    /// The socket takes no more; the answer may have come all the same.
    error: Option<io::Error>,
    /// The client's body broke off.
    is_broken_off: bool,
}

impl Sending {
    /// Of a connection without a request.
    pub fn nothing() -> Sending {
        Sending {
            piece: Piece::default(),
            body: SendBody::Empty,
            is_chunked: false,
            announced: Vec::new(),
            is_begun: false,
            is_whole: true,
            error: None,
            is_broken_off: false,
        }
    }

    /// How long the body is, the body says: not what came as the client's Content-Length.
    pub fn new(request: Request<SendBody>) -> Sending {
        let (head, body) = request.into_parts();
        let length = match &body {
            SendBody::Empty => head.headers.contains_key(CONTENT_LENGTH).then_some(0),
            SendBody::Full(bytes) => Some(bytes.len() as u64),
            SendBody::Stream(client) => client.body.size_hint().exact(),
        };
        let is_chunked = matches!(body, SendBody::Stream(_)) && length.is_none();
        let announced = match is_chunked {
            true => tokens(&head.headers, &TRAILER)
                .filter_map(|name| HeaderName::from_bytes(name).ok())
                .collect(),
            false => Vec::new(),
        };
        let mut piece = Piece {
            before: written(&head, length, is_chunked),
            ..Piece::default()
        };
        let body = match body {
            SendBody::Full(bytes) if bytes.len() <= SMALL_BYTES => {
                piece.before.extend_from_slice(&bytes);
                SendBody::Empty
            }
            SendBody::Full(bytes) => {
                piece.data = bytes;
                SendBody::Empty
            }
            other => other,
        };
        Sending {
            piece,
            body,
            is_chunked,
            announced,
            is_whole: false,
            ..Sending::nothing()
        }
    }

    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub fn is_broken_off(&self) -> bool {
        self.is_broken_off
    }

    /// Why the socket takes no more.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Sends what can be sent now. A socket that takes no more is no error here: the replica may have
    /// answered before it closed.
    ///
    /// # Errors
    /// [`Unsent`].
    pub fn go_on(&mut self, sock: &mut Sock, cx: &mut Context<'_>) -> Result<(), Unsent> {
        while !self.is_whole && self.error.is_none() {
            match self.poll_write(sock, cx) {
                Poll::Ready(Ok(())) => self.piece = Piece::default(),
                Poll::Ready(Err(error)) => {
                    self.error = Some(error);
                    return Ok(());
                }
                Poll::Pending => return Ok(()),
            }
            let Poll::Ready(piece) = self.poll_piece(cx) else {
                return Ok(());
            };
            self.is_broken_off = piece.is_err();
            self.piece = piece?;
        }
        Ok(())
    }

    fn poll_write(&mut self, sock: &mut Sock, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.piece.written < self.piece.len() {
            let n = ready!(sock.poll_write_gathered(cx, &self.piece.rest()))?;
            self.piece.written += n;
            self.is_begun = true;
        }
        Poll::Ready(Ok(()))
    }

    /// What goes out next; an empty piece is the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Unsent>> {
        let SendBody::Stream(client) = &mut self.body else {
            self.is_whole = true;
            return Poll::Ready(Ok(Piece::default()));
        };
        let mut piece = Piece::default();
        let frame = match ready!(client.poll_frame(cx)) {
            Some(frame) => frame?,
            None => {
                self.body = SendBody::Empty;
                piece.after = if self.is_chunked { b"0\r\n\r\n" } else { b"" };
                return Poll::Ready(Ok(piece));
            }
        };
        match frame.into_data() {
            Ok(data) if self.is_chunked && !data.is_empty() => {
                piece.before = format!("{:x}\r\n", data.len()).into_bytes();
                (piece.data, piece.after) = (data, LINE_END);
            }
            Ok(data) => piece.data = data,
            Err(frame) => {
                self.body = SendBody::Empty;
                if let (true, Ok(fields)) = (self.is_chunked, frame.into_trailers()) {
                    piece.before = self.written_behind(&fields);
                }
            }
        }
        Poll::Ready(Ok(piece))
    }

    /// The last chunk and the fields behind it.
    fn written_behind(&self, fields: &HeaderMap) -> Vec<u8> {
        let mut out = b"0\r\n".to_vec();
        for (name, value) in fields {
            if self.announced.contains(name) && !NEVER_BEHIND.contains(name) {
                write_field(&mut out, name, value.as_bytes());
            }
        }
        out.extend_from_slice(LINE_END);
        out
    }
}

fn written(head: &request::Parts, length: Option<u64>, is_chunked: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES);
    let target = head.uri.path_and_query().map_or("/", |path| path.as_str());
    for part in [head.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &head.headers {
        if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
            write_field(&mut out, name, value.as_bytes());
        }
    }
    if let Some(length) = length {
        write_field(&mut out, &CONTENT_LENGTH, length.to_string().as_bytes());
    }
    if is_chunked {
        write_field(&mut out, &TRANSFER_ENCODING, b"chunked");
    }
    out.extend_from_slice(LINE_END);
    out
}

fn write_field(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    for part in [name.as_str().as_bytes(), b": ", value, LINE_END] {
        out.extend_from_slice(part);
    }
}
