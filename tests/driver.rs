//! The driver alone, in virtual time: what is not handed in twice, dropped, or left behind (EF1, EF2, PR1, PR2, AB4).

use std::collections::BTreeSet;

use proptest::prelude::*;
use retry_machine::driver::{
    Compaction, Driver, Duty, PromptOutcome, RunCause, RunEnd, SessionEvent, Ticket,
};
use retry_machine::{
    Ambient, AssistantMessage, CompactionCause, ErrorClass, Outcome, Phase, RetryEvent,
    RetryMachine, SettingsPatch, StopReason, Turn, Usage, Verdict,
};

use crate::support::{F, O, R, U, WINDOW};

/// What must hold for the events of any session, whatever happens to it.
#[derive(Debug, Default)]
pub struct Observer {
    /// The chain that is open, and its latest attempt.
    open: Option<(u64, u32)>,
    ended: BTreeSet<u64>,
    settled: usize,
    violations: Vec<String>,
}

impl Observer {
    pub fn see(&mut self, event: &SessionEvent) {
        let broken = match event {
            SessionEvent::Retry(RetryEvent::Start(start)) => {
                let before = self.open.replace((start.chain, start.attempt));
                match before {
                    Some((chain, attempt)) => chain != start.chain || attempt >= start.attempt,
                    None => self.ended.contains(&start.chain),
                }
            }
            SessionEvent::Retry(RetryEvent::End(end)) => {
                let other = self
                    .open
                    .take()
                    .is_some_and(|(chain, _)| chain != end.chain);
                let without_retry = end.attempt == 0 && matches!(end.outcome, Outcome::Success);
                !self.ended.insert(end.chain) || other || without_retry
            }
            SessionEvent::RunEnded { .. } | SessionEvent::HookPanicked { .. } => false,
            SessionEvent::Settled(_) => {
                self.settled += 1;
                self.open.is_some()
            }
        };
        if broken {
            self.violations.push(format!("{event} with {self:?}"));
        }
    }

    #[track_caller]
    pub fn check(&self, prompts: usize) {
        assert!(self.violations.is_empty(), "ST7: {:?}", self.violations);
        assert_eq!(self.open, None, "ST7: every chain ends");
        assert_eq!(self.settled, prompts, "PR2: every prompt settles once");
    }
}

/// A driver, and a shell that does nothing by itself.
struct World {
    driver: Driver,
    now: u64,
}

impl World {
    /// With a prompt at its first run.
    fn prompted() -> (Self, Ticket) {
        let mut world = Self {
            driver: Driver::new(RetryMachine::default()),
            now: 0,
        };
        world.driver.prompt();
        let run = world.run();
        (world, run)
    }

    fn next(&mut self) -> Duty {
        self.driver.next(Ambient::at(self.now))
    }

    /// The duties up to one that needs an answer or time, in words.
    fn told(&mut self) -> String {
        let mut told = Vec::new();
        loop {
            let duty = self.next();
            let last = match &duty {
                Duty::Emit(event) => {
                    told.push(event.to_string());
                    continue;
                }
                Duty::DropFailedMessage => {
                    told.push("drop".to_owned());
                    continue;
                }
                Duty::AbortAgent => {
                    told.push("abort agent".to_owned());
                    continue;
                }
                Duty::Run { .. } => "run".to_owned(),
                Duty::SwitchCredential { .. } => "switch".to_owned(),
                Duty::Compact { .. } => "compact".to_owned(),
                Duty::Settled(_) => "over".to_owned(),
                Duty::WaitUntil(due) => format!("wait until {}", due.0),
                Duty::WaitForReport => "wait".to_owned(),
                Duty::Idle => "idle".to_owned(),
            };
            told.push(last);
            return told.join(" · ");
        }
    }

    #[track_caller]
    fn run(&mut self) -> Ticket {
        loop {
            let duty = self.next();
            if let Duty::Run { ticket, .. } = duty {
                return ticket;
            }
            let on_the_way = matches!(duty, Duty::Emit(_) | Duty::DropFailedMessage);
            assert!(on_the_way, "{duty:?} is no run");
        }
    }
}

/// AB4: at the very instant at which the wait is over, an abort comes first; once the run has begun, it is stopped.
#[test]
fn ab4_abort_between_wake_and_continue() {
    for (abort, before, after) in [
        (
            Driver::abort as fn(&mut Driver),
            "X(false,1,\"Retry cancelled\") · abort agent · settled: cancelled · over",
            "X(false,1,\"Retry cancelled\") · abort agent · wait",
        ),
        (
            Driver::abort_retry,
            "X(false,1,\"Retry cancelled\") · settled: cancelled · over",
            "X(false,1,\"Retry cancelled\") · wait",
        ),
    ] {
        let (mut world, run) = World::prompted();
        world.driver.run_ended(run, RunEnd::failure(R));
        assert_eq!(
            world.told(),
            "run ended, will retry · S(1,2000) · drop · wait until 2000"
        );
        world.now = 2000;
        let mut woken = World {
            driver: world.driver.clone(),
            now: 2000,
        };
        abort(&mut world.driver);
        assert_eq!(world.told(), before);

        let run = woken.run();
        abort(&mut woken.driver);
        assert_eq!(woken.told(), after);
        // A run that had not begun is not begun.
        woken
            .driver
            .run_ended(run, RunEnd::NoMessage("aborted".to_owned()));
        assert_eq!(woken.told(), "run ended · settled: cancelled · over");
        assert_eq!(woken.told(), "idle");
    }
}

/// EF2: what arises while a step is carried out waits, whoever carries it out; settings do not.
#[test]
fn ef2_one_step_at_a_time() {
    let (mut world, run) = World::prompted();
    world.driver.run_ended(run, RunEnd::failure(R));
    assert!(matches!(
        world.next(),
        Duty::Emit(SessionEvent::RunEnded { will_retry: true })
    ));
    world
        .driver
        .update_settings(SettingsPatch::builder().base_delay_ms(7).patch().unwrap());
    assert!(matches!(world.next(), Duty::Emit(SessionEvent::Retry(_))));
    world.driver.abort_retry();
    assert!(
        world.driver.machine().is_retrying(),
        "getters show the state after the step"
    );
    assert_eq!(
        world.driver.next_urgent(Ambient::at(0)),
        None,
        "dropping is the shell's"
    );
    assert_eq!(
        world.driver.state(Ambient::at(3)).remaining_ms,
        Some(4),
        "NU5: read at the failure"
    );
    assert_eq!(
        world.told(),
        "drop · X(false,1,\"Retry cancelled\") · settled: cancelled · over",
    );
}

/// EF2, ST6: a check is deferred to the run's end; of several, overflow wins.
#[test]
fn ef2_compaction_waits_for_the_runs_end() {
    let (mut world, run) = World::prompted();
    let full = AssistantMessage::success().with_usage(Usage::of_input(WINDOW, 1));
    world
        .driver
        .message_ended(Some(run), Turn::from(full).context_window(WINDOW));
    world
        .driver
        .message_ended(Some(run), AssistantMessage::success());
    assert_eq!(world.told(), "wait");
    world.driver.run_ended(run, RunEnd::Reported);
    assert!(matches!(
        world.next(),
        Duty::Emit(SessionEvent::RunEnded { will_retry: false })
    ));
    let Duty::Compact { ticket, cause } = world.next() else {
        panic!()
    };
    assert_eq!(cause, CompactionCause::Overflow);
    world.driver.compacted(ticket, Compaction::Done);
    assert_eq!(world.told(), "settled: answered · over");
}

/// ST10: late and doubled reports do nothing.
#[test]
fn st10_reports_that_are_not_awaited() {
    let (mut world, first) = World::prompted();
    world.driver.run_ended(first, RunEnd::failure(U));
    assert_eq!(world.told(), "run ended, will retry · switch");
    world.driver.run_ended(first, AssistantMessage::success());
    world.driver.credential_switched(first, true);
    world.driver.compacted(first, Compaction::RunAgain);
    world
        .driver
        .message_ended(Some(first), AssistantMessage::success());
    assert_eq!(world.told(), "wait");
    world.driver.abandon();
    assert_eq!(
        world.told(),
        "X(false,1,\"Retry cancelled\") · settled: cancelled · idle",
    );
    world.driver.abandon();
    world.driver.message_ended(None, AssistantMessage::error(R));
    assert_eq!(world.told(), "idle");
    assert!(world.driver.is_settled());
}

/// AB4: an agent that goes on after an abort, and answers, and fails, is not retried.
#[test]
fn ab4_an_agent_that_goes_on_after_an_abort() {
    let (mut world, run) = World::prompted();
    world.driver.abort();
    assert_eq!(world.told(), "abort agent · wait");
    world
        .driver
        .message_ended(Some(run), AssistantMessage::success());
    assert_eq!(world.told(), "wait");
    assert_eq!(
        world.driver.machine().phase(),
        Phase::Draining,
        "ST9: until the run's end"
    );
    world.driver.run_ended(run, RunEnd::failure(R));
    assert_eq!(world.told(), "run ended · settled: cancelled · over");
}

/// PR1: how a prompt ends that no retry follows, with what decided.
#[test]
fn pr1_outcomes() {
    let full = AssistantMessage::error(R).with_usage(Usage::of_input(9, 0));
    let full = Turn::from(full).context_window(8);
    let given = Turn::failure("what?").verdict(Verdict::new(ErrorClass::Auth));
    for (end, outcome) in [
        (AssistantMessage::success().into(), "answered"),
        (AssistantMessage::aborted().into(), "cancelled"),
        (RunEnd::failure(F), "failed: auth, fatal"),
        (RunEnd::failure(O), "failed: overflow, overflow"),
        (RunEnd::failure("what?"), "failed: unknown, fatal"),
        (RunEnd::failure(""), "failed: unknown, fatal"),
        (given.into(), "failed: auth, fatal"),
        (
            full.clone()
                .verdict(Verdict::new(ErrorClass::Overloaded))
                .into(),
            "failed: overflow, overflow",
        ),
        (full.into(), "failed: overflow, overflow"),
        (RunEnd::Reported, "failed: unknown, continueFailed"),
        (
            RunEnd::NoMessage("no model".to_owned()),
            "failed: unknown, continueFailed",
        ),
    ] {
        let (mut world, run) = World::prompted();
        let shown = format!("{end:?}");
        world.driver.run_ended(run, end);
        let settled = loop {
            match world.next() {
                Duty::Settled(settled) => break settled,
                Duty::Compact { ticket, .. } => world.driver.compacted(ticket, Compaction::Done),
                duty => assert!(matches!(duty, Duty::Emit(_)), "{duty:?} after {shown}"),
            }
        };
        let told = match settled.outcome {
            PromptOutcome::Answered => "answered".to_owned(),
            PromptOutcome::Cancelled => "cancelled".to_owned(),
            PromptOutcome::Failed(why) => format!("failed: {}, {}", why.class, why.reason.name()),
        };
        assert_eq!(told, outcome, "{shown}");
    }
}

/// What only the shell could do is not done for a prompt that it has given up.
#[test]
fn given_up_before_a_duty() {
    for text in [R, U] {
        let (mut world, run) = World::prompted();
        world.driver.run_ended(run, RunEnd::failure(text));
        assert!(matches!(world.next(), Duty::Emit(_)), "the run's end");
        while world.driver.next_urgent(Ambient::at(0)).is_some() {}
        world.driver.abandon();
        world.driver.prompt();
        let cancelled = "X(false,1,\"Retry cancelled\") · settled: cancelled · run";
        assert_eq!(world.told(), cancelled, "{text}");
    }
}

/// PR2: given up between the last event and the end, a prompt ends all the same.
#[test]
fn pr2_given_up_at_the_very_end() {
    let (mut world, run) = World::prompted();
    world
        .driver
        .run_ended(run, RunEnd::NoMessage("no model".to_owned()));
    while !matches!(world.next(), Duty::Emit(SessionEvent::Settled(_))) {}
    assert!(!world.driver.is_settled());
    world.driver.abandon();
    assert_eq!(world.driver.next_urgent(Ambient::at(0)), None);
    assert!(world.driver.is_settled());
}

/// ST11, PR2: a prompt that another replaces is over first.
#[test]
fn st11_a_prompt_replaces_another() {
    let (mut world, run) = World::prompted();
    world.driver.run_ended(run, RunEnd::failure(R));
    assert_eq!(
        world.told(),
        "run ended, will retry · S(1,2000) · drop · wait until 2000"
    );
    world.now = 2000;
    let retry = world.run();
    world.driver.prompt();
    assert!(!world.driver.is_settled());
    assert_eq!(
        world.told(),
        "X(false,1,\"Retry cancelled\") · run ended · settled: cancelled · run",
    );
    assert_eq!(
        (
            world.driver.prompts_started(),
            world.driver.prompts_settled()
        ),
        (2, 1)
    );
    world.driver.run_ended(retry, AssistantMessage::success());
    assert_eq!(
        world.told(),
        "wait",
        "the replaced run has nothing to say any more"
    );
}

/// What may come between two duties.
#[derive(Clone, Debug)]
enum Op {
    /// The next duty, by the shell or by anybody.
    Next,
    Urgent,
    /// An answer to what was asked last, or to something earlier.
    RunEnds(&'static str, bool),
    Tools,
    Succeeds(bool),
    Silent,
    Within(StopReason, bool),
    OwnMessage(StopReason),
    Switched(bool),
    Compacted(bool),
    Stale,
    AbortRetry,
    Abort,
    Enabled(bool),
    MaxRetries(u32),
    Time(u64),
    Prompt,
    Abandon,
}

fn op() -> impl Strategy<Value = Op> {
    let text = prop_oneof![4 => Just(R), 2 => Just(U), 1 => Just(F), 2 => Just(O), 1 => Just("")];
    let stop = || prop::sample::select(StopReason::ALL.to_vec());
    prop_oneof![
        30 => Just(Op::Next),
        4 => Just(Op::Urgent),
        12 => (text, prop::bool::weighted(0.1)).prop_map(|(text, full)| Op::RunEnds(text, full)),
        2 => Just(Op::Tools),
        3 => prop::bool::weighted(0.3).prop_map(Op::Succeeds),
        1 => Just(Op::Silent),
        2 => (stop(), any::<bool>()).prop_map(|(stop, full)| Op::Within(stop, full)),
        1 => stop().prop_map(Op::OwnMessage),
        5 => any::<bool>().prop_map(Op::Switched),
        5 => any::<bool>().prop_map(Op::Compacted),
        1 => Just(Op::Stale),
        2 => Just(Op::AbortRetry),
        1 => Just(Op::Abort),
        1 => any::<bool>().prop_map(Op::Enabled),
        1 => (0..4_u32).prop_map(Op::MaxRetries),
        6 => (0..9000_u64).prop_map(Op::Time),
        2 => Just(Op::Prompt),
        1 => Just(Op::Abandon),
    ]
}

/// What a shell knows of its driver.
#[derive(Default)]
struct Books {
    observer: Observer,
    run: Option<Ticket>,
    switch: Option<Ticket>,
    compaction: Option<Ticket>,
    /// Of the prompt at hand.
    aborted: bool,
    overflows: u32,
    again: u32,
    prompts: usize,
}

impl Books {
    fn keep(&mut self, driver: &Driver, duty: Duty) -> Result<(), TestCaseError> {
        match duty {
            Duty::Emit(event) => {
                self.observer.see(&event);
                if let SessionEvent::Settled(settled) = event {
                    let open = driver.machine().is_retrying();
                    prop_assert!(!open, "PR1: over with an open chain");
                    if self.aborted {
                        prop_assert!(!matches!(settled.outcome, PromptOutcome::Failed(_)));
                    }
                    *self = Self {
                        observer: std::mem::take(&mut self.observer),
                        prompts: self.prompts,
                        ..Self::default()
                    };
                }
            }
            Duty::Run { ticket, cause } => {
                prop_assert!(self.run.is_none(), "one run at a time");
                prop_assert!(!self.aborted, "AB4: {cause:?} after an abort");
                self.again += u32::from(cause == RunCause::RunAgain);
                prop_assert!(self.again <= 1, "compaction has one further run");
                prop_assert!(driver.awaits(ticket));
                self.run = Some(ticket);
            }
            Duty::DropFailedMessage => prop_assert!(self.run.is_none(), "EF1: within a run"),
            Duty::SwitchCredential { ticket, .. } => {
                prop_assert!(self.run.is_none());
                self.switch = Some(ticket);
            }
            Duty::Compact { ticket, cause } => {
                prop_assert!(self.run.is_none(), "EF2: within a run");
                prop_assert!(!self.aborted, "ST6: in draining");
                self.overflows += u32::from(cause == CompactionCause::Overflow);
                prop_assert!(self.overflows <= 1, "once a prompt for an overflow");
                self.compaction = Some(ticket);
            }
            Duty::AbortAgent => {}
            Duty::WaitUntil(due) => {
                prop_assert_eq!(driver.machine().deadline(), Some(due));
                prop_assert!(self.run.is_none());
            }
            Duty::WaitForReport => {
                let asked = [self.run, self.switch, self.compaction];
                prop_assert!(
                    asked
                        .into_iter()
                        .flatten()
                        .any(|ticket| driver.awaits(ticket))
                );
            }
            Duty::Settled(_) | Duty::Idle => {
                prop_assert_eq!(driver.machine().deadline(), None);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// ST7, AB4, PR1, PR2, EF1, EF2, ST6 for anything that comes between two duties; and each prompt ends.
    #[test]
    fn anything_in_between(ops in prop::collection::vec(op(), 1..150)) {
        let mut driver = Driver::new(RetryMachine::default());
        let mut books = Books { prompts: 1, ..Books::default() };
        let mut now = 0;
        driver.prompt();
        for op in ops {
            let ambient = Ambient::at(now);
            match op {
                Op::Next => {
                    let duty = driver.next(ambient);
                    books.keep(&driver, duty)?;
                }
                Op::Urgent => {
                    if let Some(duty) = driver.next_urgent(ambient) {
                        prop_assert!(matches!(duty, Duty::Emit(_) | Duty::AbortAgent));
                        books.keep(&driver, duty)?;
                    }
                }
                Op::RunEnds(text, full) => if let Some(run) = books.run.take() {
                    let mut message = AssistantMessage::error(text);
                    message.usage = full.then(|| Usage::of_input(WINDOW, 1));
                    driver.run_ended(run, Turn::from(message).context_window(WINDOW));
                },
                Op::Tools => if let Some(run) = books.run.take() {
                    driver.run_ended(run, AssistantMessage::new(StopReason::ToolUse));
                },
                Op::Succeeds(aborted) => if let Some(run) = books.run.take() {
                    let end = if aborted { AssistantMessage::aborted() } else { AssistantMessage::success() };
                    driver.run_ended(run, end);
                },
                Op::Silent => if let Some(run) = books.run.take() {
                    driver.run_ended(run, RunEnd::Reported);
                },
                Op::Within(stop, full) => {
                    let mut message = AssistantMessage::new(stop);
                    message.usage = full.then(|| Usage::of_input(WINDOW, 1));
                    driver.message_ended(books.run, Turn::from(message).context_window(WINDOW));
                }
                Op::OwnMessage(stop) => {
                    let mut message = AssistantMessage::new(stop);
                    message.error_message = Some(R.to_owned());
                    driver.message_ended(None, message);
                }
                Op::Switched(yes) => if let Some(switch) = books.switch.take() {
                    driver.credential_switched(switch, yes);
                },
                Op::Compacted(again) => if let Some(compaction) = books.compaction.take() {
                    let answer = if again { Compaction::RunAgain } else { Compaction::Done };
                    driver.compacted(compaction, answer);
                },
                Op::Stale => {
                    let (mut other, ticket) = World::prompted();
                    let _ = other.next();
                    if [books.run, books.switch, books.compaction].contains(&Some(ticket)) {
                        continue;
                    }
                    driver.run_ended(ticket, AssistantMessage::success());
                    driver.credential_switched(ticket, true);
                    driver.compacted(ticket, Compaction::RunAgain);
                }
                Op::AbortRetry => driver.abort_retry(),
                Op::Abort => {
                    driver.abort();
                    // What is left of the step before is carried out first.
                    while let Some(duty) = driver.next_urgent(ambient) {
                        books.keep(&driver, duty)?;
                    }
                    books.aborted = matches!(driver.machine().phase(), Phase::Draining) && !driver.is_settled();
                }
                Op::Enabled(enabled) => driver.update_settings(SettingsPatch::enabled(enabled)),
                Op::MaxRetries(max) => driver.update_settings(SettingsPatch::builder().max_retries(max).patch().unwrap()),
                Op::Time(ms) => now += ms,
                Op::Prompt | Op::Abandon => {
                    if matches!(op, Op::Prompt) {
                        driver.prompt();
                        books.prompts += 1;
                    } else {
                        driver.abandon();
                    }
                    books.aborted = false;
                    books.run = None;
                    books.switch = None;
                    books.compaction = None;
                }
            }
            prop_assert!(books.observer.violations.is_empty(), "{:?}", books.observer);
        }
        // Left to itself, whatever is at hand comes to an end.
        for _ in 0..60 {
            let duty = driver.next(Ambient::at(now));
            if let Duty::WaitUntil(due) = duty {
                now = due.0;
            }
            books.keep(&driver, duty)?;
            if let Some(run) = books.run.take() {
                driver.run_ended(run, RunEnd::failure(R));
            }
            if let Some(switch) = books.switch.take() {
                driver.credential_switched(switch, false);
            }
            if let Some(compaction) = books.compaction.take() {
                driver.compacted(compaction, Compaction::RunAgain);
            }
        }
        prop_assert!(driver.is_settled(), "every prompt ends: {:?}", driver);
        books.observer.check(books.prompts);
    }
}
