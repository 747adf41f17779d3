//! Where the terminal's status line plugs in. Until it does: a plain line on standard error for each event.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use retry_machine::driver::SessionEvent;
use retry_machine::shell::Handle;
use retry_machine::{Outcome, RetryEvent};

use crate::show;

#[derive(Clone, Default)]
pub struct Screen;

impl Screen {
    pub fn print(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
    pub fn continue_agent(&self) {}
    pub fn suspend<R>(&self, act: impl FnOnce() -> R) -> R {
        act()
    }
}

pub struct Terminal;

#[derive(Default)]
pub struct Options;

static AT: Mutex<Option<Handle>> = Mutex::new(None);

impl Terminal {
    pub fn start(handle: Handle, _: Options) -> io::Result<Self> {
        handle.hook(line);
        *AT.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        let _ = ctrlc::try_set_handler(|| {
            if let Some(handle) = &*AT.lock().unwrap_or_else(PoisonError::into_inner) {
                handle.abort();
            }
        });
        Ok(Self)
    }
    pub fn screen(&self) -> Screen {
        Screen
    }
    pub fn finish(self) {
        AT.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn line(event: &SessionEvent) {
    match event {
        SessionEvent::Retry(RetryEvent::Start(start)) => eprintln!(
            "Retrying ({}/{}) in {}s…",
            start.attempt,
            start.max_attempts,
            (start.delay_ms + 500) / 1000
        ),
        SessionEvent::Retry(RetryEvent::End(end)) => {
            if let Outcome::Failure { final_error, .. } = &end.outcome {
                eprintln!(
                    "Retry failed after {} attempts: {}",
                    end.attempt,
                    show::one_line(final_error, 200)
                );
            }
        }
        _ => {}
    }
}
