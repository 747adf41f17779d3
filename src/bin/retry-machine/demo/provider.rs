//! A provider on this machine that fails on purpose. A scenario is the first part of the path.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::reply::{Reply, Trouble};
use super::scenario::{Scenario, Seen};
use crate::ask::api::Api;

/// The provider, bound to its port.
pub struct Provider {
    listener: TcpListener,
    address: SocketAddr,
    books: Books,
    word_delay: Duration,
}

/// What a provider has been asked; clones are of the same books.
#[derive(Clone, Default)]
pub struct Books(Arc<Mutex<BTreeMap<Scenario, Book>>>);

#[derive(Default)]
struct Book {
    requests: u64,
    first_key: Option<String>,
}

impl Books {
    /// How many requests have come in a scenario.
    pub fn requests(&self, scenario: Scenario) -> u64 {
        self.lock().get(&scenario).map_or(0, |book| book.requests)
    }

    fn note(&self, scenario: Scenario, key: &str, bytes: usize) -> Seen {
        let mut books = self.lock();
        let book = books.entry(scenario).or_default();
        let first_key = book.first_key.get_or_insert_with(|| key.to_owned()) == key;
        let before = book.requests;
        book.requests += 1;
        Seen {
            before,
            first_key,
            bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Scenario, Book>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider {
    /// On this port of the loopback interface; 0 takes a free one.
    pub async fn bind(port: u16, word_delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            books: Books::default(),
            word_delay,
        })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn books(&self) -> Books {
        self.books.clone()
    }

    /// Serves until the future is dropped.
    pub async fn serve(self) -> io::Result<()> {
        let (books, word_delay) = (self.books, self.word_delay);
        let route = |api| {
            post(
                move |State(books): State<Books>,
                      Path(scenario): Path<String>,
                      headers: HeaderMap,
                      body: Bytes| async move {
                    match Scenario::of_name(&scenario) {
                        Some(scenario) => {
                            reply(&books, scenario, api, &headers, &body).response(api, word_delay)
                        }
                        None => unknown().await,
                    }
                },
            )
        };
        let router = Router::new()
            .route("/requests", get(counted))
            .route("/{scenario}/v1/messages", route(Api::Anthropic))
            .route("/{scenario}/v1/chat/completions", route(Api::OpenaiChat))
            .route("/{scenario}/v1/responses", route(Api::OpenaiResponses))
            .fallback(unknown)
            .with_state(books);
        axum::serve(self.listener, router).await
    }
}

/// Where an agent finds a scenario: the base URL as the official SDKs take it.
pub fn base_url(address: SocketAddr, scenario: Scenario, api: Api) -> String {
    let version = match api {
        Api::Anthropic => "",
        Api::OpenaiChat | Api::OpenaiResponses => "/v1",
    };
    format!("http://{address}/{}{version}", scenario.name())
}

fn reply(books: &Books, scenario: Scenario, api: Api, headers: &HeaderMap, body: &[u8]) -> Reply {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return Reply::Refused(Trouble::Request("The body is not JSON."));
    };
    if body["stream"] != true {
        return Reply::Refused(Trouble::Request(
            "This provider only streams: set `stream` to true.",
        ));
    }
    let key = headers.get(api.key_header().0);
    let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
    let messages = match api {
        Api::Anthropic | Api::OpenaiChat => &body["messages"],
        Api::OpenaiResponses => &body["input"],
    };
    scenario.reply(&books.note(scenario, key, messages.to_string().len()))
}

/// How many requests have come, by scenario.
async fn counted(State(books): State<Books>) -> String {
    let counts =
        Scenario::ALL.map(|scenario| (scenario.name().to_owned(), books.requests(scenario).into()));
    Value::Object(counts.into_iter().collect()).to_string()
}

async fn unknown() -> Response<Body> {
    let paths = Scenario::ALL.map(|scenario| {
        format!(
            "/{}/v1/{{messages,chat/completions,responses}}",
            scenario.name()
        )
    });
    let body =
        json!({ "error": { "message": "There is nothing here to be asked.", "paths": paths } });
    (StatusCode::NOT_FOUND, body.to_string()).into_response()
}
