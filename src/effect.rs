//! What the shell must do: effects, the ids that bring their answers back, and the fixed-size list of them.
//!
//! Deliberately absent: a queue. Effects are returned by the step that caused them, so the state that
//! must be saved is the state and nothing else, and an effect cannot be forgotten inside.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::event::RetryEvent;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub(crate) u64);

        impl $name {
            /// An id as it came back over a wire. One that the machine does not await does nothing (ST10).
            #[must_use]
            pub const fn from_u64(id: u64) -> Self {
                Self(id)
            }

            /// The number, from one counter shared by all kinds of ids and never reused.
            #[must_use]
            pub const fn as_u64(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// Names an armed sleep; the answer is [`Input::TimerFired`](crate::Input::TimerFired).
    TimerId
}
id! {
    /// Names a credential request; the answer is [`Input::CredentialSwitched`](crate::Input::CredentialSwitched).
    RequestId
}
id! {
    /// Names a run of the agent; if it fails, the answer is [`Input::ContinueFailed`](crate::Input::ContinueFailed).
    RunId
}

/// Why compaction should look at the session (ST6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
// Exhaustive: SPEC section 2 names exactly two causes.
pub enum CompactionCause {
    /// The context did not fit: compact, then perhaps run again.
    Overflow,
    /// A run has ended: the usual threshold check.
    TurnEnd,
}

/// One thing that the shell must do (SPEC section 2), in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "effect",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
// Exhaustive on purpose: a shell that ignores an effect is broken, so a new one must break its build.
pub enum Effect<'m> {
    /// Deliver to every listener before the next effect: hooks first, then subscribers (EV3).
    Emit {
        /// The event.
        event: RetryEvent<'m>,
    },
    /// Mark the current credential as usage-limited and answer whether another took over (US1).
    SwitchCredential {
        /// Comes back with the answer.
        request: RequestId,
        /// For how long the limit holds, in milliseconds, if the server said so; 60 s is usual otherwise.
        retry_after_ms: Option<u64>,
    },
    /// Remove the failed assistant message from the end of the runtime context, if it stands there.
    /// The history keeps it.
    DropFailedMessage,
    /// Arm a timer; answer [`Input::TimerFired`](crate::Input::TimerFired).
    Sleep {
        /// Comes back with the answer.
        timer: TimerId,
        /// From now, in milliseconds; may be 0.
        delay_ms: u64,
    },
    /// Disarm the timer. A late answer is harmless (ST10).
    CancelSleep {
        /// The one to disarm.
        timer: TimerId,
    },
    /// Run the agent again from the runtime context. If it cannot start, or ends without handing in a
    /// message, answer [`Input::ContinueFailed`](crate::Input::ContinueFailed).
    ContinueAgent {
        /// Comes back with that answer.
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

impl Effect<'_> {
    /// The same with its texts copied, to outlive the input.
    #[must_use]
    pub fn into_owned(self) -> Effect<'static> {
        match self {
            Self::Emit { event } => Effect::Emit {
                event: event.into_owned(),
            },
            Self::SwitchCredential {
                request,
                retry_after_ms,
            } => Effect::SwitchCredential {
                request,
                retry_after_ms,
            },
            Self::DropFailedMessage => Effect::DropFailedMessage,
            Self::Sleep { timer, delay_ms } => Effect::Sleep { timer, delay_ms },
            Self::CancelSleep { timer } => Effect::CancelSleep { timer },
            Self::ContinueAgent { run } => Effect::ContinueAgent { run },
            Self::AbortAgent => Effect::AbortAgent,
            Self::CheckCompaction { cause } => Effect::CheckCompaction { cause },
        }
    }
}

#[cfg(feature = "rpc")]
impl Effect<'_> {
    /// The number of the id that brings the answer back.
    pub(crate) fn id_mut(&mut self) -> Option<&mut u64> {
        match self {
            Self::SwitchCredential { request, .. } => Some(&mut request.0),
            Self::Sleep { timer, .. } | Self::CancelSleep { timer } => Some(&mut timer.0),
            Self::ContinueAgent { run } => Some(&mut run.0),
            Self::Emit { .. }
            | Self::DropFailedMessage
            | Self::AbortAgent
            | Self::CheckCompaction { .. } => None,
        }
    }
}

/// The notation of the specification: `S(1,2000)`, `drop`, `sleep 2000`, `cancel`, `cont`, `cmp`, …
impl fmt::Display for Effect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emit { event } => fmt::Display::fmt(event, f),
            Self::SwitchCredential {
                retry_after_ms: None,
                ..
            } => f.write_str("switch"),
            Self::SwitchCredential {
                retry_after_ms: Some(ms),
                ..
            } => write!(f, "switch({ms})"),
            Self::DropFailedMessage => f.write_str("drop"),
            Self::Sleep { delay_ms, .. } => write!(f, "sleep {delay_ms}"),
            Self::CancelSleep { .. } => f.write_str("cancel"),
            Self::ContinueAgent { .. } => f.write_str("cont"),
            Self::AbortAgent => f.write_str("abort agent"),
            Self::CheckCompaction {
                cause: CompactionCause::TurnEnd,
            } => f.write_str("cmp"),
            Self::CheckCompaction {
                cause: CompactionCause::Overflow,
            } => f.write_str("cmp(overflow)"),
        }
    }
}

/// The most effects that one step can return: cancel, start event, drop, sleep.
const CAPACITY: usize = 4;

/// The effects of one step, in the order in which they must be carried out.
///
/// A value of fixed size on the stack; texts are borrowed from the input, or moved out of the state.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[must_use = "effects are what the step decided: carry them out, in order"]
pub struct Effects<'m> {
    // Filled from the front; the rest is None.
    slots: [Option<Effect<'m>>; CAPACITY],
}

impl<'m> Effects<'m> {
    /// Of a step that asks for one thing at most.
    pub(crate) const fn one(effect: Option<Effect<'m>>) -> Self {
        Self {
            slots: [effect, None, None, None],
        }
    }

    pub(crate) fn push(&mut self, effect: Effect<'m>) {
        let free = self.slots.iter_mut().find(|slot| slot.is_none());
        debug_assert!(free.is_some(), "a step returns at most {CAPACITY} effects");
        if let Some(slot) = free {
            *slot = Some(effect);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether the step asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots[0].is_none()
    }

    /// In order, by reference.
    pub fn iter(&self) -> impl Iterator<Item = &Effect<'m>> {
        self.slots.iter().flatten()
    }

    /// The same with its texts copied, to outlive the input.
    pub fn into_owned(self) -> Effects<'static> {
        Effects {
            slots: self.slots.map(|slot| slot.map(Effect::into_owned)),
        }
    }
}

/// The effects in the notation of the specification, `–` for none.
impl fmt::Display for Effects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("–");
        }
        for (at, effect) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            fmt::Display::fmt(effect, f)?;
        }
        Ok(())
    }
}

impl<'m> IntoIterator for Effects<'m> {
    type Item = Effect<'m>;
    type IntoIter = core::iter::Flatten<core::array::IntoIter<Option<Effect<'m>>, CAPACITY>>;

    fn into_iter(self) -> Self::IntoIter {
        self.slots.into_iter().flatten()
    }
}

impl Serialize for Effects<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}
