//! A session on a thread.
//!
//! ```
//! use std::time::Duration;
//! use retry_machine::driver::RunEnd;
//! use retry_machine::shell::{Run, blocking::{Host, Session}};
//! use retry_machine::{AssistantMessage, RetrySettings};
//!
//! struct Agent;
//!
//! impl Host for Agent {
//!     type Prompt = &'static str;
//!
//!     fn run(&mut self, run: Run<&'static str>) -> RunEnd {
//!         // Here the model is called. `run.abort_signal()` tells when to give up.
//!         match run.prompt {
//!             Some(_) => RunEnd::failure("503 Service Unavailable"),
//!             None => AssistantMessage::success().into(),
//!         }
//!     }
//! }
//!
//! let settings = RetrySettings::builder().base_delay_ms(1).build().unwrap();
//! let mut session = Session::new(Agent, settings);
//! let handle = session.handle();
//! let mut events = handle.subscribe(64);
//! let agent = std::thread::spawn(move || session.prompt("hi"));
//!
//! // `handle.abort_retry()`, from any thread, ends a wait at once.
//! assert_eq!(agent.join().unwrap().to_string(), "answered");
//! let first = events.wait_next(Duration::from_secs(1)).unwrap().unwrap();
//! assert_eq!(first.to_string(), "run ended, will retry");
//! # assert!(!handle.is_retrying());
//! ```
//!
//! It waits on a condition variable, so that any command wakes it at once. A call that runs cannot be dropped as a
//! future can: a host listens to the [`AbortSignal`].

use core::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::shared::{Next, Shared};
use super::{AbortSignal, Handle, Owner, Prompting, Run, millis, system_entropy, system_wall};
use crate::driver::{Compaction, Duty, RunEnd, SessionEvent, Settled};
use crate::effect::CompactionCause;
use crate::machine::RetryMachine;
use crate::settings::RetrySettings;
use crate::time::{Ambient, MonotonicMillis};

/// An agent, as a blocking session needs it. Only [`run`](Self::run) is required.
pub trait Host {
    /// What a prompt hands to its first run, such as the user's text.
    type Prompt;

    /// Runs the agent once from its runtime context, to which `run.prompt` is added first if there is one.
    ///
    /// As [`shell::Host::run`](super::Host::run), but for the abort: when `run.abort_signal()` is raised, the call
    /// should end soon, with whatever message.
    fn run(&mut self, run: Run<Self::Prompt>) -> RunEnd;

    /// Removes the failed assistant message from the end of the runtime context, if it stands there. The history
    /// keeps it.
    fn drop_failed_message(&mut self) {}

    /// Marks the current credential as usage-limited, for so many milliseconds if the server said so (60 s is usual
    /// otherwise), and answers whether another took over (US1).
    fn switch_credential(&mut self, retry_after_ms: Option<u64>) -> bool {
        let _ = retry_after_ms;
        false
    }

    /// Looks whether the session should be compacted: after each run that no retry follows, and, once a prompt, for
    /// an overflow. When `abort` is raised, it should end soon; its answer does not count then.
    fn compact(&mut self, cause: CompactionCause, abort: &AbortSignal) -> Compaction {
        let _ = (cause, abort);
        Compaction::Done
    }
}

/// An agent and its retries on the thread that prompts it: runs one prompt at a time.
pub struct Session<H> {
    host: H,
    owner: Owner,
}

impl<H: Host> Session<H> {
    /// With the built-in classifier.
    #[must_use]
    pub fn new(host: H, settings: RetrySettings) -> Self {
        Self::with_machine(host, RetryMachine::new(settings))
    }

    /// Over a machine of the host's making, such as one with its own classifier.
    #[must_use]
    pub fn with_machine(host: H, machine: RetryMachine) -> Self {
        let start = Instant::now();
        let clock = move || {
            let now = MonotonicMillis(millis(start.elapsed()));
            Ambient::new(system_wall(), now).with_entropy(system_entropy())
        };
        Self {
            host,
            owner: Owner(Arc::new(Shared::new(machine, clock))),
        }
    }

    /// Runs one prompt to its end: the run, its retries, the compaction that follows (PR1). Comes back when the last
    /// event ([`SessionEvent::Settled`]) has been delivered. After an abort of either kind it still waits for the
    /// running call.
    ///
    /// If the host panics, the prompt is given up: an open chain is closed as cancelled, the end is announced, and
    /// waiters are released.
    pub fn prompt(&mut self, prompt: H::Prompt) -> Settled {
        let Self { host, owner } = self;
        let shared = &*owner.0;
        let mut prompt = Some(prompt);
        let mut prompting = Prompting::begin(shared);
        loop {
            let Next { duty, abort, seen } = shared.next_blocking();
            match duty {
                Duty::Run { ticket, cause } => {
                    let run = Run {
                        prompt: prompt.take(),
                        cause,
                        abort,
                        ticket,
                        handle: Handle(Arc::clone(&owner.0)),
                    };
                    let end = shared.trace.scope(|| host.run(run));
                    shared.with_driver(|driver| driver.run_ended(ticket, end));
                }
                Duty::DropFailedMessage => host.drop_failed_message(),
                Duty::SwitchCredential {
                    ticket,
                    retry_after_ms,
                } => {
                    let switched = host.switch_credential(retry_after_ms);
                    shared.with_driver(|driver| driver.credential_switched(ticket, switched));
                }
                Duty::WaitUntil(due) => shared.sleep_until(due, seen),
                Duty::Compact { ticket, cause } => {
                    let answer = host.compact(cause, &abort);
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
                    shared.sleep_until(MonotonicMillis(u64::MAX), seen);
                }
            }
        }
    }

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

impl<H> fmt::Debug for Session<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("state", &Handle(Arc::clone(&self.owner.0)).state())
            .finish_non_exhaustive()
    }
}
