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

    fn give_up(&self, retry: Retry, reason: EndReason, numbers: Vec<u64>, told: &mut Vec<Told>) {
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

/// What happens next, in terms of what is awaited.
#[derive(Clone, Debug)]
pub enum Op {
    Move(Move),
    /// The awaited timer so late (or early), the awaited answer, or the failure of the run.
    Awaited {
        switched: bool,
        late_ms: i64,
    },
    /// An answer of any kind with an id so far behind the latest, or ahead of it.
    Stray {
        kind: u8,
        behind: i64,
    },
    Pass(u64),
}

/// The machine and the model, side by side in virtual time.
#[derive(Clone, Debug)]
pub struct Session {
    pub machine: RetryMachine,
    pub model: Model,
    pub now: u64,
}

impl Session {
    pub fn new(settings: RetrySettings) -> Self {
        Self {
            machine: RetryMachine::new(settings.clone()),
            model: Model::new(settings),
            now: 0,
        }
    }

    /// The input that `op` means now; None for one that only takes time.
    pub fn resolve(&mut self, op: &Op) -> Option<Move> {
        let run = self.model.draining.flatten();
        match *op {
            Op::Move(ref step) => Some(step.clone()),
            Op::Pass(ms) => {
                self.now += ms;
                None
            }
            Op::Awaited { switched, late_ms } => match self.model.chain.map(|chain| chain.awaits) {
                Some(Awaits::Timer { timer, due }) => {
                    self.now = self.now.max(due.saturating_add_signed(late_ms));
                    Some(Move::Timer(timer))
                }
                Some(Awaits::Answer { request, .. }) => Some(Move::Answer(request, switched)),
                Some(Awaits::Message { run }) => Some(Move::ContinueFailed(run, "busy")),
                None => run.map(|run| Move::ContinueFailed(run, "busy")),
            },
            Op::Stray { kind, behind } => {
                let id = self.model.last_id().saturating_add_signed(-behind);
                Some(match kind % 4 {
                    0 => Move::Timer(id),
                    1 => Move::Answer(id, true),
                    2 => Move::Answer(id, false),
                    _ => Move::ContinueFailed(id, ""),
                })
            }
        }
    }

    /// One input to both.
    pub fn step(&mut self, step: &Move, entropy: u64) -> Effects<'static> {
        let ambient = ambient(self.now, entropy);
        let effects = self.machine.handle(step.input(self.now), ambient);
        self.model.check(step, self.now, &effects, &self.machine);
        assert_eq!(self.machine.settings(), &self.model.settings);
        effects
    }
}

/// A sequence of operations from bytes, for the fuzzer: the first choose the settings.
pub fn machine(bytes: &[u8]) {
    let mut bytes = bytes.iter().copied();
    let mut next = move || bytes.next();
    let (Some(flags), Some(sizes)) = (next(), next()) else {
        return;
    };
    let mut session = Session::new(settings(flags, sizes));
    while let Some(code) = next() {
        let mut number = || u64::from(next().unwrap_or(0));
        let op = match code {
            b'e' => {
                let class = ErrorClass::ALL[number() as usize % ErrorClass::ALL.len()];
                let hint = number();
                let bits = number();
                Op::Move(Move::Error(Failure {
                    class,
                    hint_ms: (hint > 0).then(|| (hint - 1) << (bits & 31)),
                    text: if bits & 32 == 0 { "the text" } else { "" },
                    full: bits & 64 != 0,
                }))
            }
            b'k' => Op::Move(Move::Stop {
                full: number() % 2 == 1,
            }),
            b'l' => Op::Move(Move::Length),
            b't' => Op::Move(Move::ToolUse {
                full: number() % 2 == 1,
            }),
            b'x' => Op::Move(Move::Aborted),
            b'r' => Op::Move(Move::AbortRetry),
            b'b' => Op::Move(Move::Abort),
            b'p' => Op::Move(Move::Prompt),
            b's' => {
                let settings = settings(number() as u8, number() as u8);
                Op::Move(Move::Settings(all_of(&settings)))
            }
            b'w' => Op::Awaited {
                switched: false,
                late_ms: 0,
            },
            b'y' => Op::Awaited {
                switched: true,
                late_ms: number() as i64 * 32,
            },
            b'v' => Op::Awaited {
                switched: false,
                late_ms: -(number() as i64),
            },
            b'?' => Op::Stray {
                kind: number() as u8,
                behind: i64::from(number() as i8),
            },
            b'+' => Op::Pass(number() * 256),
            _ => continue,
        };
        let entropy = u64::from(code).wrapping_mul(0x0123_4567_89AB_CDEF) ^ (session.now << 40);
        if let Some(step) = session.resolve(&op) {
            let _ = session.step(&step, entropy);
        }
    }
}

/// Settings by bits and by size.
fn settings(flags: u8, sizes: u8) -> RetrySettings {
    let small = u64::from(sizes & 15);
    let large = u64::from(sizes >> 4);
    let bit = |at: u32| (flags >> at) & 1 == 1;
    let some = |at: u32, value: u64| bit(at).then_some(value);
    RetrySettings::builder()
        .enabled(sizes != 0)
        .max_retries(sizes as u32 & 7)
        .base_delay_ms(small * 400)
        .set("maxTotalRetries", some(0, large))
        .set("maxElapsedMs.chain", some(1, large * 2000))
        .set("maxElapsedMs.prompt", some(2, large * 3000))
        .set("delay.maxBackoffMs", some(3, small * 900))
        .set("delay.jitter", bit(4))
        .set(
            "delay.serverDelay",
            if bit(5) {
                ServerDelay::Honour
            } else {
                ServerDelay::Ignore
            },
        )
        .set("delay.maxServerDelayMs", some(6, large * 1000))
        .set("delay.waitForReset", bit(7))
        .set("delay.maxResetWaitMs", large * 5000)
        .set("delay.minTransportDelayMs", large * 100)
        .set("classes.overloaded.maxRetries", some(3, small))
        .set("classes.usage_limit.baseDelayMs", some(4, large))
        .build()
        .expect("in range")
}

/// A change to these settings, of every key.
pub fn all_of(settings: &RetrySettings) -> SettingsPatch {
    let mut builder = SettingsPatch::builder();
    for setting in retry_machine::SETTINGS {
        builder = builder.set(setting.key, setting.value_in(settings));
    }
    builder.patch().expect("in range")
}

#[cfg(test)]
mod random {
    use proptest::prelude::*;
    use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
    use retry_machine::{ErrorClass, RetryMachine, RetrySettings};

    use super::{Failure, Model, Move, Op, Session, all_of, settings};
    use crate::exhaustive::{Laws, Tally};

    fn failure() -> impl Strategy<Value = Failure> {
        let class = prop_oneof![
            3 => prop::sample::select(&ErrorClass::ALL[..4]),
            2 => Just(ErrorClass::UsageLimit),
            1 => prop::sample::select(&ErrorClass::ALL[..]),
        ];
        let hint = prop::option::of(prop_oneof![0..9000_u64, 0..1_u64 << 53]);
        let text = prop_oneof![9 => Just("the text"), 1 => Just("")];
        (class, hint, text, prop::bool::weighted(0.05)).prop_map(|(class, hint_ms, text, full)| {
            Failure {
                class,
                hint_ms,
                text,
                full,
            }
        })
    }

    fn any_settings() -> impl Strategy<Value = RetrySettings> {
        prop_oneof![
            Just(RetrySettings::default()),
            Just(RetrySettings::recommended()),
            (any::<u8>(), any::<u8>()).prop_map(|(flags, sizes)| settings(flags, sizes)),
        ]
    }

    fn op() -> impl Strategy<Value = Op> {
        let late = prop_oneof![3 => Just(0), 1 => -3000..9000_i64];
        prop_oneof![
            12 => failure().prop_map(|failure| Op::Move(Move::Error(failure))),
            10 => (any::<bool>(), late).prop_map(|(switched, late_ms)| Op::Awaited { switched, late_ms }),
            3 => (0..4_u8, -2..6_i64).prop_map(|(kind, behind)| Op::Stray { kind, behind }),
            2 => (0..20_000_u64).prop_map(Op::Pass),
            1 => any::<bool>().prop_map(|full| Op::Move(Move::Stop { full })),
            1 => any::<bool>().prop_map(|full| Op::Move(Move::ToolUse { full })),
            1 => prop::sample::select(vec![Move::Length, Move::Aborted, Move::AbortRetry, Move::Abort, Move::Prompt]).prop_map(Op::Move),
            1 => any_settings().prop_map(|settings| Op::Move(Move::Settings(all_of(&settings)))),
        ]
    }

    /// The model alone: any operation can follow any other.
    struct Reference;

    impl ReferenceStateMachine for Reference {
        type State = Model;
        type Transition = (Op, u64);

        fn init_state() -> BoxedStrategy<Model> {
            any_settings().prop_map(Model::new).boxed()
        }

        fn transitions(_: &Model) -> BoxedStrategy<(Op, u64)> {
            (op(), any::<u64>()).boxed()
        }

        fn apply(state: Model, _: &(Op, u64)) -> Model {
            // What an operation means depends on what the machine chose: the model moves in the session.
            state
        }
    }

    struct Machine {
        session: Session,
        laws: Laws,
        tally: Tally,
    }

    impl StateMachineTest for Machine {
        type SystemUnderTest = Self;
        type Reference = Reference;

        fn init_test(model: &Model) -> Self {
            Self {
                session: Session::new(model.settings.clone()),
                laws: Laws::default(),
                tally: Tally::default(),
            }
        }

        fn apply(mut state: Self, _: &Model, (op, entropy): (Op, u64)) -> Self {
            let before: RetryMachine = state.session.machine.clone();
            if let Some(step) = state.session.resolve(&op) {
                let effects = state.session.step(&step, entropy);
                let Session { machine, now, .. } = &state.session;
                state
                    .laws
                    .check(&mut state.tally, &before, &step, *now, &effects, machine);
            }
            state
        }
    }

    prop_state_machine! {
        #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

        /// Longer ways than the search goes, with any delays, entropy and settings.
        #[test]
        fn machine_and_model_agree(sequential 1..80 => Machine);
    }
}
