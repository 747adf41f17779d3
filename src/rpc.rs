//! The machine behind a pipe: RPC over JSON lines for agents in any language (SPEC section 11), as pure code.
//!
//! A line goes in, lines come out; time is handed in with each, and [`Protocol::deadline`] says when the
//! next timer is due. Deliberately absent: reading, writing, clocks and threads, which are the pump's.
//!
//! # Lines in
//!
//! A *command* (`{"type":"abort_retry"}`) or a *machine input* in the form of `step`
//! (`{"input":"promptStarted"}`), each with an optional `id` (a string or a number) and an optional
//! `session`. Keys that a line does not have are refused: a misspelt `session` would act on another one.
//! Blank lines are passed over.
//!
//! # Lines out
//!
//! Events as the documents have them (EV1, EV2), what the host must do as flat `effect` lines in order with
//! them, and one `response` for each line in, after the events and effects that it caused (RP2, RP5). The
//! wait of a retry is the process's own: `sleep` and `cancelSleep` never appear.
//!
//! # What is fixed here
//!
//! * **`session`**: a name of 1 to 256 bytes. All lines out of a named session carry it as their last key, its
//!   responses too; the lines of the unnamed session do not. A session begins with the settings of the
//!   process at its first line that could change it, and is kept until `close_session`.
//! * **`close_session`** ends an open chain as `abort_retry` does and forgets the session, its settings too.
//!   There need not be one. The name may be used again: ids are not reused, so late answers are stale.
//! * **`shutdown`** ends the open chains of all sessions, then answers; nothing is read after it. The end of
//!   input and a signal do the same ([`Protocol::finish`]), without an answer.
//! * **`get_state`** opens no session: one that is not there answers as a new one would.
//! * **An answer that is not awaited** (stale, of another session, or late) is a success without any effect:
//!   its line was understood, and there was nothing to do (ST10).
//! * **`nowMs`** in an input is its wall time, what a server's instants are measured against; timers run on the
//!   clock of the process.
//! * **A command that is refused** names the command and repeats the `id`; a line of which not even that
//!   could be read is answered as `parse`, without `id`, with the number of the line and of the column.
//! * **Limits**: [`MAX_LINE_BYTES`], [`MAX_SESSIONS`], [`MAX_SESSION_NAME_BYTES`].

mod client;
mod line;
#[cfg(feature = "schema")]
mod schema;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub use client::{RpcClient, RpcError, RpcErrorKind, RpcNotices, RpcOptions};
pub use line::{Hello, HostEffect, Limits, Notice, RetryEnded, RetryStarted, RetryState};
#[cfg(feature = "schema")]
pub(crate) use schema::schema;

use crate::classify::Classifier;
use crate::effect::Effect;
use crate::event::RetryEvent;
use crate::input::Input;
use crate::machine::{Phase, RetryMachine};
use crate::message::LossyString;
use crate::settings::{RetrySettings, SettingsPatch};
use crate::time::{Ambient, MonotonicMillis};
use crate::wire::{Dialect, InputLine, LatestIds, object, to_line};

/// The version of the protocol that `hello` tells; it changes when a line changes its meaning.
pub const PROTOCOL_VERSION: u32 = 1;
/// The longest line that is taken, in bytes without its end: a message with its images.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// How many sessions there may be at a time. An idle one takes some hundred bytes.
pub const MAX_SESSIONS: usize = 65_536;
/// The longest name of a session, in bytes of UTF-8.
pub const MAX_SESSION_NAME_BYTES: usize = 256;

/// The protocol: the sessions of one process, without its clock.
///
/// ```
/// use retry_machine::{Ambient, MonotonicMillis, RetrySettings, rpc::Protocol};
/// let mut protocol = Protocol::new(RetrySettings::default());
///
/// let line = br#"{"input":"assistantMessage","message":{"stopReason":"error","errorMessage":"overloaded"}}"#;
/// assert_eq!(protocol.line(line, Ambient::at(0)), [
///     r#"{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"overloaded"}"#,
///     r#"{"type":"effect","effect":"dropFailedMessage"}"#,
///     r#"{"type":"response","command":"assistantMessage","success":true}"#,
/// ]);
///
/// // Two seconds later:
/// assert_eq!(protocol.deadline(), Some(MonotonicMillis(2000)));
/// assert_eq!(protocol.timer(Ambient::at(2000)), [
///     r#"{"type":"effect","effect":"continueAgent","run":2}"#,
/// ]);
/// ```
#[derive(Debug)]
pub struct Protocol {
    settings: Arc<RetrySettings>,
    classifier: Arc<Classifier>,
    sessions: BTreeMap<Name, Session>,
    /// When the armed timers are due, in the order in which they fire.
    deadlines: BTreeSet<(MonotonicMillis, Name)>,
    /// How many lines have been read.
    lines: u64,
    /// The highest id that any session has given out.
    last_id: u64,
    shut_down: bool,
}

/// The name of a session; None is the unnamed one.
type Name = Option<Arc<str>>;

#[derive(Debug)]
struct Session {
    machine: RetryMachine,
    latest: LatestIds,
    /// What is added to the machine's ids on the wire, so that no session ever reuses those of an earlier
    /// one of the same name.
    id_base: u64,
    /// The delay of the latest start event.
    delay_ms: u64,
}

impl Session {
    fn state(&self, now: MonotonicMillis) -> RetryState {
        let settings = self.machine.settings();
        let wait = self.machine.deadline();
        RetryState {
            auto_retry_enabled: settings.enabled(),
            is_retrying: self.machine.is_retrying(),
            retry_attempt: self.machine.attempt(),
            max_retries: settings.max_retries(),
            base_delay_ms: settings.base_delay_ms(),
            delay_ms: wait.map(|_| self.delay_ms),
            remaining_ms: wait.map(|due| due.since(now)),
        }
    }
}

impl Protocol {
    /// With the built-in classifier; every session begins with `settings`.
    #[must_use]
    pub fn new(settings: impl Into<Arc<RetrySettings>>) -> Self {
        Self::with_classifier(settings, Classifier::shared())
    }

    /// With a classifier of the host's, which all sessions share.
    #[must_use]
    pub fn with_classifier(
        settings: impl Into<Arc<RetrySettings>>,
        classifier: Arc<Classifier>,
    ) -> Self {
        Self {
            settings: settings.into(),
            classifier,
            sessions: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            lines: 0,
            last_id: 0,
            shut_down: false,
        }
    }

    /// Takes one line without its end and returns the lines that it causes, without an end.
    ///
    /// The last one is its response; a blank line, and any line after `shutdown`, has none.
    #[must_use]
    pub fn line(&mut self, line: &[u8], ambient: Ambient) -> Vec<String> {
        let mut out = Vec::new();
        if self.shut_down {
            return out;
        }
        if line.len() > MAX_LINE_BYTES {
            return self.long_line();
        }
        self.lines += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            return out;
        }
        let address = match Address::parse(line) {
            Ok(address) => address,
            Err(why) => {
                out.push(self.malformed(&why));
                return out;
            }
        };
        let answer = self.answer(&address, line, ambient, &mut out);
        let (data, error) = match answer {
            Ok(data) => (data, None),
            Err(error) => (None, Some(error)),
        };
        out.push(to_line(&Response {
            id: address.id.as_ref().ok().copied().flatten(),
            kind: "response",
            command: address.verb.name(),
            success: error.is_none(),
            error,
            data,
            session: address.session.as_ref().ok().and_then(Option::as_deref),
        }));
        out
    }

    /// Answers a line of more than [`MAX_LINE_BYTES`], which the reader has passed over.
    #[must_use]
    pub fn long_line(&mut self) -> Vec<String> {
        if self.shut_down {
            return Vec::new();
        }
        self.lines += 1;
        vec![self.malformed(&format!("longer than {MAX_LINE_BYTES} bytes"))]
    }

    /// When the earliest timer is due, if one is armed.
    #[must_use]
    pub fn deadline(&self) -> Option<MonotonicMillis> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// Fires the earliest timer, if it is due, and returns the lines that it causes. Call it until
    /// [`deadline`](Self::deadline) is later than now.
    #[must_use]
    pub fn timer(&mut self, ambient: Ambient) -> Vec<String> {
        let mut out = Vec::new();
        let Some((due, name)) = self.deadlines.first() else {
            return out;
        };
        if *due > ambient.monotonic {
            return out;
        }
        let name = name.clone();
        let phase = self
            .sessions
            .get(&name)
            .map(|session| session.machine.phase());
        if let Some(Phase::Waiting { timer, .. }) = phase {
            self.step(&name, Input::TimerFired(timer), ambient, &mut out);
        }
        out
    }

    /// Ends the open chains of all sessions, since nobody will: the end of input, a signal, `shutdown`.
    /// What comes after it is not answered.
    #[must_use]
    pub fn finish(&mut self, ambient: Ambient) -> Vec<String> {
        let mut out = Vec::new();
        let open = self
            .sessions
            .iter()
            .filter(|(_, session)| session.machine.is_retrying());
        let names: Vec<_> = open.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.step(&name, Input::AbortRetry, ambient, &mut out);
        }
        self.shut_down = true;
        out
    }

    /// Whether `shutdown` has been answered, or [`finish`](Self::finish) called.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// How many sessions are kept.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Carries out what the line asks for; the response's data, or why it was refused.
    fn answer(
        &mut self,
        address: &Address<'_>,
        line: &[u8],
        ambient: Ambient,
        out: &mut Vec<String>,
    ) -> Result<Option<Data>, String> {
        // What the line asks for is read first: an unknown command is answered as such, whatever else is wrong.
        let request = match &address.verb {
            Verb::Command(name) => Request::Command(Command::parse(name, line)?),
            Verb::Input(_) => Request::Input(InputLine::parse(line, Dialect::Rpc)?),
        };
        address.id.clone()?;
        let name: Name = address.session.clone()?.map(Arc::from);
        match request {
            Request::Input(mut line) => {
                let session = self.open(&name)?;
                let (id_base, latest) = (session.id_base, session.latest);
                // An id from before this session is as good as 0, which is never awaited.
                line.body.map_ids(|id| id.saturating_sub(id_base));
                let ambient = line.ambient_over(ambient);
                self.step(&name, line.body.input(&latest), ambient, out);
            }
            Request::Command(Command::Change(patch)) => {
                self.open(&name)?;
                self.step(&name, Input::SettingsChanged(patch), ambient, out);
            }
            Request::Command(Command::Abort) => {
                self.open(&name)?;
                self.step(&name, Input::Abort, ambient, out);
            }
            // Nothing to abort where no session is.
            Request::Command(Command::AbortRetry) => {
                self.step(&name, Input::AbortRetry, ambient, out);
            }
            Request::Command(Command::CloseSession) => {
                self.step(&name, Input::AbortRetry, ambient, out);
                self.sessions.remove(&name);
            }
            Request::Command(Command::Shutdown) => out.extend(self.finish(ambient)),
            Request::Command(Command::Hello) => {
                return Ok(Some(Data::Hello(Hello::of_this_build())));
            }
            Request::Command(Command::GetState) => {
                let state = match self.sessions.get(&name) {
                    Some(session) => session.state(ambient.monotonic),
                    None => self.fresh().state(ambient.monotonic),
                };
                return Ok(Some(Data::State(state)));
            }
        }
        Ok(None)
    }

    /// A session as it begins.
    fn fresh(&self) -> Session {
        let settings = Arc::clone(&self.settings);
        Session {
            machine: RetryMachine::with_classifier(settings, Arc::clone(&self.classifier)),
            latest: LatestIds::default(),
            id_base: self.last_id,
            delay_ms: 0,
        }
    }

    /// The session, which begins here if it is not there.
    fn open(&mut self, name: &Name) -> Result<&mut Session, String> {
        let fresh = self.fresh();
        // There is always room for the unnamed one: whoever speaks without names knows of no limit.
        let room = name.is_none() || self.sessions.len() < MAX_SESSIONS;
        match self.sessions.entry(name.clone()) {
            Entry::Occupied(session) => Ok(session.into_mut()),
            Entry::Vacant(place) if room => Ok(place.insert(fresh)),
            Entry::Vacant(_) => Err(format!(
                "session: there are {MAX_SESSIONS} already; close one with close_session"
            )),
        }
    }

    /// One input of a session's machine, if the session is there; its events and effects go to `out`.
    fn step(&mut self, name: &Name, input: Input<'_>, ambient: Ambient, out: &mut Vec<String>) {
        let Some(session) = self.sessions.get_mut(name) else {
            return;
        };
        let before = session.machine.deadline();
        let effects = session.machine.handle(input, ambient);
        session.latest.note(&effects);
        for mut effect in effects {
            if let Effect::Emit {
                event: RetryEvent::Start(start),
            } = &effect
            {
                session.delay_ms = start.delay_ms;
            }
            if let Some(id) = effect.id_mut() {
                *id += session.id_base;
                self.last_id = self.last_id.max(*id);
            }
            out.extend(line_of(&effect, name.as_deref()));
        }
        let after = session.machine.deadline();
        if before != after {
            if let Some(due) = before {
                self.deadlines.remove(&(due, name.clone()));
            }
            if let Some(due) = after {
                self.deadlines.insert((due, name.clone()));
            }
        }
    }

    /// The answer to a line of which not even the command could be read.
    fn malformed(&self, why: &str) -> String {
        to_line(&Response {
            id: None,
            kind: "response",
            command: "parse",
            success: false,
            error: Some(format!("line {}: {why}", self.lines)),
            data: None,
            session: None,
        })
    }
}

/// The line of an effect; None for the process's own.
fn line_of(effect: &Effect<'_>, session: Option<&str>) -> Option<String> {
    match effect {
        Effect::Emit { event } => Some(to_line(&EventLine { event, session })),
        Effect::Sleep { .. } | Effect::CancelSleep { .. } => None,
        Effect::SwitchCredential { .. }
        | Effect::DropFailedMessage
        | Effect::ContinueAgent { .. }
        | Effect::AbortAgent
        | Effect::CheckCompaction { .. } => Some(to_line(&EffectLine {
            kind: "effect",
            effect,
            session,
        })),
    }
}

/// An event as it is, with the session if it has a name.
#[derive(Serialize)]
struct EventLine<'a> {
    #[serde(flatten)]
    event: &'a RetryEvent<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

#[derive(Serialize)]
struct EffectLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    effect: &'a Effect<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

#[derive(Serialize)]
struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(rename = "type")]
    kind: &'static str,
    command: &'a str,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data {
    State(RetryState),
    Hello(Hello),
}

/// What every line has: what it asks for, the `id` of its answer, and whom it is for.
struct Address<'l> {
    verb: Verb,
    // Errors wait until the command is known: its answer tells them.
    id: Result<Option<&'l RawValue>, String>,
    session: Result<Option<String>, String>,
}

enum Verb {
    Command(String),
    Input(String),
}

impl Verb {
    fn name(&self) -> &str {
        match self {
            Self::Command(name) | Self::Input(name) => name,
        }
    }
}

impl<'l> Address<'l> {
    /// # Errors
    /// Why it is no line of this protocol.
    fn parse(line: &'l [u8]) -> Result<Self, String> {
        /// Other keys are read when it is known what the line asks for.
        #[derive(Deserialize)]
        struct Head<'l> {
            #[serde(rename = "type")]
            command: Option<LossyString>,
            input: Option<LossyString>,
            #[serde(borrow)]
            id: Option<&'l RawValue>,
            #[serde(borrow)]
            session: Option<&'l RawValue>,
        }

        if let Err(error) = std::str::from_utf8(line) {
            return Err(format!("invalid UTF-8 at byte {}", error.valid_up_to() + 1));
        }
        let head: Head<'_> = object(line)?;
        let verb = match (head.command, head.input) {
            (Some(command), None) => Verb::Command(command.0),
            (None, Some(input)) => Verb::Input(input.0),
            (None, None) => {
                return Err(
                    "a line needs `type`, a command, or `input`, a machine input".to_owned(),
                );
            }
            (Some(_), Some(_)) => {
                return Err(
                    "`type` and `input` exclude each other: a line asks for one thing".to_owned(),
                );
            }
        };
        Ok(Self {
            verb,
            id: read_id(head.id),
            session: read_session(head.session),
        })
    }
}

/// An id is repeated as it was written; only one that every reader of JSON reads can be.
fn read_id(id: Option<&RawValue>) -> Result<Option<&RawValue>, String> {
    match id.map(|id| serde_json::from_str(id.get())) {
        None | Some(Ok(Value::String(_) | Value::Number(_))) => Ok(id),
        Some(Ok(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | Err(_)) => {
            Err("id: expected a string or a number".to_owned())
        }
    }
}

fn read_session(session: Option<&RawValue>) -> Result<Option<String>, String> {
    let Some(session) = session else {
        return Ok(None);
    };
    serde_json::from_str(session.get())
        .ok()
        .filter(|name: &String| (1..=MAX_SESSION_NAME_BYTES).contains(&name.len()))
        .map(Some)
        .ok_or_else(|| format!("session: expected a string of 1 to {MAX_SESSION_NAME_BYTES} bytes"))
}

enum Request {
    Command(Command),
    Input(InputLine),
}

/// A command with its arguments.
enum Command {
    /// `set_auto_retry`, `set_retry_settings`: both are *settings changed* (SE2).
    Change(SettingsPatch),
    AbortRetry,
    Abort,
    GetState,
    Hello,
    CloseSession,
    Shutdown,
}

/// Every key that a command may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCommand {
    #[serde(rename = "type")]
    _command: IgnoredAny,
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    session: Option<IgnoredAny>,
    enabled: Option<bool>,
    settings: Option<SettingsPatch>,
}

/// One row of [`COMMANDS`].
struct Row {
    name: &'static str,
    /// Its keys but `type` and `id`.
    keys: &'static [&'static str],
    #[cfg(feature = "schema")]
    meaning: &'static str,
    read: fn(RawCommand) -> Result<Command, &'static str>,
}

macro_rules! command {
    ($name:literal $keys:expr, $meaning:literal, $read:expr) => {
        Row {
            name: $name,
            keys: &$keys,
            #[cfg(feature = "schema")]
            meaning: $meaning,
            read: $read,
        }
    };
}

/// The commands (RP1, RP4, RP5): reading them, their schema and what `hello` tells come from here.
const COMMANDS: [Row; 8] = [
    command!("set_auto_retry" ["session", "enabled"], "Turn retrying on or off, for the next failure.", |raw| {
        let enabled = raw.enabled.ok_or("`set_auto_retry` needs `enabled`, true or false")?;
        Ok(Command::Change(SettingsPatch::enabled(enabled)))
    }),
    command!(
        "abort_retry"["session"],
        "Give up retrying; leave a running call alone.",
        |_| Ok(Command::AbortRetry)
    ),
    command!(
        "get_state"["session"],
        "Tell the state of the session.",
        |_| Ok(Command::GetState)
    ),
    command!("abort"["session"], "Abort everything.", |_| Ok(
        Command::Abort
    )),
    command!("set_retry_settings" ["session", "settings"], "Change settings, for the next failure.", |raw| {
        raw.settings
            .map(Command::Change)
            .ok_or("`set_retry_settings` needs `settings`, an object with settings of the group `retry`")
    }),
    command!(
        "close_session"["session"],
        "End an open chain and forget the session.",
        |_| Ok(Command::CloseSession)
    ),
    command!("hello" [], "Tell the version, the features and the limits of the process.", |_| Ok(Command::Hello)),
    command!("shutdown" [], "End the open chains of all sessions, answer, and exit.", |_| Ok(Command::Shutdown)),
];

impl Command {
    fn parse(name: &str, line: &[u8]) -> Result<Self, String> {
        let Some(row) = COMMANDS.iter().find(|row| row.name == name) else {
            return Err(format!("Unknown command: {name}"));
        };
        let raw: RawCommand = object(line)?;
        let present = [
            ("session", raw.session.is_some()),
            ("enabled", raw.enabled.is_some()),
            ("settings", raw.settings.is_some()),
        ];
        if let Some((key, _)) = present
            .iter()
            .find(|(key, present)| *present && !row.keys.contains(key))
        {
            return Err(format!("`{key}` is no key of the command `{name}`"));
        }
        Ok((row.read)(raw)?)
    }
}
