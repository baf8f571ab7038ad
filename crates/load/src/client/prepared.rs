//! Requests as bytes, built once.

use std::fmt::Write;
use std::rc::Rc;

use super::spec::{Spec, Template};

const MARK: &[u8] = b"__SEQUENCE";

/// A request ready to be sent; a mark in it is replaced by the request's number.
pub struct Prepared {
    bytes: Rc<Vec<u8>>,
    mark: Option<usize>,
    pub is_head: bool,
}

impl Prepared {
    pub fn all(spec: &Spec, host: &str) -> Result<Vec<Self>, String> {
        spec.requests
            .iter()
            .map(|template| Self::new(template, host, spec.reuse))
            .collect()
    }

    fn new(template: &Template, host: &str, reuse: bool) -> Result<Self, String> {
        let body = match &template.body_file {
            Some(path) => std::fs::read(path).map_err(|e| format!("body_file '{path}': {e}"))?,
            None => template.body.clone().into_bytes(),
        };
        let mut head = format!(
            "{} {} HTTP/1.1\r\nhost: {host}\r\n",
            template.method, template.path
        );
        for (name, value) in &template.headers {
            if name.contains(['\r', '\n', ':']) || value.contains(['\r', '\n']) {
                return Err(format!("headers: '{name}' has a line end or colon in it"));
            }
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if !body.is_empty() || template.method != "GET" {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        head.push_str(if reuse {
            "\r\n"
        } else {
            "connection: close\r\n\r\n"
        });
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&body);
        let mark = memchr::memmem::find(&bytes, MARK);
        Ok(Self {
            bytes: Rc::new(bytes),
            mark,
            is_head: template.method == "HEAD",
        })
    }

    /// The bytes of request number `sequence`.
    pub fn bytes(&self, sequence: u64) -> Rc<Vec<u8>> {
        let Some(at) = self.mark else {
            return Rc::clone(&self.bytes);
        };
        let mut own = self.bytes.as_ref().clone();
        own[at..at + MARK.len()].copy_from_slice(format!("{sequence:010}").as_bytes());
        Rc::new(own)
    }
}
