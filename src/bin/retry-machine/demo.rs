//! `retry-machine demo`: the agent of `ask` against a provider on this machine that fails on purpose.

mod provider;
mod reply;
mod scenario;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use retry_machine::driver::PromptOutcome;
use retry_machine::{RetryMachine, RetrySettings, SettingsPatch};

use crate::ask::agent::Agent;
use crate::ask::api::{Api, Message, Role};
use crate::ask::call::{Endpoint, Timeouts};
use crate::ask::keys::Keys;
use crate::ask::{self, End, Record};
use crate::settings::SettingsArgs;
use crate::{Failure, Outcome, exit};
use provider::{Books, Provider, base_url};
use scenario::Scenario;

/// Watch an agent get through a provider that fails on purpose; without a scenario, through all of them.
///
/// The provider runs in this process, on the loopback interface. Esc ends the wait at hand and the tour goes on;
/// Ctrl-C ends the tour. The settings are the recommended ones with a first delay of half a second; flags go above
/// them.
///
/// Exit codes: the tour 0, though some of it fails on purpose; one scenario as `ask`; 2 usage or settings refused;
/// 130 cancelled.
#[derive(Args)]
#[command(after_help = "Examples:
  $ retry-machine demo
  $ retry-machine demo storm --max-retries 2
  $ retry-machine demo --serve 8080
  $ retry-machine ask --base-url http://127.0.0.1:8080/storm 'Still there?'")]
pub struct Demo {
    /// How the provider fails.
    scenario: Option<Scenario>,
    /// Only serve, for trying other agents; 0 takes a free port.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["scenario", "SettingsArgs"])]
    serve: Option<u16>,
    /// What the agent and the provider speak.
    #[arg(
        long,
        value_enum,
        default_value = "anthropic",
        conflicts_with = "serve"
    )]
    api: Api,
    /// The pause between two words of an answer, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 40)]
    word_delay_ms: u64,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Nobody watches a tour for minutes.
const BASE_DELAY_MS: u64 = 500;

impl Demo {
    pub fn run(self) -> Outcome {
        let shorter = SettingsPatch::builder().base_delay_ms(BASE_DELAY_MS);
        let mut patches = vec![
            SettingsPatch::recommended(),
            shorter.patch().map_err(Failure::usage)?,
        ];
        patches.extend(self.settings.patches()?);
        let settings = ask::settings(&patches);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let word_delay = Duration::from_millis(self.word_delay_ms);
        let outcome = runtime.block_on(async {
            let port = self.serve.unwrap_or(0);
            let provider = Provider::bind(port, word_delay)
                .await
                .map_err(|error| Failure::Usage(format!("port {port} of 127.0.0.1: {error}")))?;
            if self.serve.is_some() {
                return serve(provider).await;
            }
            let tour = Tour {
                api: self.api,
                settings,
                address: provider.address(),
                books: provider.books(),
            };
            tokio::spawn(provider.serve());
            match self.scenario {
                Some(scenario) => Ok(tour.one(scenario).await?.code()),
                None => tour.all().await,
            }
        });
        runtime.shutdown_background();
        outcome
    }
}

async fn serve(provider: Provider) -> Outcome {
    let address = provider.address();
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "Listening on http://{address}. Base URLs, for Anthropic's SDK and for OpenAI's:"
    )?;
    for scenario in Scenario::ALL {
        let anthropic = base_url(address, scenario, Api::Anthropic);
        let openai = base_url(address, scenario, Api::OpenaiChat);
        writeln!(out, "  {anthropic:50} {openai}")?;
    }
    writeln!(
        out,
        "How many requests have come: http://{address}/requests. Ctrl-C ends it."
    )?;
    out.flush()?;
    drop(out);
    provider.serve().await?;
    Ok(exit::DONE)
}

struct Tour {
    api: Api,
    settings: RetrySettings,
    address: SocketAddr,
    books: Books,
}

impl Tour {
    /// All scenarios, one after the other.
    async fn all(&self) -> Outcome {
        let count = Scenario::ALL.len();
        say(&format!(
            "{count} ways in which a provider fails. Esc ends a wait, Ctrl-C the tour.\n"
        ))?;
        for (at, scenario) in Scenario::ALL.into_iter().enumerate() {
            say(&format!("\n{}/{count} ", at + 1))?;
            if self.one(scenario).await?.interrupted {
                say("The tour ends here.\n")?;
                return Ok(exit::CANCELLED);
            }
        }
        Ok(exit::DONE)
    }

    /// One scenario, with what is about to happen and what happened.
    async fn one(&self, scenario: Scenario) -> Result<End, Failure> {
        let before = self.books.requests(scenario);
        say(&format!(
            "{}: {}\n> {}\n",
            scenario.name(),
            scenario.announcement(),
            scenario.prompt()
        ))?;
        let agent = self.agent(scenario)?;
        let machine = RetryMachine::new(self.settings.clone());
        let prompt = scenario.prompt().to_owned();
        let (end, mut agent) =
            ask::converse(agent, machine, &Record::default(), prompt, false).await?;
        if let Some(error) = agent.take_output_error() {
            return Err(error.into());
        }
        end.report();
        let code = end.code();
        let requests = count(self.books.requests(scenario) - before, "request");
        let retries = count(end.settled.retries.into(), "retry");
        say(&match &end.settled.outcome {
            PromptOutcome::Answered => format!("Answered: {requests}, {retries}.\n"),
            PromptOutcome::Cancelled => format!("Cancelled: {requests}, {retries}.\n"),
            PromptOutcome::Failed(failure) => format!(
                "Failed ({}): {requests}, {retries}; `ask` exits with {code}.\n",
                failure.class
            ),
        })?;
        Ok(end)
    }

    fn agent(&self, scenario: Scenario) -> Result<Agent, Failure> {
        let timeouts = Timeouts {
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(30),
        };
        let url = self
            .api
            .url(&base_url(self.address, scenario, self.api))
            .map_err(Failure::Usage)?;
        let endpoint =
            Endpoint::new(self.api, url, "demo".to_owned(), timeouts).map_err(Failure::Usage)?;
        let mut keys = Keys::none();
        for name in ["The first key", "the second key"] {
            keys.add(self.api, name, &name.replace(' ', "-"))
                .map_err(Failure::Usage)?;
        }
        let agent = Agent::new(endpoint, keys, Record::default());
        Ok(match scenario {
            Scenario::Overflow => agent.with_conversation(long_conversation()),
            _ => agent,
        })
    }
}

/// More than the model's context holds.
fn long_conversation() -> Vec<Message> {
    const TURNS: usize = 12;
    (1..=TURNS)
        .flat_map(|turn| {
            [
                (Role::User, format!("Tell me chapter {turn}.")),
                (
                    Role::Assistant,
                    format!("Chapter {turn}. ") + &"And so it went on. ".repeat(90),
                ),
            ]
        })
        .map(|(role, text)| Message { role, text })
        .collect()
}

fn count(number: u64, what: &str) -> String {
    match (number, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {what}s"),
    }
}

/// At once, so that it stands before what standard error says next.
fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
