//! Shells: what waits, runs the agent and tells the listeners, as the [`Driver`](crate::driver::Driver) says.
//!
//! | where | what |
//! | --- | --- |
//! | `shell::tokio` (feature `tokio`) | [`Session`] on tokio's clock; works with paused time |
//! | `shell::blocking` (feature `blocking`) | the same on a thread |
//! | any other runtime (feature `shell`) | [`Session`] over a [`Timer`] of yours |
//! | a loop of your own | the [`Driver`](crate::driver::Driver) alone |
//!
//! An agent is a [`Host`]: it runs a turn from its runtime context, and nothing else is asked of it. The session
//! around it turns a prompt into one logical run (PR1): `prompt` comes back when the last retry has ended, and while
//! it runs, every [`Handle`] can cancel, ask and listen, from any thread or task.
//!
//! No shell spawns anything: the prompt's own future or thread does it all, so dropping it leaves nothing behind.
//!
//! # Another runtime
//!
//! A [`Timer`] is two functions. This one is for smol and everything else that async-io serves:
//!
//! ```
//! use std::time::{Duration, Instant};
//! use retry_machine::driver::{RunCause, RunEnd};
//! use retry_machine::shell::{Host, Run, Session, Timer};
//! use retry_machine::{AssistantMessage, MonotonicMillis, RetrySettings};
//!
//! struct SmolTimer(Instant);
//!
//! impl Timer for SmolTimer {
//!     fn now(&self) -> MonotonicMillis {
//!         MonotonicMillis(self.0.elapsed().as_millis() as u64)
//!     }
//!     async fn sleep(&self, duration: Duration) {
//!         async_io::Timer::after(duration).await;
//!     }
//! }
//!
//! struct Agent;
//!
//! impl Host for Agent {
//!     type Prompt = &'static str;
//!     async fn run(&mut self, run: Run<&'static str>) -> RunEnd {
//!         match run.cause {
//!             RunCause::Prompt => RunEnd::failure("503 Service Unavailable"),
//!             RunCause::Continue { .. } | RunCause::NextTurn | RunCause::RunAgain => {
//!                 AssistantMessage::success().into()
//!             }
//!         }
//!     }
//! }
//!
//! let settings = RetrySettings::builder().base_delay_ms(1).build().unwrap();
//! let mut session = Session::with_timer(Agent, settings, SmolTimer(Instant::now()));
//! let settled = async_io::block_on(session.prompt("hello"));
//! assert_eq!((settled.to_string().as_str(), settled.retries), ("answered", 1));
//! ```

#[cfg(feature = "blocking")]
pub mod blocking;
mod handle;
mod listen;
mod session;
mod shared;
#[cfg(feature = "tokio")]
pub mod tokio;
mod trace;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use handle::{AbortSignal, Handle};
pub use listen::{Missed, Subscription};
pub use session::Session;

use crate::driver::{Compaction, RunCause, RunEnd, Ticket};
use crate::effect::CompactionCause;
use crate::input::Turn;
use crate::time::{Ambient, MonotonicMillis, UnixMillis};
use shared::Shared;

/// An agent, as an async session needs it. Only [`run`](Self::run) is required.
///
/// Futures need not be `Send`; if those of a host are, then that of [`Session::prompt`] is.
pub trait Host {
    /// What a prompt hands to its first run, such as the user's text.
    type Prompt;

    /// Runs the agent once from its runtime context, to which `run.prompt` is added first if there is one.
    ///
    /// A failed call is a [`RunEnd::Turn`] with an error, never a panic; so is a refused connection
    /// ([`RunEnd::failure`]). Whether a call is a turn or a loop over several is the host's choice: an answer of
    /// `toolUse` is followed by a further call ([`RunCause::NextTurn`]), and a host that loops itself hands in the
    /// messages within by [`Run::message_ended`].
    ///
    /// Cancel safety: when the user aborts, the future is dropped at an await point and [`abort`](Self::abort) is
    /// called; when the prompt is dropped, it is dropped with it. What must survive that lives in `self`.
    fn run(&mut self, run: Run<Self::Prompt>) -> impl Future<Output = RunEnd>;

    /// Removes the failed assistant message from the end of the runtime context, if it stands there. The history
    /// keeps it. The default is for hosts that never put failed messages there.
    fn drop_failed_message(&mut self) {}

    /// Marks the current credential as usage-limited, for so many milliseconds if the server said so (60 s is usual
    /// otherwise), and answers whether another took over (US1). No store, or an error in it: `false`, as by default.
    ///
    /// Cancel safety: the future is dropped when the answer is not awaited any more.
    fn switch_credential(&mut self, retry_after_ms: Option<u64>) -> impl Future<Output = bool> {
        let _ = retry_after_ms;
        async { false }
    }

    /// Looks whether the session should be compacted: after each run that no retry follows, and, once a prompt, for
    /// an overflow. By default nothing is compacted.
    ///
    /// Cancel safety: as for [`run`](Self::run).
    fn compact(&mut self, cause: CompactionCause) -> impl Future<Output = Compaction> {
        let _ = cause;
        async { Compaction::Done }
    }

    /// The user has aborted, and the future of the running call or compaction has been dropped: stop what goes on
    /// elsewhere, keep what was produced. The prompt ends after it. Not called when nothing was running. By default
    /// nothing is to be done.
    ///
    /// Cancel safety: dropped with the prompt only.
    fn abort(&mut self) -> impl Future<Output = ()> {
        async {}
    }
}

/// The clock and the sleep of a runtime.
pub trait Timer: Send + Sync + 'static {
    /// Now, by the clock that [`sleep`](Self::sleep) sleeps by; in milliseconds since any start that stays the same.
    fn now(&self) -> MonotonicMillis;

    /// Sleeps for so long, of which a session asks a day at most. To wake early is harmless. Dropping the future ends
    /// the sleep.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()>;

    /// Now, by the wall clock; by default the system's.
    fn wall(&self) -> UnixMillis {
        system_wall()
    }

    /// 64 random bits for jitter; by default from the standard library's hash seeds.
    fn entropy(&self) -> u64 {
        system_entropy()
    }
}

/// One run of the agent, as its host is asked for it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run<P> {
    /// What was prompted: there in the prompt's first run only.
    pub prompt: Option<P>,
    /// Why the agent runs.
    pub cause: RunCause,
    abort: AbortSignal,
    ticket: Ticket,
    handle: Handle,
}

impl<P> Run<P> {
    /// Hands in a message that ended within the run and not with it, such as `toolUse`: at once, so that a chain
    /// is closed by it at once (EF1, ST5). Failed and aborted messages are for the run's end; here they are ignored.
    pub fn message_ended(&self, turn: impl Into<Turn<'static>>) {
        self.handle.message_ended_in(Some(self.ticket), turn.into());
    }

    /// Raised when the user aborts. An async host hardly needs it: its future is dropped.
    #[must_use]
    pub const fn abort_signal(&self) -> &AbortSignal {
        &self.abort
    }

    /// The session's handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// The longest sleep at one go: timers of many runtimes take more than 2^31 ms for none at all.
const LONGEST_SLEEP_MS: u64 = 86_400_000;

/// How long to sleep now in order to wake at `due`.
fn next_sleep(due: MonotonicMillis, now: MonotonicMillis) -> Duration {
    Duration::from_millis(due.since(now).min(LONGEST_SLEEP_MS))
}

fn ambient_of(timer: &impl Timer) -> Ambient {
    Ambient::new(timer.wall(), timer.now()).with_entropy(timer.entropy())
}

fn system_wall() -> UnixMillis {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    UnixMillis(millis(since))
}

fn system_entropy() -> u64 {
    RandomState::new().hash_one(0)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A session's hold on what it shares with its handles: they all end with it.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The time of one prompt. Dropped before the prompt is over, it gives the prompt up.
struct Prompting<'s> {
    shared: &'s Shared,
    settled: bool,
}

impl<'s> Prompting<'s> {
    fn begin(shared: &'s Shared) -> Self {
        shared.with_driver(|driver| driver.prompt());
        Self {
            shared,
            settled: false,
        }
    }
}

impl Drop for Prompting<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.shared.with_driver(|driver| driver.abandon());
        }
        // Also what a listener of the last event has commanded.
        self.shared.drain();
    }
}
