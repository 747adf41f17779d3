//! The driver: from effects to a shell's next duty. Pure, as the machine is.
//!
//! A [`Driver`] owns the [`RetryMachine`] of a session and keeps the books that every shell would have to keep: which
//! effects are not carried out yet (EF1, EF2), what is awaited, when a prompt is over (PR1). A shell asks
//! [`next`](Driver::next) what to do, does it, and hands in what came of it. So all shells do the same, and one of
//! your own is a short loop:
//!
//! ```
//! use retry_machine::driver::{Compaction, Driver, Duty, PromptOutcome, RunEnd};
//! use retry_machine::{Ambient, AssistantMessage, RetryMachine};
//!
//! let mut driver = Driver::new(RetryMachine::default());
//! let mut answers = vec![RunEnd::from(AssistantMessage::success()), RunEnd::failure("overloaded")];
//! let mut now_ms = 0;
//! let mut log = Vec::new();
//!
//! driver.prompt();
//! let settled = loop {
//!     // What users and timers bring (`driver.abort_retry()`, …) is handed in between two duties.
//!     match driver.next(Ambient::at(now_ms)) {
//!         Duty::Run { ticket, .. } => driver.run_ended(ticket, answers.pop().unwrap()),
//!         Duty::Emit(event) => log.push(event.to_string()),
//!         Duty::DropFailedMessage => log.push("drop".to_owned()),
//!         // A real loop waits for a command, until this instant at most.
//!         Duty::WaitUntil(due) => now_ms = due.0,
//!         Duty::SwitchCredential { ticket, .. } => driver.credential_switched(ticket, false),
//!         Duty::Compact { ticket, .. } => driver.compacted(ticket, Compaction::Done),
//!         Duty::AbortAgent => {} // Here a run is over before anything else can happen.
//!         Duty::WaitForReport | Duty::Idle => unreachable!("every report is made at once"),
//!         Duty::Settled(settled) => break settled,
//!     }
//! };
//! assert_eq!(settled.outcome, PromptOutcome::Answered);
//! assert_eq!(now_ms, 2000);
//! assert_eq!(
//!     log,
//!     ["run ended, will retry", "S(1,2000)", "drop", "X(true,1)", "run ended", "settled: answered"],
//! );
//! ```
//!
//! Deliberately absent: clocks, tasks, threads, listeners. The shells (feature `shell`) add them.

mod duty;

use std::borrow::Cow;
use std::collections::VecDeque;

pub use duty::{
    Compaction, Duty, PromptFailure, PromptOutcome, RunCause, RunEnd, SessionEvent, SessionState,
    Settled, Ticket,
};

use crate::classify::{Action, ErrorClass};
use crate::effect::{CompactionCause, Effect, RequestId, RunId};
use crate::event::{EndReason, Outcome, RetryEvent};
use crate::input::{Input, Turn};
use crate::machine::{Phase, RetryMachine};
use crate::message::StopReason;
use crate::settings::SettingsPatch;
use crate::time::Ambient;

/// The books of one session: effects, what is awaited, the prompt's boundary.
///
/// Its methods are of three kinds: the shell asks [`next`](Self::next); the shell reports ([`prompt`](Self::prompt),
/// [`run_ended`](Self::run_ended), [`message_ended`](Self::message_ended),
/// [`credential_switched`](Self::credential_switched), [`compacted`](Self::compacted), [`abandon`](Self::abandon)); users
/// command ([`abort_retry`](Self::abort_retry), [`abort`](Self::abort), [`update_settings`](Self::update_settings)).
/// What is handed in waits its turn (EF2) and takes effect in `next`; settings are stored at once. Nothing here fails
/// or panics; a report that is not awaited does nothing (ST10).
#[derive(Clone, Debug)]
pub struct Driver {
    machine: RetryMachine,
    /// What is left to carry out of the last step. No input is handed in before it is empty (EF2).
    todo: VecDeque<Todo>,
    /// What has been handed in and waits its turn.
    inbox: VecDeque<Report>,
    /// What the shell is at, and will report.
    awaited: Option<Awaited>,
    /// A run that may begin. Not yet begun, it is dropped by an abort (EF2).
    begin: Option<Begin>,
    /// A compaction check that waits for the run's end (EF2).
    check: Option<CompactionCause>,
    prompt: Option<Prompt>,
    /// The delay of the latest announced retry.
    delay_ms: u64,
    last_ticket: u64,
    started: u64,
    settled: u64,
}

/// What is left to carry out.
#[derive(Clone, Debug)]
enum Todo {
    Emit(SessionEvent),
    DropFailedMessage,
    Switch(RequestId, Option<u64>),
    AbortAgent,
    /// The end of a prompt, for the shell that runs it.
    Settle(Settled),
    /// The end of a prompt that no shell runs any more.
    Close,
}

/// What waits its turn.
#[derive(Clone, Debug)]
enum Report {
    Prompt,
    Abandon,
    RunEnded(Ticket, RunEnd),
    /// A message that ended within the run of this ticket, or outside the shell's runs.
    Message(Option<Ticket>, Box<Turn<'static>>),
    /// The last message of a run whose end has been announced (EF1).
    LastMessage(Box<Turn<'static>>),
    ContinueFailed(RunId, String),
    Switched(Ticket, bool),
    Compacted(Ticket, Compaction),
    AbortRetry,
    Abort,
}

#[derive(Clone, Copy, Debug)]
struct Awaited {
    ticket: Ticket,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Run(Run),
    Switch(RequestId),
    Compaction,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// The machine's id, if this is a retry.
    id: Option<RunId>,
    /// Whether a message of it has been handed in.
    reported: bool,
}

#[derive(Clone, Copy, Debug)]
enum Begin {
    Prompt,
    Continue(RunId),
    NextTurn(Option<RunId>),
    RunAgain,
}

/// The prompt at hand.
#[derive(Clone, Debug, Default)]
struct Prompt {
    /// The user has aborted everything: nothing new begins (AB4).
    aborted: bool,
    /// Compaction has been asked for an overflow.
    compacted: bool,
    /// Compaction has had its further run.
    ran_again: bool,
    retries: u32,
    /// How it would end now; None while that is open.
    outcome: Option<PromptOutcome>,
}

impl Driver {
    /// Over a machine, which no prompt has used yet.
    #[must_use]
    pub const fn new(machine: RetryMachine) -> Self {
        Self {
            machine,
            todo: VecDeque::new(),
            inbox: VecDeque::new(),
            awaited: None,
            begin: None,
            check: None,
            prompt: None,
            delay_ms: 0,
            last_ticket: 0,
            started: 0,
            settled: 0,
        }
    }

    /// Starts a prompt (ST11). One that is running is given up first, as by [`abandon`](Self::abandon).
    pub fn prompt(&mut self) {
        if !self.is_settled() {
            self.abandon();
        }
        self.started += 1;
        self.inbox.push_back(Report::Prompt);
    }

    /// Gives up the prompt at hand, if there is one: the shell will carry out nothing more for it. Its chain is
    /// closed as cancelled and its end is announced; [`next_urgent`](Self::next_urgent) brings the events.
    pub fn abandon(&mut self) {
        self.todo.retain_mut(|todo| match todo {
            Todo::Emit(_) | Todo::AbortAgent | Todo::Close => true,
            Todo::DropFailedMessage | Todo::Switch(..) => false,
            Todo::Settle(_) => {
                *todo = Todo::Close;
                true
            }
        });
        self.inbox.push_back(Report::Abandon);
    }

    /// A run has ended.
    pub fn run_ended(&mut self, ticket: Ticket, end: impl Into<RunEnd>) {
        self.inbox.push_back(Report::RunEnded(ticket, end.into()));
    }

    /// A message has ended (EF1).
    ///
    /// With the ticket of a run: one within it, such as `toolUse`; a failed or aborted one is for the run's end and
    /// not taken here. Without a ticket: one of a run that the host made itself (ST8), a failed or aborted one
    /// when that run has ended. Without a prompt nothing is taken: nobody would carry out the retry.
    pub fn message_ended(&mut self, ticket: Option<Ticket>, turn: impl Into<Turn<'static>>) {
        self.inbox
            .push_back(Report::Message(ticket, Box::new(turn.into())));
    }

    /// Whether another credential took over. No store, or an error in it: no.
    pub fn credential_switched(&mut self, ticket: Ticket, switched: bool) {
        self.inbox.push_back(Report::Switched(ticket, switched));
    }

    /// Compaction has looked at the session.
    pub fn compacted(&mut self, ticket: Ticket, answer: Compaction) {
        self.inbox.push_back(Report::Compacted(ticket, answer));
    }

    /// Gives up retrying and leaves a running call alone (AB1, AB2).
    pub fn abort_retry(&mut self) {
        self.inbox.push_back(Report::AbortRetry);
    }

    /// Aborts everything (AB3): the retry, the running call or compaction, and what would have followed.
    pub fn abort(&mut self) {
        self.inbox.push_back(Report::Abort);
    }

    /// New values for some settings, from the next failure on (NU5). Has no effects, so it waits for nothing.
    pub fn update_settings(&mut self, patch: SettingsPatch) {
        let effects = self
            .machine
            .handle(Input::SettingsChanged(patch), Ambient::default());
        debug_assert!(effects.is_empty(), "settings changed: stored");
    }

    /// The shell's next duty. To ask says that the one before has been carried out.
    #[must_use]
    pub fn next(&mut self, ambient: Ambient) -> Duty {
        self.next_by(|| ambient)
    }

    /// The same by a clock that is read only if something depends on it.
    pub(crate) fn next_by(&mut self, mut clock: impl FnMut() -> Ambient) -> Duty {
        loop {
            if let Some(todo) = self.todo.pop_front() {
                match self.duty(todo) {
                    Some(duty) => return duty,
                    None => continue,
                }
            }
            if let Some(report) = self.inbox.pop_front() {
                self.take(report, clock());
                continue;
            }
            if let Some(begin) = self.begin.take() {
                return self.run(begin);
            }
            if self.awaited.is_some() {
                return Duty::WaitForReport;
            }
            let Some(prompt) = &mut self.prompt else {
                return Duty::Idle;
            };
            if let Some(cause) = self.check.take() {
                let overflow = cause == CompactionCause::Overflow;
                // If compaction did not cure an overflow, it does not cure the next.
                if !(overflow && std::mem::replace(&mut prompt.compacted, true)) {
                    let ticket = self.wait_for(What::Compaction);
                    return Duty::Compact { ticket, cause };
                }
            } else if let Phase::Waiting { timer, due, .. } = self.machine.phase() {
                let ambient = clock();
                if ambient.monotonic < due {
                    return Duty::WaitUntil(due);
                }
                // The continue begins with the wake: no abort comes between them (EF2).
                self.step(Input::TimerFired(timer), ambient);
            } else {
                self.settle(Todo::Settle);
            }
        }
    }

    /// What anybody may carry out while the one who asks [`next`](Self::next) is busy with a run or asleep: an event
    /// or an abort. None: nothing, or the rest is for `next`.
    #[must_use]
    pub fn next_urgent(&mut self, ambient: Ambient) -> Option<Duty> {
        self.next_urgent_by(|| ambient)
    }

    pub(crate) fn next_urgent_by(&mut self, mut clock: impl FnMut() -> Ambient) -> Option<Duty> {
        loop {
            match self.todo.front() {
                Some(Todo::Emit(_) | Todo::AbortAgent | Todo::Close) => {
                    let duty = self.todo.pop_front().and_then(|todo| self.duty(todo));
                    if duty.is_some() {
                        return duty;
                    }
                }
                Some(Todo::DropFailedMessage | Todo::Switch(..) | Todo::Settle(_)) => return None,
                None => {
                    let report = self.inbox.pop_front()?;
                    self.take(report, clock());
                }
            }
        }
    }

    /// Whether this report is still awaited: if not, a shell need not go on with what it is for.
    #[must_use]
    pub fn awaits(&self, ticket: Ticket) -> bool {
        self.awaited.is_some_and(|awaited| awaited.ticket == ticket)
    }

    /// How many prompts have been started. Whoever waits for the latest waits until that many
    /// [have settled](Self::prompts_settled) (PR2).
    #[must_use]
    pub const fn prompts_started(&self) -> u64 {
        self.started
    }

    /// How many prompts are over.
    #[must_use]
    pub const fn prompts_settled(&self) -> u64 {
        self.settled
    }

    /// Whether no prompt is running.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.started == self.settled
    }

    /// The machine, to read its getters.
    #[must_use]
    pub const fn machine(&self) -> &RetryMachine {
        &self.machine
    }

    /// What the session looks like now.
    #[must_use]
    pub fn state(&self, ambient: Ambient) -> SessionState {
        let settings = self.machine.settings();
        let deadline = self.machine.deadline();
        SessionState {
            phase: self.machine.phase(),
            prompt_running: !self.is_settled(),
            auto_retry_enabled: settings.enabled(),
            max_retries: settings.max_retries(),
            base_delay_ms: settings.base_delay_ms(),
            delay_ms: deadline.map(|_| self.delay_ms),
            remaining_ms: deadline.map(|due| due.since(ambient.monotonic)),
        }
    }

    fn duty(&mut self, todo: Todo) -> Option<Duty> {
        Some(match todo {
            Todo::Emit(event) => Duty::Emit(event),
            Todo::DropFailedMessage => Duty::DropFailedMessage,
            Todo::Switch(request, retry_after_ms) => Duty::SwitchCredential {
                ticket: self.wait_for(What::Switch(request)),
                retry_after_ms,
            },
            Todo::AbortAgent => Duty::AbortAgent,
            Todo::Settle(settled) => {
                self.close();
                Duty::Settled(settled)
            }
            Todo::Close => {
                self.close();
                return None;
            }
        })
    }

    fn close(&mut self) {
        self.prompt = None;
        self.settled += 1;
    }

    fn wait_for(&mut self, what: What) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.awaited = Some(Awaited { ticket, what });
        ticket
    }

    /// Ends the waiting for the report of this ticket, if it is awaited.
    fn answered(&mut self, ticket: Ticket) -> Option<What> {
        let answered = self.awaited.take_if(|awaited| awaited.ticket == ticket)?;
        Some(answered.what)
    }

    fn run(&mut self, begin: Begin) -> Duty {
        let prompt = self.prompt.get_or_insert_default();
        let (id, cause) = match begin {
            Begin::Prompt => (None, RunCause::Prompt),
            Begin::Continue(id) => {
                let attempt = self.machine.attempt();
                prompt.retries += 1;
                (Some(id), RunCause::Continue { attempt })
            }
            Begin::NextTurn(id) => (id, RunCause::NextTurn),
            Begin::RunAgain => (None, RunCause::RunAgain),
        };
        // The `toolUse` message before counts as one of this run.
        let reported = cause == RunCause::NextTurn;
        if !reported {
            prompt.outcome = None;
        }
        let ticket = self.wait_for(What::Run(Run { id, reported }));
        Duty::Run { ticket, cause }
    }

    /// Announces the prompt's end, and then has it ended by `last`.
    fn settle(&mut self, last: impl FnOnce(Settled) -> Todo) {
        let Some(prompt) = &self.prompt else { return };
        let settled = Settled {
            outcome: prompt.outcome.clone().unwrap_or(PromptOutcome::Answered),
            retries: prompt.retries,
        };
        self.emit(SessionEvent::Settled(settled.clone()));
        self.todo.push_back(last(settled));
    }

    fn emit(&mut self, event: SessionEvent) {
        self.todo.push_back(Todo::Emit(event));
    }

    fn run_is_over(&mut self, will_retry: bool) {
        self.emit(SessionEvent::RunEnded { will_retry });
    }

    /// Handles one report. All effects of what came before have been carried out.
    fn take(&mut self, report: Report, ambient: Ambient) {
        match report {
            Report::Prompt => {
                self.step(Input::PromptStarted, ambient);
                self.prompt = Some(Prompt::default());
                self.begin = Some(Begin::Prompt);
            }
            Report::Abandon => self.give_up(ambient),
            Report::RunEnded(ticket, end) => {
                if let Some(What::Run(run)) = self.answered(ticket) {
                    self.end_run(run, end, ambient);
                }
            }
            Report::Message(ticket, turn) => {
                if ticket.is_none_or(|ticket| self.awaits(ticket)) {
                    self.message_within(turn, ambient);
                }
            }
            Report::LastMessage(turn) => self.message(turn, ambient),
            Report::ContinueFailed(run, error) => {
                let error = Cow::Owned(error);
                self.step(Input::ContinueFailed { run, error }, ambient);
            }
            Report::Switched(ticket, switched) => {
                if let Some(What::Switch(request)) = self.answered(ticket) {
                    self.step(Input::CredentialSwitched { request, switched }, ambient);
                }
            }
            Report::Compacted(ticket, answer) => {
                if let Some(What::Compaction) = self.answered(ticket) {
                    match answer {
                        Compaction::Done => {}
                        Compaction::RunAgain => self.run_again(),
                    }
                }
            }
            Report::AbortRetry => self.step(Input::AbortRetry, ambient),
            Report::Abort => self.abort_all(ambient),
        }
    }

    /// One step of the machine; what it asks for is queued, or noted where it can be read off the machine.
    fn step(&mut self, input: Input<'static>, ambient: Ambient) {
        for effect in self.machine.handle(input, ambient) {
            match effect {
                Effect::Emit { event } => {
                    self.note(&event);
                    self.emit(SessionEvent::Retry(event));
                }
                Effect::SwitchCredential {
                    request,
                    retry_after_ms,
                } => self.todo.push_back(Todo::Switch(request, retry_after_ms)),
                Effect::DropFailedMessage => self.todo.push_back(Todo::DropFailedMessage),
                // Whether and until when to wait is asked of the machine each time.
                Effect::Sleep { .. } | Effect::CancelSleep { .. } => {}
                Effect::ContinueAgent { run } => self.begin = Some(Begin::Continue(run)),
                Effect::AbortAgent => self.todo.push_back(Todo::AbortAgent),
                Effect::CheckCompaction { cause } => {
                    // Of several, overflow wins, else the last.
                    if self.check != Some(CompactionCause::Overflow) {
                        self.check = Some(cause);
                    }
                }
            }
        }
        // An answer that the machine does not await any more need not come.
        let switching = matches!(self.machine.phase(), Phase::Switching { .. });
        let superseded = self
            .todo
            .iter()
            .any(|todo| matches!(todo, Todo::Switch(..)));
        self.awaited.take_if(|awaited| match awaited.what {
            What::Switch(_) => !switching || superseded,
            What::Run(_) | What::Compaction => false,
        });
    }

    /// What a retry event says about the prompt.
    fn note(&mut self, event: &RetryEvent<'_>) {
        match event {
            RetryEvent::Start(start) => self.delay_ms = start.delay_ms,
            RetryEvent::End(end) => match &end.outcome {
                Outcome::Success => {}
                Outcome::Failure {
                    reason: EndReason::Cancelled,
                    ..
                } => self.set_outcome(PromptOutcome::Cancelled),
                Outcome::Failure {
                    final_error,
                    reason,
                } => {
                    let class = end
                        .about
                        .as_ref()
                        .map_or(ErrorClass::Unknown, |about| about.0);
                    self.set_outcome(failed(final_error, class, *reason));
                }
            },
        }
    }

    fn set_outcome(&mut self, outcome: PromptOutcome) {
        if let Some(prompt) = &mut self.prompt {
            prompt.outcome = Some(outcome);
        }
    }

    /// A message that is not the last of a run of the shell's, or of a run of the host's own.
    fn message_within(&mut self, turn: Box<Turn<'static>>, ambient: Ambient) {
        let Some(prompt) = &mut self.prompt else {
            return;
        };
        if let Some(Awaited {
            what: What::Run(run),
            ..
        }) = &mut self.awaited
        {
            if is_failed(&turn) {
                return;
            }
            run.reported = true;
            let ends_draining = turn.stop_reason != StopReason::ToolUse;
            if self.machine.phase() == Phase::Draining && ends_draining {
                // The run goes on, and the end of draining is the run's end (AB4).
                prompt.outcome = Some(PromptOutcome::Answered);
                return;
            }
        } else if prompt.aborted {
            // What the host runs by itself now is not the prompt's affair any more.
            return;
        }
        self.message(turn, ambient);
    }

    /// Hands a message in.
    fn message(&mut self, mut turn: Box<Turn<'static>>, ambient: Ambient) {
        self.judge(&mut turn, ambient);
        match turn.stop_reason {
            StopReason::Stop | StopReason::Length => self.set_outcome(PromptOutcome::Answered),
            // The run goes on, and its end decides.
            StopReason::ToolUse => {}
            StopReason::Aborted => self.set_outcome(PromptOutcome::Cancelled),
            StopReason::Error => {
                let verdict = turn.verdict.as_ref();
                let class = verdict.map_or(ErrorClass::Unknown, |verdict| verdict.class);
                // If a chain ends with it, its end event says more.
                let reason = match class.action() {
                    Action::Compact => EndReason::Overflow,
                    Action::Stop => EndReason::Fatal,
                    Action::Retry | Action::Switch => EndReason::Disabled,
                };
                let text = turn.error_text.as_deref().unwrap_or("Unknown error");
                self.set_outcome(match self.machine.phase() {
                    Phase::Draining => PromptOutcome::Cancelled,
                    Phase::Idle
                    | Phase::Switching { .. }
                    | Phase::Waiting { .. }
                    | Phase::InFlight { .. } => failed(text, class, reason),
                });
            }
        }
        self.step(Input::AssistantMessage(*turn), ambient);
    }

    /// Notes the verdict on a failed turn in it, so that nothing is classified twice.
    fn judge(&self, turn: &mut Turn<'_>, ambient: Ambient) {
        if turn.stop_reason == StopReason::Error {
            turn.verdict = Some(self.machine.verdict(turn, ambient.wall));
        }
    }

    fn end_run(&mut self, run: Run, end: RunEnd, ambient: Ambient) {
        match end {
            RunEnd::Turn(mut turn) if is_failed(&turn) => {
                // Announced first, then handed in (EF1), before anything that a listener does about it.
                self.judge(&mut turn, ambient);
                self.run_is_over(self.machine.would_retry(&turn, ambient));
                self.inbox.push_front(Report::LastMessage(turn));
            }
            RunEnd::Turn(turn) => {
                let aborted = self.prompt.as_ref().is_some_and(|prompt| prompt.aborted);
                let goes_on = turn.stop_reason == StopReason::ToolUse && !aborted;
                self.message(turn, ambient);
                if goes_on {
                    self.begin = Some(Begin::NextTurn(run.id));
                } else {
                    self.run_is_over(false);
                }
            }
            RunEnd::Reported if run.reported => self.run_is_over(false),
            RunEnd::Reported => self.no_message(run, "The run ended without a message".to_owned()),
            RunEnd::NoMessage(why) => self.no_message(run, why),
        }
    }

    fn no_message(&mut self, run: Run, why: String) {
        self.run_is_over(false);
        let outcome = match self.machine.phase() {
            Phase::Draining => PromptOutcome::Cancelled,
            Phase::Idle
            | Phase::Switching { .. }
            | Phase::Waiting { .. }
            | Phase::InFlight { .. } => {
                failed(&why, ErrorClass::Unknown, EndReason::ContinueFailed)
            }
        };
        self.set_outcome(outcome);
        if let Some(id) = run.id {
            self.inbox.push_front(Report::ContinueFailed(id, why));
        }
    }

    fn run_again(&mut self) {
        let idle = self.machine.phase() == Phase::Idle;
        let Some(prompt) = &mut self.prompt else {
            return;
        };
        if !idle || std::mem::replace(&mut prompt.ran_again, true) {
            return;
        }
        if let Some(PromptOutcome::Failed(_)) = prompt.outcome {
            // No agent runs from a context that ends with an answer, be it a failed one.
            self.todo.push_back(Todo::DropFailedMessage);
        }
        self.begin = Some(Begin::RunAgain);
    }

    fn abort_all(&mut self, ambient: Ambient) {
        if let Some(prompt) = &mut self.prompt {
            prompt.aborted = true;
            // Nobody takes back an answer that is there.
            if prompt.outcome != Some(PromptOutcome::Answered) {
                prompt.outcome = Some(PromptOutcome::Cancelled);
            }
        }
        // A check not carried out yet would fall into the draining (ST6).
        self.check = None;
        self.step(Input::Abort, ambient);
        match self.begin.take() {
            // The run ends between two of its turns.
            Some(Begin::NextTurn(_)) => self.run_is_over(false),
            Some(Begin::Prompt | Begin::Continue(_) | Begin::RunAgain) | None => {}
        }
    }

    fn give_up(&mut self, ambient: Ambient) {
        if self.prompt.is_none() {
            return;
        }
        let in_run = match (self.awaited.take(), self.begin.take()) {
            (
                Some(Awaited {
                    what: What::Run(_), ..
                }),
                _,
            )
            | (_, Some(Begin::NextTurn(_))) => true,
            (_, Some(Begin::Prompt | Begin::Continue(_) | Begin::RunAgain) | None) => false,
        };
        self.check = None;
        self.set_outcome(PromptOutcome::Cancelled);
        // No run will hand in messages any more: what ST11 says at the next prompt, said now.
        self.step(Input::PromptStarted, ambient);
        if in_run {
            self.run_is_over(false);
        }
        self.settle(|_| Todo::Close);
    }
}

/// Whether a message is handed in only after its run has ended (EF1).
fn is_failed(turn: &Turn<'_>) -> bool {
    match turn.stop_reason {
        StopReason::Error | StopReason::Aborted => true,
        StopReason::Stop | StopReason::Length | StopReason::ToolUse => false,
    }
}

fn failed(error: &str, class: ErrorClass, reason: EndReason) -> PromptOutcome {
    PromptOutcome::Failed(PromptFailure {
        error: error.to_owned(),
        class,
        reason,
    })
}
