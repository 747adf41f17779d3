//! `retry-machine rpc`: the pump of the protocol, and nothing else.
//!
//! One thread reads, one writes, the main thread waits for timers; between them one lock over the protocol and
//! the lines to be written. The reader takes nothing more while too much is queued, so a host that stops
//! reading stops being read.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, CommandFactory};
use retry_machine::rpc::{MAX_LINE_BYTES, Protocol};
use retry_machine::{Ambient, MonotonicMillis, RetrySettings, UnixMillis};

use crate::lines::{Line, Lines};
use crate::rules::RulesArgs;
use crate::settings::SettingsArgs;
use crate::step::now_ms;
use crate::{Failure, Outcome, exit};

/// Drive machines from another process: commands and inputs as JSON lines in, events and effects out.
///
/// In: set_auto_retry (enabled), abort_retry, abort, get_state, set_retry_settings (settings), hello,
/// close_session, shutdown by their `type`; the inputs of `step` by their `input`, without timers, which are
/// this process's own. Each may have an `id`, which its response repeats, and a `session`.
///
/// Arguments of other programs (--mode rpc, --no-session, --provider X, …) are passed over. Exits 0 at the
/// end of input, at SIGTERM and when nobody reads any more; `retry-machine schema rpc` has every line.
#[derive(Args)]
#[command(after_help = "Example:
  $ echo '{\"id\":\"1\",\"type\":\"get_state\"}' | retry-machine rpc --max-retries 5")]
pub struct Rpc {
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    rules: RulesArgs,
}

impl Rpc {
    pub fn run(self) -> Outcome {
        let mut settings = RetrySettings::default();
        for patch in self.settings.patches()? {
            settings.apply(&patch);
        }
        let protocol = Protocol::with_classifier(settings, self.rules.classifier()?);
        let pump = Arc::new(Pump::new(protocol));
        let signalled = Arc::clone(&pump);
        ctrlc::set_handler(move || signalled.update(|state| state.signalled = true))
            .map_err(|error| Failure::Io(io::Error::other(error)))?;
        for (name, work) in [("read", Pump::read as fn(&Pump)), ("write", Pump::write)] {
            let pump = Arc::clone(&pump);
            let work = move || {
                let pump = Watched(&pump);
                work(pump.0);
            };
            thread::Builder::new().name(name.to_owned()).spawn(work)?;
        }
        pump.time()
    }
}

/// Lines that wait to be written: at this many, or at this many bytes, nothing more is read and no timer fires.
const MAX_QUEUED_LINES: usize = 1024;
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// How long a signal leaves for what is queued to be written. With the longest line just being read, it is
/// still over within a second.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(250);

struct Pump {
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    protocol: Protocol,
    /// Lines that nobody has begun to write.
    queue: VecDeque<String>,
    /// Lines that are not yet written, and their bytes.
    unwritten: usize,
    unwritten_bytes: usize,
    /// Why no more is read.
    ended: Option<io::Result<()>>,
    /// Why no more is written.
    closed: Option<io::Error>,
    signalled: bool,
}

/// Ends the pump when a thread panics: a process that says nothing any more is worse than one that is gone.
struct Watched<'p>(&'p Pump);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let gone = io::Error::other("a thread of the pump is gone");
            self.0.update(|state| state.closed = Some(gone));
        }
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.unwritten < MAX_QUEUED_LINES && self.unwritten_bytes < MAX_QUEUED_BYTES
    }

    fn is_over(&self) -> bool {
        self.ended.is_some() || self.closed.is_some() || self.signalled
    }

    fn push(&mut self, lines: Vec<String>) {
        self.unwritten += lines.len();
        self.unwritten_bytes += lines.iter().map(String::len).sum::<usize>();
        self.queue.extend(lines);
    }

    /// Whether any was due.
    fn fire_due_timers(&mut self, ambient: Ambient) -> bool {
        let is_due = |due: MonotonicMillis| due <= ambient.monotonic;
        let mut fired = false;
        while self.has_room() && self.protocol.deadline().is_some_and(is_due) {
            let lines = self.protocol.timer(ambient);
            self.push(lines);
            fired = true;
        }
        fired
    }
}

impl Pump {
    fn new(protocol: Protocol) -> Self {
        Self {
            started: Instant::now(),
            state: Mutex::new(State {
                protocol,
                queue: VecDeque::new(),
                unwritten: 0,
                unwritten_bytes: 0,
                ended: None,
                closed: None,
                signalled: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has said so; what it left is as good as what is in the queue.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed, or until `deadline`.
    fn wait<'s>(
        &self,
        state: MutexGuard<'s, State>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'s, State> {
        match deadline {
            None => self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let rest = deadline.saturating_duration_since(Instant::now());
                let waited = self.changed.wait_timeout(state, rest);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    fn ambient(&self) -> Ambient {
        let monotonic = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ambient::new(UnixMillis(now_ms()), MonotonicMillis(monotonic))
            .with_entropy(fastrand::u64(..))
    }

    /// The reader: a line, what it causes, the next line.
    fn read(&self) {
        let mut lines = Lines::new(io::stdin().lock(), MAX_LINE_BYTES);
        loop {
            let mut state = self.lock();
            while !state.has_room() && !state.is_over() {
                state = self.wait(state, None);
            }
            if state.is_over() {
                return;
            }
            drop(state);
            let line = lines.next_line();
            self.update(|state| {
                // Lines without a pause must not keep timers from firing.
                let ambient = self.ambient();
                state.fire_due_timers(ambient);
                let answer = match line {
                    Ok(Some(Line::Whole(line))) => state.protocol.line(line, ambient),
                    Ok(Some(Line::TooLong)) => state.protocol.long_line(),
                    Ok(None) => return state.ended = Some(Ok(())),
                    Err(error) => return state.ended = Some(Err(error)),
                };
                state.push(answer);
                if state.protocol.is_shut_down() {
                    state.ended = Some(Ok(()));
                }
            });
        }
    }

    /// The writer: all that is queued, at once.
    fn write(&self) {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() {
                state = self.wait(state, None);
            }
            let batch = std::mem::take(&mut state.queue);
            drop(state);
            let written = batch
                .iter()
                .try_for_each(|line| writeln!(out, "{line}"))
                .and_then(|()| out.flush());
            let failed = written.is_err();
            self.update(|state| {
                state.unwritten -= batch.len();
                state.unwritten_bytes -= batch.iter().map(String::len).sum::<usize>();
                state.closed = written.err();
            });
            if failed {
                // What is left in the buffer has nowhere to go either.
                let _ = out.into_parts();
                return;
            }
        }
    }

    /// The timers, until it is over; then what is left to be written.
    fn time(&self) -> Outcome {
        let mut state = self.lock();
        while !state.is_over() {
            if state.fire_due_timers(self.ambient()) {
                self.changed.notify_all();
            }
            // Without room a timer waits for the writer.
            let due = state.protocol.deadline().filter(|_| state.has_room());
            let due = due.and_then(|due| self.started.checked_add(Duration::from_millis(due.0)));
            state = self.wait(state, due);
        }
        let rest = state.protocol.finish(self.ambient());
        state.push(rest);
        self.changed.notify_all();
        let mut patience = None;
        while state.unwritten > 0 && state.closed.is_none() {
            if state.signalled {
                let until = *patience.get_or_insert_with(|| Instant::now() + SIGNAL_PATIENCE);
                if Instant::now() >= until {
                    break;
                }
            }
            state = self.wait(state, patience);
        }
        if let Some(error) = state.closed.take() {
            return Err(error.into());
        }
        match state.ended.take() {
            Some(Err(error)) => Err(error.into()),
            Some(Ok(())) | None => Ok(exit::DONE),
        }
    }
}

/// The arguments without those that another program's client passes to what it takes for its own program.
///
/// What is known to be passed is passed over silently; for anything else standard error has a line, since it may
/// be a flag of ours misspelt.
pub fn without_foreign(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.peekable();
    let mut kept: Vec<_> = args.by_ref().take(2).collect();
    if kept.get(1).is_none_or(|command| command != "rpc") {
        kept.extend(args);
        return kept;
    }
    let mut program = crate::Cli::command();
    program.build();
    let Some(command) = program.find_subcommand("rpc") else {
        return kept;
    };
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        let own = command.get_arguments().find(|own| {
            let long = own
                .get_long()
                .is_some_and(|long| name.strip_prefix("--") == Some(long));
            long || own
                .get_short()
                .is_some_and(|short| name == format!("-{short}"))
        });
        match own {
            Some(own) => {
                let value = own.get_action().takes_values() && !text.contains('=');
                kept.push(arg.clone());
                kept.extend(value.then(|| args.next()).flatten());
            }
            None => {
                if !PASSED_BY_CLIENTS.contains(&name) {
                    // Not its value, which may be a secret. Nobody has to read it.
                    let _ = writeln!(io::stderr(), "note: rpc has no `{name}`; it is passed over");
                }
                args.next_if(|next| !next.as_encoded_bytes().starts_with(b"-"));
            }
        }
    }
    kept
}

/// What published clients are known to pass.
const PASSED_BY_CLIENTS: [&str; 12] = [
    "--mode",
    "--provider",
    "--model",
    "--models",
    "--no-session",
    "--session",
    "--session-dir",
    "--thinking",
    "--api-key",
    "--system-prompt",
    "--append-system-prompt",
    "--tools",
];
