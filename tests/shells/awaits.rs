//! Something goes wrong at every await point of a prompt, one after the other, in virtual time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use retry_machine::driver::{Compaction, RunEnd};
use retry_machine::shell::{Handle, Host, Run, Session, Timer, tokio::TokioTimer};
use retry_machine::{AssistantMessage, CompactionCause, MonotonicMillis, StopReason};

use crate::driver::Observer;
use crate::support::{R, U, settings};

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
enum Strike {
    AbortRetry,
    Abort,
    Off,
    /// The host's own run ends meanwhile.
    Message,
    /// The prompt's future is dropped.
    Dropped,
    /// What is awaited fails: the run brings no message, the store answers no.
    Fault,
}

const STRIKES: [Strike; 6] = [
    Strike::AbortRetry,
    Strike::Abort,
    Strike::Off,
    Strike::Message,
    Strike::Dropped,
    Strike::Fault,
];

/// The await points of a session, counted; at one of them the strike falls.
struct Points {
    passed: AtomicUsize,
    struck: usize,
    strike: Strike,
    handle: OnceLock<Handle>,
    dropped: tokio::sync::Notify,
}

impl Points {
    /// An await point; whether what is awaited here fails.
    async fn pass(&self) -> bool {
        let hit = self.passed.fetch_add(1, Ordering::SeqCst) == self.struck;
        if hit {
            let handle = self.handle.get().expect("given before the prompt");
            match self.strike {
                Strike::AbortRetry => handle.abort_retry(),
                Strike::Abort => handle.abort(),
                Strike::Off => handle.set_auto_retry_enabled(false),
                Strike::Message => handle.message_ended(AssistantMessage::error(R)),
                Strike::Dropped => self.dropped.notify_one(),
                Strike::Fault => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
        hit && matches!(self.strike, Strike::Fault)
    }
}

/// An agent that fails in each way and then succeeds; every of its calls awaits twice.
struct Agent {
    points: Arc<Points>,
    runs: usize,
    compacted: bool,
}

impl Host for Agent {
    type Prompt = ();

    async fn run(&mut self, run: Run<()>) -> RunEnd {
        let failed = self.points.pass().await;
        self.runs += 1;
        match self.runs % 5 {
            1 | 4 => {
                return end(
                    failed | self.points.pass().await,
                    AssistantMessage::error(R),
                );
            }
            2 => {
                return end(
                    failed | self.points.pass().await,
                    AssistantMessage::error(U),
                );
            }
            3 => run.message_ended(AssistantMessage::new(StopReason::ToolUse)),
            _ => {
                return end(
                    failed | self.points.pass().await,
                    AssistantMessage::success(),
                );
            }
        }
        end(
            failed | self.points.pass().await,
            AssistantMessage::error(R),
        )
    }

    async fn switch_credential(&mut self, _: Option<u64>) -> bool {
        !(self.points.pass().await | self.points.pass().await)
    }

    async fn compact(&mut self, _: CompactionCause) -> Compaction {
        let failed = self.points.pass().await;
        if failed || std::mem::replace(&mut self.compacted, true) {
            Compaction::Done
        } else {
            Compaction::RunAgain
        }
    }

    async fn abort(&mut self) {
        self.points.pass().await;
    }
}

fn end(failed: bool, message: AssistantMessage) -> RunEnd {
    if failed {
        RunEnd::NoMessage("gone".to_owned())
    } else {
        message.into()
    }
}

struct Clock(TokioTimer, Arc<Points>);

impl Timer for Clock {
    fn now(&self) -> MonotonicMillis {
        self.0.now()
    }

    async fn sleep(&self, duration: Duration) {
        let _ = self.1.pass().await;
        self.0.sleep(duration).await;
    }
}

/// ST7, PR2: the chain and the prompt end once, wherever it strikes, and the next prompt is as the first.
#[tokio::test(start_paused = true)]
async fn a_strike_at_every_await_point() {
    for strike in STRIKES {
        let mut struck = 0;
        loop {
            let points = Arc::new(Points {
                passed: AtomicUsize::new(0),
                struck,
                strike,
                handle: OnceLock::new(),
                dropped: tokio::sync::Notify::new(),
            });
            let agent = Agent {
                points: Arc::clone(&points),
                runs: 0,
                compacted: false,
            };
            let clock = Clock(TokioTimer::default(), Arc::clone(&points));
            let mut session = Session::with_timer(agent, settings(3, 100), clock);
            let handle = session.handle();
            assert!(points.handle.set(handle.clone()).is_ok());
            let observer = Arc::new(Mutex::new(Observer::default()));
            let seen = Arc::clone(&observer);
            handle.hook(move |event| seen.lock().unwrap().see(event));
            let hour = Duration::from_secs(3600);
            for prompt in 1..=2 {
                tokio::select! {
                    _ = session.prompt(()) => {}
                    () = points.dropped.notified() => {}
                    () = tokio::time::sleep(hour) => panic!("{strike:?} at {struck} hangs"),
                }
                assert!(!handle.is_retrying(), "{strike:?} at {struck}");
                handle.wait_until_settled().await;
                observer.lock().unwrap().check(prompt);
            }
            let passed = points.passed.load(Ordering::SeqCst);
            if passed <= struck {
                assert!(struck > 20, "{struck} points");
                break;
            }
            struck += 1;
        }
        eprintln!("{strike:?} at each of {struck} await points");
    }
}
