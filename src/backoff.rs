//! The local ladder of delays: integers only, saturating, no clock and no randomness.

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
    if base_delay_ms == 0 {
        return 0;
    }
    // A shift by 53 or more leaves the range for every base of at least 1.
    if exponent > 53 {
        return MAX_DELAY_MS;
    }
    let wide = (base_delay_ms as u128) << exponent;
    if wide > MAX_DELAY_MS as u128 {
        MAX_DELAY_MS
    } else {
        wide as u64
    }
}
