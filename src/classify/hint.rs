//! Delay hints (SPEC section 7): how long the server said to wait.
use super::ErrorFacts;
use crate::time::UnixMillis;

/// How long to wait, and who said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DelayHint {
    /// The span or the instant.
    pub value: HintValue,
    /// Where it was read.
    pub source: HintSource,
}

/// A span from now, or an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintValue {
    /// Milliseconds from when the error arrived.
    Span(u64),
    /// An instant by the wall clock.
    Instant(UnixMillis),
}

/// Where a hint was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HintSource {
    /// A header.
    Header,
    /// The text.
    Text,
}

impl DelayHint {
    /// The wait from `now` in milliseconds; an instant in the past counts as 0 (HI2).
    #[must_use]
    pub const fn delay_ms(self, now: UnixMillis) -> u64 {
        match self.value {
            HintValue::Span(ms) => ms,
            HintValue::Instant(at) => at.since(now),
        }
    }
}

pub(super) fn find(_text: &str, _facts: &ErrorFacts<'_>, _now: UnixMillis) -> Option<DelayHint> {
    None
}
