//! Where WebSocket frames end (RFC 6455, section 5.2), so that the door can put a frame of its own
//! between two.

/// A close frame with status 1012 (service restart), from a server.
pub const CLOSE_1012: [u8; 4] = [0x88, 0x02, 0x03, 0xf4];

/// The same from a client: masked, as the protocol demands, with the key zero.
pub const CLOSE_1012_MASKED: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xf4];

/// The walk's place in one direction of a connection.
#[derive(Debug, Default)]
pub struct FrameWalk {
    /// Bytes of the head seen so far; the longest head has 14.
    head: [u8; 14],
    seen: usize,
    /// Payload bytes still to come.
    left: u64,
}

impl FrameWalk {
    /// Walks over bytes as they pass.
    pub fn walk(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let step = self.left.min(bytes.len() as u64);
                self.left -= step;
                bytes = &bytes[step as usize..];
                continue;
            }
            self.head[self.seen] = bytes[0];
            self.seen += 1;
            bytes = &bytes[1..];
            if self.seen == self.head_len() {
                self.left = self.payload_len();
                self.seen = 0;
            }
        }
    }

    /// Whether a frame has ended and the next has not begun.
    pub fn is_between(&self) -> bool {
        self.seen == 0 && self.left == 0
    }

    fn extended_len(&self) -> usize {
        match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        }
    }

    fn head_len(&self) -> usize {
        if self.seen < 2 {
            return 2;
        }
        let mask = if self.head[1] & 0x80 != 0 { 4 } else { 0 };
        2 + self.extended_len() + mask
    }

    fn payload_len(&self) -> u64 {
        match self.extended_len() {
            0 => u64::from(self.head[1] & 0x7f),
            len => self.head[2..2 + len]
                .iter()
                .fold(0, |sum, b| sum << 8 | u64::from(*b)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: usize, is_masked: bool) -> Vec<u8> {
        let mask = if is_masked { 0x80 } else { 0 };
        let mut bytes = vec![0x82];
        match payload {
            0..126 => bytes.push(mask | payload as u8),
            126..65536 => {
                bytes.push(mask | 126);
                bytes.extend((payload as u16).to_be_bytes());
            }
            _ => {
                bytes.push(mask | 127);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        if is_masked {
            bytes.extend([1, 2, 3, 4]);
        }
        bytes.resize(bytes.len() + payload, 0x82);
        bytes
    }

    #[test]
    fn a_boundary_is_seen_only_between_frames_however_bytes_are_cut() {
        for is_masked in [false, true] {
            let sizes = [0, 1, 125, 126, 1000, 70_000];
            let frames: Vec<Vec<u8>> = sizes.iter().map(|n| frame(*n, is_masked)).collect();
            let ends: Vec<usize> = frames
                .iter()
                .scan(0, |at, frame| {
                    *at += frame.len();
                    Some(*at)
                })
                .collect();
            let bytes = frames.concat();
            for step in [1, 3, 7, 1000] {
                let (mut walk, mut at) = (FrameWalk::default(), 0);
                for part in bytes.chunks(step) {
                    walk.walk(part);
                    at += part.len();
                    assert_eq!(walk.is_between(), ends.contains(&at), "step {step} at {at}");
                }
            }
        }
    }
}
