//! The two clocks and the entropy of one step, handed in by the shell.
//!
//! Deliberately absent: any way to read a clock. A laptop that sleeps moves the wall clock and not (or
//! not everywhere) the monotonic one, so both are told apart by type: instants that a server names are
//! [`UnixMillis`], timers and elapsed time are [`MonotonicMillis`].

use serde::{Deserialize, Serialize};

/// Wall-clock time: milliseconds since the Unix epoch, UTC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

/// Monotonic time: milliseconds since an arbitrary start that the shell chooses and keeps.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MonotonicMillis(pub u64);

impl UnixMillis {
    /// The instant `delay_ms` later, saturating.
    #[must_use]
    pub const fn after(self, delay_ms: u64) -> Self {
        Self(self.0.saturating_add(delay_ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 when `self` is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl MonotonicMillis {
    /// The instant `delay_ms` later, saturating.
    #[must_use]
    pub const fn after(self, delay_ms: u64) -> Self {
        Self(self.0.saturating_add(delay_ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 when `self` is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Everything non-deterministic of one step (SPEC section 2: time and entropy are handed in).
///
/// A run of the machine is a list of (input, ambient) pairs: it can be replayed, enumerated and fuzzed.
///
/// ```
/// use retry_machine::{Ambient, MonotonicMillis, UnixMillis};
/// let ambient = Ambient::new(UnixMillis(1_790_000_000_000), MonotonicMillis(12)).with_entropy(7);
/// assert_eq!(ambient.monotonic.0, 12);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ambient {
    /// Now, by the wall clock: what a server's instants are measured against.
    pub wall: UnixMillis,
    /// Now, by the monotonic clock: what timers and elapsed time are measured by.
    pub monotonic: MonotonicMillis,
    /// 64 random bits for jitter. A constant is fine for a single agent.
    pub entropy: u64,
}

impl Ambient {
    /// Both clocks, without entropy.
    #[must_use]
    pub const fn new(wall: UnixMillis, monotonic: MonotonicMillis) -> Self {
        Self {
            wall,
            monotonic,
            entropy: 0,
        }
    }

    /// The same with `entropy` for jitter.
    #[must_use]
    pub const fn with_entropy(mut self, entropy: u64) -> Self {
        self.entropy = entropy;
        self
    }

    /// A step on one virtual clock: wall and monotonic time are both `now_ms`, entropy is 0.
    #[must_use]
    pub const fn at(now_ms: u64) -> Self {
        Self::new(UnixMillis(now_ms), MonotonicMillis(now_ms))
    }
}
