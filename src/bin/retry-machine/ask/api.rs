//! The three forms of API: where a request goes, what it says, what the events of its answer mean.
//!
//! Texts of failures are those that the official SDKs make of them, since that is what agents hand on.

mod anthropic;
mod chat;
mod responses;

use clap::ValueEnum;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName};
use retry_machine::{StopReason, Usage};
use serde::Serialize;
use serde_json::Value;

/// What an endpoint speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Api {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions, which most compatible servers speak.
    OpenaiChat,
    /// OpenAI's Responses.
    OpenaiResponses,
}

/// Who said something in the runtime context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Assistant,
}

/// One message of the runtime context. All three APIs take it in this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    pub role: Role,
    #[serde(rename = "content")]
    pub text: String,
}

/// What is asked of a model.
pub struct Request<'r> {
    pub model: &'r str,
    /// The longest answer in tokens; None leaves it to the endpoint, where the API allows that.
    pub max_tokens: Option<u32>,
    pub messages: &'r [Message],
}

/// What has come of an answer so far.
#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    pub thinking: bool,
    pub usage: Option<Usage>,
    /// Why the model stopped, once it has said so.
    pub stop: Option<StopReason>,
    /// The final event has come; what follows it is not read.
    pub complete: bool,
}

impl Api {
    /// Its name on the wire of agents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic-messages",
            Self::OpenaiChat => "openai-completions",
            Self::OpenaiResponses => "openai-responses",
        }
    }

    pub const fn provider(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiChat | Self::OpenaiResponses => "openai",
        }
    }

    pub const fn default_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenaiChat | Self::OpenaiResponses => "https://api.openai.com/v1",
        }
    }

    pub const fn default_key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::OpenaiChat | Self::OpenaiResponses => "OPENAI_API_KEY",
        }
    }

    pub const fn default_model(self) -> &'static str {
        match self {
            Self::Anthropic => "claude-sonnet-4-5",
            Self::OpenaiChat | Self::OpenaiResponses => "gpt-5-mini",
        }
    }

    /// The event without which a stream was cut.
    pub const fn final_event(self) -> &'static str {
        match self {
            Self::Anthropic => "message_stop",
            Self::OpenaiChat => "[DONE]",
            Self::OpenaiResponses => "response.completed",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Anthropic => "/v1/messages",
            Self::OpenaiChat => "/chat/completions",
            Self::OpenaiResponses => "/responses",
        }
    }

    /// Where requests go, from a base URL as the official SDKs take it.
    pub fn url(self, base: &str) -> Result<Url, String> {
        let refuse = |why: &str| {
            // What stands between `//` and `@` may be a password.
            let shown = base.rsplit_once('@').map_or(base, |(_, host)| host);
            format!(
                "--base-url {shown}: {why}; expected a URL such as {}",
                self.default_base_url()
            )
        };
        let mut url = Url::parse(base).map_err(|error| refuse(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refuse(&format!("the scheme `{}` is unknown", url.scheme())));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("it has a query or a fragment"));
        }
        let path = format!("{}{}", url.path().trim_end_matches('/'), self.path());
        url.set_path(&path);
        Ok(url)
    }

    /// The header that a key stands in, and what stands before it.
    pub const fn key_header(self) -> (HeaderName, &'static str) {
        match self {
            Self::Anthropic => (HeaderName::from_static("x-api-key"), ""),
            Self::OpenaiChat | Self::OpenaiResponses => (AUTHORIZATION, "Bearer "),
        }
    }

    /// Headers that each request needs beside the key.
    pub const fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Anthropic => &[("anthropic-version", "2023-06-01")],
            Self::OpenaiChat | Self::OpenaiResponses => &[],
        }
    }

    pub fn body(self, request: &Request<'_>) -> Value {
        match self {
            Self::Anthropic => anthropic::body(request),
            Self::OpenaiChat => chat::body(request),
            Self::OpenaiResponses => responses::body(request),
        }
    }

    /// Adds what the data of an event says to the answer.
    ///
    /// # Errors
    /// The text of the failure that the event is.
    pub fn read(self, data: &str, answer: &mut Answer) -> Result<(), String> {
        if self == Self::OpenaiChat && data.trim() == self.final_event() {
            answer.complete = true;
            return Ok(());
        }
        let event: Value = serde_json::from_str(data).map_err(|error| {
            format!(
                "The stream ended before {}: an event in it is not JSON ({error})",
                self.final_event()
            )
        })?;
        match self {
            Self::Anthropic => anthropic::read(&event, data, answer),
            Self::OpenaiChat => chat::read(&event, data, answer),
            Self::OpenaiResponses => responses::read(&event, data, answer),
        }
    }

    /// Whether the answer stands when the stream ends here.
    pub const fn is_over(self, answer: &Answer) -> bool {
        match self {
            Self::Anthropic | Self::OpenaiResponses => answer.complete,
            // Many compatible servers leave `[DONE]` out.
            Self::OpenaiChat => answer.complete || answer.stop.is_some(),
        }
    }
}

/// What a model's refusal is to an agent.
fn refusal(reason: &str) -> String {
    format!("The model refused to answer: content_filter ({reason})")
}

/// A text in an event; what is none says nothing.
fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("")
}

fn count(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// Usage of APIs that count cached tokens among the input.
fn openai_usage(input: u64, cached: u64, output: u64) -> Usage {
    let mut usage = Usage::of_input(input.saturating_sub(cached), cached);
    usage.output = output;
    usage
}
