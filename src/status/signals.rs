//! What signals do while a [`Terminal`](super::Terminal) lives.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, iterator, low_level};

use super::screen::Shared;
use super::tty;

/// Signals, and how many see to them now. When nobody does, they do what they do by default: one that has been handled
/// once would otherwise be ignored for ever after.
struct Group {
    signals: &'static [i32],
    holders: Mutex<usize>,
    by_default: OnceLock<Arc<AtomicBool>>,
}

static INTERRUPT: Group = Group::new(&[SIGINT]);

/// Seen to only where a terminal is to be restored: SIGHUP, for one, must stay ignored under `nohup`.
static END: Group = Group::new(&[SIGTERM, SIGHUP, SIGQUIT]);

/// Signals are seen to as long as this lives.
pub(super) struct Signals {
    held: Vec<Held>,
    handle: iterator::Handle,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let mut groups = vec![&INTERRUPT];
        if shared.has_terminal() {
            groups.push(&END);
        }
        let mut signals = iterator::Signals::new(groups.iter().flat_map(|group| group.signals))?;
        let handle = signals.handle();
        let shared = Arc::downgrade(shared);
        let see_to = move || {
            for signal in signals.forever() {
                let is_first = |shared: Arc<Shared>| signal == SIGINT && shared.interrupt();
                if !shared.upgrade().is_some_and(is_first) {
                    tty::restore_for_end();
                    let _ = low_level::emulate_default_handler(signal);
                }
            }
        };
        let thread = Builder::new().name("retry-signals".to_owned());
        let thread = Some(thread.spawn(see_to)?);
        let held = groups.into_iter().map(Group::hold).collect();
        Ok(Self {
            held,
            handle,
            thread,
        })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // First, so that no signal is lost.
        self.held.clear();
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // A panic of it has been reported.
            let _ = thread.join();
        }
    }
}

impl Group {
    const fn new(signals: &'static [i32]) -> Self {
        Self {
            signals,
            holders: Mutex::new(0),
            by_default: OnceLock::new(),
        }
    }

    fn hold(&'static self) -> Held {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        *holders += 1;
        let by_default = self.by_default.get_or_init(|| {
            let by_default = Arc::new(AtomicBool::new(false));
            for signal in self.signals {
                // Fails for signals only that cannot be handled, and these are.
                let _ = flag::register_conditional_default(*signal, Arc::clone(&by_default));
            }
            by_default
        });
        by_default.store(false, SeqCst);
        Held(self)
    }
}

struct Held(&'static Group);

impl Drop for Held {
    fn drop(&mut self) {
        let mut holders = self
            .0
            .holders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *holders -= 1;
        if let (0, Some(by_default)) = (*holders, self.0.by_default.get()) {
            by_default.store(true, SeqCst);
        }
    }
}
