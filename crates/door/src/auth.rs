//! Who may ask: API keys, the admin listener's guard, request ids that are safe to repeat.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::tables::KeyTable;

/// No key or id is longer; hashing more would let a stranger choose the cost.
const MAX_KEY_BYTES: usize = 1024;
const MAX_ID_BYTES: usize = 128;

/// Why a request is not let in: 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthError {
    Missing,
    Malformed,
    Unknown,
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthError::Missing => "no API key; send Authorization: Bearer KEY",
            AuthError::Malformed => "the Authorization header is not of the form: Bearer KEY",
            AuthError::Unknown => "the API key is not known",
        })
    }
}

impl std::error::Error for AuthError {}

/// The keys in force, known by their SHA-256 alone.
#[derive(Debug, Default)]
pub struct Keys(Vec<(String, [u8; 32])>);

impl Keys {
    /// Of validated tables: an entry whose digest is no hexadecimal text of 64 digits matches
    /// nothing and is left out.
    pub fn new(tables: &[KeyTable]) -> Keys {
        let key = |table: &KeyTable| Some((table.id.clone(), digest_of_hex(&table.sha256)?));
        Keys(tables.iter().filter_map(key).collect())
    }

    /// Nobody needs a key.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// The id of the key in an Authorization header; None where nobody needs one. Every key is
    /// compared, each in constant time, so that the time taken tells nothing about them.
    ///
    /// # Errors
    /// [`AuthError`], to be answered by 401.
    pub fn check(&self, authorization: Option<&[u8]>) -> Result<Option<&str>, AuthError> {
        if self.is_open() {
            return Ok(None);
        }
        let key = bearer(authorization.ok_or(AuthError::Missing)?).ok_or(AuthError::Malformed)?;
        let digest: [u8; 32] = Sha256::digest(key).into();
        let mut found = u64::MAX;
        for (at, (_, known)) in self.0.iter().enumerate() {
            found.conditional_assign(&(at as u64), known.ct_eq(&digest));
        }
        let entry = usize::try_from(found).ok().and_then(|at| self.0.get(at));
        entry
            .map(|(id, _)| Some(id.as_str()))
            .ok_or(AuthError::Unknown)
    }
}

fn digest_of_hex(hex: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u32>> = hex.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks(2)) {
        *byte = (pair[0] * 16 + pair[1]) as u8;
    }
    Some(digest)
}

/// The key in `Bearer KEY`; the scheme's case does not matter (RFC 9110).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii();
    let at = value.iter().position(|&byte| byte == b' ')?;
    let key = value[at..].trim_ascii();
    let is_key = key.iter().all(u8::is_ascii_graphic) && (1..=MAX_KEY_BYTES).contains(&key.len());
    (value[..at].eq_ignore_ascii_case(b"bearer") && is_key).then_some(key)
}

/// Where an admin listener listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminListener {
    /// In a directory of mode 0700: whoever reaches it may.
    Unix,
    /// A loopback address: any page in a browser on this machine can reach it.
    Loopback,
    /// Any other address: a token is needed.
    Remote,
}

/// Why an admin request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminError {
    /// 403: another site's page, or a name that was made to point here (DNS rebinding).
    Host,
    Origin,
    /// 401: no token or another one.
    Token,
}

impl AdminError {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            AdminError::Host | AdminError::Origin => 403,
            AdminError::Token => 401,
        }
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AdminError::Host => {
                "the Host header must name this machine: localhost, 127.0.0.1 or [::1]"
            }
            AdminError::Origin => "requests from web pages of another origin are not allowed",
            AdminError::Token => "send Authorization: Bearer TOKEN, of the file --admin-token-file",
        })
    }
}

impl std::error::Error for AdminError {}

/// Guards every admin route, without exception.
#[derive(Debug)]
pub struct AdminGuard {
    listener: AdminListener,
    token: Option<[u8; 32]>,
}

impl AdminGuard {
    /// `token`: what a remote listener asks for; where a loopback listener has one, it asks for it
    /// too.
    pub fn new(listener: AdminListener, token: Option<&str>) -> AdminGuard {
        let token = token.map(|token| Sha256::digest(token.trim().as_bytes()).into());
        AdminGuard { listener, token }
    }

    /// Lets a request through or says why not. The arguments are the headers' values, None where
    /// absent.
    ///
    /// # Errors
    /// [`AdminError`], with its status.
    pub fn check(
        &self,
        host: Option<&[u8]>,
        origin: Option<&[u8]>,
        authorization: Option<&[u8]>,
    ) -> Result<(), AdminError> {
        if self.listener == AdminListener::Unix {
            return Ok(());
        }
        let host = host.ok_or(AdminError::Host)?;
        if self.listener == AdminListener::Loopback && !is_loopback(host) {
            return Err(AdminError::Host);
        }
        let is_same = |origin: &[u8]| {
            let bare = origin
                .strip_prefix(b"http://")
                .or_else(|| origin.strip_prefix(b"https://"));
            bare.is_some_and(|bare| bare.eq_ignore_ascii_case(host))
        };
        if origin.is_some_and(|origin| !is_same(origin)) {
            return Err(AdminError::Origin);
        }
        self.check_token(authorization)
    }

    fn check_token(&self, authorization: Option<&[u8]>) -> Result<(), AdminError> {
        let Some(token) = &self.token else {
            let is_free = self.listener == AdminListener::Loopback;
            return if is_free {
                Ok(())
            } else {
                Err(AdminError::Token)
            };
        };
        let given = authorization.and_then(bearer).ok_or(AdminError::Token)?;
        let digest: [u8; 32] = Sha256::digest(given).into();
        let is_equal: Choice = token.ct_eq(&digest);
        if is_equal.into() {
            Ok(())
        } else {
            Err(AdminError::Token)
        }
    }
}

/// Whether a Host header names this machine, with or without a port.
fn is_loopback(host: &[u8]) -> bool {
    let names: [&[u8]; 3] = [b"localhost", b"127.0.0.1", b"[::1]"];
    names.iter().any(|name| {
        let Some(start) = host.get(..name.len()) else {
            return false;
        };
        let port = &host[name.len()..];
        let is_port =
            |port: &[u8]| (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
        start.eq_ignore_ascii_case(name)
            && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
    })
}

/// A client's request id that is safe in headers, logs and paths: 1 to 128 of letters, digits and
/// `._:-`. Of another one nothing is repeated; make a new one.
pub fn request_id(text: &[u8]) -> Option<&str> {
    let is_safe = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    let fits = (1..=MAX_ID_BYTES).contains(&text.len()) && text.iter().all(is_safe);
    if fits {
        std::str::from_utf8(text).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
