//! One recorded run through a fresh machine, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};
use std::mem;
use std::sync::Arc;

use retry_machine::wire::{AgentLine, AgentMessage, Entry};
use retry_machine::{
    Ambient, AssistantMessage, Classifier, Effect, EndReason, Input, Outcome, Phase, RetryEvent,
    RetryMachine, RetrySettings, SettingsPatch, StopReason, Turn, Verdict,
};

use super::report::{Record, Report, Summary};
use super::{Line, Lines, Stop};

/// A run while it is read.
pub struct Run {
    file: String,
    machine: RetryMachine,
    /// Whether flags or file give the budget, and the first delay.
    given_retries: bool,
    given_delay: bool,
    context_window: u64,
    now_ms: u64,
    session: Option<String>,
    announced: bool,
    /// A failed message whose fate in the recording is not known yet.
    pending: Option<Pending>,
    /// The attempt at which the recording's budget ends, as far as it shows one.
    recorded_max: Option<u32>,
    /// The recording's last attempt in the chain at hand.
    recorded_attempt: u32,
    summary: Summary,
}

/// A failed message and what the recording did about it.
struct Pending {
    line: u64,
    message: Box<AssistantMessage>,
    /// A history file shows retries only by what follows.
    in_history: bool,
    recorded: Recorded,
}

/// What the recording did about a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing is known (yet).
    Nothing,
    /// It started a retry.
    Retry,
    /// It compacted.
    Compaction,
    /// Its budget was used up.
    Exhausted,
}

/// What the machine did about a failure.
enum Decided {
    Retry,
    GaveUp(Option<EndReason>),
}

impl Run {
    pub fn new(
        file: &str,
        classifier: &Arc<Classifier>,
        settings: &[SettingsPatch],
        context_window: u64,
    ) -> Self {
        let mut machine =
            RetryMachine::with_classifier(RetrySettings::default(), classifier.clone());
        for patch in settings {
            let _ = machine.handle(Input::SettingsChanged(patch.clone()), Ambient::at(0));
        }
        let given = |key| settings.iter().any(|patch| patch.names(key));
        Self {
            file: file.to_owned(),
            machine,
            given_retries: given("maxRetries"),
            given_delay: given("baseDelayMs"),
            context_window,
            now_ms: 0,
            session: None,
            announced: false,
            pending: None,
            recorded_max: None,
            recorded_attempt: 0,
            summary: Summary::default(),
        }
    }

    /// Takes one line of the recording.
    pub fn line(
        &mut self,
        number: u64,
        line: AgentLine,
        report: &mut dyn Report,
    ) -> io::Result<()> {
        match line {
            AgentLine::Session { id } => self.session = id,
            AgentLine::Message { entry, message } => match message {
                AgentMessage::User { timestamp } => {
                    self.summary.messages += 1;
                    self.settle(report)?;
                    self.recorded_attempt = 0;
                    let at = timestamp.map_or(self.now_ms, |at| at.0);
                    // A timer that is due by then has fired by then.
                    if self.machine.deadline().is_some_and(|due| due.0 <= at) {
                        self.fire(number, report)?;
                    }
                    self.now_ms = self.now_ms.max(at);
                    self.handle(number, Input::PromptStarted, report)?;
                }
                AgentMessage::Assistant(message) => {
                    self.summary.messages += 1;
                    self.summary.turns += 1;
                    if let Some(pending) = &mut self.pending
                        && pending.in_history
                        && pending.recorded == Recorded::Nothing
                    {
                        pending.recorded = Recorded::Retry;
                    }
                    self.settle(report)?;
                    if message.stop_reason == StopReason::Error {
                        self.pending = Some(Pending {
                            line: number,
                            message,
                            in_history: entry.is_some(),
                            recorded: Recorded::Nothing,
                        });
                    } else {
                        self.recorded_attempt = 0;
                        self.arrive(number, &message, report)?;
                        self.handle(number, self.turn(&message, None).into(), report)?;
                    }
                }
                AgentMessage::Other => self.summary.messages += 1,
            },
            AgentLine::RetryStart {
                attempt,
                max_attempts,
                delay_ms,
            } => {
                if let Some(pending) = &mut self.pending {
                    pending.recorded = Recorded::Retry;
                }
                self.recorded_attempt = attempt;
                self.recorded_settings(attempt, max_attempts, delay_ms);
            }
            AgentLine::RetryEnd { success, attempt } => {
                let exhausted = !success && self.recorded_max.is_some_and(|max| attempt >= max);
                if let Some(pending) = &mut self.pending
                    && pending.recorded == Recorded::Nothing
                    && exhausted
                {
                    pending.recorded = Recorded::Exhausted;
                }
            }
            AgentLine::AgentEnd { will_retry } => {
                if let Some(pending) = &mut self.pending
                    && will_retry
                {
                    pending.recorded = Recorded::Retry;
                }
            }
            AgentLine::Compaction { .. } => {
                if let Some(pending) = &mut self.pending
                    && pending.recorded == Recorded::Nothing
                {
                    pending.recorded = Recorded::Compaction;
                }
            }
            AgentLine::Entry(_) | AgentLine::Other | _ => {}
        }
        Ok(())
    }

    /// What the recording shows of its settings counts where nothing else was said.
    fn recorded_settings(
        &mut self,
        attempt: u32,
        max_attempts: Option<u32>,
        delay_ms: Option<u64>,
    ) {
        let mut shown = SettingsPatch::builder();
        if let Some(max) = max_attempts {
            self.recorded_max = Some(max);
            if !self.given_retries {
                shown = shown.max_retries(max);
            }
        }
        if let Some(delay_ms) = delay_ms
            && !self.given_delay
        {
            self.given_delay = true;
            shown = shown.base_delay_ms(delay_ms >> attempt.saturating_sub(1).min(63));
        }
        // A value that no settings file could have says nothing.
        if let Ok(patch) = shown.patch() {
            let _ = self
                .machine
                .handle(Input::SettingsChanged(patch), Ambient::at(self.now_ms));
        }
    }

    /// Reports a line that cannot be read.
    pub fn malformed(
        &mut self,
        number: u64,
        reason: &str,
        report: &mut dyn Report,
    ) -> io::Result<()> {
        self.summary.malformed += 1;
        report.record(&Record::Malformed {
            file: &self.file,
            line: number,
            reason,
        })
    }

    /// The end of the recording.
    pub fn end(&mut self, report: &mut dyn Report) -> io::Result<Summary> {
        if let Some(pending) = &mut self.pending
            && pending.in_history
            && pending.recorded == Recorded::Nothing
            && !self.given_retries
        {
            // Whether a budget was left is not known.
            pending.recorded = Recorded::Exhausted;
        }
        self.settle(report)?;
        self.announce(report)?;
        if self.machine.is_retrying() {
            self.summary.unfinished += 1;
        }
        if self.summary.messages == 0 {
            report.record(&Record::Empty { file: &self.file })?;
        }
        report.run_ended(&self.file, &self.summary)?;
        Ok(mem::take(&mut self.summary))
    }

    /// What was counted so far.
    pub fn into_summary(self) -> Summary {
        self.summary
    }

    /// Hands in the failed message that waited, and compares.
    fn settle(&mut self, report: &mut dyn Report) -> io::Result<()> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(());
        };
        if pending.in_history && pending.recorded == Recorded::Nothing && !self.given_retries {
            pending.recorded = Recorded::Exhausted;
        }
        let Pending {
            line,
            message,
            recorded,
            ..
        } = pending;
        self.arrive(line, &message, report)?;
        let turn = self.turn(&message, None);
        let verdict = self.machine.verdict(&turn, Ambient::at(self.now_ms).wall);
        self.summary.failure(verdict.class);
        report.record(&Record::Failure {
            file: &self.file,
            line,
            now_ms: self.now_ms,
            text: message.error_text().unwrap_or_default(),
            verdict: &verdict,
        })?;
        let decided = self.handle(
            line,
            self.turn(&message, Some(verdict.clone())).into(),
            report,
        )?;
        let differs = match (recorded, &decided) {
            (Recorded::Retry, Decided::GaveUp(Some(EndReason::Exhausted))) => false,
            (Recorded::Retry, Decided::GaveUp(_)) => true,
            (Recorded::Nothing, Decided::Retry) => self.budget_left(),
            (Recorded::Compaction, Decided::Retry) => true,
            (Recorded::Nothing | Recorded::Compaction, Decided::GaveUp(_))
            | (Recorded::Retry, Decided::Retry)
            | (Recorded::Exhausted, _) => false,
        };
        if recorded != Recorded::Retry {
            self.recorded_attempt = 0;
        }
        if differs {
            self.summary.differences += 1;
            report.record(&Record::Difference {
                file: &self.file,
                line,
                recorded: match recorded {
                    Recorded::Retry => "retry",
                    Recorded::Nothing | Recorded::Exhausted => "none",
                    Recorded::Compaction => "compact",
                },
                machine: match decided {
                    Decided::Retry => verdict.action().name(),
                    Decided::GaveUp(Some(EndReason::Disabled)) => "disabled",
                    Decided::GaveUp(_) if !self.machine.settings().enabled() => "disabled",
                    Decided::GaveUp(_) => verdict.action().name(),
                },
                verdict: &verdict,
            })?;
        }
        Ok(())
    }

    /// Whether the recording had a retry left, as far as it shows a budget.
    fn budget_left(&self) -> bool {
        self.recorded_max
            .is_none_or(|max| self.recorded_attempt < max)
    }

    /// Moves the clock to a message's time; a timer that is armed fires first, at its instant.
    fn arrive(
        &mut self,
        line: u64,
        message: &AssistantMessage,
        report: &mut dyn Report,
    ) -> io::Result<()> {
        self.announce(report)?;
        if self.machine.deadline().is_some() {
            self.fire(line, report)?;
        }
        if let Some(timestamp) = message.timestamp {
            self.now_ms = self.now_ms.max(timestamp.0);
        }
        Ok(())
    }

    fn fire(&mut self, line: u64, report: &mut dyn Report) -> io::Result<()> {
        if let Phase::Waiting { timer, due, .. } = self.machine.phase() {
            self.now_ms = self.now_ms.max(due.0);
            self.handle(line, Input::TimerFired(timer), report)?;
        }
        Ok(())
    }

    fn turn<'m>(&self, message: &'m AssistantMessage, verdict: Option<Verdict>) -> Turn<'m> {
        let turn = Turn::message(message).context_window(self.context_window);
        match verdict {
            Some(verdict) => turn.verdict(verdict),
            None => turn,
        }
    }

    /// One step of the machine; a request for another credential is answered no, at once.
    fn handle(
        &mut self,
        line: u64,
        input: Input<'_>,
        report: &mut dyn Report,
    ) -> io::Result<Decided> {
        let mut decided = Decided::GaveUp(None);
        let mut request = None;
        for effect in self.machine.handle(input, Ambient::at(self.now_ms)) {
            match &effect {
                Effect::Emit {
                    event: RetryEvent::Start(start),
                } => {
                    decided = Decided::Retry;
                    self.summary.retries += 1;
                    self.summary.wait_ms = self.summary.wait_ms.saturating_add(start.delay_ms);
                }
                Effect::Emit {
                    event: RetryEvent::End(end),
                } => {
                    self.summary.chains += 1;
                    match &end.outcome {
                        Outcome::Success => self.summary.recovered += 1,
                        Outcome::Failure { reason, .. } => {
                            decided = Decided::GaveUp(Some(*reason));
                            match reason {
                                EndReason::Exhausted => self.summary.exhausted += 1,
                                EndReason::Cancelled => self.summary.cancelled += 1,
                                _ => self.summary.gave_up += 1,
                            }
                        }
                    }
                }
                Effect::SwitchCredential { request: asked, .. } => request = Some(*asked),
                Effect::DropFailedMessage
                | Effect::Sleep { .. }
                | Effect::CancelSleep { .. }
                | Effect::ContinueAgent { .. }
                | Effect::AbortAgent => {}
                Effect::CheckCompaction { .. } => {}
            }
            report.record(&Record::Effect {
                file: &self.file,
                line,
                now_ms: self.now_ms,
                effect: &effect,
            })?;
        }
        if let Some(request) = request {
            let answer = Input::CredentialSwitched {
                request,
                switched: false,
            };
            return self.handle(line, answer, report);
        }
        Ok(decided)
    }

    /// The head of the run, once: before its first failure, when its settings are known.
    fn announce(&mut self, report: &mut dyn Report) -> io::Result<()> {
        if mem::replace(&mut self.announced, true) {
            return Ok(());
        }
        report.record(&Record::Session {
            file: &self.file,
            id: self.session.as_deref(),
            settings: self.machine.settings(),
        })
    }
}

/// The entries of one branch of a history file.
pub struct Branch {
    ids: BTreeSet<String>,
}

impl Branch {
    /// From the root to `leaf`.
    pub fn to(
        leaf: &str,
        reader: io::Result<(Box<dyn BufRead>, Option<u64>)>,
        max_line: usize,
    ) -> Result<Self, Stop> {
        let mut parents: BTreeMap<String, Option<String>> = BTreeMap::new();
        let mut lines = Lines::new(reader?.0, max_line);
        while let Some(line) = lines.next_line()? {
            if let Line::Whole(line) = line
                && let Ok(line) = AgentLine::parse(line)
                && let Some(entry) = entry(&line)
            {
                parents.insert(entry.id.clone(), entry.parent.clone());
            }
        }
        let mut ids = BTreeSet::new();
        let mut next = Some(leaf.to_owned());
        while let Some(id) = next {
            let Some(parent) = parents.get(&id) else {
                if ids.is_empty() {
                    return Err(Stop::Input(io::Error::other(format!(
                        "no entry with the id {leaf}"
                    ))));
                }
                break;
            };
            next = parent.clone();
            // A file that names an entry its own ancestor ends here.
            if !ids.insert(id) {
                break;
            }
        }
        Ok(Self { ids })
    }

    /// Whether the line has no place in the tree, or one on this branch.
    pub fn contains(&self, line: &AgentLine) -> bool {
        entry(line).is_none_or(|entry| self.ids.contains(&entry.id))
    }
}

fn entry(line: &AgentLine) -> Option<&Entry> {
    match line {
        AgentLine::Message { entry, .. } | AgentLine::Compaction { entry } => entry.as_ref(),
        AgentLine::Entry(entry) => Some(entry),
        _ => None,
    }
}
