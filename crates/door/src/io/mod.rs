//! Bytes in and out: sockets, the gate that lets only unambiguous HTTP/1 through to hyper, and the
//! door's own HTTP/1 to replicas.

pub mod alarms;
pub mod answer;
pub mod chunked;
pub mod frames;
pub mod gate;
pub mod head;
pub mod link;
pub mod listen;
pub mod sending;
pub mod sock;
pub mod tokens;
pub mod turn;
pub mod unix;
pub mod upstream;
