//! What a person sees of retries (SPEC section 12): a countdown while a retry waits, and one line when retrying failed.
//!
//! | what | for whom |
//! | --- | --- |
//! | [`Status`] | a terminal interface of one's own: pure, (events, now, width) → one line |
//! | [`Terminal`] | a program that writes lines: shows that line on standard error and reads Esc |
//! | [`text`] | whoever shows texts from outside |
//!
//! ```
//! use retry_machine::status::{Status, Style};
//! use retry_machine::{Ambient, AssistantMessage, Effect, Input, MonotonicMillis, RetryMachine};
//!
//! let mut machine = RetryMachine::default();
//! let mut status = Status::new();
//! let failed = AssistantMessage::error("503 Service Unavailable");
//! for effect in machine.handle(Input::message(&failed), Ambient::at(0)) {
//!     if let Effect::Emit { event } = effect {
//!         status.event(&event, MonotonicMillis(0));
//!     }
//! }
//! let line = |now_ms, columns| status.line(MonotonicMillis(now_ms), columns, Style::plain());
//! assert_eq!(line(0, 80).unwrap(), "Retrying (1/3) in 2s… (esc to cancel)");
//! assert_eq!(line(600, 80).unwrap(), "Retrying (1/3) in 1s… (esc to cancel)");
//! assert_eq!(line(600, 16).unwrap(), "Retrying (1/3) …");
//! assert_eq!(status.next_change(MonotonicMillis(0)), Some(MonotonicMillis(501)));
//! ```
//!
//! Deliberately absent: a spinner, full-screen drawing, and any decision. Esc is a command like any other
//! ([`Handle::abort_retry`](crate::shell::Handle::abort_retry)).

mod screen;
#[cfg(unix)]
mod signals;
mod terminal;
pub mod text;
mod tty;

use anstyle::AnsiColor;

pub use screen::Screen;
pub use terminal::{Options, Terminal};

use crate::event::{Outcome, RetryEvent};
use crate::time::MonotonicMillis;

/// More of an error's text than this is never shown.
const LONGEST_ERROR_COLUMNS: usize = 4096;

/// What stands in the status line: a view of one session's retries, without a clock.
///
/// It is fed with the session's events ([`event`](Self::event)) and with the moment in which the agent continues
/// ([`continue_agent`](Self::continue_agent)), and says what the [`line`](Self::line) is and
/// [when it changes](Self::next_change). Events may come in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    shown: Shown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Nothing,
    Waiting {
        attempt: u32,
        max_attempts: u32,
        due: MonotonicMillis,
    },
    Failed {
        attempts: u32,
        /// Masked and escaped.
        error: String,
    },
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    color: bool,
    esc_hint: bool,
}

impl Style {
    /// Text alone, to the letter of TU1 and TU3.
    #[must_use]
    pub const fn plain() -> Self {
        Self {
            color: false,
            esc_hint: true,
        }
    }

    /// With colours (SGR sequences), which take no columns.
    #[must_use]
    pub const fn colored() -> Self {
        Self {
            color: true,
            esc_hint: true,
        }
    }

    /// Without `(esc to cancel)`, where no key is read.
    #[must_use]
    pub const fn without_esc_hint(mut self) -> Self {
        self.esc_hint = false;
        self
    }
}

impl Status {
    /// Nothing is shown.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            shown: Shown::Nothing,
        }
    }

    /// Takes an event of the session (TU1, TU3); `now` is when its wait begins.
    ///
    /// A start shows the countdown, also over one that is there (TU5). A success shows nothing. A failure stays until
    /// the next start.
    pub fn event(&mut self, event: &RetryEvent<'_>, now: MonotonicMillis) {
        self.shown = match event {
            RetryEvent::Start(start) => Shown::Waiting {
                attempt: start.attempt,
                max_attempts: start.max_attempts,
                due: now.after(start.delay_ms),
            },
            RetryEvent::End(end) => match &end.outcome {
                Outcome::Success => Shown::Nothing,
                Outcome::Failure { final_error, .. } => Shown::Failed {
                    attempts: end.attempt,
                    error: text::one_line(final_error, LONGEST_ERROR_COLUMNS),
                },
            },
        };
    }

    /// The wait is over and the agent continues: the countdown goes (TU5).
    pub fn continue_agent(&mut self) {
        match self.shown {
            Shown::Waiting { .. } => self.shown = Shown::Nothing,
            Shown::Nothing | Shown::Failed { .. } => {}
        }
    }

    /// Whether a retry waits. As long as it does, Esc is for the retry; before and after, for whom it was before
    /// (TU3, TU5).
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        match self.shown {
            Shown::Waiting { .. } => true,
            Shown::Nothing | Shown::Failed { .. } => false,
        }
    }

    /// When the wait is over; None if none is.
    #[must_use]
    pub const fn due(&self) -> Option<MonotonicMillis> {
        match self.shown {
            Shown::Waiting { due, .. } => Some(due),
            Shown::Nothing | Shown::Failed { .. } => None,
        }
    }

    /// The line as it is now, at most so many columns wide (TU4); None if nothing is shown.
    #[must_use]
    pub fn line(&self, now: MonotonicMillis, columns: usize, style: Style) -> Option<String> {
        let (line, color) = match &self.shown {
            Shown::Nothing => return None,
            Shown::Waiting {
                attempt,
                max_attempts,
                due,
            } => {
                let seconds = seconds(due.since(now));
                let hint = if style.esc_hint {
                    " (esc to cancel)"
                } else {
                    ""
                };
                let line = format!("Retrying ({attempt}/{max_attempts}) in {seconds}s…{hint}");
                (line, AnsiColor::Yellow)
            }
            Shown::Failed { attempts, error } => {
                let line = match attempts {
                    0 => format!("Retry failed: {error}"),
                    1 => format!("Retry failed after 1 attempt: {error}"),
                    _ => format!("Retry failed after {attempts} attempts: {error}"),
                };
                (line, AnsiColor::Red)
            }
        };
        let line = text::cut(&line, columns);
        Some(if style.color {
            let color = color.on_default();
            format!("{color}{line}{color:#}")
        } else {
            line
        })
    }

    /// When the line will next be another: with the next second, and at last when the wait is over. None if only an event
    /// will change it. So a shell sleeps until then.
    #[must_use]
    pub const fn next_change(&self, now: MonotonicMillis) -> Option<MonotonicMillis> {
        let Shown::Waiting { due, .. } = self.shown else {
            return None;
        };
        let remaining = due.since(now);
        Some(match seconds(remaining) {
            0 => due,
            // The first millisecond that rounds to one less.
            seconds => now.after(remaining - ((seconds - 1) * 1000 + 499)),
        })
    }
}

/// Whole seconds, rounded half up (TU2).
const fn seconds(ms: u64) -> u64 {
    ms / 1000 + (ms % 1000 >= 500) as u64
}
