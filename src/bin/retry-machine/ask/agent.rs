//! An agent as small as can be: it asks a model from its runtime context and shows the answer. Everything about
//! retrying is the session's.

use std::io::{self, IsTerminal};

use retry_machine::driver::{Compaction, RunCause, RunEnd};
use retry_machine::shell::{Host, Run};
use retry_machine::{AssistantMessage, CompactionCause, StopReason, Turn};

use super::api::{Answer, Message, Request, Role};
use super::call::Endpoint;
use super::keys::{Keys, Redactor};
use super::record::{Asked, Record};
use retry_machine::status::Screen;
use retry_machine::status::text::escaped;

/// The agent of `ask` and `demo`.
pub struct Agent {
    endpoint: Endpoint,
    keys: Keys,
    redactor: Redactor,
    record: Record,
    /// The runtime context.
    context: Vec<Message>,
    /// Whether the last message of the context is a failed one.
    failed: bool,
    /// Whether older turns may be cut when the context does not fit.
    may_cut: bool,
    /// What has arrived of the answer at hand.
    answer: Answer,
    aborted: bool,
    output: Output,
    pub screen: Screen,
}

/// How an answer is shown.
struct Output {
    /// On a terminal as it streams in; else when it is complete, so that what reads it reads one answer and nothing
    /// of those that were cut.
    live: bool,
    /// Of the run at hand, something has been shown.
    shown: bool,
    in_mid_line: bool,
    error: Option<io::Error>,
}

impl Agent {
    pub fn new(endpoint: Endpoint, keys: Keys, record: Record) -> Self {
        Self {
            endpoint,
            redactor: keys.redactor(),
            keys,
            record,
            context: Vec::new(),
            failed: false,
            may_cut: false,
            answer: Answer::default(),
            aborted: false,
            output: Output {
                live: io::stdout().is_terminal(),
                shown: false,
                in_mid_line: false,
                error: None,
            },
            screen: Screen::default(),
        }
    }

    /// The same amid a conversation, of which older turns may be cut.
    pub fn with_conversation(mut self, context: Vec<Message>) -> Self {
        self.context = context;
        self.may_cut = true;
        self
    }

    /// Whether the user has aborted a call.
    pub const fn was_aborted(&self) -> bool {
        self.aborted
    }

    /// What kept the answer from being written.
    pub fn take_output_error(&mut self) -> Option<io::Error> {
        self.output.error.take()
    }

    /// Asks the model once and shows what it says.
    async fn ask(&mut self) -> Result<StopReason, (String, Turn<'static>)> {
        let Self {
            endpoint,
            keys,
            redactor,
            context,
            answer,
            output,
            screen,
            ..
        } = self;
        let request = Request {
            model: &endpoint.model,
            max_tokens: endpoint.max_tokens,
            messages: context,
        };
        let mut on_text = |text: &str| {
            if output.live {
                let text = redactor.redact(text.to_owned());
                output.write(screen, &for_terminal(&text));
            }
        };
        let called = endpoint
            .call(keys.header(), &request, answer, &mut on_text)
            .await;
        answer.text = redactor.redact(std::mem::take(&mut answer.text));
        called.map_err(|error| {
            let text = redactor.redact(error.text.clone());
            (text.clone(), error.turn(text))
        })
    }

    fn note(&self, stop_reason: StopReason, error: Option<&str>) {
        let asked = Asked {
            api: self.endpoint.api.name(),
            provider: self.endpoint.api.provider(),
            model: &self.endpoint.model,
        };
        self.record
            .assistant(asked, &self.answer, stop_reason, error);
    }

    /// The message stands in the context as it ended; the session has it dropped before a retry.
    fn remember(&mut self, failed: bool) {
        self.context.push(Message {
            role: Role::Assistant,
            text: self.answer.text.clone(),
        });
        self.failed = failed;
    }
}

impl Host for Agent {
    type Prompt = String;

    async fn run(&mut self, run: Run<String>) -> RunEnd {
        self.screen.continue_agent();
        if let Some(prompt) = run.prompt {
            self.record.user(&prompt);
            self.context.push(Message {
                role: Role::User,
                text: prompt,
            });
        }
        match run.cause {
            RunCause::Continue { attempt } => tracing::info!(attempt, "retry"),
            RunCause::Prompt | RunCause::NextTurn | RunCause::RunAgain => {}
        }
        self.answer = Answer::default();
        self.output.shown = false;
        match self.ask().await {
            Ok(stop_reason) => {
                self.output.finish(&self.screen, &self.answer.text);
                self.note(stop_reason, None);
                self.remember(false);
                let mut message = AssistantMessage::new(stop_reason);
                message.usage = self.answer.usage;
                Turn::from(message)
                    .context_window(self.endpoint.context_window)
                    .into()
            }
            Err((text, turn)) => {
                tracing::debug!(credential = self.keys.name(), "the call failed");
                self.output.break_off(&self.screen);
                self.note(StopReason::Error, Some(&text));
                self.remember(true);
                turn.into()
            }
        }
    }

    fn drop_failed_message(&mut self) {
        if std::mem::take(&mut self.failed) {
            self.context.pop();
        }
    }

    async fn switch_credential(&mut self, retry_after_ms: Option<u64>) -> bool {
        let before = self.keys.name().to_owned();
        let switched = self.keys.switch(retry_after_ms);
        if switched {
            let now = self.keys.name();
            self.screen
                .suspend(|| eprintln!("{before} has reached its usage limit; going on with {now}"));
        }
        switched
    }

    async fn compact(&mut self, cause: CompactionCause) -> Compaction {
        // The last two messages are the prompt and its failure.
        let kept = self.context.len().min(2);
        let older = self.context.len() - kept;
        if cause != CompactionCause::Overflow || !self.may_cut || !self.failed || older == 0 {
            return Compaction::Done;
        }
        self.context.drain(..older);
        self.screen
            .suspend(|| eprintln!("The context does not fit: {older} older messages are cut"));
        Compaction::RunAgain
    }

    async fn abort(&mut self) {
        self.aborted = true;
        self.output.break_off(&self.screen);
        self.note(StopReason::Aborted, None);
    }
}

impl Output {
    fn write(&mut self, screen: &Screen, text: &str) {
        if text.is_empty() || self.error.is_some() {
            return;
        }
        self.shown = true;
        self.in_mid_line = !text.ends_with('\n');
        self.error = screen.print(text).err();
    }

    /// The answer is complete.
    fn finish(&mut self, screen: &Screen, answer: &str) {
        if !self.live {
            self.write(screen, answer);
        }
        if self.in_mid_line {
            self.write(screen, "\n");
        }
    }

    /// What was shown is not the answer; another one begins on a line of its own.
    fn break_off(&mut self, screen: &Screen) {
        if self.in_mid_line {
            self.write(screen, "\n");
        }
        if self.shown {
            screen.suspend(|| eprintln!("(the answer was cut off here)"));
        }
    }
}

/// A piece of an answer for a terminal: what controls one is shown and does not act.
fn for_terminal(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line
            .strip_suffix('\n')
            .map_or((line, ""), |line| (line, "\n"));
        for (at, piece) in line.split('\t').enumerate() {
            if at > 0 {
                shown.push('\t');
            }
            shown.push_str(&escaped(piece));
        }
        shown.push_str(end);
    }
    shown
}
