//! The terminal of this process: its mode, its keys, and its restoration when the process panics.
//!
//! A process has one terminal, so what is here is one for all: at most one [`Terminal`](super::Terminal) holds it
//! ([`Claim`]).

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::terminal;

use super::screen::Shared;

/// Goes to the beginning of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[K";

static CLAIMED: AtomicBool = AtomicBool::new(false);
/// The countdown stands in the terminal's last line.
static DRAWN: AtomicBool = AtomicBool::new(false);
static RAW: AtomicBool = AtomicBool::new(false);
/// Something has panicked since the wait began, or a signal ends the process: the terminal is left alone.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The right to draw and to read keys. From the first one on, a panic restores the terminal before it is reported.
#[derive(Debug)]
pub(super) struct Claim(());

impl Claim {
    pub(super) fn new() -> io::Result<Self> {
        if CLAIMED.swap(true, SeqCst) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "another `Terminal` of this process is running: finish it first",
            ));
        }
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let report = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore_for_end();
                report(info);
            }));
        });
        Ok(Self(()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        restore();
        CLAIMED.store(false, SeqCst);
    }
}

/// The process may be about to end: nothing is drawn any more before the next retry.
pub(super) fn restore_for_end() {
    ENDING.store(true, SeqCst);
    restore();
}

/// Takes the countdown away and gives the terminal its former mode back. Without a lock of ours: also for the thread
/// that panics while it holds one.
fn restore() {
    draw(None);
    leave_raw_mode();
}

pub(super) fn write_error(text: &str) -> io::Result<()> {
    write_at_once(&mut io::stderr().lock(), text)
}

fn write_at_once(stderr: &mut io::StderrLock<'_>, text: &str) -> io::Result<()> {
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}

/// Draws `line` where the countdown stands, or takes it away.
pub(super) fn draw(line: Option<&str>) {
    // Whoever has this lock knows whether the countdown stands there. A panic is reported under it, too.
    let mut stderr = io::stderr().lock();
    // What standard error does not take is lost.
    let _ = match line {
        Some(line) if !is_ending() => {
            DRAWN.store(true, SeqCst);
            write_at_once(&mut stderr, &format!("{CLEAR_LINE}{line}"))
        }
        Some(_) | None if DRAWN.swap(false, SeqCst) => write_at_once(&mut stderr, CLEAR_LINE),
        Some(_) | None => Ok(()),
    };
}

pub(super) fn is_drawn() -> bool {
    DRAWN.load(SeqCst)
}

pub(super) fn is_ending() -> bool {
    ENDING.load(SeqCst)
}

pub(super) fn forget_ending() {
    ENDING.store(false, SeqCst);
}

/// Keys come one by one and are not echoed, until [`leave_raw_mode`]; what has been typed before is forgotten. Does
/// nothing when it is so already, or when the terminal is another process's at the moment.
pub(super) fn enter_raw_mode() {
    if RAW.load(SeqCst) || !in_foreground() || terminal::enable_raw_mode().is_err() {
        return;
    }
    RAW.store(true, SeqCst);
    keep_line_breaks();
    if is_ending() {
        // It came between.
        return leave_raw_mode();
    }
    // An Esc meant for something else must not count.
    while let Ok(true) = event::poll(Duration::ZERO) {
        if event::read().is_err() {
            break;
        }
    }
}

pub(super) fn leave_raw_mode() {
    if RAW.swap(false, SeqCst) {
        let _ = terminal::disable_raw_mode();
    }
}

/// A process in the background would be stopped by the terminal for changing its mode. A terminal that does not control
/// the process stops nobody.
#[cfg(unix)]
fn in_foreground() -> bool {
    rustix::termios::tcgetpgrp(rustix::stdio::stdin())
        .map_or(true, |group| group == rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn in_foreground() -> bool {
    true
}

/// Raw mode also turns off that a line break returns to the first column, which is what others write with meanwhile.
#[cfg(unix)]
fn keep_line_breaks() {
    use rustix::termios::{OptionalActions, OutputModes, tcgetattr, tcsetattr};
    let stdin = rustix::stdio::stdin();
    if let Ok(mut mode) = tcgetattr(stdin) {
        mode.output_modes |= OutputModes::OPOST;
        let _ = tcsetattr(stdin, OptionalActions::Now, &mode);
    }
}

#[cfg(not(unix))]
fn keep_line_breaks() {}

/// Columns of the terminal behind standard error.
pub(super) fn columns() -> usize {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map_or(80, |(width, _)| usize::from(width.0))
}

/// Whether escape sequences are understood there.
pub(super) fn is_capable() -> bool {
    #[cfg(windows)]
    if !crossterm::ansi_support::supports_ansi() {
        return false;
    }
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    AbortRetry,
    Abort,
}

/// The thread that reads keys for whoever waits.
struct Keys {
    reader: Mutex<Reader>,
    changed: Condvar,
}

struct Reader {
    started: bool,
    /// Whose wait it is.
    waiting: Weak<Shared>,
}

static KEYS: Keys = Keys {
    reader: Mutex::new(Reader {
        started: false,
        waiting: Weak::new(),
    }),
    changed: Condvar::new(),
};

/// How long the thread looks for keys before it looks whether the wait is over.
const KEY_SLICE: Duration = Duration::from_millis(50);

/// Within this time comes the rest of an escape sequence; an Esc of its own has none.
const ESCAPE_GAP: Duration = Duration::from_millis(25);

/// Reads keys for this one, as long as raw mode lasts.
pub(super) fn read_keys(shared: &Arc<Shared>) {
    let mut reader = KEYS.lock();
    reader.waiting = Arc::downgrade(shared);
    if !reader.started {
        // Never joined: half an escape sequence holds the reader up until the next key.
        let thread = thread::Builder::new().name("retry-keys".to_owned());
        reader.started = thread.spawn(|| KEYS.run()).is_ok();
    }
    drop(reader);
    KEYS.changed.notify_all();
}

impl Keys {
    fn lock(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            self.wait_for_raw_mode();
            let pressed = next_command();
            let mut reader = self.lock();
            let Some(waiting) = reader.waiting.upgrade() else {
                continue;
            };
            match pressed {
                Ok(None) => {}
                Ok(Some(pressed)) => {
                    drop(reader);
                    waiting.pressed(pressed);
                }
                // No keys from this terminal; the wait goes on without.
                Err(_) => reader.waiting = Weak::new(),
            }
        }
    }

    fn wait_for_raw_mode(&self) {
        let mut reader = self.lock();
        while reader.waiting.strong_count() == 0 || !RAW.load(SeqCst) {
            reader.waiting = Weak::new();
            reader = self
                .changed
                .wait(reader)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What a person has done at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    Resized,
    Command(Command),
}

/// What has been pressed within a slice of time.
fn next_command() -> io::Result<Option<Pressed>> {
    if !event::poll(KEY_SLICE)? {
        return Ok(None);
    }
    let event = event::read()?;
    let Some(key) = pressed(&event) else {
        let resized = matches!(event, Event::Resize(..));
        return Ok(resized.then_some(Pressed::Resized));
    };
    let command = match key {
        CTRL_C => Some(Command::Abort),
        ESC if event::poll(ESCAPE_GAP)? => match pressed(&event::read()?) {
            // A slow line has torn `Esc [ A` apart: an arrow key, and no Esc.
            Some((KeyCode::Char('[' | 'O'), _)) => None,
            Some(CTRL_C) => Some(Command::Abort),
            Some(_) | None => Some(Command::AbortRetry),
        },
        ESC => Some(Command::AbortRetry),
        _ => None,
    };
    Ok(command.map(Pressed::Command))
}

const ESC: (KeyCode, KeyModifiers) = (KeyCode::Esc, KeyModifiers::NONE);
const CTRL_C: (KeyCode, KeyModifiers) = (KeyCode::Char('c'), KeyModifiers::CONTROL);

fn pressed(event: &Event) -> Option<(KeyCode, KeyModifiers)> {
    let key = event.as_key_press_event()?;
    Some((key.code, key.modifiers))
}
