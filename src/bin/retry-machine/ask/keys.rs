//! Keys as credentials: taken from environment variables, told apart by the variable's name, never shown.

use std::time::{Duration, Instant};

use reqwest::header::HeaderValue;

use super::api::Api;

/// How long a usage limit holds when the server does not say (SPEC section 2).
const LIMIT: Duration = Duration::from_secs(60);
/// Shorter keys are placeholders such as `x` or `none`; masking them would spoil texts.
const SHORTEST_SECRET: usize = 8;

struct Key {
    /// Who it is, in what people read.
    name: String,
    secret: String,
    header: HeaderValue,
    limited_until: Option<Instant>,
}

/// The keys in order of preference.
pub struct Keys {
    keys: Vec<Key>,
    current: usize,
}

impl Keys {
    /// From these environment variables. Without any, from the one that the official SDK reads; if that is not set
    /// either, requests carry no key, which only an endpoint of the user's own (`may_lack`) takes.
    pub fn from_environment(
        api: Api,
        variables: &[String],
        may_lack: bool,
    ) -> Result<Self, String> {
        let usual = [api.default_key_variable().to_owned()];
        let asked = if variables.is_empty() {
            &usual
        } else {
            variables
        };
        let mut keys = Self::none();
        for name in asked {
            match std::env::var(name) {
                Ok(secret) if !secret.trim().is_empty() => keys.add(api, name, secret.trim())?,
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(format!("the key in {name} is not UTF-8"));
                }
                Ok(_) | Err(_) if variables.is_empty() && may_lack => {}
                Ok(_) | Err(_) => {
                    return Err(format!(
                        "the environment variable {name} is not set or empty; put the key into it, or name the \
                         variable that holds one with --key-env"
                    ));
                }
            }
        }
        Ok(keys)
    }

    pub const fn none() -> Self {
        Self {
            keys: Vec::new(),
            current: 0,
        }
    }

    /// Adds a key of this name.
    pub fn add(&mut self, api: Api, name: &str, secret: &str) -> Result<(), String> {
        let (_, prefix) = api.key_header();
        let mut header = HeaderValue::from_str(&format!("{prefix}{secret}"))
            .map_err(|_| format!("the key in {name} has characters that no key has"))?;
        header.set_sensitive(true);
        self.keys.push(Key {
            name: name.to_owned(),
            secret: secret.to_owned(),
            header,
            limited_until: None,
        });
        Ok(())
    }

    /// The header of the current key.
    pub fn header(&self) -> Option<HeaderValue> {
        self.keys.get(self.current).map(|key| key.header.clone())
    }

    /// The name of the current key.
    pub fn name(&self) -> &str {
        self.keys.get(self.current).map_or("", |key| &key.name)
    }

    /// Marks the current key as limited for so many milliseconds and moves on to the next one that is not; says
    /// whether there was one (US1).
    pub fn switch(&mut self, retry_after_ms: Option<u64>) -> bool {
        let now = Instant::now();
        let limit = retry_after_ms.map_or(LIMIT, Duration::from_millis);
        if let Some(key) = self.keys.get_mut(self.current) {
            // A limit beyond what the clock can tell holds for as long as this process lives.
            let forever = Duration::from_secs(366 * 86_400);
            key.limited_until = now.checked_add(limit.min(forever));
        }
        let count = self.keys.len();
        let next = (1..count)
            .map(|step| (self.current + step) % count)
            .find(|at| {
                self.keys[*at]
                    .limited_until
                    .is_none_or(|until| until <= now)
            });
        if let Some(next) = next {
            self.current = next;
        }
        next.is_some()
    }

    /// What takes the keys out of texts.
    pub fn redactor(&self) -> Redactor {
        let secrets = self.keys.iter().map(|key| &key.secret);
        Redactor(
            secrets
                .filter(|secret| secret.len() >= SHORTEST_SECRET)
                .cloned()
                .collect(),
        )
    }
}

/// Takes keys out of texts: some servers send them back.
#[derive(Clone, Default)]
pub struct Redactor(Vec<String>);

impl Redactor {
    pub fn redact(&self, mut text: String) -> String {
        for secret in &self.0 {
            if text.contains(secret) {
                text = text.replace(secret, "…");
            }
        }
        text
    }
}
