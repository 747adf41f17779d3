//! A second machine, written from the specification alone: slow, small, and of another shape. The exhaustive
//! search, random sequences and the fuzzer hold the real one against it, effect by effect.

use retry_machine::{
    Action, Ambient, AssistantMessage, CompactionCause, DelayHint, Effect, Effects, EndReason,
    ErrorClass, Input, MonotonicMillis, Outcome, Phase, RequestId, RetryEvent, RetryMachine,
    RetrySettings, RunId, ServerDelay, SettingsPatch, StopReason, TimerId, Turn, UnixMillis, Usage,
    Verdict,
};

/// The wall clock when the monotonic one is at 0: who mixes the two up is found out.
const WALL: u64 = 1_790_000_000_000;
/// The longest delay (NU3).
const LONGEST: u64 = (1 << 53) - 1;

/// A failed call. An empty `text` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    pub class: ErrorClass,
    pub hint_ms: Option<u64>,
    pub text: &'static str,
    /// Whether its usage is above the window (CL4).
    pub full: bool,
}

/// An input of SPEC section 2.
#[derive(Clone, Debug)]
pub enum Move {
    Stop { full: bool },
    Length,
    ToolUse { full: bool },
    Aborted,
    Error(Failure),
    Timer(u64),
    Answer(u64, bool),
    ContinueFailed(u64, &'static str),
    AbortRetry,
    Abort,
    Prompt,
    Settings(SettingsPatch),
}

impl Move {
    pub fn input(&self, now: u64) -> Input<'static> {
        let message = |reason, full: bool| {
            let mut message = AssistantMessage::new(reason);
            if full {
                message = message.with_usage(Usage::of_input(90, 20));
            }
            Turn::from(message).context_window(100)
        };
        let turn = match *self {
            Self::Stop { full } => message(StopReason::Stop, full),
            Self::Length => message(StopReason::Length, false),
            Self::ToolUse { full } => message(StopReason::ToolUse, full),
            Self::Aborted => message(StopReason::Aborted, false),
            Self::Error(failure) => {
                // A span or an instant, by turns.
                let hint = failure.hint_ms.map(|ms| match ms / 1000 % 2 {
                    0 => DelayHint::span_ms(ms),
                    _ => DelayHint::at(UnixMillis(WALL + now + ms)),
                });
                let verdict = Verdict::new(failure.class);
                let verdict = match hint {
                    Some(hint) => verdict.with_hint(hint),
                    None => verdict,
                };
                let turn = if failure.full {
                    let usage = Usage::of_input(90, 20);
                    let message = AssistantMessage::error(failure.text).with_usage(usage);
                    Turn::from(message).context_window(100)
                } else {
                    Turn::failure(failure.text)
                };
                turn.verdict(verdict)
            }
            Self::Timer(id) => return Input::TimerFired(TimerId::from_u64(id)),
            Self::Answer(id, switched) => {
                let request = RequestId::from_u64(id);
                return Input::CredentialSwitched { request, switched };
            }
            Self::ContinueFailed(id, why) => {
                let run = RunId::from_u64(id);
                return Input::ContinueFailed {
                    run,
                    error: why.into(),
                };
            }
            Self::AbortRetry => return Input::AbortRetry,
            Self::Abort => return Input::Abort,
            Self::Prompt => return Input::PromptStarted,
            Self::Settings(ref patch) => return Input::SettingsChanged(patch.clone()),
        };
        turn.into()
    }

    pub fn is_message(&self) -> bool {
        matches!(
            self,
            Self::Stop { .. }
                | Self::Length
                | Self::ToolUse { .. }
                | Self::Aborted
                | Self::Error(_)
        )
    }
}

pub fn ambient(now: u64, entropy: u64) -> Ambient {
    Ambient::new(UnixMillis(WALL + now), MonotonicMillis(now)).with_entropy(entropy)
}

/// An effect that must come.
#[derive(Clone, Debug)]
pub enum Told {
    Start {
        attempt: u32,
        max: u32,
        delay: u64,
        text: &'static str,
        class: ErrorClass,
        chain: u64,
        total: u32,
        next_at: u64,
    },
    End {
        attempt: u32,
        failed: Option<(EndReason, &'static str)>,
        /// For an end whose text is longer than that of the failure: the numbers that it names.
        numbers: Vec<u64>,
        chain: u64,
        total: u32,
    },
    Switch(u64, Option<u64>),
    Drop,
    Sleep(u64, u64),
    Cancel(u64),
    Continue(u64),
    AbortAgent,
    Check(CompactionCause),
}

impl Told {
    fn is(&self, effect: &Effect<'_>) -> bool {
        match (self, effect) {
            (
                Self::Start {
                    attempt,
                    max,
                    delay,
                    text,
                    class,
                    chain,
                    total,
                    next_at,
                },
                Effect::Emit {
                    event: RetryEvent::Start(start),
                },
            ) => {
                (start.attempt, start.max_attempts, start.delay_ms) == (*attempt, *max, *delay)
                    && start.error_message == *text
                    && (start.class, start.chain) == (*class, *chain)
                    && (start.total_retries, start.next_at.0) == (*total, WALL + next_at)
            }
            (
                Self::End {
                    attempt,
                    failed,
                    numbers,
                    chain,
                    total,
                },
                Effect::Emit {
                    event: RetryEvent::End(end),
                },
            ) => {
                let outcome = match (&end.outcome, failed) {
                    (Outcome::Success, None) => true,
                    (
                        Outcome::Failure {
                            final_error,
                            reason,
                        },
                        Some((why, text)),
                    ) => {
                        let named = |number: &u64| {
                            final_error.contains(&format!(" {number} ms"))
                                || final_error.contains(&format!("({number} ms)"))
                        };
                        reason == why
                            && if numbers.is_empty() {
                                final_error == text
                            } else {
                                final_error.ends_with(text) && numbers.iter().all(named)
                            }
                    }
                    _ => false,
                };
                outcome && (end.attempt, end.chain, end.total_retries) == (*attempt, *chain, *total)
            }
            (
                Self::Switch(id, hint),
                Effect::SwitchCredential {
                    request,
                    retry_after_ms,
                },
            ) => (request.as_u64(), *retry_after_ms) == (*id, *hint),
            (Self::Sleep(id, ms), Effect::Sleep { timer, delay_ms }) => {
                (timer.as_u64(), *delay_ms) == (*id, *ms)
            }
            (Self::Cancel(id), Effect::CancelSleep { timer }) => timer.as_u64() == *id,
            (Self::Continue(id), Effect::ContinueAgent { run }) => run.as_u64() == *id,
            (Self::Check(cause), Effect::CheckCompaction { cause: seen }) => cause == seen,
            (Self::Drop, Effect::DropFailedMessage) | (Self::AbortAgent, Effect::AbortAgent) => {
                true
            }
            _ => false,
        }
    }
}

/// What a retry waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Jitter may choose in between.
    Between(u64, u64),
    TooLong {
        asked: u64,
        max: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaits {
    Answer {
        request: u64,
        failure: Failure,
        max: u32,
        wait: Wait,
    },
    Timer {
        timer: u64,
        due: u64,
    },
    Message {
        run: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chain {
    pub attempt: u32,
    pub since: u64,
    pub awaits: Awaits,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Model {
    pub settings: RetrySettings,
    pub chain: Option<Chain>,
    /// Set while draining: the run whose failure ends it, if there is one.
    pub draining: Option<Option<u64>>,
    pub prompt_since: Option<u64>,
    pub total: u32,
    ids: u64,
    chains: u64,
}

/// A failure on its way to a retry.
#[derive(Clone, Copy)]
struct Retry {
    attempt: u32,
    since: u64,
    failure: Failure,
    max: u32,
}

impl Model {
    pub fn new(settings: RetrySettings) -> Self {
        Self {
            settings,
            chain: None,
            draining: None,
            prompt_since: None,
            total: 0,
            ids: 0,
            chains: 0,
        }
    }

    /// Takes a step and holds what the machine did against it.
    pub fn check(&mut self, step: &Move, now: u64, effects: &Effects<'_>, machine: &RetryMachine) {
        let told = self.step(step, now, chosen(effects));
        let same = effects.len() == told.len()
            && told
                .iter()
                .zip(effects.iter())
                .all(|(told, effect)| told.is(effect));
        assert!(
            same,
            "{step:?} at {now}: {effects:?} instead of {told:?}\n{self:?}"
        );
        let phase = match (&self.chain, self.draining) {
            (None, None) => Phase::Idle,
            (None, Some(_)) => Phase::Draining,
            (Some(chain), _) => {
                let attempt = chain.attempt;
                match chain.awaits {
                    Awaits::Answer { .. } => Phase::Switching { attempt },
                    Awaits::Message { .. } => Phase::InFlight { attempt },
                    Awaits::Timer { timer, due } => Phase::Waiting {
                        attempt,
                        timer: TimerId::from_u64(timer),
                        due: MonotonicMillis(due),
                    },
                }
            }
        };
        assert_eq!(machine.phase(), phase, "{step:?} at {now}");
    }

    pub fn last_id(&self) -> u64 {
        self.ids
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn step(&mut self, step: &Move, now: u64, chosen: Option<u64>) -> Vec<Told> {
        let mut told = Vec::new();
        if step.is_message() {
            self.prompt_since.get_or_insert(now);
            if self.draining.is_some() {
                // ST9
                if !matches!(step, Move::ToolUse { .. }) {
                    self.draining = None;
                }
                return told;
            }
            let chain = self.chain.take();
            if let Some(Awaits::Timer { timer, .. }) = chain.map(|chain| chain.awaits) {
                told.push(Told::Cancel(timer));
            }
            self.message(step, chain, now, chosen, &mut told);
            return told;
        }
        let awaits = self.chain.map(|chain| chain.awaits);
        match (step, self.chain) {
            (Move::Settings(patch), _) => self.settings.apply(patch),
            (Move::Timer(id), Some(chain)) => match chain.awaits {
                Awaits::Timer { timer, due } if timer == *id => {
                    let id = self.id();
                    let awaits = if now < due {
                        told.push(Told::Sleep(id, due - now));
                        Awaits::Timer { timer: id, due }
                    } else {
                        told.push(Told::Continue(id));
                        Awaits::Message { run: id }
                    };
                    self.chain = Some(Chain { awaits, ..chain });
                }
                _ => {}
            },
            (Move::Answer(id, switched), Some(chain)) => match chain.awaits {
                Awaits::Answer {
                    request,
                    failure,
                    max,
                    wait,
                } if request == *id => {
                    self.chain = None;
                    let (attempt, since) = (chain.attempt, chain.since);
                    let retry = Retry {
                        attempt,
                        since,
                        failure,
                        max,
                    };
                    // US2
                    let wait = if *switched { Wait::Between(0, 0) } else { wait };
                    self.retry(retry, wait, now, chosen, &mut told);
                }
                _ => {}
            },
            (Move::ContinueFailed(id, why), chain) => {
                if awaits == Some(Awaits::Message { run: *id }) {
                    let why = if why.is_empty() { "Unknown error" } else { why };
                    let attempt = chain.map_or(0, |chain| chain.attempt);
                    self.end(attempt, Some((EndReason::ContinueFailed, why)), &mut told);
                    self.chain = None;
                } else if self.draining == Some(Some(*id)) {
                    self.draining = None;
                }
            }
            (Move::AbortRetry | Move::Abort | Move::Prompt, chain) => {
                if let Some(Awaits::Timer { timer, .. }) = awaits {
                    told.push(Told::Cancel(timer));
                }
                if let Some(chain) = chain {
                    self.cancelled(chain.attempt, &mut told);
                    self.chain = None;
                }
                let run = match awaits {
                    Some(Awaits::Message { run }) => Some(run),
                    _ => None,
                };
                match step {
                    Move::Prompt => {
                        self.draining = None;
                        self.prompt_since = Some(now);
                        self.total = 0;
                    }
                    Move::Abort => {
                        told.push(Told::AbortAgent);
                        self.draining.get_or_insert(run);
                    }
                    // AB2: draining only while a run goes on.
                    _ if run.is_some() => self.draining = Some(run),
                    _ => {}
                }
                // The total that the end names is the one before.
            }
            _ => {}
        }
        told
    }

    /// A message outside draining. `chain` is the open one.
    fn message(
        &mut self,
        step: &Move,
        chain: Option<Chain>,
        now: u64,
        chosen: Option<u64>,
        told: &mut Vec<Told>,
    ) {
        match *step {
            Move::Error(failure) => self.failed(failure, chain, now, chosen, told),
            Move::Aborted => {
                if let Some(chain) = chain {
                    self.cancelled(chain.attempt, told);
                }
            }
            _ => {
                // ST5, ST6
                if let Some(chain) = chain {
                    self.end(chain.attempt, None, told);
                }
                match step {
                    Move::Stop { full: true } => told.push(Told::Check(CompactionCause::Overflow)),
                    Move::Stop { full: false } | Move::Length => {
                        told.push(Told::Check(CompactionCause::TurnEnd));
                    }
                    _ => {}
                }
            }
        }
    }

    /// CL1, then ST3.
    fn failed(
        &mut self,
        failure: Failure,
        chain: Option<Chain>,
        now: u64,
        chosen: Option<u64>,
        told: &mut Vec<Told>,
    ) {
        let has_text = !failure.text.is_empty();
        let action = failure.class.action();
        let overflow = failure.full || has_text && action == Action::Compact;
        let retryable = has_text && matches!(action, Action::Retry | Action::Switch);
        let refused = if overflow {
            Some((EndReason::Overflow, CompactionCause::Overflow))
        } else if !retryable {
            Some((EndReason::Fatal, CompactionCause::TurnEnd))
        } else if !self.settings.enabled() {
            Some((EndReason::Disabled, CompactionCause::TurnEnd))
        } else {
            None
        };
        if let Some((reason, cause)) = refused {
            if let Some(chain) = chain {
                let text = if has_text {
                    failure.text
                } else {
                    "Unknown error"
                };
                self.end(chain.attempt, Some((reason, text)), told);
            }
            told.push(Told::Check(cause));
            return;
        }
        if chain.is_none() {
            self.chains += 1;
        }
        let retry = Retry {
            attempt: chain.map_or(0, |chain| chain.attempt) + 1,
            since: chain.map_or(now, |chain| chain.since),
            failure,
            max: self.settings.max_retries_for(failure.class),
        };
        let total_is_used_up = self
            .settings
            .max_total_retries()
            .is_some_and(|max| self.total >= max);
        if retry.attempt > retry.max || total_is_used_up {
            // NU2
            self.give_up(retry, EndReason::Exhausted, Vec::new(), told);
            return;
        }
        let wait = self.wait(failure, retry.attempt);
        if action == Action::Retry || self.too_late(retry.since, now).is_some() {
            let wait = if action == Action::Retry {
                wait
            } else {
                Wait::Between(0, 0)
            };
            self.retry(retry, wait, now, chosen, told);
            return;
        }
        let request = self.id();
        told.push(Told::Switch(request, failure.hint_ms));
        self.chain = Some(Chain {
            attempt: retry.attempt,
            since: retry.since,
            awaits: Awaits::Answer {
                request,
                failure,
                max: retry.max,
                wait,
            },
        });
    }

    fn retry(
        &mut self,
        retry: Retry,
        wait: Wait,
        now: u64,
        chosen: Option<u64>,
        told: &mut Vec<Told>,
    ) {
        let (least, most) = match wait {
            Wait::Between(least, most) => (least, most),
            Wait::TooLong { asked, max } => {
                self.give_up(retry, EndReason::ServerDelayTooLong, vec![asked, max], told);
                return;
            }
        };
        let delay = chosen
            .filter(|delay| (least..=most).contains(delay))
            .unwrap_or(least);
        if let Some(bound) = self.too_late(retry.since, now.saturating_add(delay)) {
            self.give_up(retry, EndReason::Deadline, vec![delay, bound], told);
            return;
        }
        self.total += 1;
        told.push(Told::Start {
            attempt: retry.attempt,
            max: retry.max,
            delay,
            text: retry.failure.text,
            class: retry.failure.class,
            chain: self.chains,
            total: self.total,
            next_at: now + delay,
        });
        told.push(Told::Drop);
        let timer = self.id();
        told.push(Told::Sleep(timer, delay));
        self.chain = Some(Chain {
            attempt: retry.attempt,
            since: retry.since,
            awaits: Awaits::Timer {
                timer,
                due: now + delay,
            },
        });
    }

    /// The ladder, its floor and what the server asked.
    fn wait(&self, failure: Failure, attempt: u32) -> Wait {
        let settings = &self.settings;
        let cap = settings
            .max_backoff_ms_for(failure.class)
            .unwrap_or(LONGEST);
        let mut ladder = u128::from(settings.base_delay_ms_for(failure.class));
        for _ in 1..attempt.min(200) {
            ladder = (ladder * 2).min(LONGEST.into());
        }
        let most = u64::try_from(ladder).unwrap_or(LONGEST).min(cap);
        let least = if settings.jitter() {
            most - most / 4
        } else {
            most
        };
        let floor = match failure.class {
            ErrorClass::Network => settings.min_transport_delay_ms().min(cap),
            _ => 0,
        };
        let (least, most) = (least.max(floor), most.max(floor));
        let honoured = failure
            .hint_ms
            .filter(|_| settings.server_delay() == ServerDelay::Honour);
        let Some(asked) = honoured else {
            return Wait::Between(least, most);
        };
        let mut margin = 0;
        if let Some(max) = settings.max_server_delay_ms().filter(|max| asked > *max) {
            if settings
                .longest_reset_wait_ms()
                .is_none_or(|longest| asked > longest)
            {
                return Wait::TooLong { asked, max };
            }
            margin = settings.reset_margin_ms();
        }
        let spread = if settings.jitter() { asked / 5 } else { 0 };
        let server = (asked + margin).min(LONGEST);
        Wait::Between(least.max(server), most.max((server + spread).min(LONGEST)))
    }

    /// The bound in milliseconds that an instant is past.
    fn too_late(&self, chain_since: u64, at: u64) -> Option<u64> {
        let past = |since: u64, bound: Option<u64>| bound.filter(|bound| at - since > *bound);
        let prompt_since = self.prompt_since.unwrap_or(at);
        past(chain_since, self.settings.max_chain_elapsed_ms())
            .or_else(|| past(prompt_since, self.settings.max_prompt_elapsed_ms()))
    }

    fn give_up(
        &mut self,
        retry: Retry,
        reason: EndReason,
        numbers: Vec<u64>,
        told: &mut Vec<Told>,
    ) {
        self.end(retry.attempt - 1, Some((reason, retry.failure.text)), told);
        if let Some(Told::End { numbers: named, .. }) = told.last_mut() {
            *named = numbers;
        }
        told.push(Told::Check(CompactionCause::TurnEnd));
    }

    fn cancelled(&self, attempt: u32, told: &mut Vec<Told>) {
        self.end(
            attempt,
            Some((EndReason::Cancelled, "Retry cancelled")),
            told,
        );
    }

    fn end(&self, attempt: u32, failed: Option<(EndReason, &'static str)>, told: &mut Vec<Told>) {
        told.push(Told::End {
            attempt,
            failed,
            numbers: Vec::new(),
            chain: self.chains,
            total: self.total,
        });
    }
}

/// The delay that the machine chose, where jitter lets it choose: announced, or refused by a deadline.
fn chosen(effects: &Effects<'_>) -> Option<u64> {
    effects.iter().find_map(|effect| match effect {
        Effect::Emit {
            event: RetryEvent::Start(start),
        } => Some(start.delay_ms),
        Effect::Emit {
            event: RetryEvent::End(end),
        } => match &end.outcome {
            Outcome::Failure {
                final_error,
                reason: EndReason::Deadline,
            } => final_error.split(' ').find_map(|word| word.parse().ok()),
            _ => None,
        },
        _ => None,
    })
}
