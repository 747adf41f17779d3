//! The machine: classify, then one transition.
//!
//! Deliberately absent: clocks, sleeping, randomness, threads, queues. Everything that is not
//! deterministic comes in with each input ([`Ambient`]), everything that must happen goes out as
//! [`Effects`].

mod chain;

use std::borrow::Cow;
use std::sync::Arc;

use crate::classify::{Classifier, ErrorClass, ErrorFacts, Verdict};
use crate::effect::{Effect, Effects, TimerId};
use crate::input::{Input, Turn};
use crate::message::StopReason;
use crate::settings::RetrySettings;
use crate::time::{Ambient, MonotonicMillis, UnixMillis};
use chain::{Chains, Ended, Step};

/// Where the machine stands (ST1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: SPEC ST1 names exactly these.
pub enum Phase {
    /// No chain is open.
    Idle,
    /// A credential answer is awaited.
    Switching {
        /// The retry being prepared.
        attempt: u32,
    },
    /// A timer is armed.
    Waiting {
        /// The retry that follows the wait.
        attempt: u32,
        /// The armed timer.
        timer: TimerId,
        /// When it is due.
        due: MonotonicMillis,
    },
    /// A retry is running.
    InFlight {
        /// The running retry.
        attempt: u32,
    },
    /// The user has cancelled; the running call is left to end.
    Draining,
}

impl Phase {
    /// `idle`, `switching`, `waiting`, `inFlight` or `draining`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Switching { .. } => "switching",
            Self::Waiting { .. } => "waiting",
            Self::InFlight { .. } => "inFlight",
            Self::Draining => "draining",
        }
    }

    /// The attempt of the open chain; 0 when none is open (ST2).
    #[must_use]
    pub const fn attempt(self) -> u32 {
        match self {
            Self::Switching { attempt }
            | Self::Waiting { attempt, .. }
            | Self::InFlight { attempt } => attempt,
            Self::Idle | Self::Draining => 0,
        }
    }
}

/// The retry machine of one session.
///
/// [`handle`](Self::handle) is total: any input, in any state, is answered by effects, never by an error
/// or a panic (ST10). Carry the effects out in order and bring the answers back as inputs:
///
/// ```
/// use retry_machine::{Ambient, AssistantMessage, Effect, Input, Phase, RetryMachine};
///
/// let mut machine = RetryMachine::default();
/// let failed = AssistantMessage::error("overloaded_error");
/// let effects: Vec<_> = machine.handle(Input::message(&failed), Ambient::at(0)).into_iter().collect();
/// // Announce, drop the failed message, sleep:
/// let [Effect::Emit { .. }, Effect::DropFailedMessage, Effect::Sleep { timer, delay_ms: 2000 }] =
///     effects[..] else { panic!("{effects:?}") };
///
/// let effects = machine.handle(Input::TimerFired(timer), Ambient::at(2000));
/// assert!(matches!(effects.iter().next(), Some(Effect::ContinueAgent { .. })));
/// assert_eq!(machine.phase(), Phase::InFlight { attempt: 1 });
/// ```
#[derive(Clone, Debug)]
pub struct RetryMachine {
    classifier: Arc<Classifier>,
    settings: Arc<RetrySettings>,
    chains: Chains,
}

impl Default for RetryMachine {
    /// The documented policy with the built-in classifier.
    fn default() -> Self {
        Self::new(RetrySettings::default())
    }
}

impl RetryMachine {
    /// A machine with the built-in classifier, which all machines of a process share.
    #[must_use]
    pub fn new(settings: RetrySettings) -> Self {
        Self::with_classifier(settings, Classifier::shared())
    }

    /// A machine with a classifier of the host's.
    #[must_use]
    pub fn with_classifier(
        settings: impl Into<Arc<RetrySettings>>,
        classifier: Arc<Classifier>,
    ) -> Self {
        Self {
            classifier,
            settings: settings.into(),
            chains: Chains::default(),
        }
    }

    /// Takes one input and returns what must be done now, in order.
    pub fn handle<'m>(&mut self, mut input: Input<'m>, ambient: Ambient) -> Effects<'m> {
        let found;
        let step = match &mut input {
            // What the ended call means to a chain: the order is that of CL1, CL3 and CL4.
            Input::AssistantMessage(turn) => Step::Ended(match turn.stop_reason {
                StopReason::Stop | StopReason::Length => Ended::Success {
                    ends_run: true,
                    over_window: turn.over_window(),
                },
                StopReason::ToolUse => Ended::Success {
                    ends_run: false,
                    over_window: false,
                },
                StopReason::Aborted => Ended::Aborted,
                StopReason::Error => {
                    let verdict = match &turn.verdict {
                        Some(given) if turn.error_text.is_some() && !turn.over_window() => given,
                        Some(_) | None => {
                            found = self.verdict(turn, ambient.wall);
                            &found
                        }
                    };
                    Ended::Error {
                        verdict,
                        text: &mut turn.error_text,
                    }
                }
            }),
            Input::TimerFired(timer) => Step::TimerFired(*timer),
            Input::CredentialSwitched { request, switched } => Step::CredentialSwitched {
                request: *request,
                switched: *switched,
            },
            Input::ContinueFailed { run, error } => Step::ContinueFailed { run: *run, error },
            Input::AbortRetry => Step::AbortRetry,
            Input::Abort => Step::Abort,
            Input::PromptStarted => Step::PromptStarted,
            Input::SettingsChanged(patch) => {
                Arc::make_mut(&mut self.settings).apply(patch);
                return Effects::default();
            }
        };
        self.chains.step(step, &self.settings, ambient)
    }

    /// What the machine takes a failed turn for: usage above the window (CL4), then the host's own verdict,
    /// then the classifier's. Handing the answer in with the turn saves classifying it twice.
    #[must_use]
    pub fn verdict(&self, turn: &Turn<'_>, now: UnixMillis) -> Verdict {
        if turn.over_window() {
            return Verdict::of_rule(ErrorClass::Overflow, &"usage-above-window");
        }
        match (&turn.verdict, turn.error_text.as_deref()) {
            (_, None) => Verdict::of_rule(ErrorClass::Unknown, &"no-text"),
            (Some(verdict), Some(_)) => verdict.clone(),
            (None, Some(text)) => self.classifier.classify(text, &turn.facts, now),
        }
    }

    /// Whether this turn, handed in now, would lead to a retry: for the one who announces a run's end before the
    /// turn is handed in (EF1). A credential that is asked for counts as one.
    ///
    /// ```
    /// # use retry_machine::*;
    /// let machine = RetryMachine::default();
    /// assert!(machine.would_retry(&Turn::failure("overloaded"), Ambient::at(0)));
    /// assert!(!machine.would_retry(&Turn::failure("401 invalid api key"), Ambient::at(0)));
    /// ```
    #[must_use]
    pub fn would_retry(&self, turn: &Turn<'_>, ambient: Ambient) -> bool {
        // The texts are looked at, not copied.
        let turn = Turn {
            stop_reason: turn.stop_reason,
            error_text: turn.error_text.as_deref().map(Cow::Borrowed),
            usage: turn.usage,
            context_window: turn.context_window,
            verdict: (turn.stop_reason == StopReason::Error)
                .then(|| self.verdict(turn, ambient.wall)),
            facts: ErrorFacts::new(),
        };
        let effects = self.clone().handle(Input::AssistantMessage(turn), ambient);
        effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::Sleep { .. } | Effect::SwitchCredential { .. }
            )
        })
    }

    /// Whether a chain is open (ST2, SE2).
    #[must_use]
    pub fn is_retrying(&self) -> bool {
        self.attempt() > 0
    }

    /// 1-based number of the current retry; 0 when no chain is open.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.phase().attempt()
    }

    /// Where the machine stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.chains.phase()
    }

    /// When the armed timer is due, if one is armed: a shell can always arm it anew from this.
    #[must_use]
    pub fn deadline(&self) -> Option<MonotonicMillis> {
        match self.phase() {
            Phase::Waiting { due, .. } => Some(due),
            Phase::Idle | Phase::Switching { .. } | Phase::InFlight { .. } | Phase::Draining => {
                None
            }
        }
    }

    /// The settings that the next failure will be judged by (NU5).
    #[must_use]
    pub fn settings(&self) -> &RetrySettings {
        &self.settings
    }

    /// The classifier in use.
    #[must_use]
    pub fn classifier(&self) -> &Arc<Classifier> {
        &self.classifier
    }
}
