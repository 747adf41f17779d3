//! The terminal driver: its options, its threads, its signals.

use core::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::screen::{Screen, Shared};
use crate::shell::Handle;

/// How a [`Terminal`] behaves. The default looks at what standard input and standard error are, at `NO_COLOR` and
/// at `TERM=dumb`.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub(super) lines: bool,
    pub(super) color: Option<bool>,
    pub(super) keys: bool,
    signals: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lines: false,
            color: None,
            keys: true,
            signals: true,
        }
    }
}

impl Options {
    /// One line for each change, and no countdown, also on a terminal: for screen readers and transcripts. Otherwise this
    /// is so where standard error is no terminal.
    #[must_use]
    pub const fn lines(mut self, lines: bool) -> Self {
        self.lines = lines;
        self
    }

    /// With or without colours, whatever `NO_COLOR` says.
    #[must_use]
    pub const fn color(mut self, color: bool) -> Self {
        self.color = Some(color);
        self
    }

    /// Whether Esc and Ctrl-C are read while a retry waits. They are not in any case where standard input or standard
    /// error is no terminal; `(esc to cancel)` is not said then.
    #[must_use]
    pub const fn keys(mut self, keys: bool) -> Self {
        self.keys = keys;
        self
    }

    /// Whether signals are seen to (Unix), which is so by default: SIGINT aborts; a second one for the same prompt,
    /// SIGTERM, SIGHUP and SIGQUIT end the process as they usually do, after the terminal has been restored. A program
    /// that handles signals itself turns this off, and drops the [`Terminal`] before it ends.
    #[must_use]
    pub const fn signals(mut self, signals: bool) -> Self {
        self.signals = signals;
        self
    }
}

/// Shows a session's retries on standard error, and takes Esc and Ctrl-C from the keyboard while one waits.
///
/// * Esc gives up retrying ([`Handle::abort_retry`]), Ctrl-C everything ([`Handle::abort`]).
/// * On a terminal the countdown stands in one line and goes with the wait (TU1, TU3, TU5). Elsewhere, and with
///   [`Options::lines`], each change is a line. A failure is a line that stays.
/// * Raw mode lasts as long as a wait and not longer. The former mode returns when the wait is over, when this is dropped,
///   when any thread panics, and at signals. After a panic nothing is drawn before the next retry.
/// * Esc is told from arrow keys and the like, also when a slow line tears them apart.
///
/// The events are shown by a hook of the session, so what a prompt has to say is written when it comes back. What
/// standard error does not take is lost; no session fails for it. Not restored at `std::process::exit` and
/// `SIGKILL`: [`finish`](Self::finish) before the one, `stty sane` after the other.
///
/// ```
/// use retry_machine::shell::{Host, Run, Session, Timer};
/// use retry_machine::status::{Options, Screen, Terminal};
/// # use retry_machine::{AssistantMessage, MonotonicMillis, RetrySettings, driver::RunEnd};
/// # use std::time::{Duration, Instant};
/// # struct Clock(Instant);
/// # impl Timer for Clock {
/// #     fn now(&self) -> MonotonicMillis { MonotonicMillis(self.0.elapsed().as_millis() as u64) }
/// #     async fn sleep(&self, duration: Duration) { async_io::Timer::after(duration).await; }
/// # }
///
/// struct Agent {
///     screen: Screen,
/// }
///
/// impl Host for Agent {
///     type Prompt = &'static str;
///     async fn run(&mut self, _: Run<&'static str>) -> RunEnd {
///         self.screen.continue_agent();
///         // … as the answer streams in:
///         let _ = self.screen.print("Hello!\n");
///         AssistantMessage::success().into()
///     }
/// }
///
/// # let timer = Clock(Instant::now());
/// let agent = Agent { screen: Screen::default() };
/// let mut session = Session::with_timer(agent, RetrySettings::default(), timer);
/// let terminal = Terminal::start(session.handle(), Options::default())?;
/// session.host_mut().screen = terminal.screen();
/// # async_io::block_on(async {
/// session.prompt("hi").await;
/// # });
/// terminal.finish();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Terminal {
    shared: Arc<Shared>,
    time: Option<JoinHandle<()>>,
    #[cfg(unix)]
    _signals: Option<super::signals::Signals>,
}

impl Terminal {
    /// Begins to show the session of this handle.
    ///
    /// # Errors
    ///
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) when another one of this process has the terminal: it must be
    /// finished first. Else what the system says when a thread cannot be started or a signal cannot be handled.
    pub fn start(handle: Handle, options: Options) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(handle.clone(), options)?);
        let mut terminal = Self {
            shared,
            time: None,
            #[cfg(unix)]
            _signals: None,
        };
        let shared = &terminal.shared;
        #[cfg(unix)]
        if options.signals {
            terminal._signals = Some(super::signals::Signals::start(shared)?);
        }
        if shared.has_terminal() {
            let shared = Arc::clone(shared);
            let thread = Builder::new().name("retry-countdown".to_owned());
            terminal.time = Some(thread.spawn(move || shared.run())?);
        }
        let hook = Arc::downgrade(&terminal.shared);
        handle.hook(move |event| {
            if let Some(shared) = hook.upgrade() {
                shared.event(event);
            }
        });
        Ok(terminal)
    }

    /// For whoever else writes to the terminal.
    #[must_use]
    pub fn screen(&self) -> Screen {
        Screen::new(Arc::clone(&self.shared))
    }

    /// Ends the showing and restores the terminal, as dropping does.
    pub fn finish(self) {}
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(time) = self.time.take() {
            // A panic of it has been reported.
            let _ = time.join();
        }
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").finish_non_exhaustive()
    }
}
