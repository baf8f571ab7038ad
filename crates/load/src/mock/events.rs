//! The bytes of answers: chunked SSE events, JSON documents, audio.

use std::io::Write;

/// Which API's shape an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Completions,
}

pub const SSE_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
pub const AUDIO_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: audio/pcm\r\ntransfer-encoding: chunked\r\n\r\n";
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends one HTTP chunk that `fill` writes.
pub fn chunk(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    // The size is written last: eight digits hold every size, and leading zeros are allowed.
    let start = out.len();
    out.extend_from_slice(b"00000000\r\n");
    fill(out);
    let size = out.len() - start - 10;
    let digits = format_hex(size as u32);
    out[start..start + 8].copy_from_slice(&digits);
    out.extend_from_slice(b"\r\n");
}

fn format_hex(value: u32) -> [u8; 8] {
    let mut digits = [b'0'; 8];
    for (place, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(value >> (4 * place) & 15) as usize];
    }
    digits
}

/// The text of token `index`; the same for every request, so that answers can be compared.
pub fn token_text(index: u32, flipped: bool) -> String {
    if flipped {
        format!("alt{index} ")
    } else {
        format!("tok{index} ")
    }
}

/// One content event with `text`, in the field that the API and `reasoning` say.
pub fn content(out: &mut Vec<u8>, api: Api, text: &str, reasoning: bool, logprobs: Option<f64>) {
    let object = if api == Api::Chat {
        "chat.completion.chunk"
    } else {
        "text_completion"
    };
    let _ = write!(
        out,
        "data: {{\"id\":\"mock-1\",\"object\":\"{object}\",\"created\":1700000000,\"model\":\"mock\",\"choices\":[{{\"index\":0,"
    );
    let _ = match api {
        Api::Chat if reasoning => write!(out, "\"delta\":{{\"reasoning_content\":\"{text}\"}}"),
        Api::Chat => write!(out, "\"delta\":{{\"content\":\"{text}\"}}"),
        Api::Completions => write!(out, "\"text\":\"{text}\""),
    };
    if let Some(logprob) = logprobs {
        write_logprobs(out, api, text, logprob);
    }
    out.extend_from_slice(b",\"finish_reason\":null}]}\n\n");
}

fn write_logprobs(out: &mut Vec<u8>, api: Api, text: &str, logprob: f64) {
    let second = -logprob.abs() - 0.01;
    let _ = match api {
        Api::Chat => write!(
            out,
            ",\"logprobs\":{{\"content\":[{{\"token\":\"{text}\",\"logprob\":{logprob},\"top_logprobs\":[{{\"token\":\"{text}\",\"logprob\":{logprob}}},{{\"token\":\"other\",\"logprob\":{second}}}]}}]}}"
        ),
        Api::Completions => write!(
            out,
            ",\"logprobs\":{{\"tokens\":[\"{text}\"],\"token_logprobs\":[{logprob}],\"top_logprobs\":[{{\"{text}\":{logprob},\"other\":{second}}}]}}"
        ),
    };
}

/// The chunk that carries only a role.
pub fn role(out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"data: {\"id\":\"mock-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"mock\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
    );
}

/// The chunk that says why the answer ended.
pub fn finish(out: &mut Vec<u8>, api: Api) {
    let body = if api == Api::Chat {
        "\"delta\":{}"
    } else {
        "\"text\":\"\""
    };
    let _ = write!(
        out,
        "data: {{\"id\":\"mock-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"mock\",\"choices\":[{{\"index\":0,{body},\"finish_reason\":\"stop\"}}]}}\n\n"
    );
}

pub fn usage(out: &mut Vec<u8>, completion_tokens: u32) {
    let _ = write!(
        out,
        "data: {{\"id\":\"mock-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"mock\",\"choices\":[],\"usage\":{}}}\n\n",
        usage_object(completion_tokens)
    );
}

pub fn usage_object(completion_tokens: u32) -> String {
    let total = completion_tokens + 10;
    format!(
        "{{\"prompt_tokens\":10,\"completion_tokens\":{completion_tokens},\"total_tokens\":{total}}}"
    )
}

/// A whole response with a JSON (or text) body.
pub fn document(out: &mut Vec<u8>, status: &str, kind: &str, body: &str, close: bool) {
    let close = if close { "connection: close\r\n" } else { "" };
    let _ = write!(
        out,
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{close}content-length: {}\r\n\r\n{body}",
        body.len()
    );
}

#[cfg(test)]
mod tests {
    use super::{Api, chunk, content};

    #[test]
    fn a_chunk_states_its_size_and_an_event_is_json() {
        let mut out = Vec::new();
        chunk(&mut out, |b| {
            content(b, Api::Chat, "tok0 ", false, Some(-0.5))
        });
        let text = String::from_utf8(out).unwrap();
        let (size, rest) = text.split_once("\r\n").unwrap();
        let body = rest.strip_suffix("\r\n").unwrap();
        assert_eq!(usize::from_str_radix(size, 16).unwrap(), body.len());
        let json = body.strip_prefix("data: ").unwrap().trim_end();
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(value["choices"][0]["delta"]["content"], "tok0 ");
        assert_eq!(
            value["choices"][0]["logprobs"]["content"][0]["logprob"],
            -0.5
        );
    }
}
