//! What users of a session hold: its handle, and the signal of an abort.

use core::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use super::listen::Subscription;
use super::shared::Shared;
use crate::driver::{SessionEvent, SessionState, Ticket};
use crate::input::Turn;
use crate::settings::{RetrySettings, SettingsPatch};

/// A session as its users have it: from any thread or task, also while a prompt is running.
///
/// Commands take effect at once, and what they announce is delivered before they return; with one exception: while a
/// listener is being called, a command waits until the step that is announced is carried out (EF2), and comes back at
/// once. So a hook may command. When the session is gone, commands do nothing.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Shared>);

impl Handle {
    /// Gives up retrying (AB1, AB2). A running call is left alone; nothing to give up is fine.
    pub fn abort_retry(&self) {
        self.0.command(|driver| driver.abort_retry());
    }

    /// Aborts everything (AB3): the retry, the running call or compaction, and what would have followed.
    pub fn abort(&self) {
        self.0.command(|driver| driver.abort());
    }

    /// Turns retrying on or off, from the next failure on (SE2, NU5).
    pub fn set_auto_retry_enabled(&self, enabled: bool) {
        self.update_settings(SettingsPatch::enabled(enabled));
    }

    /// Whether failures are retried (SE2).
    #[must_use]
    pub fn auto_retry_enabled(&self) -> bool {
        self.0
            .with_driver(|driver| driver.machine().settings().enabled())
    }

    /// Whether a chain is open (SE2).
    #[must_use]
    pub fn is_retrying(&self) -> bool {
        self.0.with_driver(|driver| driver.machine().is_retrying())
    }

    /// What the session looks like now.
    #[must_use]
    pub fn state(&self) -> SessionState {
        let now = self.0.now();
        self.0.with_driver(|driver| driver.state(now))
    }

    /// The settings that the next failure will be judged by (NU5).
    #[must_use]
    pub fn settings(&self) -> RetrySettings {
        self.0
            .with_driver(|driver| driver.machine().settings().clone())
    }

    /// New values for some settings, from the next failure on (NU5). Saving them is the host's affair.
    pub fn update_settings(&self, patch: SettingsPatch) {
        self.0.with_driver(|driver| driver.update_settings(patch));
    }

    /// Hands in a message of a run that the host made by itself, such as one during a wait (ST8): a failed or aborted
    /// one when that run has ended. Without a running prompt it is not taken, nor a failed one while the session itself
    /// runs the agent.
    pub fn message_ended(&self, turn: impl Into<Turn<'static>>) {
        self.message_ended_in(None, turn.into());
    }

    pub(super) fn message_ended_in(&self, ticket: Option<Ticket>, turn: Turn<'static>) {
        self.0.command(|driver| driver.message_ended(ticket, turn));
    }

    /// Calls `hook` with every event from now on, after the hooks that are there already and before all subscribers
    /// (EV3). It is called by the session, or by whoever commands; the agent waits for it. It may command through a
    /// handle, and must not wait for the session. If it panics, that is caught and told to the subscribers
    /// ([`SessionEvent::HookPanicked`]). It goes when the session goes.
    pub fn hook(&self, hook: impl FnMut(&SessionEvent) + Send + 'static) {
        self.0
            .listen(|listeners| listeners.add_hook(Box::new(hook)));
    }

    /// The events from now on, in a queue of at most so many (at least one). When it is full, the oldest ones are lost
    /// and counted.
    #[must_use]
    pub fn subscribe(&self, capacity: usize) -> Subscription {
        let subscription = Subscription::new(capacity);
        self.0.listen(|listeners| {
            subscription.open();
            listeners.add_subscriber(&subscription);
        });
        subscription
    }

    /// Is ready when the prompt that is running now is over (PR1, PR2): its last event has been delivered. Ready at
    /// once if none is running, or the session is gone.
    ///
    /// Cancel safety: dropping the future leaves nothing behind.
    pub fn wait_until_settled(&self) -> impl Future<Output = ()> + Send + use<> {
        Settling {
            prompt: self.0.with_driver(|driver| driver.prompts_started()),
            waiter: 0,
            shared: Arc::clone(&self.0),
        }
    }

    /// The same on this thread (feature `blocking`), for so long at most; says whether the prompt is over. Not from a
    /// hook, and not from the thread that runs the prompt: they would wait for themselves.
    #[cfg(feature = "blocking")]
    pub fn block_until_settled(&self, timeout: Duration) -> bool {
        let prompt = self.0.with_driver(|driver| driver.prompts_started());
        self.0.wait_over(prompt, timeout)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.state()).finish()
    }
}

/// Waits for the end of a prompt.
struct Settling {
    shared: Arc<Shared>,
    prompt: u64,
    /// The place in the list of those who wait; 0 for none.
    waiter: u64,
}

impl Future for Settling {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self {
            shared,
            prompt,
            waiter,
        } = &mut *self;
        shared.poll_over(cx, *prompt, waiter)
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        self.shared.forget_waiter(self.waiter);
    }
}

/// Says to a running call or compaction that the user has aborted. Clones are of the same signal.
#[derive(Clone, Default)]
pub struct AbortSignal(Arc<Signal>);

#[derive(Default)]
struct Signal {
    state: Mutex<SignalState>,
    raised: Condvar,
}

#[derive(Default)]
struct SignalState {
    raised: bool,
    callbacks: Vec<Box<dyn FnOnce() + Send>>,
}

impl AbortSignal {
    /// Whether the user has aborted.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.lock().raised
    }

    /// Calls `stop` when the user aborts, on the thread that does; at once, if it has happened. It is what shuts the
    /// socket that a blocking call reads from. A panic in it is caught.
    pub fn on_raise(&self, stop: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if state.raised {
            drop(state);
            stop();
        } else {
            state.callbacks.push(Box::new(stop));
        }
    }

    /// Waits for the abort on this thread, for so long at most; says whether it has come. It is the sleep of a
    /// blocking host.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        let (state, _) = self
            .0
            .raised
            .wait_timeout_while(self.lock(), timeout, |state| !state.raised)
            .unwrap_or_else(PoisonError::into_inner);
        state.raised
    }

    pub(super) fn raise(&self) {
        let mut state = self.lock();
        state.raised = true;
        let callbacks = std::mem::take(&mut state.callbacks);
        drop(state);
        self.0.raised.notify_all();
        for stop in callbacks {
            // One that fails must not keep the others from stopping; what it said, the panic hook has printed.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(stop));
        }
    }

    fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for AbortSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortSignal")
            .field("raised", &self.is_raised())
            .finish()
    }
}
