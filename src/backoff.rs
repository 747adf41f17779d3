//! Delays: the local ladder, what a server asked for, and jitter. Integers only, saturating, no clock; entropy
//! is an argument.

use crate::classify::ErrorClass;
use crate::settings::{RetrySettings, ServerDelay};

/// The longest delay in milliseconds: 2^53−1, the largest integer that every JSON reader keeps (NU3).
pub const MAX_DELAY_MS: u64 = (1 << 53) - 1;

/// The local exponential delay in milliseconds of the given 1-based `attempt`:
/// `base_delay_ms * 2^(attempt-1)`, saturating at [`MAX_DELAY_MS`] (NU3). Attempt 0 counts as 1.
///
/// ```
/// use retry_machine::backoff::exponential_ms;
/// assert_eq!([1, 2, 3].map(|n| exponential_ms(2000, n)), [2000, 4000, 8000]);
/// ```
#[must_use]
pub const fn exponential_ms(base_delay_ms: u64, attempt: u32) -> u64 {
    let exponent = attempt.saturating_sub(1);
    // A shift by 53 leaves the range for every base of at least 1.
    let exponent = if exponent < 53 { exponent } else { 53 };
    in_range((base_delay_ms as u128) << exponent)
}

const fn in_range(ms: u128) -> u64 {
    if ms < MAX_DELAY_MS as u128 {
        ms as u64
    } else {
        MAX_DELAY_MS
    }
}

/// Of `delay_ms`, 75 to 100 %: the spread of the own ladder, which never waits longer than planned.
#[must_use]
pub const fn shortened_ms(delay_ms: u64, entropy: u64) -> u64 {
    // A quarter of a share in [0, 1) of 2^32 steps.
    let cut = (delay_ms as u128 * (entropy >> 32) as u128) >> 34;
    delay_ms - cut as u64
}

/// Of `delay_ms`, 100 to 120 %: the spread of a server's delay, which never waits shorter than asked.
/// Saturates at [`MAX_DELAY_MS`].
#[must_use]
pub const fn lengthened_ms(delay_ms: u64, entropy: u64) -> u64 {
    let more = ((delay_ms as u128 * (entropy >> 32) as u128) >> 32) / 5;
    in_range(delay_ms as u128 + more)
}

/// What a failure within the budget leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// A wait of so many milliseconds.
    Wait(u64),
    /// An end: the server asks for a longer wait than the settings allow.
    TooLong { asked_ms: u64, max_ms: u64 },
}

/// The delay before the retry number `attempt`, for a failure of this class. `hint_ms` is what the server
/// asked for.
#[inline]
pub(crate) fn plan(
    settings: &RetrySettings,
    class: ErrorClass,
    attempt: u32,
    hint_ms: Option<u64>,
    entropy: u64,
) -> Plan {
    let spread = settings.jitter();
    let cap = settings.max_backoff_ms_for(class).unwrap_or(MAX_DELAY_MS);
    let mut own = exponential_ms(settings.base_delay_ms_for(class), attempt).min(cap);
    if spread {
        own = shortened_ms(own, entropy);
    }
    if class == ErrorClass::Network {
        own = own.max(settings.min_transport_delay_ms().min(cap));
    }
    let asked = match (settings.server_delay(), hint_ms) {
        (ServerDelay::Honour, Some(asked)) => asked,
        (ServerDelay::Honour, None) | (ServerDelay::Ignore, _) => return Plan::Wait(own),
    };
    let mut wait = if spread {
        lengthened_ms(asked, entropy)
    } else {
        asked
    };
    if let Some(max_ms) = settings.max_server_delay_ms()
        && asked > max_ms
    {
        match settings.longest_reset_wait_ms() {
            Some(longest) if asked <= longest => {
                wait = wait.saturating_add(settings.reset_margin_ms());
            }
            _ => {
                return Plan::TooLong {
                    asked_ms: asked,
                    max_ms,
                };
            }
        }
    }
    Plan::Wait(own.max(wait).min(MAX_DELAY_MS))
}
