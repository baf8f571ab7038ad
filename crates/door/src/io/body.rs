//! The request body on its way to a replica.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::link::Link;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

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
}

/// A body that hyper drops as soon as it has taken all of it, which whoever holds it weakly sees.
pub struct Sending {
    body: SendBody,
    _alive: Rc<()>,
}

impl Sending {
    pub fn new(body: SendBody, alive: Rc<()>) -> Sending {
        Sending {
            body,
            _alive: alive,
        }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Body for SendBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            SendBody::Empty => Poll::Ready(None),
            SendBody::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            SendBody::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            SendBody::Stream(client) => {
                let Some(frame) = ready!(Pin::new(&mut client.body).poll_frame(cx)?) else {
                    return Poll::Ready(None);
                };
                let len = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(left) = client.left.checked_sub(len) else {
                    client.link.is_body_over.set(true);
                    return Poll::Ready(Some(Err(
                        "the body is larger than limits.body_bytes".into()
                    )));
                };
                client.left = left;
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            SendBody::Empty => true,
            SendBody::Full(bytes) => bytes.is_empty(),
            SendBody::Stream(client) => client.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            SendBody::Empty => SizeHint::with_exact(0),
            SendBody::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            SendBody::Stream(client) => client.body.size_hint(),
        }
    }
}
