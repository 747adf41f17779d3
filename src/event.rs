//! The two events of a retry chain, and their wire form (SPEC section 11).

use core::fmt;
use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::classify::{ErrorClass, RuleId};
use crate::settings::EventForm;
use crate::time::UnixMillis;

/// What listeners, hooks, the RPC stream and the terminal are told (EV3).
///
/// Its [`Serialize`] form is the documented wire form, one object:
///
/// ```
/// # use retry_machine::*;
/// let mut machine = RetryMachine::default();
/// let failed = AssistantMessage::error("overloaded_error");
/// let effects = machine.handle(Input::message(&failed), Ambient::at(0));
/// let Some(Effect::Emit { event }) = effects.iter().next() else { panic!() };
/// assert_eq!(
///     serde_json::to_string(event).unwrap(),
///     r#"{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"overloaded_error"}"#,
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
// Exhaustive on purpose: the documents know exactly these two.
pub enum RetryEvent<'m> {
    /// A retry is announced: `auto_retry_start` (EV1).
    Start(RetryStart<'m>),
    /// The chain is closed, once (ST7): `auto_retry_end` (EV2).
    End(RetryEnd<'m>),
}

/// `auto_retry_start` (EV1).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryStart<'m> {
    /// 1-based number of this retry within its chain.
    pub attempt: u32,
    /// `max_retries` as read for this failure.
    pub max_attempts: u32,
    /// The wait before the retry, in milliseconds.
    pub delay_ms: u64,
    /// The failed message's text, unchanged.
    pub error_message: Cow<'m, str>,
    /// The number of the chain in its session. On the wire in the extended form, as what follows.
    pub chain: u64,
    /// What the failure is.
    pub class: ErrorClass,
    /// Which rule said so.
    pub rule: RuleId,
    /// When the retry comes, by the wall clock.
    pub next_at: UnixMillis,
    /// Retries since the prompt started, with this one.
    pub total_retries: u32,
    pub(crate) form: EventForm,
}

/// `auto_retry_end` (EV2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryEnd<'m> {
    /// The last retry really made (NU1, NU2); 0 when there was none.
    pub attempt: u32,
    /// How the chain ended.
    pub outcome: Outcome<'m>,
    /// The number of the chain in its session. On the wire in the extended form, as what follows.
    pub chain: u64,
    /// What the failure is that ended it, and which rule said so; None if no failure did.
    pub about: Option<(ErrorClass, RuleId)>,
    /// Retries since the prompt started.
    pub total_retries: u32,
    pub(crate) form: EventForm,
}

/// How a chain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
// Exhaustive: a chain succeeds or fails.
pub enum Outcome<'m> {
    /// A message without error arrived (ST5).
    Success,
    /// The chain was given up.
    Failure {
        /// The failing message's own text, or why the user or the host ended it.
        final_error: Cow<'m, str>,
        /// Why, for programs.
        reason: EndReason,
    },
}

/// Why a chain was given up. The documented wire form does not show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum EndReason {
    /// The budget is used up (NU2).
    Exhausted,
    /// The error is one that repeating cannot cure (ST7).
    Fatal,
    /// The context does not fit; compaction has been asked (CL3, CL4).
    Overflow,
    /// The user, a new prompt or an aborted message ended it (AB1, ST7, ST11).
    Cancelled,
    /// Retrying was turned off meanwhile (NU5).
    Disabled,
    /// The agent could not continue (ST7).
    ContinueFailed,
    /// A wait would have passed `retry.maxElapsedMs`.
    Deadline,
    /// The server asked for a longer wait than `retry.delay.maxServerDelayMs`.
    ServerDelayTooLong,
}

impl EndReason {
    /// Its name on the wire: `serverDelayTooLong`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Fatal => "fatal",
            Self::Overflow => "overflow",
            Self::Cancelled => "cancelled",
            Self::Disabled => "disabled",
            Self::ContinueFailed => "continueFailed",
            Self::Deadline => "deadline",
            Self::ServerDelayTooLong => "serverDelayTooLong",
        }
    }
}

impl RetryEvent<'_> {
    /// The same with its texts copied, to outlive the input.
    #[must_use]
    pub fn into_owned(self) -> RetryEvent<'static> {
        match self {
            Self::Start(RetryStart {
                attempt,
                max_attempts,
                delay_ms,
                error_message,
                chain,
                class,
                rule,
                next_at,
                total_retries,
                form,
            }) => RetryEvent::Start(RetryStart {
                attempt,
                max_attempts,
                delay_ms,
                error_message: Cow::Owned(error_message.into_owned()),
                chain,
                class,
                rule,
                next_at,
                total_retries,
                form,
            }),
            Self::End(RetryEnd {
                attempt,
                outcome,
                chain,
                about,
                total_retries,
                form,
            }) => RetryEvent::End(RetryEnd {
                attempt,
                outcome: match outcome {
                    Outcome::Success => Outcome::Success,
                    Outcome::Failure {
                        final_error,
                        reason,
                    } => Outcome::Failure {
                        final_error: Cow::Owned(final_error.into_owned()),
                        reason,
                    },
                },
                chain,
                about,
                total_retries,
                form,
            }),
        }
    }
}

impl RetryEnd<'_> {
    /// Whether the chain ended in success.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        match self.outcome {
            Outcome::Success => true,
            Outcome::Failure { .. } => false,
        }
    }
}

impl Serialize for RetryEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Start(start) => {
                map.serialize_entry("type", "auto_retry_start")?;
                map.serialize_entry("attempt", &start.attempt)?;
                map.serialize_entry("maxAttempts", &start.max_attempts)?;
                map.serialize_entry("delayMs", &start.delay_ms)?;
                map.serialize_entry("errorMessage", &start.error_message)?;
                if start.form == EventForm::Extended {
                    map.serialize_entry("chainId", &start.chain)?;
                    map.serialize_entry("class", &start.class)?;
                    map.serialize_entry("rule", start.rule.as_str())?;
                    map.serialize_entry("nextAtMs", &start.next_at)?;
                    map.serialize_entry("totalRetries", &start.total_retries)?;
                }
            }
            Self::End(end) => {
                map.serialize_entry("type", "auto_retry_end")?;
                map.serialize_entry("success", &end.is_success())?;
                map.serialize_entry("attempt", &end.attempt)?;
                match &end.outcome {
                    Outcome::Success => {}
                    Outcome::Failure { final_error, .. } => {
                        map.serialize_entry("finalError", final_error)?;
                    }
                }
                if end.form == EventForm::Extended {
                    map.serialize_entry("chainId", &end.chain)?;
                    if let Some((class, rule)) = &end.about {
                        map.serialize_entry("class", class)?;
                        map.serialize_entry("rule", rule.as_str())?;
                    }
                    map.serialize_entry("totalRetries", &end.total_retries)?;
                    if let Outcome::Failure { reason, .. } = &end.outcome {
                        map.serialize_entry("reason", reason)?;
                    }
                }
            }
        }
        map.end()
    }
}

/// The notation of the specification: `S(1,2000)`, `X(true,1)`, `X(false,3,"text")`.
impl fmt::Display for RetryEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(start) => write!(f, "S({},{})", start.attempt, start.delay_ms),
            Self::End(end) => match &end.outcome {
                Outcome::Success => write!(f, "X(true,{})", end.attempt),
                Outcome::Failure { final_error, .. } => {
                    write!(f, "X(false,{},{final_error:?})", end.attempt)
                }
            },
        }
    }
}
