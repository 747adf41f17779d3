//! The lines as data: what a client reads and writes. The schema of the lines out comes from here.
//!
//! The protocol itself writes events and effects in their own form; that both are the same is tested against
//! what is really written.

use serde::{Deserialize, Serialize};

use crate::effect::{CompactionCause, RequestId, RunId};
use crate::message::AssistantMessage;
use crate::settings::SettingsPatch;
use crate::wire::Dialect;

use super::{COMMANDS, MAX_LINE_BYTES, MAX_SESSION_NAME_BYTES, MAX_SESSIONS, PROTOCOL_VERSION};

/// `auto_retry_start` as it is read from the wire (EV1).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RetryStarted {
    /// 1-based number of this retry within its chain.
    pub attempt: u32,
    /// The budget as read for this failure.
    pub max_attempts: u32,
    /// The wait before the retry, in milliseconds.
    pub delay_ms: u64,
    /// The failed message's text, unchanged.
    pub error_message: String,
    /// The number of the chain in its session. This and what follows: in the extended form of events.
    pub chain_id: Option<u64>,
    /// What the failure is: `rate_limit`.
    pub class: Option<String>,
    /// Which rule said so.
    pub rule: Option<String>,
    /// When the retry comes, in milliseconds since the epoch.
    pub next_at_ms: Option<u64>,
    /// Retries since the prompt started, with this one.
    pub total_retries: Option<u32>,
}

/// `auto_retry_end` as it is read from the wire (EV2).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RetryEnded {
    /// Whether the chain ended in success.
    pub success: bool,
    /// The last retry really made; 0 when there was none.
    pub attempt: u32,
    /// Why it failed; absent on success.
    pub final_error: Option<String>,
    /// The number of the chain in its session. This and what follows: in the extended form of events.
    pub chain_id: Option<u64>,
    /// What the failure is that ended it.
    pub class: Option<String>,
    /// Which rule said so.
    pub rule: Option<String>,
    /// Retries since the prompt started.
    pub total_retries: Option<u32>,
    /// Why it was given up, for programs: `exhausted`.
    pub reason: Option<String>,
}

/// What the host must do, in order with the events (SPEC section 2).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(
    tag = "effect",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
// Exhaustive on purpose: a host that ignores an effect is broken, so a new one must break its build.
pub enum HostEffect {
    /// Mark the current credential as usage-limited; answer `credentialSwitched`.
    SwitchCredential {
        /// Comes back with the answer.
        #[cfg_attr(feature = "schema", schemars(with = "u64"))]
        request: RequestId,
        /// For how long, in milliseconds, if the server said so; 60 s is usual otherwise.
        #[cfg_attr(feature = "schema", schemars(required, extend("type" = ["integer", "null"])))]
        retry_after_ms: Option<u64>,
    },
    /// Remove the failed assistant message from the end of the runtime context, if it stands there.
    DropFailedMessage,
    /// Run the agent again from the runtime context; if it cannot start or its run brings no message, answer
    /// `continueFailed`.
    ContinueAgent {
        /// Comes back with that answer.
        #[cfg_attr(feature = "schema", schemars(with = "u64"))]
        run: RunId,
    },
    /// Stop the running model call.
    AbortAgent,
    /// Let compaction look at the session, once the run has ended.
    CheckCompaction {
        /// Why.
        cause: CompactionCause,
    },
}

/// What a client is told without having asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A retry is announced.
    RetryStarted(RetryStarted),
    /// The chain is closed, once; also when the process has died with the chain open.
    RetryEnded(RetryEnded),
    /// What the host must do.
    Effect(HostEffect),
    /// The process had died and has been started anew. Settings that were sent to it are those of all sessions
    /// again; no chain is open, and answers to earlier effects are stale.
    Restarted,
}

/// What `get_state` tells (RP4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RetryState {
    /// `retry.enabled`.
    pub auto_retry_enabled: bool,
    /// Whether a chain is open.
    pub is_retrying: bool,
    /// The number of the current retry; 0 when no chain is open.
    pub retry_attempt: u32,
    /// `retry.maxRetries`.
    pub max_retries: u32,
    /// `retry.baseDelayMs`.
    pub base_delay_ms: u64,
    /// While waiting: the whole wait in milliseconds, as announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// While waiting: what is left of it in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
}

/// What `hello` tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Hello {
    /// `retry-machine`.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The version of the protocol.
    pub protocol: u32,
    /// What this build can do beside the policy: `timeZones` if it reads zones in hints.
    pub features: Vec<String>,
    /// The commands that it takes.
    pub commands: Vec<String>,
    /// The machine inputs that it takes.
    pub inputs: Vec<String>,
    /// What it refuses.
    pub limits: Limits,
}

/// The limits of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Limits {
    /// The longest line, in bytes without its end.
    pub line_bytes: usize,
    /// The sessions at a time.
    pub sessions: usize,
    /// The longest name of a session, in bytes.
    pub session_name_bytes: usize,
}

impl Hello {
    pub(super) fn of_this_build() -> Self {
        let owned = |name: &str| name.to_owned();
        let time_zones = cfg!(feature = "tz-bundled").then_some("timeZones");
        Self {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            features: time_zones.into_iter().map(owned).collect(),
            commands: COMMANDS.iter().map(|row| owned(row.name)).collect(),
            inputs: Dialect::Rpc.inputs().map(owned).collect(),
            limits: Limits {
                line_bytes: MAX_LINE_BYTES,
                sessions: MAX_SESSIONS,
                session_name_bytes: MAX_SESSION_NAME_BYTES,
            },
        }
    }
}

/// A line that the process writes.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub(crate) enum LineOut {
    /// A retry is announced.
    #[serde(rename = "auto_retry_start")]
    Start(OfSession<RetryStarted>),
    /// The chain is closed, once.
    #[serde(rename = "auto_retry_end")]
    End(OfSession<RetryEnded>),
    /// What the host must do.
    #[serde(rename = "effect")]
    Effect(OfSession<HostEffect>),
    /// The answer to a line.
    #[serde(rename = "response")]
    Response(Response),
}

// No doc comment: it would describe the line in the schema, where the variant does.
#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "{T}Line")
)]
pub(crate) struct OfSession<T> {
    #[serde(flatten)]
    pub(crate) body: T,
    /// The session's name; absent for the unnamed one.
    pub(crate) session: Option<String>,
}

/// The answer to a line, after all that the line caused.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Response {
    /// That of the line.
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::schema::Id>"))]
    pub(crate) id: Option<serde_json::Value>,
    /// The command or input; `parse` for a line of which not even that could be read.
    pub(crate) command: String,
    /// Whether it was carried out.
    pub(crate) success: bool,
    /// What was wrong, where, and what would be right; absent on success.
    pub(crate) error: Option<String>,
    /// What `get_state` or `hello` tells.
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::schema::Told>"))]
    pub(crate) data: Option<serde_json::Value>,
    /// The session's name; absent for the unnamed one.
    #[expect(
        dead_code,
        reason = "a client knows whom it asked for; the schema tells"
    )]
    pub(crate) session: Option<String>,
}

/// A line that the client writes.
#[derive(Debug, Serialize)]
pub(crate) struct LineIn<'a> {
    #[serde(flatten)]
    pub(crate) body: Body<'a>,
    pub(crate) id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Body<'a> {
    Command(Command<'a>),
    Input(Input<'a>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Command<'a> {
    SetAutoRetry { enabled: bool },
    AbortRetry,
    Abort,
    GetState,
    SetRetrySettings { settings: &'a SettingsPatch },
    CloseSession,
    Hello,
    Shutdown,
}

#[derive(Debug, Serialize)]
#[serde(
    tag = "input",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(crate) enum Input<'a> {
    AssistantMessage {
        message: &'a AssistantMessage,
        context_window: u64,
    },
    CredentialSwitched {
        request: RequestId,
        switched: bool,
    },
    ContinueFailed {
        run: RunId,
        error: &'a str,
    },
    PromptStarted,
}
