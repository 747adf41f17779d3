//! The async shell, written once over a timer.

use core::fmt;
use std::sync::Arc;

use super::shared::{Next, Shared};
use super::{Handle, Host, Owner, Prompting, Run, Timer, ambient_of, next_sleep};
use crate::driver::{Compaction, Duty, RunEnd, SessionEvent, Settled};
use crate::machine::RetryMachine;
use crate::message::AssistantMessage;
use crate::settings::RetrySettings;

/// An agent and its retries: runs one prompt at a time.
///
/// It spawns nothing and keeps nothing going: whatever happens, happens in the future of [`prompt`](Self::prompt).
pub struct Session<H, T> {
    host: H,
    timer: Arc<T>,
    owner: Owner,
}

impl<H: Host, T: Timer + Default> Session<H, T> {
    /// With the built-in classifier.
    #[must_use]
    pub fn new(host: H, settings: RetrySettings) -> Self {
        Self::with_timer(host, settings, T::default())
    }
}

impl<H: Host, T: Timer> Session<H, T> {
    /// With the built-in classifier, and a timer that has to be made.
    #[must_use]
    pub fn with_timer(host: H, settings: RetrySettings, timer: T) -> Self {
        Self::with_machine(host, RetryMachine::new(settings), timer)
    }

    /// Over a machine of the host's making, such as one with its own classifier.
    #[must_use]
    pub fn with_machine(host: H, machine: RetryMachine, timer: T) -> Self {
        let timer = Arc::new(timer);
        let clock = Arc::clone(&timer);
        let shared = Shared::new(machine, move || ambient_of(&*clock));
        Self {
            host,
            timer,
            owner: Owner(Arc::new(shared)),
        }
    }

    /// Runs one prompt to its end: the run, its retries, the compaction that follows (PR1). Comes back when the last
    /// event ([`SessionEvent::Settled`]) has been delivered. After [`Handle::abort_retry`] in a running call, it
    /// still waits for that call; after [`Handle::abort`], for [`Host::abort`].
    ///
    /// Cancel safety: the future may be dropped at any time. The prompt is then given up: the running call is dropped,
    /// an open chain is closed as cancelled, the end is announced, waiters are released, and nothing is left behind.
    /// The next prompt starts afresh; what the host has in its context stays there.
    pub async fn prompt(&mut self, prompt: H::Prompt) -> Settled {
        let Self { host, timer, owner } = self;
        let shared = &*owner.0;
        let mut prompt = Some(prompt);
        let mut prompting = Prompting::begin(shared);
        loop {
            let Next { duty, abort, seen } = shared.next().await;
            match duty {
                Duty::Run { ticket, cause } => {
                    let run = Run {
                        prompt: prompt.take(),
                        cause,
                        abort: abort.clone(),
                        ticket,
                        handle: Handle(Arc::clone(&owner.0)),
                    };
                    let call = shared.trace.within(host.run(run));
                    let end = match shared.unless(|_| abort.is_raised(), call).await {
                        Some(end) => end,
                        None => {
                            host.abort().await;
                            RunEnd::from(AssistantMessage::aborted())
                        }
                    };
                    shared.with_driver(|driver| driver.run_ended(ticket, end));
                }
                Duty::DropFailedMessage => host.drop_failed_message(),
                Duty::SwitchCredential {
                    ticket,
                    retry_after_ms,
                } => {
                    let switch = host.switch_credential(retry_after_ms);
                    // No answer: nobody asks for it any more.
                    if let Some(switched) = shared
                        .unless(|core| !core.driver.awaits(ticket), switch)
                        .await
                    {
                        shared.with_driver(|driver| driver.credential_switched(ticket, switched));
                    }
                }
                Duty::WaitUntil(due) => {
                    let sleep = timer.sleep(next_sleep(due, timer.now()));
                    shared.unless(|core| core.has_changed(seen), sleep).await;
                }
                Duty::Compact { ticket, cause } => {
                    let compaction = shared
                        .unless(|_| abort.is_raised(), host.compact(cause))
                        .await;
                    let answer = match compaction {
                        Some(answer) => answer,
                        None => {
                            host.abort().await;
                            Compaction::Done
                        }
                    };
                    shared.with_driver(|driver| driver.compacted(ticket, answer));
                }
                Duty::Settled(settled) => {
                    prompting.settled = true;
                    return settled;
                }
                // Carried out before the session sees it.
                Duty::Emit(_) | Duty::AbortAgent => {}
                // Every report is made before the next duty is asked for, and a prompt is running.
                Duty::WaitForReport | Duty::Idle => {
                    shared
                        .unless(|core| core.has_changed(seen), std::future::pending::<()>())
                        .await;
                }
            }
        }
    }
}

impl<H, T> Session<H, T> {
    /// A handle for users of the session.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.owner.0))
    }

    /// The same as [`Handle::hook`].
    pub fn hook(&self, hook: impl FnMut(&SessionEvent) + Send + 'static) {
        self.handle().hook(hook);
    }

    /// The agent.
    #[must_use]
    pub const fn host(&self) -> &H {
        &self.host
    }

    /// The agent, between prompts.
    #[must_use]
    pub const fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// Ends the session and gives the agent back.
    #[must_use]
    pub fn into_host(self) -> H {
        self.host
    }
}

impl<H, T> fmt::Debug for Session<H, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("state", &self.handle().state())
            .finish_non_exhaustive()
    }
}
