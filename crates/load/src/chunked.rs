//! The chunked transfer coding, decoded as bytes come; used by client and mock.

/// Decoder state; feed it bytes, it hands back slices of data.
#[derive(Clone, Copy, Debug)]
enum Place {
    Size {
        value: u64,
        digits: u8,
        extension: bool,
    },
    Data {
        left: u64,
    },
    DataEnd,
    Trailer {
        line: u32,
    },
}

/// What one step of decoding found.
#[derive(Debug, PartialEq, Eq)]
pub struct Step<'a> {
    pub used: usize,
    pub data: &'a [u8],
    pub ended: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Chunked {
    place: Place,
}

const NEW_SIZE: Place = Place::Size {
    value: 0,
    digits: 0,
    extension: false,
};

impl Default for Chunked {
    fn default() -> Self {
        Self { place: NEW_SIZE }
    }
}

impl Chunked {
    /// Decodes up to the next piece of data or the end. `used` bytes of `input` are done with.
    ///
    /// An error is a violation of the coding; nothing more may be decoded then.
    pub fn step<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, &'static str> {
        let mut used = 0;
        while let Some(&byte) = input.get(used) {
            if let Place::Data { left } = self.place {
                let take = left.min((input.len() - used) as u64) as usize;
                let rest = left - take as u64;
                self.place = if rest == 0 {
                    Place::DataEnd
                } else {
                    Place::Data { left: rest }
                };
                return Ok(Step {
                    used: used + take,
                    data: &input[used..used + take],
                    ended: false,
                });
            }
            used += 1;
            if self.byte(byte)? {
                return Ok(Step {
                    used,
                    data: &[],
                    ended: true,
                });
            }
        }
        Ok(Step {
            used,
            data: &[],
            ended: false,
        })
    }

    /// Takes one byte of framing; true at the end of the body.
    fn byte(&mut self, byte: u8) -> Result<bool, &'static str> {
        self.place = match (self.place, byte) {
            (Place::Size { digits: 0, .. }, b'\n') => return Err("chunk size is empty"),
            (Place::Size { value: 0, .. }, b'\n') => Place::Trailer { line: 0 },
            (Place::Size { value, .. }, b'\n') => Place::Data { left: value },
            (
                Place::Size {
                    value,
                    digits,
                    extension,
                },
                _,
            ) => {
                if extension || matches!(byte, b'\r' | b';' | b' ' | b'\t') {
                    Place::Size {
                        value,
                        digits,
                        extension: true,
                    }
                } else {
                    let digit = (byte as char)
                        .to_digit(16)
                        .ok_or("chunk size is not hexadecimal")?;
                    if digits == 15 {
                        return Err("chunk size is too long");
                    }
                    Place::Size {
                        value: value * 16 + u64::from(digit),
                        digits: digits + 1,
                        extension,
                    }
                }
            }
            (Place::DataEnd, b'\r') => Place::DataEnd,
            (Place::DataEnd, b'\n') => NEW_SIZE,
            (Place::DataEnd, _) => return Err("chunk data is longer than its size"),
            (Place::Trailer { line: 0 }, b'\n') => {
                self.place = NEW_SIZE;
                return Ok(true);
            }
            (Place::Trailer { .. }, b'\n') => Place::Trailer { line: 0 },
            (Place::Trailer { line }, b'\r') => Place::Trailer { line },
            (Place::Trailer { line }, _) => Place::Trailer { line: line + 1 },
            (Place::Data { left }, _) => Place::Data { left },
        };
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::Chunked;

    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool), &'static str> {
        let (mut decoder, mut out, mut ended) = (Chunked::default(), Vec::new(), false);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() && !ended {
                let step = decoder.step(rest)?;
                out.extend_from_slice(step.data);
                ended = step.ended;
                rest = &rest[step.used..];
            }
        }
        Ok((out, ended))
    }

    #[test]
    fn a_body_decodes_the_same_however_it_is_split() {
        let wire: &[u8] = b"4;x=y\r\nwiki\r\nA\r\n0123456789\r\n0\r\nTrailer: v\r\n\r\n";
        for cut in 0..wire.len() {
            let decoded = decode(&[&wire[..cut], &wire[cut..]]);
            assert_eq!(
                decoded,
                Ok((b"wiki0123456789".to_vec(), true)),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn violations_are_errors_and_a_cut_body_has_not_ended() {
        assert!(decode(&[b"\r\n"]).is_err());
        assert!(decode(&[b"zz\r\n"]).is_err());
        assert!(decode(&[b"2\r\nabc\r\n"]).is_err());
        assert_eq!(decode(&[b"3\r\nabc\r\n"]), Ok((b"abc".to_vec(), false)));
    }
}
