//! Bytes in and out: sockets, and the gate that lets only unambiguous HTTP/1 through to hyper.

pub mod alarms;
pub mod body;
pub mod chunked;
pub mod frames;
pub mod gate;
pub mod head;
pub mod link;
pub mod listen;
pub mod quiet;
pub mod sock;
pub mod unix;
pub mod upstream;
pub mod wire;
