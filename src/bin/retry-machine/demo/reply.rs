//! What the provider answers, in the form of each API.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};

use crate::ask::api::Api;

/// One answer of the provider.
#[derive(Clone, Copy)]
pub enum Reply {
    Refused(Trouble),
    /// What stands between the provider and the agent says something of its own.
    GatewayPage,
    Stream {
        text: &'static str,
        ending: Ending,
    },
}

/// Why a request is refused.
#[derive(Clone, Copy)]
pub enum Trouble {
    Overloaded,
    RateLimit {
        retry_after_s: u64,
    },
    UsageLimit,
    ContextLength {
        tokens: usize,
        maximum: usize,
    },
    Auth,
    /// The request is none that this provider knows.
    Request(&'static str),
}

/// How a stream ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Whole,
    /// The connection breaks in the middle.
    Cut,
    /// An error is told in the middle.
    Error,
}

const PAGE: &str = "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n\
    <center><h1>503 Service Temporarily Unavailable</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n";

/// How long the usage limit of a key still holds.
const RESET_S: u64 = 7200;

impl Reply {
    /// As an HTTP response, with a pause between two words.
    pub fn response(self, api: Api, word_delay: Duration) -> Response<Body> {
        let (status, kind, body) = match self {
            Self::Refused(trouble) => {
                let (status, body) = trouble.told(api);
                (status, "application/json", Body::from(body.to_string()))
            }
            Self::GatewayPage => (503, "text/html", Body::from(PAGE)),
            Self::Stream { text, ending } => {
                let pieces =
                    stream::iter(pieces(api, text, ending)).then(move |piece| async move {
                        tokio::time::sleep(word_delay).await;
                        piece
                    });
                (200, "text/event-stream", Body::from_stream(pieces))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            kind.parse()
                .unwrap_or_else(|_| unreachable!("a media type")),
        );
        let retry_after_s = match self {
            Self::Refused(Trouble::RateLimit { retry_after_s }) => Some(retry_after_s),
            Self::Refused(Trouble::UsageLimit) => Some(RESET_S),
            _ => None,
        };
        if let Some(seconds) = retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl Trouble {
    /// The status and the body, as the real providers put it.
    fn told(self, api: Api) -> (u16, Value) {
        match api {
            Api::Anthropic => self.anthropic(),
            Api::OpenaiChat | Api::OpenaiResponses => self.openai(),
        }
    }

    fn anthropic(self) -> (u16, Value) {
        let (status, kind, message) = match self {
            Self::Overloaded => (529, "overloaded_error", "Overloaded".to_owned()),
            Self::RateLimit { .. } => (
                429,
                "rate_limit_error",
                "This request would exceed your organization's rate limit of 50 requests per minute.".to_owned(),
            ),
            Self::UsageLimit => (
                429,
                "rate_limit_error",
                "You have hit your usage limit. It resets in 2 hours.".to_owned(),
            ),
            Self::ContextLength { tokens, maximum } => (
                400,
                "invalid_request_error",
                format!("prompt is too long: {tokens} tokens > {maximum} maximum"),
            ),
            Self::Auth => (401, "authentication_error", "invalid x-api-key".to_owned()),
            Self::Request(why) => (400, "invalid_request_error", why.to_owned()),
        };
        let error = json!({ "type": kind, "message": message });
        (
            status,
            json!({ "type": "error", "error": error, "request_id": "req_demo" }),
        )
    }

    fn openai(self) -> (u16, Value) {
        let (status, kind, code, message) = match self {
            Self::Overloaded => (
                503,
                "server_error",
                Value::Null,
                "The server is currently overloaded with other requests. Sorry about that!"
                    .to_owned(),
            ),
            Self::RateLimit { retry_after_s } => (
                429,
                "requests",
                json!("rate_limit_exceeded"),
                format!(
                    "Rate limit reached on requests per min (RPM): Limit 50, Used 50, Requested 1. \
                     Please try again in {retry_after_s}s."
                ),
            ),
            Self::UsageLimit => (
                429,
                "usage_limit_reached",
                Value::Null,
                "The usage limit has been reached".to_owned(),
            ),
            Self::ContextLength { tokens, maximum } => (
                400,
                "invalid_request_error",
                json!("context_length_exceeded"),
                format!(
                    "This model's maximum context length is {maximum} tokens. However, your messages resulted in \
                     {tokens} tokens. Please reduce the length of the messages."
                ),
            ),
            Self::Auth => (
                401,
                "invalid_request_error",
                json!("invalid_api_key"),
                "Incorrect API key provided.".to_owned(),
            ),
            Self::Request(why) => (400, "invalid_request_error", Value::Null, why.to_owned()),
        };
        let error = json!({ "message": message, "type": kind, "param": null, "code": code });
        (status, json!({ "error": error }))
    }
}

/// The events of a stream; an error among them breaks the connection.
fn pieces(api: Api, text: &str, ending: Ending) -> Vec<io::Result<String>> {
    let words: Vec<_> = text.split_inclusive(' ').collect();
    let told = match ending {
        Ending::Whole => words.len(),
        Ending::Cut | Ending::Error => words.len() / 2,
    };
    let mut events = Vec::new();
    begin(api, &mut events);
    events.extend(words[..told].iter().map(|word| delta(api, word)));
    match ending {
        Ending::Whole => end(api, text, words.len(), &mut events),
        Ending::Error => events.push(error_event(api)),
        Ending::Cut => {}
    }
    let mut pieces: Vec<_> = events.into_iter().map(Ok).collect();
    if ending == Ending::Cut {
        pieces.push(Err(io::ErrorKind::ConnectionReset.into()));
    }
    pieces
}

/// An overload that is told when the stream has begun.
fn error_event(api: Api) -> String {
    let code = "server_is_overloaded";
    let message = "Our servers are currently overloaded. Please try again later.";
    match api {
        Api::Anthropic => event("error", &Trouble::Overloaded.told(api).1),
        Api::OpenaiChat => data(&json!({
            "error": { "message": message, "type": "server_error", "param": null, "code": code },
        })),
        Api::OpenaiResponses => event(
            "response.failed",
            &json!({
                "type": "response.failed",
                "response": { "status": "failed", "error": { "code": code, "message": message } },
            }),
        ),
    }
}

const MODEL: &str = "demo";

fn begin(api: Api, events: &mut Vec<String>) {
    match api {
        Api::Anthropic => {
            let usage = json!({ "input_tokens": 12, "output_tokens": 1 });
            let message = json!({
                "id": "msg_demo", "type": "message", "role": "assistant", "model": MODEL, "content": [],
                "stop_reason": null, "usage": usage,
            });
            events.push(event("message_start", &json!({ "type": "message_start", "message": message })));
            events.push(event("content_block_start", &json!({
                "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" },
            })));
            events.push(event("ping", &json!({ "type": "ping" })));
        }
        Api::OpenaiChat => {
            events.push(chunk(&json!({ "role": "assistant", "content": "" }), None));
        }
        Api::OpenaiResponses => events.push(event("response.created", &json!({
            "type": "response.created",
            "response": { "id": "resp_demo", "model": MODEL, "status": "in_progress", "output": [] },
        }))),
    }
}

fn delta(api: Api, text: &str) -> String {
    match api {
        Api::Anthropic => event(
            "content_block_delta",
            &json!({
                "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text },
            }),
        ),
        Api::OpenaiChat => chunk(&json!({ "content": text }), None),
        Api::OpenaiResponses => event(
            "response.output_text.delta",
            &json!({
                "type": "response.output_text.delta", "item_id": "msg_demo", "output_index": 0,
                "content_index": 0, "delta": text,
            }),
        ),
    }
}

fn end(api: Api, text: &str, tokens: usize, events: &mut Vec<String>) {
    match api {
        Api::Anthropic => {
            events.push(event(
                "content_block_stop",
                &json!({ "type": "content_block_stop", "index": 0 }),
            ));
            events.push(event("message_delta", &json!({
                "type": "message_delta", "delta": { "stop_reason": "end_turn", "stop_sequence": null },
                "usage": { "output_tokens": tokens },
            })));
            events.push(event("message_stop", &json!({ "type": "message_stop" })));
        }
        Api::OpenaiChat => {
            events.push(chunk(&json!({}), Some("stop")));
            events.push(data(&json!({
                "id": "chatcmpl-demo", "object": "chat.completion.chunk", "model": MODEL, "choices": [],
                "usage": { "prompt_tokens": 12, "completion_tokens": tokens, "total_tokens": 12 + tokens },
            })));
            events.push("data: [DONE]\n\n".to_owned());
        }
        Api::OpenaiResponses => {
            let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
            let output = json!([{
                "id": "msg_demo", "type": "message", "role": "assistant", "status": "completed", "content": content,
            }]);
            events.push(event("response.completed", &json!({
                "type": "response.completed",
                "response": {
                    "id": "resp_demo", "model": MODEL, "status": "completed", "output": output,
                    "usage": { "input_tokens": 12, "output_tokens": tokens, "total_tokens": 12 + tokens },
                },
            })));
        }
    }
}

fn chunk(delta: &Value, finish_reason: Option<&str>) -> String {
    data(&json!({
        "id": "chatcmpl-demo", "object": "chat.completion.chunk", "model": MODEL,
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
    }))
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn event(name: &str, value: &Value) -> String {
    format!("event: {name}\ndata: {value}\n\n")
}
