//! What a driver hands out and takes in.

use core::fmt;

use serde::Serialize;

use crate::classify::ErrorClass;
use crate::effect::CompactionCause;
use crate::event::{EndReason, RetryEvent};
use crate::input::Turn;
use crate::machine::Phase;
use crate::message::AssistantMessage;
use crate::time::MonotonicMillis;

/// What the shell must do next, as [`Driver::next`](super::Driver::next) says.
///
/// The first seven are said once and carried out at once; those with a [`Ticket`] are reported back when they
/// are done. The last three say that there is nothing to do now, and are said again as long as it is so.
#[derive(Clone, Debug, PartialEq)]
// Exhaustive on purpose: a shell that ignores a duty is broken, so a new one must break its build.
pub enum Duty {
    /// Deliver to every listener: hooks first, then subscribers (EV3).
    Emit(SessionEvent),
    /// Remove the failed assistant message from the end of the runtime context, if it stands there. The
    /// history keeps it.
    DropFailedMessage,
    /// Run the agent from the runtime context; report [`run_ended`](super::Driver::run_ended).
    Run {
        /// Comes back with the report.
        ticket: Ticket,
        /// Why.
        cause: RunCause,
    },
    /// Mark the current credential as usage-limited; report
    /// [`credential_switched`](super::Driver::credential_switched).
    SwitchCredential {
        /// Comes back with the report.
        ticket: Ticket,
        /// For how long the limit holds, in milliseconds, if the server said so; 60 s is usual otherwise.
        retry_after_ms: Option<u64>,
    },
    /// Let compaction look at the session; report [`compacted`](super::Driver::compacted).
    Compact {
        /// Comes back with the report.
        ticket: Ticket,
        /// Why.
        cause: CompactionCause,
    },
    /// Stop the running model call, or the running compaction, if there is one. Its end is still reported; a run that
    /// has not begun yet need not begin, and ended with [`RunEnd::NoMessage`] (EF2).
    AbortAgent,
    /// The prompt is over (PR1): all of it is done, the event [`SessionEvent::Settled`] is delivered.
    Settled(Settled),
    /// Wait until this instant, or until something else is handed in; then ask again. To ask earlier is harmless.
    WaitUntil(MonotonicMillis),
    /// A run, a credential or a compaction is awaited: ask again when it, or anything else, has been handed in.
    WaitForReport,
    /// No prompt is running.
    Idle,
}

/// Names a run, a credential request or a compaction, and brings its report back. A report whose ticket is not
/// awaited any more does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(super) u64);

/// Why the agent runs. It runs from the runtime context each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// Exhaustive: a run begins for one of these.
pub enum RunCause {
    /// The prompt's first run.
    Prompt,
    /// A retry: the failed message has been dropped.
    Continue {
        /// Its 1-based number within the chain.
        attempt: u32,
    },
    /// The turn before ended with `toolUse`: the same run goes on with the tools' results.
    NextTurn,
    /// Compaction asked for it.
    RunAgain,
}

/// How a run has ended, as the host reports it (EF1).
///
/// ```
/// use retry_machine::{AssistantMessage, ErrorFacts, Turn};
/// use retry_machine::driver::RunEnd;
///
/// // The last message of the run:
/// let end: RunEnd = AssistantMessage::success().into();
/// // A failed call, with what the SDK knows:
/// let facts = ErrorFacts::new().status(429).header("retry-after", "5");
/// let end: RunEnd = Turn::failure("Rate limit reached").facts(facts).into();
/// // A failure of the transport is a failed call, too:
/// let end = RunEnd::failure("connection reset by peer");
/// // The agent cannot run at all; this is not retried:
/// let end = RunEnd::NoMessage("the agent is busy".to_owned());
/// ```
#[derive(Clone, Debug, PartialEq)]
// Exhaustive: a run ends with a message, with messages that were handed in as they came, or without any.
pub enum RunEnd {
    /// With this message. `toolUse` ends the turn and not the run: the agent is run on.
    Turn(Box<Turn<'static>>),
    /// Every message was handed in as it ended ([`Driver::message_ended`](super::Driver::message_ended)). Without any,
    /// this is a [`NoMessage`](Self::NoMessage).
    Reported,
    /// It could not start, or ended without a message, for this reason: *continue failed*.
    NoMessage(String),
}

impl RunEnd {
    /// A failed call that never became a message: a refused connection, a cut stream.
    #[must_use]
    pub fn failure(text: impl Into<String>) -> Self {
        Turn::failure(text.into()).into()
    }
}

impl From<Turn<'static>> for RunEnd {
    fn from(turn: Turn<'static>) -> Self {
        Self::Turn(Box::new(turn))
    }
}

impl From<AssistantMessage> for RunEnd {
    fn from(message: AssistantMessage) -> Self {
        Turn::from(message).into()
    }
}

/// What compaction answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
// Exhaustive: either the prompt goes on or it does not.
pub enum Compaction {
    /// Nothing more to do.
    #[default]
    Done,
    /// The context fits now: run the agent again. At most once a prompt; after that it counts as
    /// [`Done`](Self::Done).
    RunAgain,
}

/// What listeners of a session are told.
///
/// Its [`Serialize`] form is one flat object: the documented one for retry events, and
/// `{"type":"agent_end","willRetry":true}`, `{"type":"settled","outcome":"answered","retries":1}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
// Exhaustive: what a session says is a contract, and this is all of it.
pub enum SessionEvent {
    /// A run has ended. Told before a failed message is handled, after a successful one.
    #[serde(rename = "agent_end", rename_all = "camelCase")]
    RunEnded {
        /// Whether a retry follows, as things stand: a listener may still cancel it. The prompt is over with
        /// [`Settled`](Self::Settled) and not before: compaction, too, can ask for a further run.
        will_retry: bool,
    },
    /// The prompt is over: the last event of each prompt, exactly once.
    #[serde(rename = "settled")]
    Settled(Settled),
    /// A hook panicked on the event before this one. Told to subscribers only.
    #[serde(rename = "hook_panicked", rename_all = "camelCase")]
    HookPanicked {
        /// Which, in order of registration from 0.
        hook: usize,
        /// What the panic said.
        message: String,
    },
    /// A chain of retries goes on or ends.
    #[serde(untagged)]
    Retry(RetryEvent<'static>),
}

/// The notation of the specification for retry events, words for the others.
impl fmt::Display for SessionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(event) => fmt::Display::fmt(event, f),
            Self::RunEnded { will_retry: true } => f.write_str("run ended, will retry"),
            Self::RunEnded { will_retry: false } => f.write_str("run ended"),
            Self::Settled(settled) => write!(f, "settled: {settled}"),
            Self::HookPanicked { hook, message } => write!(f, "hook {hook} panicked: {message}"),
        }
    }
}

/// How a prompt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Settled {
    /// What became of it.
    #[serde(flatten)]
    pub outcome: PromptOutcome,
    /// How many retries were begun for it.
    pub retries: u32,
}

/// What became of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
// Exhaustive: a prompt is answered, or it failed, or the user gave it up.
pub enum PromptOutcome {
    /// The last run ended without an error.
    Answered,
    /// The last failure was not retried, or not any more.
    Failed(PromptFailure),
    /// The user or the host gave up.
    Cancelled,
}

/// Why a prompt failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PromptFailure {
    /// The final error's text.
    #[serde(rename = "finalError")]
    pub error: String,
    /// What the failure is.
    pub class: ErrorClass,
    /// Why it was not retried, or not any more; [`EndReason::ContinueFailed`] for every run without a message.
    pub reason: EndReason,
}

impl fmt::Display for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            PromptOutcome::Answered => f.write_str("answered"),
            PromptOutcome::Failed(failure) => write!(
                f,
                "failed ({}, {}): {}",
                failure.class.name(),
                failure.reason.name(),
                failure.error
            ),
            PromptOutcome::Cancelled => f.write_str("cancelled"),
        }
    }
}

/// What a session looks like at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionState {
    /// Where the machine stands.
    pub phase: Phase,
    /// Whether a prompt is running.
    pub prompt_running: bool,
    /// `retry.enabled`.
    pub auto_retry_enabled: bool,
    /// `retry.maxRetries`.
    pub max_retries: u32,
    /// `retry.baseDelayMs`.
    pub base_delay_ms: u64,
    /// The whole of the wait at hand, in milliseconds, while one is.
    pub delay_ms: Option<u64>,
    /// What remains of it, in milliseconds.
    pub remaining_ms: Option<u64>,
}

impl SessionState {
    /// Whether a chain is open (ST2, SE2).
    #[must_use]
    pub const fn is_retrying(&self) -> bool {
        self.phase.attempt() > 0
    }
}
