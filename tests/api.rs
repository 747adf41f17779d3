//! What the public types promise by being what they are: a change here breaks users, and nobody writes it down.

use std::panic::{RefUnwindSafe, UnwindSafe};

use retry_machine as api;

/// Shared between threads, moved, pinned or not, and whole after a panic.
const fn plain<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}

/// A host's own parts decide about the rest.
#[cfg(feature = "shell")]
const fn shared<T: Send + Sync + Unpin>() {}

#[cfg(feature = "shell")]
const fn sent<T: Send>() {}

macro_rules! assert_all {
    ($check:ident: $($type:ty),* $(,)?) => { const _: () = { $( $check::<$type>(); )* }; };
}

assert_all!(plain:
    api::Action, api::Ambient, api::AssistantMessage, api::Classifier, api::CompactionCause, api::DelayHint,
    api::Details, api::Effect<'static>, api::Effects<'static>, api::EndReason, api::ErrorClass,
    api::ErrorFacts<'static>, api::EventForm, api::Explanation, api::HintSource, api::HintValue,
    api::Input<'static>, api::LimitWindow, api::LossyString, api::LostRule, api::MonotonicMillis, api::Origin,
    api::Outcome<'static>, api::OverflowDetail, api::OverflowUnit, api::Phase, api::Produced, api::RequestId,
    api::RetryEnd<'static>, api::RetryEvent<'static>, api::RetryMachine, api::RetrySettings,
    api::RetryStart<'static>, api::RuleId, api::RunId, api::ServerDelay, api::Setting, api::SettingKind,
    api::SettingValue, api::SettingsBuilder, api::SettingsError, api::SettingsErrorKind, api::SettingsPatch,
    api::Signal, api::Span, api::StopReason, api::TimerId, api::Turn<'static>, api::UnixMillis, api::Usage,
    api::Verdict,
);

assert_all!(plain:
    api::driver::Compaction, api::driver::Driver, api::driver::Duty, api::driver::PromptFailure,
    api::driver::PromptOutcome, api::driver::RunCause, api::driver::RunEnd, api::driver::SessionEvent,
    api::driver::SessionState, api::driver::Settled, api::driver::Ticket,
);

#[cfg(feature = "rules")]
assert_all!(plain: api::RuleFile, api::RulesError, api::RulesErrorKind);

#[cfg(feature = "json")]
assert_all!(plain: api::wire::AgentLine, api::wire::AgentMessage, api::wire::Entry, api::wire::Stepper);

#[cfg(feature = "rpc")]
assert_all!(plain:
    api::rpc::Hello, api::rpc::HostEffect, api::rpc::Limits, api::rpc::Notice, api::rpc::Protocol,
    api::rpc::RetryEnded, api::rpc::RetryStarted, api::rpc::RetryState, api::rpc::RpcErrorKind,
    api::rpc::RpcOptions,
);

#[cfg(feature = "shell")]
assert_all!(shared: api::shell::AbortSignal, api::shell::Handle, api::shell::Missed, api::shell::Run<()>);

#[cfg(feature = "shell")]
assert_all!(sent: api::shell::Subscription, api::shell::Session<(), ()>);

#[cfg(feature = "tokio")]
assert_all!(shared: api::shell::tokio::TokioTimer);

#[cfg(feature = "blocking")]
assert_all!(sent: api::shell::blocking::Session<()>);
