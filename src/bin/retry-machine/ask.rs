//! `retry-machine ask`: a real agent for one prompt, through whatever the provider does.

pub mod agent;
pub mod api;
pub mod call;
pub mod keys;
mod record;

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use retry_machine::driver::{PromptFailure, PromptOutcome, SessionEvent, Settled};
use retry_machine::shell::tokio::{Session, TokioTimer};
use retry_machine::{
    EndReason, ErrorClass, Phase, RetryEvent, RetryMachine, RetrySettings, SettingsPatch,
};

use crate::rules::RulesArgs;
use crate::settings::SettingsArgs;
use crate::{Failure, Outcome, exit, show};
use agent::Agent;
use api::Api;
use call::{Endpoint, Timeouts};
use keys::Keys;
pub use record::Record;
use retry_machine::status::{Options, Screen, Terminal};

/// Ask a model and stream its answer, through overloads, rate limits, used-up keys and cut streams.
///
/// The answer goes to standard output, all else to standard error. On a terminal the answer is shown as it comes;
/// where a stream is cut, a line says so, and the retry's answer begins anew on a line of its own. To a pipe or a file
/// only a complete answer is written, so what is read there is never half of one.
///
/// Esc ends the wait for a retry, Ctrl-C everything. A usage limit moves on to the next key that has not reached its
/// own.
///
/// Exit codes: 0 answered; 1 refused, or failed in a way that repeating cannot cure; 2 usage or settings refused;
/// 3 still failing after the last retry; 4 the context does not fit; 5 a usage limit, or the account cannot pay; 130
/// cancelled.
#[derive(Args)]
#[command(after_help = "Examples:
  $ retry-machine ask 'What is a sans-IO state machine?'
  $ retry-machine ask --recommended --key-env KEY_OF_WORK --key-env KEY_OF_MINE - < question.txt
  $ retry-machine ask --api openai-chat --base-url http://localhost:11434/v1 --model llama3.2 'Why is the sky blue?'")]
pub struct Ask {
    /// What to ask; - reads standard input.
    prompt: String,
    /// What the endpoint speaks.
    #[arg(long, value_enum, default_value = "anthropic")]
    api: Api,
    /// The endpoint, as the official SDKs take it: https://host for anthropic, https://host/v1 for the others.
    /// [default: the provider's own]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// [default: claude-sonnet-4-5, or gpt-5-mini]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// An environment variable with a key; may be given again for further credentials.
    /// [default: ANTHROPIC_API_KEY, or OPENAI_API_KEY; with --base-url none is needed]
    #[arg(long, value_name = "VAR")]
    key_env: Vec<String>,
    /// The longest answer in tokens.
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u32>,
    /// The model's context window in tokens.
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 0,
        hide_default_value = true
    )]
    context_window: u64,
    /// How long to wait for a connection, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    connect_timeout_ms: u64,
    /// How long to wait for the next byte, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 300_000)]
    idle_timeout_ms: u64,
    /// Write messages and events as JSON lines, which `replay` reads.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Log to standard error what is done.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    rules: RulesArgs,
}

impl Ask {
    pub fn run(self) -> Outcome {
        let settings = settings(&self.settings.patches()?);
        let classifier = self.rules.classifier()?;
        let api = self.api;
        let base = self.base_url.as_deref();
        let url = api
            .url(base.unwrap_or(api.default_base_url()))
            .map_err(Failure::Usage)?;
        let keys =
            Keys::from_environment(api, &self.key_env, base.is_some()).map_err(Failure::Usage)?;
        let prompt = read_prompt(self.prompt)?;
        let model = self.model.unwrap_or_else(|| api.default_model().to_owned());
        let timeouts = Timeouts {
            connect: Duration::from_millis(self.connect_timeout_ms),
            idle: Duration::from_millis(self.idle_timeout_ms),
        };
        let mut endpoint = Endpoint::new(api, url, model, timeouts).map_err(Failure::Usage)?;
        endpoint.max_tokens = self.max_tokens;
        endpoint.context_window = self.context_window;
        let record = match &self.events {
            None => Record::default(),
            Some(path) => Record::create(path, keys.redactor())
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let agent = Agent::new(endpoint, keys, record.clone());
        let machine = RetryMachine::with_classifier(settings, classifier);
        let (end, mut agent) =
            runtime.block_on(converse(agent, machine, &record, prompt, self.verbose))?;
        // A look-up of a name that hangs must not hold up the end.
        runtime.shutdown_background();
        if let Some(error) = agent.take_output_error() {
            return Err(error.into());
        }
        if let Some(path) = &self.events {
            record
                .finish()
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        }
        end.report();
        Ok(end.code())
    }
}

/// The documented settings with what the user says.
pub fn settings(patches: &[SettingsPatch]) -> RetrySettings {
    let mut settings = RetrySettings::default();
    for patch in patches {
        settings.apply(patch);
    }
    settings
}

/// One prompt with its retries, shown on the terminal.
pub async fn converse(
    agent: Agent,
    machine: RetryMachine,
    record: &Record,
    prompt: String,
    verbose: bool,
) -> io::Result<(End, Agent)> {
    let mut session = Session::with_machine(agent, machine, TokioTimer::default());
    let terminal = Terminal::start(session.handle(), Options::default())?;
    let screen = terminal.screen();
    if verbose {
        log(screen.clone());
    }
    session.host_mut().screen = screen;
    let record = record.clone();
    let told = Arc::new(AtomicBool::new(false));
    let telling = Arc::clone(&told);
    session.hook(move |event| {
        record.event(event);
        match event {
            SessionEvent::Retry(event) => {
                telling.store(matches!(event, RetryEvent::End(_)), Ordering::Relaxed);
            }
            SessionEvent::RunEnded { .. } => telling.store(false, Ordering::Relaxed),
            SessionEvent::Settled(_) | SessionEvent::HookPanicked { .. } => {}
        }
    });
    let settled = session.prompt(prompt).await;
    terminal.finish();
    let told = told.load(Ordering::Relaxed);
    // An abort in a wait leaves the machine draining (AB3), one in a call has told the agent.
    let draining = session.handle().state().phase == Phase::Draining;
    let agent = session.into_host();
    let interrupted = draining || agent.was_aborted();
    let end = End {
        settled,
        told,
        interrupted,
    };
    Ok((end, agent))
}

/// How a prompt ended.
pub struct End {
    pub settled: Settled,
    /// The end of the last chain has told why.
    told: bool,
    /// The user has aborted everything, and not only a retry.
    pub interrupted: bool,
}

impl End {
    /// Says what has not been said yet.
    pub fn report(&self) {
        if let PromptOutcome::Failed(failure) = &self.settled.outcome
            && !self.told
        {
            // Longer ones are whole pages.
            let text = show::one_line(&failure.error, 1000);
            eprintln!("error: {}: {text}", failure.class);
        }
    }

    pub fn code(&self) -> u8 {
        match &self.settled.outcome {
            PromptOutcome::Answered => exit::DONE,
            PromptOutcome::Cancelled => exit::CANCELLED,
            PromptOutcome::Failed(failure) => exit_code(failure),
        }
    }
}

fn exit_code(failure: &PromptFailure) -> u8 {
    match (failure.class, failure.reason) {
        (ErrorClass::Overflow, _) | (_, EndReason::Overflow) => exit::OVERFLOW,
        (ErrorClass::UsageLimit | ErrorClass::Billing, _) => exit::LIMIT,
        // Repeating may cure it, later or with more retries.
        (
            _,
            EndReason::Exhausted
            | EndReason::Disabled
            | EndReason::Deadline
            | EndReason::ServerDelayTooLong,
        ) => exit::EXHAUSTED,
        _ => exit::FATAL,
    }
}

fn read_prompt(prompt: String) -> Result<String, Failure> {
    let prompt = if prompt == "-" {
        let mut text = String::new();
        io::stdin()
            .lock()
            .read_to_string(&mut text)
            .map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
        text
    } else {
        prompt
    };
    if prompt.trim().is_empty() {
        return Err(Failure::usage("the prompt is empty"));
    }
    Ok(prompt)
}

/// Logs what this program and the session do; not what libraries below say, who may log headers.
fn log(screen: Screen) {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;

    let lines = tracing_subscriber::fmt::layer()
        .without_time()
        .with_ansi(false)
        .with_writer(move || Log(screen.clone()));
    let ours = Targets::new().with_target("retry_machine", LevelFilter::DEBUG);
    // An error says that somebody logs already.
    let _ = tracing_subscriber::registry()
        .with(ours)
        .with(lines)
        .try_init();
}

/// Writes a line of the log where the terminal has room for it.
struct Log(Screen);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
