//! A provider over plain TCP, which answers what a script says, byte for byte, and notes what it was asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Api;

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The whole answer.
    Answer,
    /// The same without the event that ends it.
    AnswerWithoutEnd,
    /// Stopped by the limit of the answer's length.
    Length,
    /// The model refuses.
    Refusal,
    /// The socket is reset before anything is answered.
    Reset,
    /// Half an answer, and the body is shorter than announced.
    Cut,
    /// Half an answer, and the body ends as if all were well.
    CutSilently,
    /// Half an answer, and nothing more, for longer than anybody waits.
    Stall,
    /// A stream without any event.
    Empty,
    /// An error told within a stream.
    ErrorEvent,
    /// An event that is no JSON.
    Garbage,
    /// A page of HTML in place of a stream, with status 200.
    PageFor200,
    /// A status, headers and the body of an error in the API's form.
    Refused(u16, &'static str, Trouble),
    /// The key that was sent, in the body of an error.
    EchoKey,
    /// An error of this many bytes.
    Huge(usize),
    Redirect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Overloaded,
    RateLimit,
    UsageLimit,
    Billing,
    ContextLength,
    Auth,
    Page,
}

pub const PAGE: &str = "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n\
    <body><center><h1>503 Service Temporarily Unavailable</h1></center></body>\r\n</html>\r\n";

/// A request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub key: String,
    /// Null where the request was not read.
    pub body: Value,
    pub at: Instant,
}

pub struct Provider {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Provider {
    /// Its first requests are answered by these steps; then it only resets.
    pub fn start(api: Api, steps: &'static [Step]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::default();
        let notes = Arc::clone(&asked);
        // The thread ends with the process.
        thread::spawn(move || {
            for (at, stream) in listener.incoming().enumerate() {
                let step = steps.get(at).copied().unwrap_or(Step::Reset);
                let notes = Arc::clone(&notes);
                thread::spawn(move || {
                    let _ = serve(stream.expect("a connection"), api, step, &notes);
                });
            }
        });
        Self { address, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    api: Api,
    step: Step,
    notes: &Mutex<Vec<Asked>>,
) -> std::io::Result<()> {
    let at = Instant::now();
    if step == Step::Reset {
        let asked = Asked {
            path: String::new(),
            key: String::new(),
            body: Value::Null,
            at,
        };
        notes.lock().unwrap().push(asked);
        // What is closed with something unread in it is reset.
        return stream.read_exact(&mut [0]);
    }
    let (head, body) = read_request(&mut stream)?;
    let header = |name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(header, _)| header.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
            .to_owned()
    };
    let key = match api {
        Api::Anthropic => header("x-api-key"),
        Api::OpenaiChat | Api::OpenaiResponses => header("authorization")
            .trim_start_matches("Bearer ")
            .to_owned(),
    };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    notes.lock().unwrap().push(Asked {
        path,
        key: key.clone(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        at,
    });
    let error = |status: u16, extra: &str, kind: &str, body: &str| {
        format!(
            "HTTP/1.1 {status} Whatever\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n{extra}\r\n{body}",
            body.len()
        )
    };
    let events = |length: &str, body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n{length}\r\n{body}"
        )
    };
    let whole = api.answer("stop");
    let half = &whole[..whole.find("world").expect("the answer's second half") - 2];
    let response = match step {
        Step::Answer => events("", &whole),
        Step::AnswerWithoutEnd => events("", &whole.replace("data: [DONE]\n\n", "")),
        Step::Length => events("", &api.answer("length")),
        Step::Refusal => events("", &api.answer("refusal")),
        Step::Cut => events("content-length: 100000\r\n", half),
        Step::CutSilently | Step::Stall => events("", half),
        Step::Empty => events("", ""),
        Step::ErrorEvent => events("", &format!("{half}\n\n{}", api.error_event())),
        Step::Garbage => events("", &format!("{half}\n\ndata: <html>\n\n")),
        Step::PageFor200 => error(200, "", "text/html", PAGE),
        Step::Refused(status, extra, Trouble::Page) => error(status, extra, "text/html", PAGE),
        Step::Refused(status, extra, trouble) => {
            error(status, extra, "application/json", api.error(trouble))
        }
        Step::EchoKey => error(401, "", "text/plain", &format!("invalid api key: {key}!")),
        Step::Huge(bytes) => error(500, "", "text/plain", &"x".repeat(bytes)),
        Step::Redirect => error(307, "location: http://127.0.0.1:1/\r\n", "text/plain", ""),
        Step::Reset => unreachable!("answered above"),
    };
    stream.write_all(response.as_bytes())?;
    if step == Step::Stall {
        // Until the agent goes.
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let _ = stream.read(&mut [0]);
    }
    Ok(())
}

fn read_request(stream: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().expect("a length"));
            if bytes.len() >= end + 4 + length {
                return Ok((head, bytes.split_off(end + 4)));
            }
        }
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// The wire of each API, as its provider writes it.
impl Api {
    fn answer(self, stop: &str) -> String {
        match self {
            Self::Anthropic => {
                let reason = match stop {
                    "stop" => "end_turn",
                    "length" => "max_tokens",
                    other => other,
                };
                format!(
                    r#"event: message_start
data: {{"type":"message_start","message":{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{{"input_tokens":25,"cache_creation_input_tokens":3,"cache_read_input_tokens":7,"output_tokens":1}}}}}}

event: content_block_start
data: {{"type":"content_block_start","index":0,"content_block":{{"type":"text","text":""}}}}

event: ping
data: {{"type": "ping"}}

event: content_block_delta
data: {{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"Hello, "}}}}

event: content_block_delta
data: {{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"world."}}}}

event: content_block_stop
data: {{"type":"content_block_stop","index":0}}

event: message_delta
data: {{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":4}}}}

event: message_stop
data: {{"type":"message_stop"}}

"#
                )
            }
            Self::OpenaiChat => {
                let reason = match stop {
                    "refusal" => "content_filter",
                    other => other,
                };
                format!(
                    r#"data: {{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{{"index":0,"delta":{{"role":"assistant","content":"Hello, "}},"finish_reason":null}}]}}

: a comment keeps the connection open

data: {{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{{"index":0,"delta":{{"content":"world."}},"finish_reason":null}}]}}

data: {{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}

data: {{"id":"c","object":"chat.completion.chunk","model":"m","choices":[],"usage":{{"prompt_tokens":32,"completion_tokens":4,"total_tokens":36,"prompt_tokens_details":{{"cached_tokens":7}}}}}}

data: [DONE]

"#
                )
            }
            Self::OpenaiResponses => {
                let last = match stop {
                    "stop" => r#""type":"response.completed","response":{"status":"completed","#,
                    "length" => {
                        r#""type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"#
                    }
                    _ => {
                        r#""type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"#
                    }
                };
                format!(
                    r#"event: response.created
data: {{"type":"response.created","sequence_number":0,"response":{{"id":"resp_1","status":"in_progress","error":null,"output":[]}}}}

event: response.output_text.delta
data: {{"type":"response.output_text.delta","sequence_number":1,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hello, "}}

event: response.output_text.delta
data: {{"type":"response.output_text.delta","sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"world."}}

event: last
data: {{{last}"id":"resp_1","error":null,"usage":{{"input_tokens":32,"input_tokens_details":{{"cached_tokens":7}},"output_tokens":4,"total_tokens":36}}}}}}

"#
                )
            }
        }
    }

    fn error_event(self) -> &'static str {
        match self {
            Self::Anthropic => {
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
            }
            Self::OpenaiChat => {
                "data: {\"error\":{\"message\":\"The server had an error while processing your request.\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n"
            }
            Self::OpenaiResponses => {
                "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"The server had an error while processing your request.\"}}}\n\n"
            }
        }
    }

    fn error(self, trouble: Trouble) -> &'static str {
        match (self, trouble) {
            (Self::Anthropic, Trouble::Overloaded) => {
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#
            }
            (Self::Anthropic, Trouble::RateLimit) => {
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 50 requests per minute."}}"#
            }
            (Self::Anthropic, Trouble::UsageLimit) => {
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"You have hit your usage limit. It resets in 2 hours."}}"#
            }
            (Self::Anthropic, Trouble::Billing) => {
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#
            }
            (Self::Anthropic, Trouble::ContextLength) => {
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#
            }
            (Self::Anthropic, Trouble::Auth) => {
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#
            }
            (_, Trouble::Overloaded) => {
                r#"{"error":{"message":"The server is currently overloaded with other requests. Sorry about that!","type":"server_error","param":null,"code":null}}"#
            }
            (_, Trouble::RateLimit) => {
                r#"{"error":{"message":"Rate limit reached for m on requests per min (RPM): Limit 3, Used 3, Requested 1.","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#
            }
            (_, Trouble::UsageLimit) => {
                r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"plus","resets_in_seconds":7200}}"#
            }
            (_, Trouble::Billing) => {
                r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#
            }
            (_, Trouble::ContextLength) => {
                r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 213462 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#
            }
            (_, Trouble::Auth) => {
                r#"{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#
            }
            (_, Trouble::Page) => PAGE,
        }
    }
}
