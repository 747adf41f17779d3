//! THE transition file: state × input → state and effects (SPEC section 4).
//!
//! Everything that changes the state of a chain stands here, and nothing here knows a text: what an
//! error is has been decided before. State first, then input, each row written out; a stale answer
//! returns the state it found (ST10).

use std::borrow::Cow;

use crate::backoff::{self, Plan};
use crate::classify::{Action, ErrorClass, RuleId, Verdict};
use crate::effect::{CompactionCause, Effect, Effects, RequestId, RunId, TimerId};
use crate::event::{EndReason, Outcome, RetryEnd, RetryEvent, RetryStart};
use crate::machine::Phase;
use crate::settings::RetrySettings;
use crate::time::{Ambient, MonotonicMillis};

/// The final error of a cancelled chain (AB1).
const CANCELLED: &str = "Retry cancelled";
/// The final error of a failure without a text (ST7).
const NO_TEXT: &str = "Unknown error";

/// An input, after classification. What is large is borrowed: a success must not pay for what failures carry.
pub(super) enum Step<'s, 'm> {
    Ended(Ended<'s, 'm>),
    TimerFired(TimerId),
    CredentialSwitched {
        request: RequestId,
        switched: bool,
    },
    ContinueFailed {
        run: RunId,
        /// Taken if it is the answer that is awaited.
        error: &'s mut Cow<'m, str>,
    },
    AbortRetry,
    Abort,
    PromptStarted,
}

/// A message that has ended, as far as a chain cares.
pub(super) enum Ended<'s, 'm> {
    Success {
        ends_run: bool,
        over_window: bool,
    },
    Aborted,
    Error {
        /// Taken by the event that tells it.
        text: &'s mut Option<Cow<'m, str>>,
        verdict: &'s Verdict,
    },
}

/// ST1, with what each state must remember.
#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Idle,
    Switching(Pending),
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
    // In here for its size: a machine has 128 bytes.
    attempt: u32,
    request: RequestId,
    text: Box<str>,
    /// What follows if no other credential takes over.
    plan: Plan,
    /// 1,000 at most (SE1).
    max_attempts: u16,
    class: ErrorClass,
    rule: RuleId,
}

/// A failure that is about to be retried.
struct Failed<'m> {
    text: Cow<'m, str>,
    max_attempts: u32,
    class: ErrorClass,
    rule: RuleId,
}

/// The chains of one session: at most one is open at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    state: State,
    /// The last id given out, of any kind.
    last_id: u64,
    /// How many chains have been opened: the id of the latest.
    chains: u32,
    /// When the open chain's first failure was handed in.
    chain_started: MonotonicMillis,
    /// When the prompt started, or the first message that came without one.
    prompt_started: Option<MonotonicMillis>,
    /// Retries since the prompt started.
    total_retries: u32,
}

/// The check of ST6 after a call that succeeded.
const fn check_after_success(over_window: bool) -> Effect<'static> {
    let cause = if over_window {
        CompactionCause::Overflow
    } else {
        CompactionCause::TurnEnd
    };
    Effect::CheckCompaction { cause }
}

/// What a step reads.
#[derive(Clone, Copy)]
struct Context<'c> {
    settings: &'c RetrySettings,
    ambient: Ambient,
}

impl Chains {
    pub(super) fn phase(&self) -> Phase {
        match self.state {
            State::Idle => Phase::Idle,
            State::Switching(Pending { attempt, .. }) => Phase::Switching { attempt },
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

    #[inline]
    pub(super) fn step<'m>(
        &mut self,
        step: Step<'_, 'm>,
        settings: &RetrySettings,
        ambient: Ambient,
    ) -> Effects<'m> {
        // Nearly every message is this one: it costs nothing but itself.
        if let (
            State::Idle,
            Step::Ended(Ended::Success {
                ends_run,
                over_window,
            }),
        ) = (&self.state, &step)
        {
            self.prompt_started.get_or_insert(ambient.monotonic);
            return Effects::one(ends_run.then(|| check_after_success(*over_window)));
        }
        let mut fx = Effects::default();
        let out = &mut fx;
        let cx = Context { settings, ambient };
        let starts_prompt = matches!(step, Step::PromptStarted);
        if matches!(step, Step::Ended(_)) {
            self.prompt_started.get_or_insert(ambient.monotonic);
        }
        self.state = match &mut self.state {
            State::Idle => match step {
                Step::Ended(ended) => self.ended(0, ended, cx, out),
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
            State::Switching(pending) => match step {
                // The host ran the agent itself: the awaited answer is forgotten (ST8).
                Step::Ended(ended) => {
                    let attempt = pending.attempt;
                    self.ended(attempt, ended, cx, out)
                }
                Step::CredentialSwitched { request, switched } if request == pending.request => {
                    let failed = Failed {
                        text: Cow::Owned(std::mem::take(&mut pending.text).into_string()),
                        max_attempts: pending.max_attempts.into(),
                        class: pending.class,
                        rule: pending.rule.clone(),
                    };
                    let attempt = pending.attempt;
                    let plan = if switched {
                        Plan::Wait(0)
                    } else {
                        pending.plan
                    };
                    self.carry_out(plan, attempt, failed, cx, out)
                }
                Step::AbortRetry | Step::PromptStarted => {
                    let attempt = pending.attempt;
                    self.cancelled(attempt, cx, out);
                    State::Idle
                }
                Step::Abort => {
                    let attempt = pending.attempt;
                    self.cancelled(attempt, cx, out);
                    out.push(Effect::AbortAgent);
                    State::Draining { run: None }
                }
                Step::TimerFired(_)
                | Step::CredentialSwitched { .. }
                | Step::ContinueFailed { .. } => return fx,
            },
            &mut State::Waiting {
                attempt,
                timer,
                due,
            } => match step {
                // The host ran the agent itself: its run counts as this retry (ST8).
                Step::Ended(ended) => {
                    out.push(Effect::CancelSleep { timer });
                    self.ended(attempt, ended, cx, out)
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
                    self.cancelled(attempt, cx, out);
                    State::Idle
                }
                Step::Abort => {
                    out.push(Effect::CancelSleep { timer });
                    self.cancelled(attempt, cx, out);
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
            &mut State::InFlight { attempt, run } => match step {
                Step::Ended(ended) => self.ended(attempt, ended, cx, out),
                Step::ContinueFailed { run: failed, error } if failed == run => {
                    let error = if error.is_empty() {
                        Cow::Borrowed(NO_TEXT)
                    } else {
                        std::mem::take(error)
                    };
                    self.failure(attempt, error, EndReason::ContinueFailed, None, cx, out);
                    State::Idle
                }
                Step::AbortRetry => {
                    self.cancelled(attempt, cx, out);
                    State::Draining { run: Some(run) }
                }
                Step::Abort => {
                    self.cancelled(attempt, cx, out);
                    out.push(Effect::AbortAgent);
                    State::Draining { run: Some(run) }
                }
                Step::PromptStarted => {
                    self.cancelled(attempt, cx, out);
                    State::Idle
                }
                Step::TimerFired(_)
                | Step::CredentialSwitched { .. }
                | Step::ContinueFailed { .. } => State::InFlight { attempt, run },
            },
            &mut State::Draining { run } => match step {
                // Whatever ends the run ends the draining, without any effect (ST9).
                Step::Ended(Ended::Success {
                    ends_run: false, ..
                }) => State::Draining { run },
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
        if starts_prompt {
            // Afterwards: an end that it caused tells of the prompt before.
            self.prompt_started = Some(ambient.monotonic);
            self.total_retries = 0;
        }
        fx
    }

    /// A message, outside draining. `attempt` is that of the open chain, 0 for none.
    fn ended<'m>(
        &mut self,
        attempt: u32,
        ended: Ended<'_, 'm>,
        cx: Context<'_>,
        out: &mut Effects<'m>,
    ) -> State {
        match ended {
            Ended::Success {
                ends_run,
                over_window,
            } => {
                if attempt > 0 {
                    self.end(attempt, Outcome::Success, None, cx, out);
                }
                if ends_run {
                    out.push(check_after_success(over_window));
                }
                State::Idle
            }
            Ended::Aborted => {
                if attempt > 0 {
                    self.cancelled(attempt, cx, out);
                }
                State::Idle
            }
            Ended::Error { text, verdict } => self.error(attempt, text, verdict, cx, out),
        }
    }

    /// ST3, in its order.
    fn error<'m>(
        &mut self,
        attempt: u32,
        text: &mut Option<Cow<'m, str>>,
        verdict: &Verdict,
        cx: Context<'_>,
        out: &mut Effects<'m>,
    ) -> State {
        let settings = cx.settings;
        let refused = match (verdict.action(), &*text) {
            (Action::Compact, _) => Some(EndReason::Overflow),
            (Action::Stop, _) | (Action::Retry | Action::Switch, None) => Some(EndReason::Fatal),
            (Action::Retry | Action::Switch, Some(_)) if !settings.enabled() => {
                Some(EndReason::Disabled)
            }
            (Action::Retry | Action::Switch, Some(_)) => None,
        };
        let text = text.take().unwrap_or(Cow::Borrowed(NO_TEXT));
        if let Some(reason) = refused {
            if attempt > 0 {
                let about = Some((verdict.class, verdict.rule.clone()));
                self.failure(attempt, text, reason, about, cx, out);
            }
            let cause = if reason == EndReason::Overflow {
                CompactionCause::Overflow
            } else {
                CompactionCause::TurnEnd
            };
            out.push(Effect::CheckCompaction { cause });
            return State::Idle;
        }
        if attempt == 0 {
            self.chains += 1;
            self.chain_started = cx.ambient.monotonic;
        }
        let next = attempt + 1;
        let class = verdict.class;
        let failed = Failed {
            text,
            max_attempts: settings.max_retries_for(class),
            class,
            rule: verdict.rule.clone(),
        };
        let total_left = settings
            .max_total_retries()
            .is_none_or(|max| self.total_retries < max);
        if next > failed.max_attempts || !total_left {
            return self.give_up(next, failed, EndReason::Exhausted, cx, out);
        }
        let hint_ms = verdict.hint.map(|hint| hint.delay_ms(cx.ambient.wall));
        let plan = backoff::plan(settings, class, next, hint_ms, cx.ambient.entropy);
        if class.action() != Action::Switch {
            return self.carry_out(plan, next, failed, cx, out);
        }
        if self.deadline_before(0, cx).is_some() {
            // Not even another credential could be used in time.
            return self.carry_out(Plan::Wait(0), next, failed, cx, out);
        }
        let request = RequestId(self.next_id());
        out.push(Effect::SwitchCredential {
            request,
            retry_after_ms: hint_ms,
        });
        State::Switching(Pending {
            attempt: next,
            request,
            text: failed.text.into(),
            plan,
            max_attempts: u16::try_from(failed.max_attempts).unwrap_or(u16::MAX),
            class,
            rule: failed.rule,
        })
    }

    /// Retries number `attempt` as planned, or ends the chain where the plan or a deadline says so.
    fn carry_out<'m>(
        &mut self,
        plan: Plan,
        attempt: u32,
        failed: Failed<'m>,
        cx: Context<'_>,
        out: &mut Effects<'m>,
    ) -> State {
        let delay_ms = match plan {
            Plan::Wait(delay_ms) => delay_ms,
            Plan::TooLong { asked_ms, max_ms } => {
                let text = format!(
                    "The server asks to wait {asked_ms} ms, more than retry.delay.maxServerDelayMs ({max_ms} ms): {}",
                    failed.text
                );
                let failed = Failed {
                    text: Cow::Owned(text),
                    ..failed
                };
                return self.give_up(attempt, failed, EndReason::ServerDelayTooLong, cx, out);
            }
        };
        if let Some((key, max_ms)) = self.deadline_before(delay_ms, cx) {
            let text = format!(
                "Waiting {delay_ms} ms would pass retry.maxElapsedMs.{key} ({max_ms} ms): {}",
                failed.text
            );
            let failed = Failed {
                text: Cow::Owned(text),
                ..failed
            };
            return self.give_up(attempt, failed, EndReason::Deadline, cx, out);
        }
        self.total_retries = self.total_retries.saturating_add(1);
        out.push(Effect::Emit {
            event: RetryEvent::Start(RetryStart {
                attempt,
                max_attempts: failed.max_attempts,
                delay_ms,
                error_message: failed.text,
                chain: self.chains.into(),
                class: failed.class,
                rule: failed.rule,
                next_at: cx.ambient.wall.after(delay_ms),
                total_retries: self.total_retries,
                form: cx.settings.events(),
            }),
        });
        out.push(Effect::DropFailedMessage);
        State::Waiting {
            attempt,
            timer: self.sleep(delay_ms, out),
            due: cx.ambient.monotonic.after(delay_ms),
        }
    }

    /// Closes the chain instead of making the retry number `attempt` (NU2), then the check of ST6.
    fn give_up<'m>(
        &self,
        attempt: u32,
        failed: Failed<'m>,
        reason: EndReason,
        cx: Context<'_>,
        out: &mut Effects<'m>,
    ) -> State {
        let about = Some((failed.class, failed.rule));
        self.failure(attempt - 1, failed.text, reason, about, cx, out);
        out.push(Effect::CheckCompaction {
            cause: CompactionCause::TurnEnd,
        });
        State::Idle
    }

    /// The bound that a wait of `delay_ms` from now would pass.
    fn deadline_before(&self, delay_ms: u64, cx: Context<'_>) -> Option<(&'static str, u64)> {
        let at = cx.ambient.monotonic.after(delay_ms);
        let passes =
            |since: MonotonicMillis, max: Option<u64>| max.filter(|max| at.since(since) > *max);
        let chain = passes(self.chain_started, cx.settings.max_chain_elapsed_ms());
        let prompt = self
            .prompt_started
            .and_then(|started| passes(started, cx.settings.max_prompt_elapsed_ms()));
        chain
            .map(|max| ("chain", max))
            .or_else(|| prompt.map(|max| ("prompt", max)))
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

    /// The one end of a chain (ST7). `about` is the failure that ended it.
    fn end<'m>(
        &self,
        attempt: u32,
        outcome: Outcome<'m>,
        about: Option<(ErrorClass, RuleId)>,
        cx: Context<'_>,
        out: &mut Effects<'m>,
    ) {
        out.push(Effect::Emit {
            event: RetryEvent::End(RetryEnd {
                attempt,
                outcome,
                chain: self.chains.into(),
                about,
                total_retries: self.total_retries,
                form: cx.settings.events(),
            }),
        });
    }

    fn failure<'m>(
        &self,
        attempt: u32,
        final_error: Cow<'m, str>,
        reason: EndReason,
        about: Option<(ErrorClass, RuleId)>,
        cx: Context<'_>,
        out: &mut Effects<'m>,
    ) {
        let outcome = Outcome::Failure {
            final_error,
            reason,
        };
        self.end(attempt, outcome, about, cx, out);
    }

    fn cancelled(&self, attempt: u32, cx: Context<'_>, out: &mut Effects<'_>) {
        let text = Cow::Borrowed(CANCELLED);
        self.failure(attempt, text, EndReason::Cancelled, None, cx, out);
    }
}
