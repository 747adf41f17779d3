//! What is on the screen: the one place that writes there.

use core::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::terminal::Options;
use super::tty::{self, Claim, Command, Pressed};
use super::{Status, Style};
use crate::driver::SessionEvent;
use crate::event::RetryEvent;
use crate::shell::Handle;
use crate::time::MonotonicMillis;

/// What a [`Terminal`](super::Terminal) shares with its hook, its threads and its screens.
pub(super) struct Shared {
    handle: Handle,
    started: Instant,
    view: Mutex<View>,
    /// Notified when there may be something else to wait for.
    changed: Condvar,
    /// There is a countdown, and not lines.
    is_live: bool,
    keys: bool,
    color: bool,
}

struct View {
    status: Status,
    /// What is drawn now.
    drawn: Option<String>,
    /// Lines that wait for the end of a suspension.
    lines: Vec<String>,
    suspended: u32,
    /// The answer on standard output has not ended its line.
    mid_line: bool,
    /// The user has interrupted the prompt at hand.
    interrupted: bool,
    closed: bool,
    /// None when there is nothing to restore.
    claim: Option<Claim>,
}

impl Shared {
    pub(super) fn new(handle: Handle, options: Options) -> io::Result<Self> {
        let capable = tty::is_capable();
        let is_live = capable && !options.lines;
        let keys = options.keys && io::stderr().is_terminal() && io::stdin().is_terminal();
        let claim = (is_live || keys).then(Claim::new).transpose()?;
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Ok(Self {
            handle,
            started: Instant::now(),
            view: Mutex::new(View {
                status: Status::new(),
                drawn: None,
                lines: Vec::new(),
                suspended: 0,
                mid_line: false,
                interrupted: false,
                closed: false,
                claim,
            }),
            changed: Condvar::new(),
            is_live,
            keys,
            color: options.color.unwrap_or(is_live && !no_color),
        })
    }

    /// Whether there is a terminal, to be looked after while time passes.
    pub(super) const fn has_terminal(&self) -> bool {
        self.is_live || self.keys
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        // Nothing that can panic leaves a view half changed.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> MonotonicMillis {
        let elapsed = self.started.elapsed().as_millis();
        MonotonicMillis(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// The hook: what has happened is on the screen before the agent goes on.
    pub(super) fn event(self: &Arc<Self>, event: &SessionEvent) {
        let mut view = self.lock();
        match event {
            SessionEvent::Retry(event) => {
                view.status.event(event, self.now());
                if let RetryEvent::Start(_) = event {
                    tty::forget_ending();
                }
                let is_line = !self.is_live || !view.status.is_waiting();
                if let Some(line) = self.line(&view).filter(|_| is_line) {
                    view.lines.push(line);
                }
            }
            SessionEvent::Settled(_) => view.interrupted = false,
            SessionEvent::RunEnded { .. } | SessionEvent::HookPanicked { .. } => return,
        }
        self.update(&mut view);
        self.changed.notify_all();
    }

    /// The agent continues.
    pub(super) fn continue_agent(self: &Arc<Self>) {
        let mut view = self.lock();
        if view.status.is_waiting() {
            view.status.continue_agent();
            self.update(&mut view);
        }
    }

    pub(super) fn pressed(self: &Arc<Self>, pressed: Pressed) {
        let mut view = self.lock();
        match pressed {
            Pressed::Resized => self.update(&mut view),
            Pressed::Command(command) => {
                // After the wait it is not for us.
                let is_waiting = view.status.is_waiting() && !view.closed;
                // A command calls the hook.
                drop(view);
                match command {
                    Command::AbortRetry if is_waiting => self.handle.abort_retry(),
                    Command::Abort if is_waiting => {
                        self.interrupt();
                    }
                    Command::AbortRetry | Command::Abort => {}
                }
            }
        }
    }

    /// Aborts the prompt; says whether there was one, and this was the first time.
    pub(super) fn interrupt(&self) -> bool {
        let is_running = self.handle.state().prompt_running;
        let before = std::mem::replace(&mut self.lock().interrupted, is_running);
        self.handle.abort();
        is_running && !before
    }

    /// Lets time pass until it is closed.
    pub(super) fn run(self: &Arc<Self>) {
        let mut view = self.lock();
        while !view.closed {
            let now = self.now();
            if view.status.due().is_some_and(|due| due <= now) {
                view.status.continue_agent();
            }
            self.update(&mut view);
            let next = view.status.next_change(now);
            let rest = next.map(|next| Duration::from_millis(next.since(now)));
            view = match rest {
                Some(rest) => {
                    let waited = self.changed.wait_timeout(view, rest);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(view);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Gives the terminal back for good.
    pub(super) fn close(self: &Arc<Self>) {
        let mut view = self.lock();
        view.closed = true;
        self.update(&mut view);
        view.claim = None;
        self.changed.notify_all();
    }

    /// Brings the screen and the keys to what they should be.
    fn update(self: &Arc<Self>, view: &mut View) {
        if view.suspended > 0 {
            return;
        }
        let lines = std::mem::take(&mut view.lines);
        let is_waiting = view.status.is_waiting() && !view.closed && !tty::is_ending();
        let mut loader = None;
        if is_waiting && self.is_live {
            loader = self.line(view);
        }
        if !lines.is_empty() || loader.is_none() {
            self.take_away(view);
        }
        if !is_waiting {
            tty::leave_raw_mode();
        } else if self.keys && view.claim.is_some() {
            // Before a text asks for keys: whoever has read it may press one.
            tty::enter_raw_mode();
            tty::read_keys(self);
        }
        for line in lines {
            self.end_line(view);
            // Nobody can be told, and the agent does not need it.
            let _ = tty::write_error(&format!("{line}\n"));
        }
        if loader.is_some() && (loader != view.drawn || !tty::is_drawn()) {
            self.end_line(view);
            tty::draw(loader.as_deref());
            view.drawn = loader;
        }
    }

    fn take_away(&self, view: &mut View) {
        if view.drawn.take().is_some() {
            tty::draw(None);
        }
    }

    /// Begins a new line, if the answer's last one is still open on the same terminal.
    fn end_line(&self, view: &mut View) {
        if std::mem::take(&mut view.mid_line) {
            let _ = tty::write_error("\n");
        }
    }

    fn line(&self, view: &View) -> Option<String> {
        let columns = if self.is_live {
            // In the last column some terminals begin a new line.
            tty::columns().saturating_sub(1)
        } else {
            usize::MAX
        };
        let mut style = if self.color {
            Style::colored()
        } else {
            Style::plain()
        };
        if !self.keys {
            style = style.without_esc_hint();
        }
        view.status.line(self.now(), columns, style)
    }
}

/// The way to the terminal for whoever else writes there, such as the host with its streamed answer. Clones are of the
/// same.
///
/// The default has no [`Terminal`](super::Terminal) behind it and just writes.
#[derive(Clone, Default)]
pub struct Screen(Option<Arc<Shared>>);

impl Screen {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self(Some(shared))
    }

    /// Writes a piece of the answer to standard output, at once.
    ///
    /// The countdown goes first and comes again below it, so neither damages the other; after a piece that has not ended
    /// its line, on a new one.
    ///
    /// # Errors
    ///
    /// What standard output says.
    pub fn print(&self, text: &str) -> io::Result<()> {
        let write = || {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text.as_bytes())?;
            stdout.flush()
        };
        let Some(shared) = &self.0 else {
            return write();
        };
        let mut view = shared.lock();
        shared.take_away(&mut view);
        let written = write();
        if !text.is_empty() && io::stdout().is_terminal() && io::stderr().is_terminal() {
            view.mid_line = !text.ends_with('\n');
        }
        shared.update(&mut view);
        written
    }

    /// Says that the agent continues: the countdown goes now (TU5), and not when the terminal's own clock says so a moment
    /// later. For the beginning of [`Host::run`](crate::shell::Host::run); does nothing when no retry waits.
    pub fn continue_agent(&self) {
        if let Some(shared) = &self.0 {
            shared.continue_agent();
        }
    }

    /// Gives the terminal back while `act` writes or reads there, in its former mode and without the countdown. What
    /// happens meanwhile is shown afterwards. `act` should leave the cursor at the beginning of a line.
    pub fn suspend<R>(&self, act: impl FnOnce() -> R) -> R {
        let Some(shared) = &self.0 else {
            return act();
        };
        let mut view = shared.lock();
        if view.suspended == 0 {
            shared.take_away(&mut view);
            tty::leave_raw_mode();
            shared.end_line(&mut view);
        }
        view.suspended += 1;
        drop(view);
        let _resumed = Resumed(shared);
        act()
    }
}

/// Ends a suspension, also when it panics.
struct Resumed<'s>(&'s Arc<Shared>);

impl Drop for Resumed<'_> {
    fn drop(&mut self) {
        let mut view = self.0.lock();
        view.suspended -= 1;
        self.0.update(&mut view);
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").finish_non_exhaustive()
    }
}
