//! Which answer a request gets.

use super::behaviour::{Asked, Mode};
use super::conn::{Reply, Waiting};
use super::events::{self, Api};
use super::stream::Stream;

const JSON: &str = "application/json";

/// An answer and the nanoseconds after which it begins to go out.
pub struct Answer {
    pub reply: Reply,
    pub delay_ns: i64,
}

/// The reply to a complete request. `service_ns`: how long a server of the station works on it.
pub fn answer(request: &Waiting, service_ns: Option<i64>, flip: Option<u32>) -> Answer {
    let mut asked = request.asked;
    if let Some(service) = service_ns {
        fit(&mut asked, service);
    }
    let b = asked.behaviour;
    if b.mode == Mode::HttpError {
        let body = r#"{"error":{"message":"planted","type":"server_error","code":500}}"#;
        return document("500 Internal Server Error", body, b.ttft_ns, request.close);
    }
    if request.path.ends_with("/audio/speech") {
        return Answer {
            reply: Reply::Stream(Box::new(Stream::audio(b))),
            delay_ns: 0,
        };
    }
    if !asked.stream {
        let (body, gaps) = plain_body(request, &asked, flip);
        return document("200 OK", &body, b.ttft_ns + gaps * b.gap_ns, request.close);
    }
    let api = api_of(&request.path);
    let mut stream = Stream::new(b, api, asked.usage, asked.logprobs);
    if let Some(position) = flip {
        stream.flip(position);
    }
    Answer {
        reply: Reply::Stream(Box::new(stream)),
        delay_ns: 0,
    }
}

/// Stretches the answer over the service time: first token at its start plus TTFT, last at its end.
fn fit(asked: &mut Asked, service_ns: i64) {
    let b = &mut asked.behaviour;
    if b.tokens < 2 || !asked.stream {
        (b.ttft_ns, b.gap_ns) = (service_ns, 0);
        return;
    }
    b.ttft_ns = b.ttft_ns.min(service_ns);
    b.gap_ns = (service_ns - b.ttft_ns) / i64::from(b.tokens - 1);
}

fn api_of(path: &str) -> Api {
    if path.ends_with("/completions") && !path.contains("chat") {
        Api::Completions
    } else {
        Api::Chat
    }
}

fn document(status: &str, body: &str, delay_ns: i64, close: bool) -> Answer {
    let mut bytes = Vec::with_capacity(body.len() + 128);
    events::document(&mut bytes, status, JSON, body, close);
    Answer {
        reply: Reply::Document(bytes),
        delay_ns,
    }
}

/// A body that is not streamed, and how many gaps its making takes.
fn plain_body(request: &Waiting, asked: &Asked, flip: Option<u32>) -> (String, i64) {
    let tokens = asked.behaviour.tokens;
    if request.path.ends_with("/embeddings") {
        let body = r#"{"object":"list","model":"mock","data":[{"object":"embedding","index":0,"embedding":[0.5,0.25,-0.125,1.0]}],"usage":{"prompt_tokens":10,"total_tokens":10}}"#;
        return (body.to_owned(), 0);
    }
    if request.path.contains("/audio/") {
        return (
            format!("{{\"text\":\"tok0 \",\"received\":{}}}", request.received),
            0,
        );
    }
    let text: String = (0..tokens)
        .map(|i| events::token_text(i, flip == Some(i)))
        .collect();
    let (object, choice) = match api_of(&request.path) {
        Api::Chat => (
            "chat.completion",
            format!("\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}}"),
        ),
        Api::Completions => ("text_completion", format!("\"text\":\"{text}\"")),
    };
    let usage = events::usage_object(tokens);
    let body = format!(
        "{{\"id\":\"mock-1\",\"object\":\"{object}\",\"created\":1700000000,\"model\":\"mock\",\"choices\":[{{\"index\":0,{choice},\"finish_reason\":\"stop\"}}],\"usage\":{usage}}}"
    );
    (body, i64::from(tokens))
}
