//! Many sessions at once, with whatever can happen to them: nothing is left behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use retry_machine::driver::{Compaction, RunEnd};
use retry_machine::shell::{
    AbortSignal, Handle, Host, Run, Session, Timer, blocking, tokio::TokioTimer,
};
use retry_machine::{
    AssistantMessage, CompactionCause, MonotonicMillis, RetrySettings, SettingsPatch, StopReason,
};

use crate::driver::Observer;
use crate::support::{F, O, R, U, settings};

/// A small generator (xorshift), the same in each run of the tests.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// Counts what is alive: a guard for each sleep, waiter or listener.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicUsize>);

struct Guard(Alive);

impl Alive {
    fn guard(&self) -> Guard {
        self.0.fetch_add(1, Ordering::SeqCst);
        Guard(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Tokio's clock, counting the sleeps that are going on.
struct CountingTimer(TokioTimer, Alive);

impl Timer for CountingTimer {
    fn now(&self) -> MonotonicMillis {
        self.0.now()
    }

    async fn sleep(&self, duration: Duration) {
        let _sleeping = self.1.guard();
        self.0.sleep(duration).await;
    }
}

/// An agent to which anything happens.
struct Agent {
    dice: Dice,
    /// The longest call, in milliseconds.
    call_ms: u64,
}

impl Agent {
    fn end(&mut self, run: &Run<()>) -> RunEnd {
        let text = match self.dice.below(20) {
            0..=10 => R,
            11 | 12 => U,
            13 => F,
            14 => O,
            15 => return AssistantMessage::new(StopReason::ToolUse).into(),
            16 => return RunEnd::NoMessage("the agent is busy".to_owned()),
            17 => {
                run.message_ended(AssistantMessage::new(StopReason::ToolUse));
                return RunEnd::Reported;
            }
            18 => return AssistantMessage::aborted().into(),
            _ => return AssistantMessage::success().into(),
        };
        RunEnd::failure(text)
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.dice.below(self.call_ms))
    }

    fn compaction(&mut self) -> Compaction {
        if self.dice.below(2) == 0 {
            Compaction::RunAgain
        } else {
            Compaction::Done
        }
    }
}

impl Host for Agent {
    type Prompt = ();

    async fn run(&mut self, run: Run<()>) -> RunEnd {
        tokio::time::sleep(self.pause()).await;
        self.end(&run)
    }

    async fn switch_credential(&mut self, _: Option<u64>) -> bool {
        tokio::time::sleep(self.pause()).await;
        self.dice.below(2) == 0
    }

    async fn compact(&mut self, _: CompactionCause) -> Compaction {
        tokio::time::sleep(self.pause()).await;
        self.compaction()
    }

    async fn abort(&mut self) {
        tokio::time::sleep(self.pause()).await;
    }
}

impl blocking::Host for Agent {
    type Prompt = ();

    fn run(&mut self, run: Run<()>) -> RunEnd {
        if run.abort_signal().wait(self.pause()) {
            return AssistantMessage::aborted().into();
        }
        self.end(&run)
    }

    fn switch_credential(&mut self, _: Option<u64>) -> bool {
        self.dice.below(2) == 0
    }

    fn compact(&mut self, _: CompactionCause, abort: &AbortSignal) -> Compaction {
        let _ = abort.wait(self.pause());
        self.compaction()
    }
}

/// One thing that a user may do.
fn command(handle: &Handle, dice: &mut Dice) {
    match dice.below(8) {
        0..=2 => handle.abort_retry(),
        3 => handle.abort(),
        4 => handle.set_auto_retry_enabled(dice.below(3) > 0),
        5 => handle.update_settings(
            SettingsPatch::builder()
                .max_retries(dice.below(6) as u32)
                .patch()
                .unwrap(),
        ),
        6 => handle.message_ended(AssistantMessage::error(R)),
        _ => {
            let state = handle.state();
            assert!(state.is_retrying() <= state.prompt_running, "{state:?}");
            assert_eq!(state.delay_ms.is_some(), state.remaining_ms.is_some());
        }
    }
}

/// Hooks: one that observes, one that commands now and then, one that panics now and then.
fn listen(handle: &Handle, seed: u64, alive: &Alive) -> Arc<Mutex<Observer>> {
    let observer = Arc::new(Mutex::new(Observer::default()));
    let seen = Arc::clone(&observer);
    let guard = alive.guard();
    handle.hook(move |event| {
        let _ = &guard;
        seen.lock().unwrap().see(event);
    });
    let mut dice = Dice::seeded(seed ^ 77);
    let commander = handle.clone();
    handle.hook(move |_| {
        if dice.below(20) == 0 {
            command(&commander, &mut dice);
        }
    });
    observer
}

const SESSIONS: u64 = 1000;

/// ST7, PR2: in virtual time, with faults, cancels, changed settings and dropped futures, every chain and every prompt
/// ends once; no task, sleep, waiter or listener is left.
#[test]
fn a_thousand_tokio_sessions() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let (sleeps, waiters, hooks) = (Alive::default(), Alive::default(), Alive::default());
    let retries = Arc::new(AtomicUsize::new(0));
    let dropped = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..SESSIONS)
            .map(|seed| {
                let (sleeps, waiters, hooks) = (sleeps.clone(), waiters.clone(), hooks.clone());
                let (retries, dropped) = (Arc::clone(&retries), Arc::clone(&dropped));
                tokio::spawn(async move {
                    let mut dice = Dice::seeded(seed);
                    let agent = Agent {
                        dice: Dice::seeded(seed ^ 1),
                        call_ms: 3000,
                    };
                    let timer = CountingTimer(TokioTimer::default(), sleeps);
                    let mut session = Session::with_timer(agent, RetrySettings::default(), timer);
                    let handle = session.handle();
                    let observer = listen(&handle, seed, &hooks);
                    let mut events = handle.subscribe(4);
                    let user = tokio::spawn(user(handle.clone(), Dice::seeded(seed ^ 2), waiters));
                    for _ in 0..3 {
                        handle.set_auto_retry_enabled(true);
                        let patience = Duration::from_millis(dice.below(80_000));
                        match tokio::time::timeout(patience, session.prompt(())).await {
                            Ok(settled) => {
                                retries.fetch_add(settled.retries as usize, Ordering::SeqCst);
                            }
                            Err(_) => {
                                dropped.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        assert!(!handle.is_retrying());
                        handle.wait_until_settled().await;
                    }
                    drop(session);
                    user.await.unwrap();
                    observer.lock().unwrap().check(3);
                    // The queue is bounded, and says what it lost; then it ends.
                    let mut left = 0;
                    while events.next().await.is_some() {
                        left += 1;
                    }
                    assert!(left <= 5, "{left} items in a queue of 4");
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks(),
            0
        );
    });
    assert_eq!((sleeps.count(), waiters.count(), hooks.count()), (0, 0, 0));
    // It was a storm.
    assert!(retries.load(Ordering::SeqCst) > 1500, "{retries:?} retries");
    assert!(dropped.load(Ordering::SeqCst) > 100, "{dropped:?} dropped");
}

/// Commands at random times, and waits for the prompt, some of which are given up.
async fn user(handle: Handle, mut dice: Dice, waiters: Alive) {
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(dice.below(5000))).await;
        if dice.below(3) > 0 {
            command(&handle, &mut dice);
        } else {
            let _waiting = waiters.guard();
            let wait = handle.wait_until_settled();
            let _ = tokio::time::timeout(Duration::from_millis(dice.below(9000)), wait).await;
        }
    }
}

/// The same on 32 threads, each with a second one that commands, with waits of a few milliseconds.
#[test]
fn thirty_two_threads() {
    let hooks = Alive::default();
    let threads: Vec<_> = (0..32)
        .map(|seed| {
            let hooks = hooks.clone();
            std::thread::spawn(move || {
                let agent = Agent {
                    dice: Dice::seeded(seed + 5000),
                    call_ms: 4,
                };
                let mut session = blocking::Session::new(agent, settings(4, 2));
                let handle = session.handle();
                let observer = listen(&handle, seed, &hooks);
                let user = std::thread::spawn(move || {
                    let mut dice = Dice::seeded(seed + 9000);
                    for _ in 0..60 {
                        // At most so long: it also is this thread's sleep.
                        handle.block_until_settled(Duration::from_millis(dice.below(6)));
                        command(&handle, &mut dice);
                    }
                    // Nobody waits for ever, whatever comes first.
                    assert!(handle.block_until_settled(Duration::from_secs(10)));
                });
                let mut retries = 0;
                for _ in 0..16 {
                    session.handle().set_auto_retry_enabled(true);
                    retries += session.prompt(()).retries;
                }
                drop(session);
                user.join().unwrap();
                observer.lock().unwrap().check(16);
                retries
            })
        })
        .collect();
    let retries: u32 = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    // How many there are depends on the machine.
    assert!(retries > 20, "{retries} retries");
    assert_eq!(hooks.count(), 0);
}
