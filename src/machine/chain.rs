//! THE transition file: state × input → state and effects (SPEC section 4).
//!
//! Everything that changes the state of a chain stands here, and nothing here knows a text: what an
//! error is has been decided before. State first, then input, each row written out; a stale answer
//! returns the state it found (ST10).

use std::borrow::Cow;

use crate::backoff;
use crate::classify::{Action, Verdict};
use crate::effect::{CompactionCause, Effect, Effects, RequestId, RunId, TimerId};
use crate::event::{EndReason, Outcome, RetryEnd, RetryEvent, RetryStart};
use crate::machine::Phase;
use crate::settings::RetrySettings;
use crate::time::{Ambient, MonotonicMillis};

/// The final error of a cancelled chain (AB1).
const CANCELLED: &str = "Retry cancelled";
/// The final error of a failure without a text (ST7).
const NO_TEXT: &str = "Unknown error";

/// An input, after classification.
pub(super) enum Step<'m> {
    Ended(Ended<'m>),
    TimerFired(TimerId),
    CredentialSwitched { request: RequestId, switched: bool },
    ContinueFailed { run: RunId, error: Cow<'m, str> },
    AbortRetry,
    Abort,
    PromptStarted,
}

/// A message that has ended, as far as a chain cares.
pub(super) enum Ended<'m> {
    Success { ends_run: bool, over_window: bool },
    Aborted,
    Error { text: Option<&'m str>, verdict: Verdict },
}

/// ST1, with what each state must remember.
#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Idle,
    Switching {
        attempt: u32,
        pending: Pending,
    },
    Waiting {
        attempt: u32,
        timer: TimerId,
        due: MonotonicMillis,
    },
    InFlight {
        attempt: u32,
        run: RunId,
    },
    Draining {
        /// The run that was in flight when the user cancelled: its failure ends the draining (ST9).
        run: Option<RunId>,
    },
}

/// What waits for the credential's answer, as read when the failure was handled (US3).
#[derive(Clone, Debug)]
struct Pending {
    request: RequestId,
    text: Box<str>,
    delay_ms: u64,
    max_attempts: u32,
}

/// The chains of one session: at most one is open at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    state: State,
    /// The last id given out, of any kind.
    last_id: u64,
}

impl Chains {
    pub(super) fn phase(&self) -> Phase {
        match self.state {
            State::Idle => Phase::Idle,
            State::Switching { attempt, .. } => Phase::Switching { attempt },
            State::Waiting {
                attempt,
                timer,
                due,
            } => Phase::Waiting {
                attempt,
                timer,
                due,
            },
            State::InFlight { attempt, .. } => Phase::InFlight { attempt },
            State::Draining { .. } => Phase::Draining,
        }
    }

    pub(super) fn step<'m>(
        &mut self,
        step: Step<'m>,
        settings: &RetrySettings,
        ambient: Ambient,
    ) -> Effects<'m> {
        let mut fx = Effects::default();
        let out = &mut fx;
        self.state = match std::mem::take(&mut self.state) {
            State::Idle => match step {
                Step::Ended(ended) => self.ended(0, ended, settings, ambient, out),
                Step::Abort => {
                    out.push(Effect::AbortAgent);
                    State::Draining { run: None }
                }
                Step::TimerFired(_)
                | Step::CredentialSwitched { .. }
                | Step::ContinueFailed { .. }
                | Step::AbortRetry
                | Step::PromptStarted => State::Idle,
            },
            State::Switching { attempt, pending } => match step {
                // The host ran the agent itself: the awaited answer is forgotten (ST8).
                Step::Ended(ended) => self.ended(attempt, ended, settings, ambient, out),
                Step::CredentialSwitched { request, switched } if request == pending.request => {
                    let delay_ms = if switched { 0 } else { pending.delay_ms };
                    let text = Cow::Owned(pending.text.into_string());
                    self.start(attempt, pending.max_attempts, delay_ms, text, ambient, out)
                }
                Step::AbortRetry | Step::PromptStarted => {
                    cancelled(attempt, out);
                    State::Idle
                }
                Step::Abort => {
                    cancelled(attempt, out);
                    out.push(Effect::AbortAgent);
                    State::Draining { run: None }
                }
                Step::TimerFired(_)
                | Step::CredentialSwitched { .. }
                | Step::ContinueFailed { .. } => State::Switching { attempt, pending },
            },
            State::Waiting {
                attempt,
                timer,
                due,
            } => match step {
                // The host ran the agent itself: its run counts as this retry (ST8).
                Step::Ended(ended) => {
                    out.push(Effect::CancelSleep { timer });
                    self.ended(attempt, ended, settings, ambient, out)
                }
                Step::TimerFired(fired) if fired == timer => {
                    let rest_ms = due.since(ambient.monotonic);
                    if rest_ms == 0 {
                        let run = RunId(self.next_id());
                        out.push(Effect::ContinueAgent { run });
                        State::InFlight { attempt, run }
                    } else {
                        // Handed in before its instant: sleep for the rest (ST4).
                        let timer = self.sleep(rest_ms, out);
                        State::Waiting {
                            attempt,
                            timer,
                            due,
                        }
                    }
                }
                Step::AbortRetry | Step::PromptStarted => {
                    out.push(Effect::CancelSleep { timer });
                    cancelled(attempt, out);
                    State::Idle
                }
                Step::Abort => {
                    out.push(Effect::CancelSleep { timer });
                    cancelled(attempt, out);
                    out.push(Effect::AbortAgent);
                    State::Draining { run: None }
                }
                Step::TimerFired(_)
                | Step::CredentialSwitched { .. }
                | Step::ContinueFailed { .. } => State::Waiting {
                    attempt,
                    timer,
                    due,
                },
            },
            State::InFlight { attempt, run } => match step {
                Step::Ended(ended) => self.ended(attempt, ended, settings, ambient, out),
                Step::ContinueFailed { run: failed, error } if failed == run => {
                    let error = if error.is_empty() { Cow::Borrowed(NO_TEXT) } else { error };
                    failure(attempt, error, EndReason::ContinueFailed, out);
                    State::Idle
                }
                Step::AbortRetry => {
                    cancelled(attempt, out);
                    State::Draining { run: Some(run) }
                }
                Step::Abort => {
                    cancelled(attempt, out);
                    out.push(Effect::AbortAgent);
                    State::Draining { run: Some(run) }
                }
                Step::PromptStarted => {
                    cancelled(attempt, out);
                    State::Idle
                }
                Step::TimerFired(_)
                | Step::CredentialSwitched { .. }
                | Step::ContinueFailed { .. } => State::InFlight { attempt, run },
            },
            State::Draining { run } => match step {
                // Whatever ends the run ends the draining, without any effect (ST9).
                Step::Ended(Ended::Success { ends_run: false, .. }) => State::Draining { run },
                Step::Ended(
                    Ended::Success { ends_run: true, .. } | Ended::Aborted | Ended::Error { .. },
                ) => State::Idle,
                Step::ContinueFailed { run: failed, .. } if Some(failed) == run => State::Idle,
                Step::PromptStarted => State::Idle,
                Step::Abort => {
                    out.push(Effect::AbortAgent);
                    State::Draining { run }
                }
                Step::AbortRetry
                | Step::TimerFired(_)
                | Step::CredentialSwitched { .. }
                | Step::ContinueFailed { .. } => State::Draining { run },
            },
        };
        fx
    }

    /// A message, outside draining. `attempt` is that of the open chain, 0 for none.
    fn ended<'m>(
        &mut self,
        attempt: u32,
        ended: Ended<'m>,
        settings: &RetrySettings,
        ambient: Ambient,
        out: &mut Effects<'m>,
    ) -> State {
        match ended {
            Ended::Success {
                ends_run,
                over_window,
            } => {
                if attempt > 0 {
                    end(attempt, Outcome::Success, out);
                }
                if ends_run {
                    let cause = if over_window {
                        CompactionCause::Overflow
                    } else {
                        CompactionCause::TurnEnd
                    };
                    out.push(Effect::CheckCompaction { cause });
                }
                State::Idle
            }
            Ended::Aborted => {
                if attempt > 0 {
                    cancelled(attempt, out);
                }
                State::Idle
            }
            Ended::Error { text, verdict } => {
                self.error(attempt, text, &verdict, settings, ambient, out)
            }
        }
    }

    /// ST3, in its order.
    fn error<'m>(
        &mut self,
        attempt: u32,
        text: Option<&'m str>,
        verdict: &Verdict,
        settings: &RetrySettings,
        ambient: Ambient,
        out: &mut Effects<'m>,
    ) -> State {
        let give_up = |reason, cause, out: &mut Effects<'m>| {
            if attempt > 0 {
                failure(attempt, Cow::Borrowed(text.unwrap_or(NO_TEXT)), reason, out);
            }
            out.push(Effect::CheckCompaction { cause });
            State::Idle
        };
        let action = verdict.action();
        let text = match (action, text) {
            (Action::Retry | Action::Switch, Some(text)) => text,
            (Action::Retry | Action::Switch, None) | (Action::Stop, _) => {
                return give_up(EndReason::Fatal, CompactionCause::TurnEnd, out);
            }
            (Action::Compact, _) => {
                return give_up(EndReason::Overflow, CompactionCause::Overflow, out);
            }
        };
        if !settings.enabled() {
            return give_up(EndReason::Disabled, CompactionCause::TurnEnd, out);
        }
        let next = attempt + 1;
        if next > settings.max_retries() {
            // The last retry really made; 0 closes a chain that never opened (NU2).
            failure(attempt, Cow::Borrowed(text), EndReason::Exhausted, out);
            out.push(Effect::CheckCompaction {
                cause: CompactionCause::TurnEnd,
            });
            return State::Idle;
        }
        let delay_ms = backoff::exponential_ms(settings.base_delay_ms(), next);
        if action == Action::Switch {
            let request = RequestId(self.next_id());
            out.push(Effect::SwitchCredential {
                request,
                retry_after_ms: verdict.hint.map(|hint| hint.delay_ms(ambient.wall)),
            });
            let pending = Pending {
                request,
                text: text.into(),
                delay_ms,
                max_attempts: settings.max_retries(),
            };
            return State::Switching {
                attempt: next,
                pending,
            };
        }
        let text = Cow::Borrowed(text);
        self.start(next, settings.max_retries(), delay_ms, text, ambient, out)
    }

    /// Announces a retry, drops the failed message and sleeps.
    fn start<'m>(
        &mut self,
        attempt: u32,
        max_attempts: u32,
        delay_ms: u64,
        error_message: Cow<'m, str>,
        ambient: Ambient,
        out: &mut Effects<'m>,
    ) -> State {
        out.push(Effect::Emit {
            event: RetryEvent::Start(RetryStart {
                attempt,
                max_attempts,
                delay_ms,
                error_message,
            }),
        });
        out.push(Effect::DropFailedMessage);
        State::Waiting {
            attempt,
            timer: self.sleep(delay_ms, out),
            due: ambient.monotonic.after(delay_ms),
        }
    }

    fn sleep(&mut self, delay_ms: u64, out: &mut Effects<'_>) -> TimerId {
        let timer = TimerId(self.next_id());
        out.push(Effect::Sleep { timer, delay_ms });
        timer
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

/// The one end of a chain (ST7).
fn end<'m>(attempt: u32, outcome: Outcome<'m>, out: &mut Effects<'m>) {
    out.push(Effect::Emit {
        event: RetryEvent::End(RetryEnd { attempt, outcome }),
    });
}

fn failure<'m>(
    attempt: u32,
    final_error: Cow<'m, str>,
    reason: EndReason,
    out: &mut Effects<'m>,
) {
    let outcome = Outcome::Failure {
        final_error,
        reason,
    };
    end(attempt, outcome, out);
}

fn cancelled(attempt: u32, out: &mut Effects<'_>) {
    failure(attempt, Cow::Borrowed(CANCELLED), EndReason::Cancelled, out);
}
