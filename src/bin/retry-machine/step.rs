//! `retry-machine step`: the bare machine over standard input and output.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use retry_machine::RetryMachine;
use retry_machine::wire::Stepper;

use crate::lines::{Line, Lines, MAX_LINE, is_blank};
use crate::{Outcome, exit};

/// Drive the bare machine: one JSON input a line in, its effects a line out; timers are yours.
///
/// In: {"input":"assistantMessage","message":{…},"contextWindow":200000,"nowMs":0,"entropy":0},
/// timerFired (timer), credentialSwitched (request, switched), continueFailed (run, error), abortRetry,
/// abort, promptStarted, settingsChanged (settings). nowMs and entropy default to the real ones, ids to
/// the latest. Out: {"effects":[…],"state":"waiting","attempt":1}, or {"error":"…"} for a bad line, which
/// changes nothing. Exits 0 at the end of input.
#[derive(Args)]
#[command(after_help = "Example:
  $ echo '{\"input\":\"assistantMessage\",\"message\":{\"stopReason\":\"error\",\"errorMessage\":\"overloaded\"}}' \\
      | retry-machine step")]
pub struct Step {}

impl Step {
    pub fn run(self) -> Outcome {
        let mut stepper = Stepper::new(RetryMachine::default());
        let mut lines = Lines::new(io::stdin().lock(), MAX_LINE);
        let mut out = io::stdout().lock();
        while let Some(line) = lines.next_line()? {
            let answer = match line {
                Line::Whole(line) if is_blank(line) => continue,
                Line::Whole(line) => stepper.line(line, (now_ms(), fastrand::u64(..))),
                Line::TooLong => format!(r#"{{"error":"a line of more than {MAX_LINE} bytes"}}"#),
            };
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
        Ok(exit::DONE)
    }
}

/// Milliseconds since the epoch.
pub fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
