//! Waits and calls of one session: long, cancelled, dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use retry_machine::driver::RunEnd;
use retry_machine::shell::tokio::TokioTimer;
use retry_machine::shell::{Run, Session, Timer, blocking};
use retry_machine::{AssistantMessage, MonotonicMillis, RetrySettings};

use super::{Listed, Log, answer, note_all};
use crate::support::{R, U, settings};

const DAY: Duration = Duration::from_secs(86_400);

/// Tokio's clock for timers that take more than a day for an error.
#[derive(Default)]
struct ShortTimer(TokioTimer);

impl Timer for ShortTimer {
    fn now(&self) -> MonotonicMillis {
        self.0.now()
    }

    async fn sleep(&self, duration: Duration) {
        assert!(duration <= DAY, "{duration:?} at one go");
        self.0.sleep(duration).await;
    }
}

/// Waits above 2^31 ms (24.8 days) neither fire at once nor are cut short: they are slept in slices.
#[tokio::test(start_paused = true)]
async fn long_waits() {
    let mut ends = vec![RunEnd::failure(R); 6];
    ends.push(answer());
    let timer = ShortTimer::default();
    let mut session = Session::with_timer(Listed::new(ends), settings(6, 86_400_000), timer);
    let start = tokio::time::Instant::now();
    assert_eq!(session.prompt(()).await.retries, 6);
    let days = 1 + 2 + 4 + 8 + 16 + 32;
    let late = start.elapsed() - days * DAY;
    assert!(late < Duration::from_millis(100), "{late:?} late");
}

/// AB1 on a thread: a command ends a wait at once.
#[test]
fn ab1_a_command_ends_a_wait_at_once() {
    let mut session =
        blocking::Session::new(Listed::new([RunEnd::failure(R)]), settings(3, 86_400_000));
    let handle = session.handle();
    let thread = std::thread::spawn(move || session.prompt(()));
    while !handle.is_retrying() {
        handle.block_until_settled(Duration::from_millis(1));
    }
    handle.block_until_settled(Duration::from_millis(5));
    let pressed = Instant::now();
    handle.abort_retry();
    thread.join().unwrap();
    assert!(
        pressed.elapsed() < Duration::from_secs(2),
        "{:?}",
        pressed.elapsed()
    );
}

/// The future of a prompt can be dropped wherever it is; the next prompt is as the first.
#[tokio::test(start_paused = true)]
async fn dropped_wherever_it_is() {
    let fails = || RunEnd::failure(R);
    let limited = || RunEnd::failure(U);
    let cancelled = "X(false,1,\"Retry cancelled\")";
    let cases: [(&str, Vec<RunEnd>, &[&str]); 5] = [
        (
            "in the first call",
            vec![],
            &["run", "run dropped", "run ended"],
        ),
        (
            "waiting",
            vec![fails()],
            &["run", "run ended, will retry", "S(1,60000)", cancelled],
        ),
        (
            "in flight",
            vec![limited()],
            &[
                "run",
                "run ended, will retry",
                "S(1,0)",
                "run",
                "run dropped",
                cancelled,
                "run ended",
            ],
        ),
        (
            "switching",
            vec![limited()],
            &["run", "run ended, will retry", "switch dropped", cancelled],
        ),
        (
            "compacting",
            vec![answer()],
            &["run", "run ended", "compaction dropped"],
        ),
    ];
    for (name, ends, lines) in cases {
        let mut agent = Listed::new(ends);
        agent.hangs_switching = name == "switching";
        agent.hangs_compacting = name == "compacting";
        let log = agent.log.clone();
        let base_delay_ms = if name == "in flight" { 0 } else { 60_000 };
        let mut session = Session::<_, TokioTimer>::new(agent, settings(3, base_delay_ms));
        note_all(&session.handle(), &log);
        let patience = Duration::from_secs(30);
        tokio::time::timeout(patience, session.prompt(()))
            .await
            .unwrap_err();
        let mut expected = lines.to_vec();
        expected.push("settled: cancelled");
        assert_eq!(log.lines(), expected, "{name}");

        let host = session.host_mut();
        host.hangs_compacting = false;
        host.ends = vec![answer()];
        assert_eq!(session.prompt(()).await.to_string(), "answered", "{name}");
        assert_eq!(
            log.lines()[expected.len()..],
            ["run", "run ended", "settled: answered"],
            "{name}"
        );
    }
}

/// AB3: an abort drops the call's or the compaction's future, and then tells the agent.
#[tokio::test(start_paused = true)]
async fn ab3_abort_stops_the_call() {
    for (name, ends, lines) in [
        (
            "run",
            vec![],
            [
                "run",
                "run dropped",
                "abort",
                "run ended",
                "settled: cancelled",
            ],
        ),
        (
            "compaction",
            vec![answer()],
            [
                "run",
                "run ended",
                "compaction dropped",
                "abort",
                "settled: answered",
            ],
        ),
    ] {
        let mut agent = Listed::new(ends);
        agent.hangs_compacting = true;
        let log = agent.log.clone();
        let mut session = Session::<_, TokioTimer>::new(agent, RetrySettings::default());
        let handle = session.handle();
        note_all(&handle, &log);
        let aborts = async {
            tokio::time::sleep(DAY).await;
            handle.abort();
            handle.abort();
        };
        tokio::join!(session.prompt(()), aborts);
        assert_eq!(log.lines(), lines, "{name}");
    }
}

/// ST8, US3: an answer that is not awaited any more need not come: the request's future is dropped.
#[tokio::test(start_paused = true)]
async fn us3_a_request_that_is_not_awaited_any_more() {
    let mut agent = Listed::new([RunEnd::failure(U)]);
    agent.hangs_switching = true;
    let log = agent.log.clone();
    let mut session = Session::<_, TokioTimer>::new(agent, RetrySettings::default());
    let handle = session.handle();
    note_all(&handle, &log);
    let user = async {
        tokio::time::sleep(DAY).await;
        // The agent is run by somebody else, and hits the limit again: a request takes the place of the first.
        handle.message_ended(AssistantMessage::error(U));
        tokio::time::sleep(DAY).await;
        log.add("(a day later)");
        handle.abort_retry();
    };
    tokio::join!(session.prompt(()), user);
    assert_eq!(
        log.lines(),
        [
            "run",
            "run ended, will retry",
            "switch dropped",
            "(a day later)",
            "X(false,2,\"Retry cancelled\")",
            "switch dropped",
            "settled: cancelled",
        ]
    );
}

/// A session of a `Send` agent goes to another thread, prompt and all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_are_send() {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        tasks.spawn(async {
            let ends = [RunEnd::failure(R), RunEnd::failure(R), answer()];
            let mut session = Session::<_, TokioTimer>::new(Listed::new(ends), settings(3, 1));
            session.prompt(()).await.retries
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<u32>(), 100);
}

/// An agent on a thread that panics in its first retry.
struct Panics(bool);

impl blocking::Host for Panics {
    type Prompt = ();

    fn run(&mut self, run: Run<()>) -> RunEnd {
        if run.prompt.is_some() && !self.0 {
            return RunEnd::failure(R);
        }
        self.0 = !self.0;
        assert!(!self.0, "the agent of the test panics");
        AssistantMessage::success().into()
    }
}

/// PR2: when the agent itself panics, its chain and its prompt end all the same.
#[test]
fn pr2_the_agent_panics() {
    let mut session = blocking::Session::new(Panics(false), settings(3, 0));
    let handle = session.handle();
    let log = Log::default();
    note_all(&handle, &log);
    catch_unwind(AssertUnwindSafe(|| session.prompt(()))).unwrap_err();
    assert!(handle.block_until_settled(Duration::ZERO));
    assert_eq!(
        log.lines()[1..],
        [
            "S(1,0)",
            "X(false,1,\"Retry cancelled\")",
            "run ended",
            "settled: cancelled"
        ]
    );
    assert_eq!(session.prompt(()).to_string(), "answered");
}
