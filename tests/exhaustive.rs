//! Every sequence of inputs there is, breadth first over the real transition code, with the laws of SPEC
//! sections 4, 5, 6 and 8 and the bounds held at each transition.
//!
//! Two states are one if no observer could tell them apart: ids count by what they answer, times by how long
//! ago they were, and what lies beyond a bound lies beyond it. The laws know inputs and effects alone; the
//! model ([`crate::model`]) is the second opinion.

use std::collections::{BTreeMap, BTreeSet};

use retry_machine::{
    Action, CompactionCause, Effect, Effects, EndReason, ErrorClass, Outcome, Phase, RetryEvent,
    RetryMachine, RetrySettings, ServerDelay, SettingValue, SettingsPatch,
};

use crate::model::{Awaits, Failure, Model, Move, all_of, ambient};

/// How often the premise of each law held. By address: a name is looked up some fifty times a transition.
#[derive(Default)]
pub struct Tally(BTreeMap<usize, (&'static str, u64)>);

impl Tally {
    fn law(&mut self, rule: &'static str, premise: bool, claim: impl FnOnce() -> bool) {
        self.count(rule, premise);
        assert!(!premise || claim(), "{rule}");
    }

    fn count(&mut self, what: &'static str, premise: bool) {
        let (_, times) = self.0.entry(what.as_ptr().addr()).or_insert((what, 0));
        *times += u64::from(premise);
    }

    /// Each name once.
    fn sums(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for (what, times) in self.0.values() {
            *sums.entry(*what).or_default() += times;
        }
        sums
    }
}

/// What an observer knows from the inputs and effects of a session alone.
#[derive(Clone, Debug, Default)]
pub struct Laws {
    /// The attempt of the open chain; 0 for none.
    attempt: u32,
    chain_since: u64,
    /// The failure that the chain is about, and `max_retries` as it was then.
    failure: Option<(Failure, RetrySettings)>,
    /// The armed timer and its instant.
    armed: Option<(u64, u64)>,
    asked: Option<u64>,
    /// The run that was begun and has handed in nothing.
    run: Option<u64>,
    /// After an abort: nothing more may come, until what runs is over. Inside, the run that was in flight.
    silenced: Option<Option<u64>>,
    prompt_since: Option<u64>,
    total: u32,
    last_id: u64,
}

impl Laws {
    /// Holds one step against the laws. `before` is the machine as it was, `settings` those of then.
    #[allow(clippy::too_many_lines, reason = "a law a line")]
    pub fn check(
        &mut self,
        tally: &mut Tally,
        before: &RetryMachine,
        step: &Move,
        now: u64,
        effects: &Effects<'_>,
        after: &RetryMachine,
    ) {
        let settings = before.settings();
        let was = self.clone();
        let message = step.is_message();
        let ends_run = message && !matches!(step, Move::ToolUse { .. });
        let failure = match step {
            Move::Error(failure) => Some(*failure),
            _ => None,
        };
        let action = failure.map(|failure| {
            if failure.full {
                Action::Compact
            } else if failure.text.is_empty() {
                Action::Stop
            } else {
                failure.class.action()
            }
        });
        let awaited = match step {
            Move::Timer(id) => was.armed.is_some_and(|(timer, _)| timer == *id),
            Move::Answer(id, _) => was.asked == Some(*id),
            Move::ContinueFailed(id, _) => was.run == Some(*id) || was.silenced == Some(Some(*id)),
            _ => true,
        };
        let switched = matches!(step, Move::Answer(_, true));

        // Before the effects.
        if message {
            self.prompt_since.get_or_insert(now);
            self.run = None;
        }
        if let Some(failure) = failure.filter(|_| was.silenced.is_none()) {
            self.failure = Some((failure, settings.clone()));
        }
        if awaited {
            match step {
                Move::Timer(_) => self.armed = None,
                Move::Answer(..) => self.asked = None,
                Move::ContinueFailed(..) => self.run = None,
                _ => {}
            }
        }
        let aborts = matches!(step, Move::AbortRetry | Move::Abort);

        let (mut ended, mut started, mut checked, mut aborted) = (None, None, None, false);
        let (mut slept, mut asked, mut continued, mut dropped) = (None, false, false, false);
        for (at, effect) in effects.iter().enumerate() {
            let mut fresh = |id: u64| {
                tally.law("ids: from one counter, never reused", true, || {
                    id > self.last_id
                });
                self.last_id = id;
            };
            match effect {
                Effect::Emit {
                    event: RetryEvent::Start(start),
                } => {
                    tally.law("ST7: nothing of a chain after its end", true, || {
                        ended.is_none()
                    });
                    tally.law("ST3: the start comes first, but for a cancel", true, || {
                        at == usize::from(was.armed.is_some() && message)
                    });
                    started = Some(start);
                }
                Effect::Emit {
                    event: RetryEvent::End(end),
                } => {
                    tally.law("ST7: exactly one end", true, || {
                        ended.is_none() && started.is_none()
                    });
                    ended = Some(end);
                }
                Effect::SwitchCredential {
                    request,
                    retry_after_ms,
                } => {
                    fresh(request.as_u64());
                    self.asked = Some(request.as_u64());
                    asked = true;
                    tally.law(
                        "US1: only a usage limit asks for a credential, with its hint",
                        true,
                        || {
                            action == Some(Action::Switch)
                                && *retry_after_ms == failure.and_then(|failure| failure.hint_ms)
                        },
                    );
                }
                Effect::DropFailedMessage => {
                    dropped = true;
                    tally.law(
                        "ST3: dropped after the start, before the sleep",
                        true,
                        || started.is_some() && slept.is_none(),
                    );
                }
                Effect::Sleep { timer, delay_ms } => {
                    fresh(timer.as_u64());
                    self.armed = Some((timer.as_u64(), now + delay_ms));
                    slept = Some(*delay_ms);
                }
                Effect::CancelSleep { timer } => {
                    tally.law(
                        "AB1: the armed timer is cancelled, before all else",
                        true,
                        || at == 0 && was.armed.is_some_and(|(armed, _)| armed == timer.as_u64()),
                    );
                    self.armed = None;
                }
                Effect::ContinueAgent { run } => {
                    fresh(run.as_u64());
                    self.run = Some(run.as_u64());
                    continued = true;
                }
                Effect::AbortAgent => aborted = true,
                Effect::CheckCompaction { cause } => {
                    tally.law("ST6: one check, last", true, || at + 1 == effects.len());
                    checked = Some(*cause);
                }
            }
        }

        // What the chain is now.
        if let Some(start) = started {
            self.attempt = start.attempt;
        }
        if asked {
            self.attempt += 1;
        }
        if (started.is_some() || asked) && was.attempt == 0 {
            self.chain_since = now;
        }
        if message || ended.is_some() {
            // ST8: an awaited answer is forgotten.
            self.asked = self.asked.filter(|_| asked);
        }
        if ended.is_some() {
            self.attempt = 0;
            self.run = None;
        }
        match step {
            Move::Prompt => {
                self.silenced = None;
                self.prompt_since = Some(now);
                self.total = 0;
            }
            Move::Abort => {
                self.silenced.get_or_insert(was.run);
            }
            Move::AbortRetry if was.run.is_some() => self.silenced = Some(was.run),
            _ if ends_run || matches!(step, Move::ContinueFailed(..)) && awaited => {
                self.silenced = None
            }
            _ => {}
        }
        if started.is_some() {
            self.total += 1;
        }

        // Section 4.
        let phase = after.phase();
        let open = self.attempt > 0;
        tally.law("ST1: each state as its effects say", true, || match phase {
            Phase::Idle => !open && self.silenced.is_none(),
            Phase::Switching { .. } => open && self.asked.is_some(),
            Phase::Waiting { timer, due, .. } => {
                open && self.armed == Some((timer.as_u64(), due.0))
            }
            Phase::InFlight { .. } => open && self.run.is_some(),
            Phase::Draining => !open && self.silenced.is_some(),
        });
        tally.law(
            "ST2: a chain is open exactly in switching, waiting and in flight",
            true,
            || {
                after.is_retrying() == open
                    && after.attempt() == self.attempt
                    && phase.attempt() == self.attempt
                    && after.deadline().map(|due| due.0) == self.armed.map(|(_, due)| due)
            },
        );
        tally.law(
            "ST3: start, drop, sleep are one",
            started.is_some() || dropped,
            || started.map(|start| start.delay_ms) == slept && started.is_some() && dropped,
        );
        let due = was.armed.map(|(_, due)| due);
        let timer = matches!(step, Move::Timer(_)) && awaited;
        tally.law(
            "ST4: the armed timer continues the agent",
            timer && due <= Some(now),
            || continued && effects.len() == 1,
        );
        tally.law(
            "ST4: a timer before its instant sleeps for the rest",
            timer && due > Some(now),
            || slept == due.map(|due| due - now) && effects.len() == 1,
        );
        tally.law("ST4: nothing else continues the agent", continued, || timer);
        let success = message && failure.is_none() && !matches!(step, Move::Aborted);
        tally.law(
            "ST5: a message without error closes an open chain as a success",
            success && was.attempt > 0,
            || ended.is_some_and(|end| end.outcome == Outcome::Success),
        );
        tally.law(
            "ST5: after a success the next chain starts at 1",
            started.is_some() && was.attempt == 0,
            || self.attempt == 1,
        );
        let quiet = was.silenced.is_some();
        let check_due =
            ends_run && !quiet && !asked && started.is_none() && !matches!(step, Move::Aborted);
        tally.law(
            "ST6: a check for every run's end without a retry",
            check_due,
            || checked.is_some(),
        );
        tally.law(
            "ST6: no check otherwise, nor for a retry that was started",
            !check_due,
            || {
                let late = matches!(step, Move::Answer(..)) && ended.is_some();
                checked.is_none() || late
            },
        );
        let above = action == Some(Action::Compact) || matches!(step, Move::Stop { full: true });
        tally.law("ST6: the cause", checked.is_some(), || {
            (checked == Some(CompactionCause::Overflow)) == above
        });
        tally.law(
            "ST7: every chain is closed by an end",
            was.attempt > 0 && !open,
            || ended.is_some(),
        );
        tally.law("ST7: an end closes its chain", ended.is_some(), || {
            !open && started.is_none() && !asked && slept.is_none() && !continued
        });
        tally.law(
            "ST7: an end without a chain is a budget of nothing",
            ended.is_some() && was.attempt == 0,
            || matches!(action, Some(Action::Retry | Action::Switch)),
        );
        if let Some(end) = ended {
            let (reason, text) = match &end.outcome {
                Outcome::Success => ("end: success", None),
                Outcome::Failure {
                    reason,
                    final_error,
                } => (named(*reason), Some((&**final_error, *reason))),
            };
            tally.count(reason, true);
            tally.law(
                "ST5: only a message without error is a success",
                text.is_none(),
                || success,
            );
            if let Some((text, reason)) = text {
                let own = match self.failure {
                    _ if reason == EndReason::Cancelled => "Retry cancelled",
                    _ if reason == EndReason::ContinueFailed => match step {
                        Move::ContinueFailed(_, why) if !why.is_empty() => why,
                        _ => "Unknown error",
                    },
                    Some((failure, _)) if !failure.text.is_empty() => failure.text,
                    _ => "Unknown error",
                };
                let longer = matches!(reason, EndReason::Deadline | EndReason::ServerDelayTooLong);
                tally.law("ST7: closed with its own text", true, || {
                    text == own || longer && text.ends_with(own)
                });
            }
        }
        tally.law(
            "ST8: a message supersedes a wait",
            message && was.armed.is_some(),
            || matches!(effects.iter().next(), Some(Effect::CancelSleep { .. })),
        );
        tally.law(
            "ST8: and an answer that is awaited",
            message && was.asked.is_some(),
            || self.asked.is_none() || self.asked != was.asked,
        );
        tally.law(
            "ST9: draining ends without any effect",
            quiet && !matches!(step, Move::Abort),
            || effects.is_empty(),
        );
        tally.law(
            "ST9: a toolUse message leaves it draining",
            quiet && message && !ends_run,
            || phase == Phase::Draining,
        );
        tally.law(
            "ST9: a message that ends the run ends it",
            quiet && ends_run,
            || phase == Phase::Idle,
        );
        let same = || effects.is_empty() && phase == before.phase();
        tally.law(
            "ST10: an answer that is not awaited does nothing",
            !awaited,
            same,
        );
        tally.law(
            "ST11: prompt started ends all",
            matches!(step, Move::Prompt),
            || phase == Phase::Idle && checked.is_none() && ended.is_some() == (was.attempt > 0),
        );

        // Section 5 and the bounds.
        let class = self
            .failure
            .as_ref()
            .map(|(failure, then)| (*failure, then));
        if let (Some(start), Some((failure, then))) = (started, class) {
            let new = if matches!(step, Move::Answer(..)) {
                was.attempt
            } else {
                was.attempt + 1
            };
            let max = then.max_retries_for(failure.class);
            tally.law(
                "NU1: counted one by one, up to max_retries as read",
                true,
                || {
                    start.attempt == new
                        && start.attempt <= start.max_attempts
                        && start.max_attempts == max
                },
            );
            tally.law("EV1: the failed message's text unchanged", true, || {
                start.error_message == failure.text
            });
            let asked = failure
                .hint_ms
                .filter(|_| then.server_delay() == ServerDelay::Honour);
            let ladder = u128::from(then.base_delay_ms_for(failure.class)) << (new - 1).min(60);
            let cap = then.max_backoff_ms_for(failure.class);
            tally.law(
                "NU3: base · 2^(attempt−1)",
                !switched
                    && asked.is_none()
                    && !then.jitter()
                    && cap.is_none()
                    && then.min_transport_delay_ms() == 0,
                || u128::from(start.delay_ms) == ladder,
            );
            tally.law(
                "US2: another credential makes the delay 0",
                switched,
                || start.delay_ms == 0,
            );
            tally.law(
                "bound: never below the server's delay",
                !switched && asked.is_some(),
                || Some(start.delay_ms) >= asked,
            );
            tally.law(
                "bound: never above the cap of the ladder",
                cap.is_some() && asked.is_none(),
                || Some(start.delay_ms) <= cap,
            );
            tally.law(
                "bound: never below the floor of the network",
                !switched
                    && failure.class == ErrorClass::Network
                    && then.min_transport_delay_ms() > 0,
                || start.delay_ms >= then.min_transport_delay_ms().min(cap.unwrap_or(u64::MAX)),
            );
            let too_long = then
                .max_server_delay_ms()
                .zip(asked)
                .filter(|(max, asked)| asked > max);
            tally.law(
                "bound: a server's delay above the maximum only up to the longest reset",
                !switched && too_long.is_some(),
                || {
                    then.longest_reset_wait_ms() >= asked
                        && start.delay_ms >= asked.unwrap_or(0) + then.reset_margin_ms()
                },
            );
            let at = now + start.delay_ms;
            let chain = settings.max_chain_elapsed_ms();
            tally.law("bound: no wait past the chain's", chain.is_some(), || {
                Some(at - self.chain_since) <= chain
            });
            let prompt = settings.max_prompt_elapsed_ms();
            tally.law("bound: no wait past the prompt's", prompt.is_some(), || {
                Some(at - self.prompt_since.expect("a message")) <= prompt
            });
            tally.law(
                "bound: total retries of a prompt",
                then.max_total_retries().is_some(),
                || {
                    Some(self.total) <= then.max_total_retries()
                        && start.total_retries == self.total
                },
            );
        }
        if let Some(end) = ended {
            let reason = match &end.outcome {
                Outcome::Success => None,
                Outcome::Failure { reason, .. } => Some(*reason),
            };
            let answered = matches!(step, Move::Answer(..));
            let made = if answered {
                was.attempt - 1
            } else {
                was.attempt
            };
            tally.law("NU2: the last retry really made", true, || {
                end.attempt == made
            });
            tally.law("EV2: the retries of the prompt that ends", true, || {
                end.total_retries == was.total
            });
            let failure = class.map(|(failure, _)| failure);
            tally.law(
                "NU2: exhausted only above a maximum",
                reason == Some(EndReason::Exhausted),
                || {
                    let max = settings.max_retries_for(
                        failure.map_or(ErrorClass::Unknown, |failure| failure.class),
                    );
                    was.attempt >= max
                        || settings
                            .max_total_retries()
                            .is_some_and(|max| was.total >= max)
                },
            );
        }
        tally.law(
            "NU4: the attempt returns to 0 whenever a chain closes",
            ended.is_some(),
            || after.attempt() == 0,
        );
        tally.law(
            "NU5: a change of settings leaves all alone",
            matches!(step, Move::Settings(_)),
            same,
        );
        let retryable = matches!(action, Some(Action::Retry | Action::Switch));
        tally.law(
            "NU5: off counts from the next failure on",
            retryable && !settings.enabled(),
            || started.is_none() && !asked && slept.is_none(),
        );
        tally.law(
            "NU5: a wait outlasts being turned off",
            timer && !settings.enabled(),
            || continued || slept.is_some(),
        );
        tally.law(
            "CL1: only what is retryable is retried",
            message && (started.is_some() || asked),
            || retryable,
        );

        // Section 6.
        tally.law("US1: within the budget alone", asked, || {
            let max = settings.max_retries_for(ErrorClass::UsageLimit);
            self.attempt <= max
                && settings
                    .max_total_retries()
                    .is_none_or(|max| self.total < max)
        });
        tally.law("US3: no start before the answer", asked, || {
            effects.len() <= 2 && started.is_none()
        });

        // Section 8.
        let cancelled = || {
            ended.is_some_and(|end| {
                matches!(&end.outcome, Outcome::Failure { final_error, .. } if final_error == "Retry cancelled")
                    && end.attempt == was.attempt
            })
        };
        let retry_only = matches!(step, Move::AbortRetry);
        tally.law(
            "AB1: abort retry while waiting",
            retry_only && was.armed.is_some(),
            || cancelled() && effects.len() == 2 && phase == Phase::Idle,
        );
        tally.law(
            "AB2: while switching",
            retry_only && was.asked.is_some(),
            || cancelled() && effects.len() == 1 && phase == Phase::Idle,
        );
        tally.law(
            "AB2: in flight",
            retry_only && was.run.is_some() && !quiet,
            || cancelled() && effects.len() == 1 && phase == Phase::Draining,
        );
        tally.law(
            "AB2: idle or draining",
            retry_only && was.attempt == 0,
            same,
        );
        tally.law(
            "AB3: abort leads to draining from every state",
            matches!(step, Move::Abort),
            || aborted && phase == Phase::Draining && ended.is_some() == (was.attempt > 0),
        );
        tally.law("AB3: only abort aborts the agent", aborted, || {
            matches!(step, Move::Abort)
        });
        tally.law(
            "AB3: all that abort retry does",
            aborted && was.attempt > 0,
            cancelled,
        );
        tally.law("AB4: nothing comes after an abort", aborts || quiet, || {
            slept.is_none() && !continued && !asked && started.is_none()
        });
    }
}

fn named(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Exhausted => "end: exhausted",
        EndReason::Fatal => "end: fatal",
        EndReason::Overflow => "end: overflow",
        EndReason::Cancelled => "end: cancelled",
        EndReason::Disabled => "end: disabled",
        EndReason::ContinueFailed => "end: continueFailed",
        EndReason::Deadline => "end: deadline",
        EndReason::ServerDelayTooLong => "end: serverDelayTooLong",
        _ => "end: of another kind",
    }
}

/// The settings that are combined: for each key, the values that it has in the profiles.
const CHOICES: &[(&str, &[SettingValue])] = {
    use SettingValue::{Bool, Choice, Integer, Unset};
    &[
        ("maxRetries", &[Integer(2), Integer(0), Integer(1)]),
        ("baseDelayMs", &[Integer(1000), Integer(0)]),
        ("maxTotalRetries", &[Unset, Integer(2)]),
        ("maxElapsedMs.chain", &[Unset, Integer(2000)]),
        ("maxElapsedMs.prompt", &[Unset, Integer(3000)]),
        ("delay.maxBackoffMs", &[Unset, Integer(1000)]),
        ("delay.jitter", &[Bool(false), Bool(true)]),
        ("delay.serverDelay", &[Choice("honour"), Choice("ignore")]),
        ("delay.maxServerDelayMs", &[Unset, Integer(2000)]),
        ("delay.waitForReset", &[Bool(false), Bool(true)]),
        ("delay.minTransportDelayMs", &[Integer(0), Integer(2000)]),
        ("classes.overloaded.maxRetries", &[Unset, Integer(3)]),
        ("events", &[Choice("documented"), Choice("extended")]),
    ]
};

/// Profiles of which any two values of any two settings stand together in one, found greedily.
fn pairwise() -> Vec<RetrySettings> {
    let pairs_of = |row: &[usize]| {
        let mut pairs = BTreeSet::new();
        for (one, &a) in row.iter().enumerate() {
            for (other, &b) in row.iter().enumerate().skip(one + 1) {
                pairs.insert((one, a, other, b));
            }
        }
        pairs
    };
    let mut open = BTreeSet::new();
    for (one, (_, values)) in CHOICES.iter().enumerate() {
        for (other, (_, others)) in CHOICES.iter().enumerate().skip(one + 1) {
            for a in 0..values.len() {
                open.extend((0..others.len()).map(|b| (one, a, other, b)));
            }
        }
    }
    let mut profiles = Vec::new();
    while let Some(&(one, a, other, b)) = open.first() {
        let mut row: Vec<Option<usize>> = vec![None; CHOICES.len()];
        (row[one], row[other]) = (Some(a), Some(b));
        for at in 0..row.len() {
            let gain = |value: usize| {
                let pair = |(other, chosen): (usize, &Option<usize>)| {
                    chosen.is_some_and(|chosen| {
                        let (low, high) = if at < other {
                            ((at, value), (other, chosen))
                        } else {
                            ((other, chosen), (at, value))
                        };
                        open.contains(&(low.0, low.1, high.0, high.1))
                    })
                };
                row.iter()
                    .enumerate()
                    .filter(|chosen| pair(*chosen))
                    .count()
            };
            let best = (0..CHOICES[at].1.len())
                .rev()
                .max_by_key(|value| gain(*value));
            row[at] = row[at].or(best);
        }
        let row: Vec<_> = row.into_iter().flatten().collect();
        for pair in pairs_of(&row) {
            open.remove(&pair);
        }
        let mut builder = RetrySettings::builder()
            .set("delay.maxResetWaitMs", 5000_u64)
            .set("delay.resetMarginMs", 1000_u64);
        for ((key, values), chosen) in CHOICES.iter().zip(row) {
            builder = builder.set(key, values[chosen]);
        }
        profiles.push(builder.build().expect("in range"));
    }
    profiles
}

/// The settings between which a search changes.
fn variants(profile: &RetrySettings) -> Vec<RetrySettings> {
    let mut off = profile.clone();
    off.apply(&SettingsPatch::enabled(false));
    let mut fewer = RetrySettings::default();
    fewer.apply(
        &SettingsPatch::builder()
            .max_retries(1)
            .patch()
            .expect("in range"),
    );
    vec![profile.clone(), off, fewer]
}

/// How deep a search goes at least; one with few states goes on until nothing new is found.
const DEEP: usize = 12;
/// So many states are few.
const FEW: usize = 20_000;
/// A server's delay above every maximum, in milliseconds.
const TOO_LONG: u64 = 400_000;

/// Every bound and every delay at once.
fn everything() -> RetrySettings {
    RetrySettings::builder()
        .max_retries(3)
        .base_delay_ms(1000)
        .set("maxTotalRetries", 4_u32)
        .set("maxElapsedMs.chain", 6000_u64)
        .set("maxElapsedMs.prompt", 9000_u64)
        .set("delay.serverDelay", ServerDelay::Honour)
        .set("delay.maxServerDelayMs", 2000_u64)
        .set("delay.waitForReset", true)
        .set("delay.maxResetWaitMs", 5000_u64)
        .set("delay.resetMarginMs", 1000_u64)
        .build()
        .expect("in range")
}

/// A session on its way.
#[derive(Clone)]
struct Node {
    machine: RetryMachine,
    model: Model,
    laws: Laws,
    now: u64,
    variant: usize,
}

/// What of a node an observer can tell: the variant, the state with times relative to now, and what is
/// used up of each bound.
type Key = (usize, Option<(u32, u64, Awaits)>, Option<bool>, u64, u32);

struct Search {
    variants: Vec<RetrySettings>,
    /// The change to each of them.
    changes: Vec<Move>,
    failures: Vec<Move>,
    chain_ms: Option<u64>,
    prompt_ms: Option<u64>,
    total: Option<u32>,
    /// By how much inputs may be late; 0 where no bound can tell.
    late_ms: u64,
    entropy: u64,
}

impl Search {
    fn new(profile: &RetrySettings) -> Self {
        let (chain_ms, prompt_ms) = (
            profile.max_chain_elapsed_ms(),
            profile.max_prompt_elapsed_ms(),
        );
        let bound = chain_ms.max(prompt_ms);
        // Elapsed times that go on for minutes are as many as the sums of delays: of those the ladder's alone.
        let slow = bound > Some(60_000);
        let late_ms = bound.filter(|_| !slow).map_or(0, |bound| bound / 2);
        let variants = variants(profile);
        let failures = failures().into_iter();
        Self {
            changes: variants
                .iter()
                .map(|settings| Move::Settings(all_of(settings)))
                .collect(),
            failures: failures
                .filter(|failure| !slow || matches!(failure.hint_ms, None | Some(0 | TOO_LONG)))
                .map(Move::Error)
                .collect(),
            chain_ms,
            prompt_ms,
            total: profile.max_total_retries(),
            late_ms: late_ms / 1000 * 1000,
            // The spread in its middle; at its edge where elapsed time counts, to keep to whole seconds.
            entropy: if bound.is_some() { 0 } else { 1 << 63 },
            variants,
        }
    }

    fn key(&self, node: &Node) -> Key {
        // All that is past a bound is alike, and without a bound all is.
        let age = |since: u64, bound: Option<u64>| {
            bound.map_or(0, |bound| (node.now - since).min(bound + 1))
        };
        let chain = node.model.chain.map(|chain| {
            let awaits = match chain.awaits {
                Awaits::Timer { due, .. } => {
                    let due = due.saturating_sub(node.now);
                    Awaits::Timer { timer: 0, due }
                }
                Awaits::Message { .. } => Awaits::Message { run: 0 },
                Awaits::Answer {
                    failure, max, wait, ..
                } => Awaits::Answer {
                    request: 0,
                    failure,
                    max,
                    wait,
                },
            };
            (chain.attempt, age(chain.since, self.chain_ms), awaits)
        });
        let draining = node.model.draining.map(|run| run.is_some());
        let prompt = node
            .model
            .prompt_since
            .map_or(u64::MAX, |since| age(since, self.prompt_ms));
        let total = self.total.map_or(0, |max| node.model.total.min(max));
        (node.variant, chain, draining, prompt, total)
    }

    /// Hands every input that can follow to `take`, with the time at which it comes.
    fn moves(&self, node: &Node, mut take: impl FnMut(&Move, u64)) {
        let now = node.now;
        let plain = [
            Move::Stop { full: false },
            Move::Stop { full: true },
            Move::Length,
            Move::ToolUse { full: false },
            Move::ToolUse { full: true },
            Move::Aborted,
            Move::AbortRetry,
            Move::Abort,
            Move::Prompt,
        ];
        for step in plain.iter().chain(&self.failures).chain(&self.changes) {
            take(step, now);
        }
        // Each answer with the latest id, an older one, one that never was, and the run that drains.
        let last = node.model.last_id();
        let runs = node.model.draining.flatten().filter(|run| *run < last);
        for id in [Some(last), last.checked_sub(1), Some(last + 1), runs]
            .into_iter()
            .flatten()
        {
            take(&Move::Timer(id), now);
            take(&Move::Answer(id, true), now);
            take(&Move::Answer(id, false), now);
            take(&Move::ContinueFailed(id, "gone"), now);
            take(&Move::ContinueFailed(id, ""), now);
        }
        if let Some(Awaits::Timer { timer, due }) = node.model.chain.map(|chain| chain.awaits) {
            take(&Move::Timer(timer), due.max(now));
            take(&Move::Timer(timer), due.saturating_sub(1000).max(now));
            if self.late_ms > 0 {
                take(&Move::Timer(timer), due.max(now) + self.late_ms);
            }
        }
        if self.late_ms > 0 {
            // A call, or an answer, that took its time.
            take(&self.failures[0], now + self.late_ms);
            take(&Move::Answer(last, false), now + self.late_ms);
        }
    }

    fn step(&self, node: &Node, step: &Move, at: u64, tally: &mut Tally) -> Node {
        let mut next = node.clone();
        next.now = at;
        let effects = next
            .machine
            .handle(step.input(at), ambient(at, self.entropy));
        next.model.check(step, at, &effects, &next.machine);
        next.laws
            .check(tally, &node.machine, step, at, &effects, &next.machine);
        for effect in effects.iter() {
            let kind = match effect {
                Effect::Emit {
                    event: RetryEvent::Start(_),
                } => "effect: start",
                Effect::Emit {
                    event: RetryEvent::End(_),
                } => "effect: end",
                Effect::SwitchCredential { .. } => "effect: switch",
                Effect::DropFailedMessage => "effect: drop",
                Effect::Sleep { .. } => "effect: sleep",
                Effect::CancelSleep { .. } => "effect: cancel",
                Effect::ContinueAgent { .. } => "effect: continue",
                Effect::AbortAgent => "effect: abort",
                Effect::CheckCompaction {
                    cause: CompactionCause::Overflow,
                } => "effect: check, overflow",
                Effect::CheckCompaction {
                    cause: CompactionCause::TurnEnd,
                } => "effect: check, turn end",
            };
            tally.count(kind, true);
        }
        tally.count(next.machine.phase().name(), true);
        if let Some(variant) = self
            .changes
            .iter()
            .position(|change| std::ptr::eq(change, step))
        {
            next.variant = variant;
            assert_eq!(
                next.machine.settings(),
                &self.variants[variant],
                "NU5: stored"
            );
        }
        next
    }

    /// States, transitions, and the depth at which nothing new was found, if it was reached.
    fn run(&self, tally: &mut Tally) -> (usize, usize, Option<usize>) {
        let settings = self.variants[0].clone();
        let root = Node {
            machine: RetryMachine::new(settings.clone()),
            model: Model::new(settings),
            laws: Laws::default(),
            now: 0,
            variant: 0,
        };
        let mut known = BTreeSet::from([self.key(&root)]);
        let mut frontier = vec![root];
        let mut transitions = 0;
        for depth in 1.. {
            let mut found = Vec::new();
            for node in &frontier {
                self.moves(node, |step, at| {
                    transitions += 1;
                    let next = self.step(node, step, at, tally);
                    if known.insert(self.key(&next)) {
                        found.push(next);
                    }
                });
            }
            frontier = found;
            if frontier.is_empty() || depth == DEEP && known.len() > FEW {
                return (
                    known.len(),
                    transitions,
                    frontier.is_empty().then_some(depth),
                );
            }
        }
        unreachable!("a search ends")
    }
}

/// A failure of each kind, with and without a server's delay: none, a short one, longer than the ladder, longer
/// than any maximum.
fn failures() -> Vec<Failure> {
    let failure = |class, hint_ms| Failure {
        class,
        hint_ms,
        text: "the text",
        full: false,
    };
    vec![
        failure(ErrorClass::Overloaded, None),
        failure(ErrorClass::Network, None),
        failure(ErrorClass::ServerError, Some(0)),
        failure(ErrorClass::RateLimit, Some(1000)),
        failure(ErrorClass::RateLimit, Some(3000)),
        failure(ErrorClass::RateLimit, Some(TOO_LONG)),
        failure(ErrorClass::UsageLimit, None),
        failure(ErrorClass::UsageLimit, Some(3000)),
        failure(ErrorClass::UsageLimit, Some(TOO_LONG)),
        failure(ErrorClass::Auth, Some(1000)),
        failure(ErrorClass::Overflow, None),
        Failure {
            text: "",
            ..failure(ErrorClass::Overloaded, None)
        },
        Failure {
            text: "",
            full: true,
            ..failure(ErrorClass::Unknown, None)
        },
        Failure {
            full: true,
            ..failure(ErrorClass::UsageLimit, Some(3000))
        },
    ]
}

#[test]
fn every_sequence_keeps_every_law() {
    let mut profiles = vec![
        RetrySettings::default(),
        RetrySettings::recommended(),
        everything(),
    ];
    profiles.extend(pairwise());
    let mut tally = Tally::default();
    let (mut all_states, mut all_transitions) = (0, 0);
    for (at, profile) in profiles.iter().enumerate() {
        let (states, transitions, closed) = Search::new(profile).run(&mut tally);
        let closed = closed.map_or(format!("depth {DEEP}"), |depth| {
            format!("closed at {depth}")
        });
        eprintln!("profile {at}: {states} states, {transitions} transitions, {closed}");
        all_states += states;
        all_transitions += transitions;
    }
    eprintln!(
        "{} profiles: {all_states} states, {all_transitions} transitions",
        profiles.len()
    );
    for (what, times) in tally.sums() {
        eprintln!("{times:>10}  {what}");
        assert!(times > 0, "{what}: never came up");
    }
}
