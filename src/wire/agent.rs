//! The lines that agents write: streams of events and history files.

use serde::Deserialize;

use super::object;
use crate::message::{
    AssistantMessage, LossyString, Produced, StopReason, Usage, Wire, lenient_instant,
};
use crate::time::UnixMillis;

/// One line of a stream (`message_end`, `auto_retry_start`, …) or of a history file (`message` entries,
/// a tree by `id` and `parentId`).
///
/// ```
/// use retry_machine::wire::{AgentLine, AgentMessage};
/// let line = br#"{"type":"message_end","message":{"role":"user","content":"hi"}}"#;
/// let AgentLine::Message { message: AgentMessage::User { .. }, .. } = AgentLine::parse(line).unwrap()
/// else { panic!() };
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AgentLine {
    /// The head of a run.
    Session {
        /// The run's id, if it has one.
        id: Option<String>,
    },
    /// A message has ended.
    Message {
        /// Where it stands in a history file's tree; None in a stream.
        entry: Option<Entry>,
        /// The message.
        message: AgentMessage,
    },
    /// The recorded agent announced a retry.
    RetryStart {
        /// The attempt, if told.
        attempt: u32,
        /// Its budget, if told.
        max_attempts: Option<u32>,
        /// Its wait in milliseconds, if told.
        delay_ms: Option<u64>,
    },
    /// The recorded agent closed its chain.
    RetryEnd {
        /// Whether it succeeded.
        success: bool,
        /// Its last attempt.
        attempt: u32,
    },
    /// A run has ended.
    AgentEnd {
        /// Whether the recorded agent said that a retry follows.
        will_retry: bool,
    },
    /// A compaction took place.
    Compaction {
        /// Where it stands in a history file's tree; None in a stream.
        entry: Option<Entry>,
    },
    /// Anything else that has its place in a history file's tree.
    Entry(Entry),
    /// Anything else.
    Other,
}

/// A place in a history file's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// The id of the entry before it.
    pub parent: Option<String>,
}

/// A message by its role.
#[derive(Clone, Debug, PartialEq)]
// Exhaustive: what a retry machine tells apart.
pub enum AgentMessage {
    /// What the user said: a prompt begins.
    User {
        /// When.
        timestamp: Option<UnixMillis>,
    },
    /// What the model answered.
    Assistant(Box<AssistantMessage>),
    /// Any other role.
    Other,
}

impl AgentLine {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it: not UTF-8, not JSON, not an object, or an assistant message without a known stop
    /// reason.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        if let Err(error) = std::str::from_utf8(line) {
            return Err(format!("invalid UTF-8 at byte {}", error.valid_up_to() + 1));
        }
        let raw: RawLine = object(line)?;
        raw.read()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLine {
    #[serde(default, rename = "type")]
    kind: Option<LossyString>,
    #[serde(default)]
    id: Option<LossyString>,
    #[serde(default)]
    parent_id: Option<LossyString>,
    #[serde(default)]
    message: Option<RawMessage>,
    #[serde(default)]
    attempt: Option<u32>,
    #[serde(default)]
    max_attempts: Option<u32>,
    #[serde(default)]
    delay_ms: Option<f64>,
    #[serde(default)]
    success: Option<bool>,
    #[serde(default)]
    will_retry: Option<bool>,
}

/// A message of any role: only an assistant's fields are read, and only if it is one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMessage {
    #[serde(default)]
    role: Option<LossyString>,
    #[serde(default)]
    stop_reason: Option<LossyString>,
    #[serde(default)]
    error_message: Option<LossyString>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    content: Produced,
    #[serde(default)]
    provider: Option<LossyString>,
    #[serde(default)]
    model: Option<LossyString>,
    #[serde(default, deserialize_with = "lenient_instant")]
    timestamp: Option<UnixMillis>,
}

impl RawLine {
    fn read(self) -> Result<AgentLine, String> {
        let entry = self.id.map(|id| Entry {
            id: id.0,
            parent: self.parent_id.map(|parent| parent.0),
        });
        let kind = self.kind.unwrap_or_default().0;
        Ok(match kind.as_str() {
            "session" => AgentLine::Session {
                id: entry.map(|entry| entry.id),
            },
            "message_end" | "message" => match self.message {
                Some(message) => AgentLine::Message {
                    entry: entry.filter(|_| kind == "message"),
                    message: message.read()?,
                },
                None => return Err(format!("a `{kind}` line without `message`")),
            },
            "auto_retry_start" => AgentLine::RetryStart {
                attempt: self.attempt.unwrap_or(1),
                max_attempts: self.max_attempts,
                // A cast saturates; agents write fractions of milliseconds.
                delay_ms: self.delay_ms.map(|delay| delay.ceil() as u64),
            },
            "auto_retry_end" => AgentLine::RetryEnd {
                success: self.success.unwrap_or(false),
                attempt: self.attempt.unwrap_or(0),
            },
            "agent_end" => AgentLine::AgentEnd {
                will_retry: self.will_retry.unwrap_or(false),
            },
            "compaction" => AgentLine::Compaction { entry },
            "auto_compaction_start"
            | "auto_compaction_end"
            | "compaction_start"
            | "compaction_end" => AgentLine::Compaction { entry: None },
            _ => entry.map_or(AgentLine::Other, AgentLine::Entry),
        })
    }
}

impl RawMessage {
    fn read(self) -> Result<AgentMessage, String> {
        Ok(match self.role.unwrap_or_default().0.as_str() {
            "user" => AgentMessage::User {
                timestamp: self.timestamp,
            },
            "assistant" => {
                let Some(name) = self.stop_reason else {
                    return Err("an assistant message without `stopReason`".to_owned());
                };
                let Some(stop_reason) = StopReason::from_name(&name.0) else {
                    return Err(format!(
                        "unknown stop reason `{}`; expected one of {}",
                        name.0,
                        StopReason::ALL
                            .map(|reason| format!("`{}`", reason.name()))
                            .join(", "),
                    ));
                };
                AgentMessage::Assistant(Box::new(
                    Wire {
                        _role: Default::default(),
                        stop_reason,
                        error_message: self.error_message,
                        usage: self.usage,
                        content: self.content,
                        provider: self.provider,
                        model: self.model,
                        timestamp: self.timestamp,
                    }
                    .into(),
                ))
            }
            _ => AgentMessage::Other,
        })
    }
}
