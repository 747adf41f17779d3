//! A client over a child process, for hosts that want the machine apart from themselves.
//!
//! Deliberately absent: an executor. Calls block until the process has answered; what it tells unasked is an
//! iterator, fed by one thread that reads the process's output.

use core::fmt;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command as Program, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::line::{Body, Command, Input, LineIn, LineOut, OfSession, Response};
use super::{Hello, HostEffect, Name, Notice, RetryEnded, RetryState};
use crate::effect::{RequestId, RunId};
use crate::message::AssistantMessage;
use crate::settings::SettingsPatch;
use crate::wire::to_line;

/// How a client behaves.
#[derive(Clone, Debug)]
#[must_use]
pub struct RpcOptions {
    timeout: Duration,
    restarts: u32,
}

impl Default for RpcOptions {
    /// An answer is awaited for 30 s; a process that dies is not started anew.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            restarts: 0,
        }
    }
}

impl RpcOptions {
    /// How long an answer is awaited.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many times in all a process that died is started anew.
    ///
    /// What its sessions were told by [`set_auto_retry`](RpcClient::set_auto_retry) and
    /// [`set_retry_settings`](RpcClient::set_retry_settings) is told again. Chains that were open are told as
    /// ended, calls under way fail, and that a run was being drained (AB3) is forgotten.
    pub fn restarts(mut self, restarts: u32) -> Self {
        self.restarts = restarts;
        self
    }

    /// Starts the process: `retry-machine rpc`, with whatever flags and environment.
    ///
    /// Its standard input and output are the client's, and its diagnostics go where `program` says. A host
    /// that handles Ctrl-C itself puts the process into a group of its own
    /// (`std::os::unix::process::CommandExt::process_group`).
    ///
    /// # Errors
    /// The process could not be started.
    pub fn start(self, mut program: Program) -> Result<(RpcClient, RpcNotices), RpcError> {
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let (process, stdin, stdout) = spawn(&mut program)?;
        let (tell, notices) = mpsc::channel();
        let answers = Arc::new(Mutex::new(Answers {
            process_id: process.id(),
            ..Answers::default()
        }));
        let link = Arc::new(Link {
            timeout: self.timeout,
            writer: Mutex::new(Writer {
                stdin: Some(stdin),
                settings: BTreeMap::new(),
            }),
            answers: Arc::clone(&answers),
        });
        let reader = Reader {
            link: Arc::downgrade(&link),
            answers,
            tell,
            program,
            restarts: self.restarts,
            chains: BTreeMap::new(),
            id_base: 0,
            highest_id: 0,
        };
        thread::Builder::new()
            .name("retry-machine rpc".to_owned())
            .spawn(move || reader.run(process, stdout))
            .map_err(|error| {
                RpcError::new(
                    RpcErrorKind::Spawn,
                    format!("no thread to read with: {error}"),
                )
            })?;
        let client = RpcClient {
            link,
            session: None,
        };
        Ok((client, RpcNotices { notices }))
    }
}

fn spawn(program: &mut Program) -> Result<(Child, ChildStdin, ChildStdout), RpcError> {
    let name = program.get_program().to_string_lossy().into_owned();
    let refuse =
        |why: &str| RpcError::new(RpcErrorKind::Spawn, format!("cannot start {name}: {why}"));
    let mut process = program
        .spawn()
        .map_err(|error| refuse(&error.to_string()))?;
    match (process.stdin.take(), process.stdout.take()) {
        (Some(stdin), Some(stdout)) => Ok((process, stdin, stdout)),
        (None, _) | (_, None) => Err(refuse("its input and output are not pipes")),
    }
}

/// A session of a `retry-machine rpc` process. Clones share the process, which ends when the last is dropped.
///
/// ```no_run
/// use retry_machine::{AssistantMessage, rpc::{HostEffect, Notice, RpcOptions}};
/// let mut program = std::process::Command::new("retry-machine");
/// program.args(["rpc", "--max-retries", "5"]);
/// let (client, notices) = RpcOptions::default().restarts(3).start(program)?;
///
/// client.prompt_started()?;
/// client.message(&AssistantMessage::error("503 Service Unavailable"), 200_000)?;
/// for (session, notice) in notices {
///     match notice {
///         Notice::RetryStarted(start) => println!("retrying in {} ms", start.delay_ms),
///         Notice::RetryEnded(end) => println!("done: {}", end.success),
///         Notice::Effect(HostEffect::ContinueAgent { run }) => { /* run the agent again */ }
///         Notice::Effect(effect) => println!("{session:?} must {effect:?}"),
///         _ => {}
///     }
/// }
/// # Ok::<(), retry_machine::rpc::RpcError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RpcClient {
    link: Arc<Link>,
    session: Name,
}

impl RpcClient {
    /// The operating system's number of the process; of the latest, if it was started anew.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.link.answers().process_id
    }

    /// The session of this name in the same process.
    #[must_use]
    pub fn session(&self, name: &str) -> Self {
        Self {
            link: Arc::clone(&self.link),
            session: Some(name.into()),
        }
    }

    /// Turns retrying on or off, for the next failure (RP1).
    ///
    /// # Errors
    /// The process did not answer, or refused; so for all calls.
    pub fn set_auto_retry(&self, enabled: bool) -> Result<(), RpcError> {
        let line = Command::SetAutoRetry { enabled };
        self.change(line, &SettingsPatch::enabled(enabled))
    }

    /// Gives up retrying; a running call is left alone (RP1). A success also when there is nothing to abort.
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn abort_retry(&self) -> Result<(), RpcError> {
        self.command(Command::AbortRetry)
    }

    /// Aborts everything (AB3). A `continueAgent` that comes before this returns must not be begun: answer it
    /// with [`continue_failed`](Self::continue_failed) (EF2).
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn abort(&self) -> Result<(), RpcError> {
        self.command(Command::Abort)
    }

    /// The state of the session (RP4).
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn state(&self) -> Result<RetryState, RpcError> {
        self.ask(Command::GetState)
    }

    /// Version, features and limits of the process.
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn hello(&self) -> Result<Hello, RpcError> {
        let process = Self {
            link: Arc::clone(&self.link),
            session: None,
        };
        process.ask(Command::Hello)
    }

    /// Changes settings, for the next failure (NU5).
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn set_retry_settings(&self, settings: &SettingsPatch) -> Result<(), RpcError> {
        self.change(Command::SetRetrySettings { settings }, settings)
    }

    /// Hands in a message that has ended (EF1). A `context_window` of 0 tokens is unknown.
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn message(&self, message: &AssistantMessage, context_window: u64) -> Result<(), RpcError> {
        self.input(Input::AssistantMessage {
            message,
            context_window,
        })
    }

    /// Answers [`HostEffect::SwitchCredential`]: whether another credential took over.
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn credential_switched(&self, request: RequestId, switched: bool) -> Result<(), RpcError> {
        match self.link.current(request.0) {
            Some(id) => self.input(Input::CredentialSwitched {
                request: RequestId(id),
                switched,
            }),
            // It was asked by a process that is no more: stale, as any other late answer (ST10).
            None => Ok(()),
        }
    }

    /// Answers [`HostEffect::ContinueAgent`]: the agent could not start, or its run brought no message.
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn continue_failed(&self, run: RunId, error: &str) -> Result<(), RpcError> {
        match self.link.current(run.0) {
            Some(id) => self.input(Input::ContinueFailed {
                run: RunId(id),
                error,
            }),
            None => Ok(()),
        }
    }

    /// A new prompt begins: no earlier run will hand in messages any more (ST11).
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn prompt_started(&self) -> Result<(), RpcError> {
        self.input(Input::PromptStarted)
    }

    /// Ends an open chain and forgets the session, its settings too.
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn close_session(&self) -> Result<(), RpcError> {
        self.link.writer().settings.remove(&self.session);
        self.command(Command::CloseSession)
    }

    /// Ends the open chains of all sessions and the process, which is not started anew.
    ///
    /// # Errors
    /// As [`set_auto_retry`](Self::set_auto_retry).
    pub fn shutdown(&self) -> Result<(), RpcError> {
        self.link.answers().closing = true;
        self.link.ask(None, Body::Command(Command::Shutdown))?;
        Ok(())
    }

    fn change(&self, command: Command<'_>, patch: &SettingsPatch) -> Result<(), RpcError> {
        // Noted first: a process that is started anew meanwhile is told, too.
        let mut writer = self.link.writer();
        writer
            .settings
            .entry(self.session.clone())
            .or_default()
            .merge(patch);
        drop(writer);
        self.command(command)
    }

    fn command(&self, command: Command<'_>) -> Result<(), RpcError> {
        self.link
            .ask(self.session.as_deref(), Body::Command(command))?;
        Ok(())
    }

    fn input(&self, input: Input<'_>) -> Result<(), RpcError> {
        self.link.ask(self.session.as_deref(), Body::Input(input))?;
        Ok(())
    }

    fn ask<T: DeserializeOwned>(&self, command: Command<'_>) -> Result<T, RpcError> {
        let response = self
            .link
            .ask(self.session.as_deref(), Body::Command(command))?;
        serde_json::from_value(response.data.unwrap_or_default()).map_err(|error| {
            let why = format!(
                "{} was answered by other data than expected: {error}",
                response.command
            );
            RpcError::new(RpcErrorKind::Refused, why)
        })
    }
}

/// What a process tells unasked, with the session's name (None is the unnamed one), in order. Ends when the
/// process has ended and is not started anew.
///
/// What is not taken is kept in memory.
#[derive(Debug)]
pub struct RpcNotices {
    notices: Receiver<(Name, Notice)>,
}

impl RpcNotices {
    /// The next one, if it comes within `timeout`.
    ///
    /// # Errors
    /// It did not come in time, or none will come any more.
    pub fn recv_timeout(
        &self,
        timeout: Duration,
    ) -> Result<(Option<Arc<str>>, Notice), RecvTimeoutError> {
        self.notices.recv_timeout(timeout)
    }
}

impl Iterator for RpcNotices {
    type Item = (Option<Arc<str>>, Notice);

    /// Blocks until the next one.
    fn next(&mut self) -> Option<Self::Item> {
        self.notices.recv().ok()
    }
}

/// A call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    kind: RpcErrorKind,
    text: String,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RpcErrorKind {
    /// The process could not be started.
    Spawn,
    /// The process has ended: what was asked may or may not have been done.
    Died,
    /// It did not answer in time.
    Timeout,
    /// It refused what was asked: the text says why.
    Refused,
}

impl RpcError {
    fn new(kind: RpcErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }

    fn died() -> Self {
        Self::new(RpcErrorKind::Died, "the retry process has ended")
    }

    /// Why the call failed.
    #[must_use]
    pub const fn kind(&self) -> RpcErrorKind {
        self.kind
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for RpcError {}

/// What the clients of one process share. The reading thread holds on to it only weakly, so that dropping the
/// last client closes the process's input.
#[derive(Debug)]
struct Link {
    timeout: Duration,
    writer: Mutex<Writer>,
    // A lock of its own: the reader must get on while a writer waits for the process to read.
    answers: Arc<Mutex<Answers>>,
}

#[derive(Debug)]
struct Writer {
    /// None when the process has ended.
    stdin: Option<ChildStdin>,
    /// What a process that is started anew must be told.
    settings: BTreeMap<Name, SettingsPatch>,
}

#[derive(Debug, Default)]
struct Answers {
    last_id: u64,
    awaited: BTreeMap<u64, Sender<Result<Response, RpcError>>>,
    /// The ids of effects above this one are those of the running process.
    id_base: u64,
    process_id: u32,
    closing: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is done under these locks leaves them half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        lock(&self.answers)
    }

    /// The id as the running process gave it out; None if an earlier process did.
    fn current(&self, id: u64) -> Option<u64> {
        id.checked_sub(self.answers().id_base).filter(|id| *id > 0)
    }

    fn ask(&self, session: Option<&str>, body: Body<'_>) -> Result<Response, RpcError> {
        let (answer, answered) = mpsc::channel();
        let id = {
            let mut answers = self.answers();
            answers.last_id += 1;
            let id = answers.last_id;
            answers.awaited.insert(id, answer);
            id
        };
        let written = self.writer().write(&LineIn { body, id, session });
        let answer = match written {
            Ok(()) => answered.recv_timeout(self.timeout),
            Err(error) => Ok(Err(error)),
        };
        self.answers().awaited.remove(&id);
        let response = answer.unwrap_or_else(|_| {
            let text = format!("no answer within {} ms", self.timeout.as_millis());
            Err(RpcError::new(RpcErrorKind::Timeout, text))
        })?;
        if response.success {
            return Ok(response);
        }
        let why = response.error.unwrap_or_default();
        Err(RpcError::new(
            RpcErrorKind::Refused,
            format!("{}: {why}", response.command),
        ))
    }
}

impl Writer {
    /// Tells a new process the settings of all sessions. Whoever hears of it can ask it, and only after them.
    fn begin(&mut self, stdin: ChildStdin, tell: &Sender<(Name, Notice)>) {
        // Nobody has to listen.
        let _ = tell.send((None, Notice::Restarted));
        self.stdin = Some(stdin);
        let settings = std::mem::take(&mut self.settings);
        for (session, settings) in &settings {
            let command = Command::SetRetrySettings { settings };
            // Ids begin at 1: nobody awaits 0. If it has died again, that is seen by reading.
            let _ = self.write(&LineIn {
                body: Body::Command(command),
                id: 0,
                session: session.as_deref(),
            });
        }
        self.settings = settings;
    }

    fn write(&mut self, line: &LineIn<'_>) -> Result<(), RpcError> {
        let Some(stdin) = &mut self.stdin else {
            return Err(RpcError::died());
        };
        let mut line = to_line(line);
        line.push('\n');
        stdin
            .write_all(line.as_bytes())
            .map_err(|_| RpcError::died())
    }
}

/// The thread that reads what the process writes, and starts it anew.
struct Reader {
    link: Weak<Link>,
    answers: Arc<Mutex<Answers>>,
    tell: Sender<(Name, Notice)>,
    program: Program,
    restarts: u32,
    /// The sessions with an open chain, and its attempt.
    chains: BTreeMap<Name, u32>,
    /// What is added to the ids of the running process, so that those of an earlier one stay stale.
    id_base: u64,
    highest_id: u64,
}

impl Reader {
    fn run(mut self, mut process: Child, mut stdout: ChildStdout) {
        loop {
            // An error of reading is the end of it, as the end itself is.
            let _ = self.read(BufReader::new(stdout));
            let status = process.wait();
            self.died(&status);
            match self.start_anew() {
                Some((next, output)) => (process, stdout) = (next, output),
                None => return,
            }
        }
    }

    fn read(&mut self, mut lines: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            // A newer process may write lines that are not known here: they are no concern of this client.
            if let Ok(line) = serde_json::from_slice(&line) {
                self.line(line);
            }
        }
    }

    fn line(&mut self, line: LineOut) {
        match line {
            LineOut::Response(response) => {
                let id = response.id.as_ref().and_then(serde_json::Value::as_u64);
                let awaiting = id.and_then(|id| lock(&self.answers).awaited.remove(&id));
                if let Some(awaiting) = awaiting {
                    // Whoever asked may have given up waiting.
                    let _ = awaiting.send(Ok(response));
                }
            }
            LineOut::Start(OfSession { body, session }) => {
                let session: Name = session.map(Into::into);
                self.chains.insert(session.clone(), body.attempt);
                self.tell(session, Notice::RetryStarted(body));
            }
            LineOut::End(OfSession { body, session }) => {
                let session: Name = session.map(Into::into);
                self.chains.remove(&session);
                self.tell(session, Notice::RetryEnded(body));
            }
            LineOut::Effect(OfSession { mut body, session }) => {
                let session: Name = session.map(Into::into);
                match &mut body {
                    HostEffect::SwitchCredential {
                        request: RequestId(id),
                        ..
                    } => {
                        *id = self.own(*id);
                        // The attempt is counted before its start is announced.
                        let attempt = self.chains.entry(session.clone()).or_insert(0);
                        *attempt += 1;
                    }
                    HostEffect::ContinueAgent { run: RunId(id) } => *id = self.own(*id),
                    HostEffect::DropFailedMessage
                    | HostEffect::AbortAgent
                    | HostEffect::CheckCompaction { .. } => {}
                }
                self.tell(session, Notice::Effect(body));
            }
        }
    }

    /// An id of the running process among those of all.
    fn own(&mut self, id: u64) -> u64 {
        let id = id + self.id_base;
        self.highest_id = self.highest_id.max(id);
        id
    }

    fn tell(&self, session: Name, notice: Notice) {
        // Nobody has to listen.
        let _ = self.tell.send((session, notice));
    }

    /// Fails the calls under way and ends the chains that the process has left open.
    fn died(&mut self, status: &io::Result<ExitStatus>) {
        if let Some(link) = self.link.upgrade() {
            link.writer().stdin = None;
        }
        for (_, awaiting) in std::mem::take(&mut lock(&self.answers).awaited) {
            let _ = awaiting.send(Err(RpcError::died()));
        }
        let how = match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        for (session, attempt) in std::mem::take(&mut self.chains) {
            let end = RetryEnded {
                success: false,
                attempt,
                final_error: Some(format!("The retry process has ended ({how})")),
                chain_id: None,
                class: None,
                rule: None,
                total_retries: None,
                reason: None,
            };
            self.tell(session, Notice::RetryEnded(end));
        }
    }

    /// The next process, told the settings of all sessions, if there is to be one.
    fn start_anew(&mut self) -> Option<(Child, ChildStdout)> {
        if self.restarts == 0 || lock(&self.answers).closing {
            return None;
        }
        let link = self.link.upgrade()?;
        self.restarts -= 1;
        let (process, stdin, stdout) = spawn(&mut self.program).ok()?;
        self.id_base = self.highest_id;
        let mut answers = lock(&self.answers);
        (answers.id_base, answers.process_id) = (self.id_base, process.id());
        drop(answers);
        // On a thread of its own, since the answers to many sessions' settings must be read meanwhile.
        let tell = self.tell.clone();
        let told = thread::Builder::new().spawn(move || link.writer().begin(stdin, &tell));
        told.ok()?;
        Some((process, stdout))
    }
}
