//! The stream of a run as JSON lines: messages as they end and events, as agents write them and `replay` reads them.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use retry_machine::driver::SessionEvent;
use retry_machine::{StopReason, Usage};
use serde::Serialize;
use serde_json::json;

use super::api::{Answer, Role};
use super::keys::Redactor;

/// Where the stream goes; clones go to the same place, and the default goes nowhere.
#[derive(Clone, Default)]
pub struct Record {
    file: Option<Arc<Mutex<Target>>>,
    redactor: Redactor,
}

struct Target {
    file: File,
    /// Why nothing more is written.
    broken: Option<io::Error>,
}

/// An assistant message that has ended.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ended<'m> {
    role: Role,
    content: Vec<Block<'m>>,
    api: &'m str,
    provider: &'m str,
    model: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    stop_reason: StopReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'m str>,
    timestamp: u64,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum Block<'m> {
    Text { text: &'m str },
    Thinking { thinking: &'static str },
}

/// Who was asked, for the lines.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub api: &'a str,
    pub provider: &'a str,
    pub model: &'a str,
}

impl Record {
    /// Into a new file.
    pub fn create(path: &Path, redactor: Redactor) -> io::Result<Self> {
        let target = Target {
            file: File::create(path)?,
            broken: None,
        };
        let record = Self {
            file: Some(Arc::new(Mutex::new(target))),
            redactor,
        };
        let id = format!("{:016x}", fastrand::u64(..));
        record.line(&json!({ "type": "session", "id": id, "timestamp": now_ms() }));
        Ok(record)
    }

    pub fn event(&self, event: &SessionEvent) {
        self.line(event);
    }

    pub fn user(&self, text: &str) {
        let content = [Block::Text { text }];
        let message = json!({ "role": Role::User, "content": content, "timestamp": now_ms() });
        self.line(&json!({ "type": "message_end", "message": message }));
    }

    /// A message has ended, with what was produced of it.
    pub fn assistant(
        &self,
        asked: Asked<'_>,
        answer: &Answer,
        stop_reason: StopReason,
        error: Option<&str>,
    ) {
        let mut content = Vec::new();
        if answer.thinking {
            // What was thought is not kept.
            content.push(Block::Thinking { thinking: "" });
        }
        if !answer.text.is_empty() {
            content.push(Block::Text { text: &answer.text });
        }
        let message = Ended {
            role: Role::Assistant,
            content,
            api: asked.api,
            provider: asked.provider,
            model: asked.model,
            usage: answer.usage,
            stop_reason,
            error_message: error,
            timestamp: now_ms(),
        };
        self.line(&json!({ "type": "message_end", "message": message }));
    }

    /// What kept the stream from being written to its end.
    pub fn finish(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut target = file.lock().unwrap_or_else(PoisonError::into_inner);
        target.broken.take().map_or(Ok(()), Err)
    }

    /// At once: what a run that is killed has told stands in the file.
    fn line(&self, line: &impl Serialize) {
        let Some(file) = &self.file else { return };
        let mut target = file.lock().unwrap_or_else(PoisonError::into_inner);
        if target.broken.is_some() {
            return;
        }
        let written = serde_json::to_string(line)
            .map_err(io::Error::from)
            .and_then(|text| {
                let line = self.redactor.redact(text) + "\n";
                target.file.write_all(line.as_bytes())
            });
        target.broken = written.err();
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
