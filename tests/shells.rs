//! The shells: the same scenarios under tokio, smol and on a thread; storms; listeners; spans.

mod awaits;
mod listeners;
mod scenarios;
#[cfg(feature = "tracing")]
mod spans;
mod storms;
mod waits;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use retry_machine::driver::{Compaction, RunEnd};
use retry_machine::shell::{Handle, Host, Run, Timer, blocking};
use retry_machine::{AssistantMessage, CompactionCause, MonotonicMillis};

/// Real time, as async-io keeps it.
struct SmolTimer(Instant);

impl Default for SmolTimer {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Timer for SmolTimer {
    fn now(&self) -> MonotonicMillis {
        MonotonicMillis(self.0.elapsed().as_millis() as u64)
    }

    async fn sleep(&self, duration: Duration) {
        async_io::Timer::after(duration).await;
    }
}

/// Lines in the order in which things happened.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: impl ToString) {
        self.0.lock().unwrap().push(line.to_string());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// An agent whose runs end as listed; it hangs when the list is at its end.
#[derive(Default)]
struct Listed {
    ends: Vec<RunEnd>,
    /// What the agent was asked for, and how its futures ended.
    log: Log,
    hangs_switching: bool,
    hangs_compacting: bool,
}

impl Listed {
    fn new(ends: impl IntoIterator<Item = RunEnd>) -> Self {
        let mut ends: Vec<_> = ends.into_iter().collect();
        ends.reverse();
        Self {
            ends,
            ..Self::default()
        }
    }
}

/// Notes that a future was dropped before its end.
struct Unfinished(Log, &'static str);

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.add(format!("{} dropped", self.1));
    }
}

impl Host for Listed {
    type Prompt = ();

    async fn run(&mut self, _: Run<()>) -> RunEnd {
        self.log.add("run");
        match self.ends.pop() {
            Some(end) => end,
            None => {
                let _unfinished = Unfinished(self.log.clone(), "run");
                std::future::pending().await
            }
        }
    }

    async fn switch_credential(&mut self, _: Option<u64>) -> bool {
        if self.hangs_switching {
            let _unfinished = Unfinished(self.log.clone(), "switch");
            std::future::pending().await
        }
        false
    }

    async fn compact(&mut self, _: CompactionCause) -> Compaction {
        if self.hangs_compacting {
            let _unfinished = Unfinished(self.log.clone(), "compaction");
            std::future::pending().await
        }
        Compaction::Done
    }

    async fn abort(&mut self) {
        self.log.add("abort");
    }
}

impl blocking::Host for Listed {
    type Prompt = ();

    fn run(&mut self, run: Run<()>) -> RunEnd {
        self.log.add("run");
        self.ends.pop().unwrap_or_else(|| {
            assert!(
                run.abort_signal().wait(Duration::from_secs(10)),
                "nobody aborts"
            );
            AssistantMessage::aborted().into()
        })
    }
}

fn answer() -> RunEnd {
    AssistantMessage::success().into()
}

/// Writes all events of a session into the log.
fn note_all(handle: &Handle, log: &Log) {
    let log = log.clone();
    handle.hook(move |event| log.add(event));
}
