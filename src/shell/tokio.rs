//! A session on tokio's clock.
//!
//! ```
//! use retry_machine::driver::RunEnd;
//! use retry_machine::shell::{Host, Run, tokio::Session};
//! use retry_machine::{AssistantMessage, RetrySettings};
//!
//! #[derive(Default)]
//! struct Agent {
//!     context: Vec<String>,
//! }
//!
//! impl Host for Agent {
//!     type Prompt = String;
//!
//!     async fn run(&mut self, run: Run<String>) -> RunEnd {
//!         let first = run.prompt.is_some();
//!         self.context.extend(run.prompt);
//!         // Here the model is called. The provider is overloaded at first, and then answers:
//!         if first {
//!             self.context.push("(failed)".to_owned());
//!             return AssistantMessage::error("overloaded_error").into();
//!         }
//!         self.context.push("Hello!".to_owned());
//!         AssistantMessage::success().into()
//!     }
//!
//!     fn drop_failed_message(&mut self) {
//!         self.context.pop();
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # tokio::time::pause();
//! let mut session = Session::new(Agent::default(), RetrySettings::default());
//! session.hook(|event| println!("{event}"));
//! let handle = session.handle(); // `handle.abort_retry()`, from any task
//!
//! let settled = session.prompt("hi".to_owned()).await;
//! assert_eq!(settled.to_string(), "answered");
//! assert_eq!(session.host().context, ["hi", "Hello!"]);
//! # assert!(!handle.is_retrying());
//! # }
//! ```
//!
//! Nothing is spawned. To drop the future, by `tokio::time::timeout` or an aborted task, is to give the prompt up.

use std::time::Duration;

use tokio::time::Instant;

use super::{Timer, millis};
use crate::time::MonotonicMillis;

/// [`shell::Session`](super::Session) on tokio's clock.
pub type Session<H> = super::Session<H, TokioTimer>;

/// Tokio's clock, also a paused one. Needs a runtime with its timer enabled when it sleeps.
#[derive(Clone, Copy, Debug)]
pub struct TokioTimer {
    start: Instant,
}

impl Default for TokioTimer {
    fn default() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Timer for TokioTimer {
    fn now(&self) -> MonotonicMillis {
        MonotonicMillis(millis(self.start.elapsed()))
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
