//! The machine over JSON lines: the objects of the `step` protocol, as pure code.
//!
//! A line goes in, a line comes out; time and entropy are handed in with each. The same objects are the
//! machine inputs and the effects of every other protocol of this crate. Deliberately absent: reading and
//! writing, which is the pump's.

mod agent;

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

pub use agent::{AgentLine, AgentMessage, Entry};

use crate::effect::{Effect, Effects, RequestId, RunId, TimerId};
use crate::input::{Input, Turn};
use crate::machine::RetryMachine;
use crate::message::{AssistantMessage, LossyString};
use crate::settings::{SettingsPatch, nearest};
use crate::time::Ambient;
#[cfg(feature = "rpc")]
use crate::time::UnixMillis;

/// The largest entropy that a line may carry: every JSON reader keeps integers up to here.
pub(crate) const MAX_ENTROPY: u64 = 1 << 53;

/// A machine that reads input lines and answers each with its effects.
///
/// ```
/// use retry_machine::{RetryMachine, wire::Stepper};
/// let mut stepper = Stepper::new(RetryMachine::default());
/// let answer = stepper.line(br#"{"input":"abort","nowMs":5}"#, (0, 0));
/// assert_eq!(answer, r#"{"effects":[{"effect":"abortAgent"}],"state":"draining","attempt":0}"#);
///
/// let answer = stepper.line(br#"{"input":"abrot"}"#, (0, 0));
/// assert_eq!(answer, r#"{"error":"unknown input `abrot`; did you mean `abort`?"}"#);
/// ```
#[derive(Debug)]
pub struct Stepper {
    machine: RetryMachine,
    latest: LatestIds,
}

impl Stepper {
    /// Of a machine.
    #[must_use]
    pub fn new(machine: RetryMachine) -> Self {
        Self {
            machine,
            latest: LatestIds::default(),
        }
    }

    /// Takes one line without its end and returns the line that answers it, without an end.
    ///
    /// `defaults` are the milliseconds since the epoch and the entropy for a line that has none. A bad
    /// line is answered by `{"error":"…"}` and leaves the machine as it was.
    pub fn line(&mut self, line: &[u8], defaults: (u64, u64)) -> String {
        match InputLine::parse(line, Dialect::Step) {
            Ok(line) => {
                let ambient = line.ambient(defaults);
                let effects = self.machine.handle(line.body.input(&self.latest), ambient);
                self.latest.note(&effects);
                to_line(&StepAnswer {
                    effects,
                    state: self.machine.phase().name(),
                    attempt: self.machine.attempt(),
                })
            }
            Err(error) => to_line(&ErrorAnswer { error }),
        }
    }
}

#[derive(Serialize)]
struct StepAnswer<'m> {
    effects: Effects<'m>,
    state: &'static str,
    attempt: u32,
}

#[derive(Serialize)]
struct ErrorAnswer {
    error: String,
}

/// One JSON line, without its end.
pub(crate) fn to_line(value: &impl Serialize) -> String {
    // These types have string keys and no maps that can fail.
    serde_json::to_string(value).unwrap_or_else(|error| format!(r#"{{"error":"{error}"}}"#))
}

/// The ids last given out: an answer without an id means the latest (SPEC section 2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatestIds {
    timer: Option<TimerId>,
    request: Option<RequestId>,
    run: Option<RunId>,
}

impl LatestIds {
    pub(crate) fn note(&mut self, effects: &Effects<'_>) {
        for effect in effects.iter() {
            match effect {
                Effect::Sleep { timer, .. } => self.timer = Some(*timer),
                Effect::SwitchCredential { request, .. } => self.request = Some(*request),
                Effect::ContinueAgent { run } => self.run = Some(*run),
                Effect::Emit { .. }
                | Effect::DropFailedMessage
                | Effect::CancelSleep { .. }
                | Effect::AbortAgent
                | Effect::CheckCompaction { .. } => {}
            }
        }
    }
}

/// A machine input as it came over a line.
#[derive(Debug)]
pub(crate) struct InputLine {
    pub(crate) body: InputBody,
    now_ms: Option<u64>,
    entropy: Option<u64>,
}

impl InputLine {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, for the one who wrote it.
    pub(crate) fn parse(line: &[u8], dialect: Dialect) -> Result<Self, String> {
        let raw: RawLine = object(line)?;
        raw.read(dialect)
    }

    /// Both clocks are `nowMs`; what the line does not say comes from `defaults`.
    fn ambient(&self, (now_ms, entropy): (u64, u64)) -> Ambient {
        Ambient::at(self.now_ms.unwrap_or(now_ms)).with_entropy(self.entropy.unwrap_or(entropy))
    }

    /// What the line says in place of `ambient`. Where timers are not the host's, neither is the clock that
    /// they run on: `nowMs` is wall time alone, what a server's instants are measured against.
    #[cfg(feature = "rpc")]
    pub(crate) fn ambient_over(&self, ambient: Ambient) -> Ambient {
        let wall = self.now_ms.map_or(ambient.wall, UnixMillis);
        Ambient::new(wall, ambient.monotonic).with_entropy(self.entropy.unwrap_or(ambient.entropy))
    }
}

/// Which protocol an input line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `step`: one machine, timers are the host's.
    Step,
    /// `rpc`: lines carry `id` and `session`, which are read before; timers are the process's own.
    #[cfg(feature = "rpc")]
    Rpc,
}

impl Dialect {
    /// The names of the inputs that it takes.
    pub(crate) fn inputs(self) -> impl Iterator<Item = &'static str> + Clone {
        let timers = match self {
            Self::Step => true,
            #[cfg(feature = "rpc")]
            Self::Rpc => false,
        };
        INPUTS
            .iter()
            .map(|(name, _)| *name)
            .filter(move |name| timers || *name != "timerFired")
    }
}

/// Reads a line that holds one JSON object.
pub(crate) fn object<'l, T: Deserialize<'l>>(line: &'l [u8]) -> Result<T, String> {
    match line.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') | None => serde_json::from_slice(line).map_err(|error| describe(&error)),
        Some(_) => Err("not a JSON object".to_owned()),
    }
}

/// What a JSON error says, with where it stands.
pub(crate) fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // A line is one line: the column says where.
    let text = text.replace(" at line 1 column ", " at column ");
    if error.is_data() {
        text
    } else {
        format!("malformed JSON: {text}")
    }
}

#[derive(Debug)]
pub(crate) enum InputBody {
    AssistantMessage {
        message: Box<AssistantMessage>,
        context_window: u64,
    },
    TimerFired(Option<TimerId>),
    CredentialSwitched {
        request: Option<RequestId>,
        switched: bool,
    },
    ContinueFailed {
        run: Option<RunId>,
        error: String,
    },
    AbortRetry,
    Abort,
    PromptStarted,
    SettingsChanged(SettingsPatch),
}

impl InputBody {
    /// The same with other numbers for the ids that the line carries.
    #[cfg(feature = "rpc")]
    pub(crate) fn map_ids(&mut self, map: impl Fn(u64) -> u64) {
        match self {
            Self::TimerFired(Some(TimerId(id)))
            | Self::CredentialSwitched {
                request: Some(RequestId(id)),
                ..
            }
            | Self::ContinueFailed {
                run: Some(RunId(id)),
                ..
            } => *id = map(*id),
            Self::TimerFired(None)
            | Self::CredentialSwitched { request: None, .. }
            | Self::ContinueFailed { run: None, .. }
            | Self::AssistantMessage { .. }
            | Self::AbortRetry
            | Self::Abort
            | Self::PromptStarted
            | Self::SettingsChanged(_) => {}
        }
    }

    /// The input of the machine; ids left out are the latest ones.
    pub(crate) fn input(&self, latest: &LatestIds) -> Input<'_> {
        match self {
            Self::AssistantMessage {
                message,
                context_window,
            } => Turn::message(message)
                .context_window(*context_window)
                .into(),
            // No id was given out yet when there is no latest: 0 is never awaited.
            Self::TimerFired(timer) => {
                Input::TimerFired(timer.or(latest.timer).unwrap_or(TimerId(0)))
            }
            Self::CredentialSwitched { request, switched } => Input::CredentialSwitched {
                request: request.or(latest.request).unwrap_or(RequestId(0)),
                switched: *switched,
            },
            Self::ContinueFailed { run, error } => Input::ContinueFailed {
                run: run.or(latest.run).unwrap_or(RunId(0)),
                error: Cow::Borrowed(error),
            },
            Self::AbortRetry => Input::AbortRetry,
            Self::Abort => Input::Abort,
            Self::PromptStarted => Input::PromptStarted,
            Self::SettingsChanged(patch) => Input::SettingsChanged(patch.clone()),
        }
    }
}

/// Every key that an input line may have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLine {
    input: LossyString,
    now_ms: Option<u64>,
    entropy: Option<u64>,
    message: Option<Box<AssistantMessage>>,
    context_window: Option<u64>,
    timer: Option<TimerId>,
    request: Option<RequestId>,
    switched: Option<bool>,
    run: Option<RunId>,
    error: Option<LossyString>,
    settings: Option<SettingsPatch>,
    id: Option<IgnoredAny>,
    session: Option<IgnoredAny>,
}

/// The inputs by their names on the wire, each with its keys.
const INPUTS: [(&str, &[&str]); 8] = [
    ("assistantMessage", &["message", "contextWindow"]),
    ("timerFired", &["timer"]),
    ("credentialSwitched", &["request", "switched"]),
    ("continueFailed", &["run", "error"]),
    ("abortRetry", &[]),
    ("abort", &[]),
    ("promptStarted", &[]),
    ("settingsChanged", &["settings"]),
];

/// The keys of an input.
#[cfg(all(feature = "rpc", feature = "schema"))]
pub(crate) fn keys_of(input: &str) -> &'static [&'static str] {
    let found = INPUTS.iter().find(|(name, _)| *name == input);
    found.map_or(&[], |(_, keys)| keys)
}

impl RawLine {
    fn read(self, dialect: Dialect) -> Result<InputLine, String> {
        let name = self.input.0.as_str();
        let names = dialect.inputs();
        let taken = |known: &str| names.clone().any(|name| name == known);
        let Some((_, keys)) = INPUTS
            .iter()
            .find(|(known, _)| *known == name && taken(known))
        else {
            return Err(if INPUTS.iter().any(|(known, _)| *known == name) {
                format!("`{name}` is no input here: timers are the process's own")
            } else if let Some(close) = nearest(name, names.clone()) {
                format!("unknown input `{name}`; did you mean `{close}`?")
            } else {
                let names: Vec<_> = names.map(|known| format!("`{known}`")).collect();
                format!(
                    "unknown input `{name}`; expected one of {}",
                    names.join(", ")
                )
            });
        };
        let addressed = match dialect {
            Dialect::Step => [
                ("id", self.id.is_some()),
                ("session", self.session.is_some()),
            ],
            #[cfg(feature = "rpc")]
            Dialect::Rpc => [("id", false), ("session", false)],
        };
        let present = [
            ("message", self.message.is_some()),
            ("contextWindow", self.context_window.is_some()),
            ("timer", self.timer.is_some()),
            ("request", self.request.is_some()),
            ("switched", self.switched.is_some()),
            ("run", self.run.is_some()),
            ("error", self.error.is_some()),
            ("settings", self.settings.is_some()),
        ];
        if let Some((key, _)) = present
            .iter()
            .chain(&addressed)
            .find(|(key, present)| *present && !keys.contains(key))
        {
            return Err(format!("`{key}` is no key of the input `{name}`"));
        }
        if let Some(entropy) = self.entropy.filter(|entropy| *entropy > MAX_ENTROPY) {
            return Err(format!(
                "entropy: {entropy} is out of range; expected an integer from 0 to {MAX_ENTROPY}"
            ));
        }
        let missing = |key: &str| format!("the input `{name}` needs `{key}`");
        let body = match name {
            "assistantMessage" => InputBody::AssistantMessage {
                message: self.message.ok_or_else(|| missing("message"))?,
                context_window: self.context_window.unwrap_or(0),
            },
            "timerFired" => InputBody::TimerFired(self.timer),
            "credentialSwitched" => InputBody::CredentialSwitched {
                request: self.request,
                switched: self.switched.ok_or_else(|| missing("switched"))?,
            },
            "continueFailed" => InputBody::ContinueFailed {
                run: self.run,
                error: self.error.map(|error| error.0).unwrap_or_default(),
            },
            "abortRetry" => InputBody::AbortRetry,
            "abort" => InputBody::Abort,
            "promptStarted" => InputBody::PromptStarted,
            _ => InputBody::SettingsChanged(self.settings.ok_or_else(|| missing("settings"))?),
        };
        Ok(InputLine {
            body,
            now_ms: self.now_ms,
            entropy: self.entropy,
        })
    }
}
