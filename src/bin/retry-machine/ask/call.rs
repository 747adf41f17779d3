//! One call of a model over HTTP: the answer as it streams in, or the failure as agents tell it.

use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::try_unfold;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, Response, Url, redirect};
use retry_machine::{ErrorFacts, StopReason, Turn, error_text};
use sseer::EventStream;
use sseer::errors::EventStreamError;

use super::api::{Answer, Api, Request};

/// The longest body of an error that is read.
const MAX_ERROR_BYTES: usize = 1 << 20;
/// The longest stream; a server that never ends must not fill the memory.
const MAX_STREAM_BYTES: usize = 64 << 20;

/// Where a model is, and how it is asked.
pub struct Endpoint {
    client: Client,
    pub api: Api,
    url: Url,
    pub model: String,
    pub max_tokens: Option<u32>,
    /// The model's context window in tokens; 0 is unknown.
    pub context_window: u64,
}

/// How long to wait for a server.
#[derive(Clone, Copy)]
pub struct Timeouts {
    pub connect: Duration,
    /// Without a byte from the server.
    pub idle: Duration,
}

/// Why a call failed: its text, and what is known beside it.
pub struct CallError {
    pub text: String,
    facts: ErrorFacts<'static>,
}

impl CallError {
    /// As the turn that the machine judges.
    pub fn turn(&self, text: String) -> Turn<'static> {
        Turn::failure(text).facts(self.facts.clone())
    }
}

impl From<String> for CallError {
    fn from(text: String) -> Self {
        Self {
            text,
            facts: ErrorFacts::new(),
        }
    }
}

impl From<reqwest::Error> for CallError {
    fn from(error: reqwest::Error) -> Self {
        // An URL can carry a password.
        error_text(&error.without_url()).into()
    }
}

impl Endpoint {
    pub fn new(api: Api, url: Url, model: String, timeouts: Timeouts) -> Result<Self, String> {
        let builder = Client::builder()
            .user_agent(concat!("retry-machine/", env!("CARGO_PKG_VERSION")))
            // A key must not follow a redirect, and no API redirects a request.
            .redirect(redirect::Policy::none())
            .connect_timeout(timeouts.connect)
            .read_timeout(timeouts.idle)
            // A connection that has waited for a retry may be gone, and the next call would fail with it.
            .pool_max_idle_per_host(0)
            // Retries are this program's own affair.
            .retry(reqwest::retry::never());
        // An error says that one is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = if url.scheme() == "https" {
            builder
        } else {
            // No redirect leads to TLS, so the system's certificates need not be there.
            builder.tls_certs_only([])
        };
        // What runs on this machine is not behind a proxy.
        let builder = if is_local(&url) {
            builder.no_proxy()
        } else {
            builder
        };
        let client = builder.build().map_err(|error| error_text(&error))?;
        Ok(Self {
            client,
            api,
            url,
            model,
            max_tokens: None,
            context_window: 0,
        })
    }

    /// Asks the model. What has arrived stands in `answer` at each call of `on_text`, and when this fails or is
    /// dropped.
    ///
    /// Cancel safety: dropping the future closes the connection.
    pub async fn call(
        &self,
        key: Option<HeaderValue>,
        request: &Request<'_>,
        answer: &mut Answer,
        mut on_text: impl FnMut(&str),
    ) -> Result<StopReason, CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        for (name, value) in self.api.headers() {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        if let Some(key) = key {
            headers.insert(self.api.key_header().0, key);
        }
        tracing::debug!(
            host = self.url.host_str(),
            path = self.url.path(),
            messages = request.messages.len(),
            "request"
        );
        let body = self.api.body(request).to_string();
        let call = self.client.post(self.url.clone()).headers(headers);
        let response = call.body(body).send().await?;
        let status = response.status();
        tracing::debug!(status = status.as_u16(), "response");
        if !status.is_success() {
            return Err(refused(response).await);
        }
        if let Some(other) = not_a_stream(&response) {
            let body = body_of(response).await;
            return Err(
                format!("{status}, but {other} in place of an event stream: {body}").into(),
            );
        }
        self.stream(response, answer, &mut on_text).await
    }

    async fn stream(
        &self,
        response: Response,
        answer: &mut Answer,
        on_text: &mut impl FnMut(&str),
    ) -> Result<StopReason, CallError> {
        let chunks = try_unfold((response, 0), |(mut response, read)| async move {
            match response.chunk().await.map_err(CallError::from)? {
                None => Ok(None),
                Some(chunk) if read + chunk.len() > MAX_STREAM_BYTES => {
                    Err(CallError::from(format!(
                        "The stream is longer than {MAX_STREAM_BYTES} bytes and was not read on"
                    )))
                }
                Some(chunk) => {
                    let read = read + chunk.len();
                    Ok(Some((chunk, (response, read))))
                }
            }
        });
        let mut events = pin!(EventStream::new(chunks));
        let mut any = false;
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                // A connection that breaks after the final event has said all there is.
                Err(_) if self.api.is_over(answer) => break,
                Err(EventStreamError::Transport(error)) => return Err(error),
                Err(EventStreamError::Utf8Error(error)) => {
                    return Err(self.cut(&format!(": {error}")));
                }
            };
            any = true;
            let shown = answer.text.len();
            self.api.read(&event.data, answer)?;
            if answer.text.len() > shown {
                on_text(&answer.text[shown..]);
            }
            if answer.complete {
                break;
            }
        }
        if !any {
            return Err(self.cut(" or any other event"));
        }
        if !self.api.is_over(answer) {
            return Err(self.cut(""));
        }
        Ok(answer.stop.unwrap_or(StopReason::Stop))
    }

    fn cut(&self, how: &str) -> CallError {
        format!("The stream ended before {}{how}", self.api.final_event()).into()
    }
}

fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// An answer that is none: the status and what the server says, as the SDKs put it.
async fn refused(response: Response) -> CallError {
    let status = response.status();
    let headers = response.headers().clone();
    let text = if status.is_redirection() {
        let to = headers.get(LOCATION).and_then(|to| to.to_str().ok());
        format!(
            "{status}: redirected to {}; redirects are not followed",
            to.unwrap_or("nowhere")
        )
    } else {
        let body = body_of(response).await;
        match body.trim() {
            "" => format!("{} status code (no body)", status.as_u16()),
            body => format!("{} {body}", status.as_u16()),
        }
    };
    CallError {
        text,
        facts: ErrorFacts::new().response(status, &headers).into_owned(),
    }
}

/// What the server says it sends, if that is no stream of events. Without a word about it, it is taken for one.
fn not_a_stream(response: &Response) -> Option<String> {
    let kind = response.headers().get(CONTENT_TYPE)?;
    let kind = String::from_utf8_lossy(kind.as_bytes()).into_owned();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    (!essence.eq_ignore_ascii_case("text/event-stream")).then(|| essence.to_owned())
}

/// The head of a body, or what arrived of it.
async fn body_of(mut response: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = MAX_ERROR_BYTES - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() >= room {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}
