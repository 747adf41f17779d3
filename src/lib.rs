#![cfg_attr(
    all(feature = "tokio", feature = "blocking", feature = "http", feature = "status"),
    doc = include_str!("../README.md")
)]
#![cfg_attr(
    not(all(
        feature = "tokio",
        feature = "blocking",
        feature = "http",
        feature = "status"
    )),
    doc = "The retry core of an LLM agent. The whole page is made with all features."
)]

#[cfg(doc)]
#[doc = include_str!("design.md")]
pub mod design {}

pub mod backoff;
mod classify;
pub mod driver;
mod effect;
mod event;
mod input;
mod machine;
mod message;
#[cfg(feature = "rpc")]
pub mod rpc;
#[cfg(feature = "schema")]
pub mod schema;
mod settings;
#[cfg(feature = "shell")]
#[allow(clippy::disallowed_methods, reason = "a shell has the clock")]
pub mod shell;
#[cfg(feature = "status")]
#[allow(clippy::disallowed_methods, reason = "the terminal has the clock")]
pub mod status;
mod time;
#[cfg(feature = "json")]
pub mod wire;

pub use classify::{
    Action, Classifier, DelayHint, Details, ErrorClass, ErrorFacts, Explanation, HintSource,
    HintValue, LimitWindow, LostRule, Origin, OverflowDetail, OverflowUnit, RuleId, Signal, Span,
    Verdict,
};
#[cfg(feature = "rules")]
pub use classify::{RuleFile, RulesError, RulesErrorKind};
pub use effect::{CompactionCause, Effect, Effects, RequestId, RunId, TimerId};
pub use event::{EndReason, Outcome, RetryEnd, RetryEvent, RetryStart};
pub use input::{Input, Turn};
pub use machine::{Phase, RetryMachine};
pub use message::{AssistantMessage, LossyString, Produced, StopReason, Usage, error_text};
pub use settings::{
    EventForm, RetrySettings, SETTINGS, ServerDelay, Setting, SettingKind, SettingValue,
    SettingsBuilder, SettingsError, SettingsErrorKind, SettingsPatch,
};
pub use time::{Ambient, MonotonicMillis, UnixMillis};
