//! Hooks, subscribers, waiters: who is told what, in which order, and who is never waited for (EV3, PR2, SE2).

use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use retry_machine::driver::RunEnd;
use retry_machine::shell::tokio::Session;
use retry_machine::shell::{Missed, blocking};
use retry_machine::{Phase, RetrySettings, SettingsPatch};

use super::{Listed, Log, answer, note_all};
use crate::support::{R, U, settings};

const SOON: Duration = Duration::from_secs(10);

/// EV3: hooks first and in order, then subscribers; a panic in one keeps nobody else from being told.
#[tokio::test(start_paused = true)]
async fn ev3_order_and_a_panicking_hook() {
    let mut session = Session::new(Listed::new([answer()]), RetrySettings::default());
    let handle = session.handle();
    let log = Log::default();
    for name in ["first", "second", "third"] {
        let log = log.clone();
        let handle = handle.clone();
        session.hook(move |event| {
            log.add(format!("{name}: {event}"));
            assert!(
                name != "second" || handle.state().phase != Phase::Idle,
                "I am the second"
            );
        });
    }
    let mut events = handle.subscribe(100);
    session.prompt(()).await;
    assert_eq!(
        log.lines(),
        [
            "first: run ended",
            "second: run ended",
            "third: run ended",
            "first: settled: answered",
            "second: settled: answered",
            "third: settled: answered",
        ]
    );
    let mut told = Vec::new();
    while let Some(event) = events.try_next() {
        told.push(event.unwrap().to_string());
    }
    assert_eq!(
        told,
        [
            "hook 1 panicked: I am the second",
            "run ended",
            "hook 1 panicked: I am the second",
            "settled: answered",
        ],
        "the last event stays the last",
    );
}

/// A slow subscriber loses the oldest events, learns how many, and always sees the end.
#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_learns_what_it_missed() {
    let ends = [RunEnd::failure(R), RunEnd::failure(R), answer()];
    let mut session = Session::new(Listed::new(ends), RetrySettings::default());
    let (mut slow, mut quick) = (
        session.handle().subscribe(2),
        session.handle().subscribe(100),
    );
    session.prompt(()).await;
    drop(session);
    let mut told = 0;
    while let Some(event) = quick.next().await {
        event.unwrap();
        told += 1;
    }
    assert_eq!(told, 7);
    assert_eq!(slow.next().await, Some(Err(Missed(5))));
    for last in ["run ended", "settled: answered"] {
        assert_eq!(slow.next().await.unwrap().unwrap().to_string(), last);
    }
    assert_eq!(slow.next().await, None, "the session is gone");
    assert_eq!(Missed(5).to_string(), "missed 5 events");
}

/// The wire form of what is not in the documents; that of retry events is unchanged.
#[tokio::test(start_paused = true)]
async fn wire_form() {
    let ends = [RunEnd::failure(R), RunEnd::failure("401 invalid api key")];
    let mut session = Session::new(Listed::new(ends), RetrySettings::default());
    let log = Log::default();
    let lines = log.clone();
    session.hook(move |event| lines.add(serde_json::to_string(event).unwrap()));
    session.prompt(()).await;
    assert_eq!(
        log.lines(),
        [
            r#"{"type":"agent_end","willRetry":true}"#,
            r#"{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"503 Service Unavailable"}"#,
            r#"{"type":"agent_end","willRetry":false}"#,
            r#"{"type":"auto_retry_end","success":false,"attempt":1,"finalError":"401 invalid api key"}"#,
            r#"{"type":"settled","outcome":"failed","finalError":"401 invalid api key","class":"auth","reason":"fatal","retries":1}"#,
        ]
    );
}

/// A hook that takes its time holds up the session, as it must, but no other user of the handle.
#[test]
fn a_slow_hook_does_not_block_commands() {
    let mut session =
        blocking::Session::new(Listed::new([RunEnd::failure(R)]), settings(3, 60_000));
    let handle = session.handle();
    let log = Log::default();
    let (called, is_called) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    session.hook(move |event| {
        if event.to_string().starts_with("S(") {
            called.send(()).unwrap();
            released.recv_timeout(SOON).unwrap();
        }
    });
    note_all(&handle, &log);
    let thread = std::thread::spawn(move || session.prompt(()));
    is_called.recv_timeout(SOON).unwrap();
    handle.abort_retry();
    handle.set_auto_retry_enabled(false);
    assert!(!handle.auto_retry_enabled(), "settings wait for nothing");
    assert!(handle.is_retrying(), "EF2: the abort waits its turn");
    release.send(()).unwrap();
    assert_eq!(thread.join().unwrap().to_string(), "cancelled");
    assert_eq!(
        log.lines()[2..],
        ["X(false,1,\"Retry cancelled\")", "settled: cancelled"]
    );
}

/// AB2 on a thread: the end is told at once, though the session's own thread is in the call.
#[test]
fn ab2_an_abort_is_told_while_the_call_runs() {
    let mut session = blocking::Session::new(Listed::new([RunEnd::failure(R)]), settings(3, 0));
    let handle = session.handle();
    let mut events = handle.subscribe(100);
    let thread = std::thread::spawn(move || session.prompt(()));
    while !matches!(handle.state().phase, Phase::InFlight { .. }) {
        handle.block_until_settled(Duration::from_millis(1));
    }
    handle.abort_retry();
    assert_eq!(handle.state().phase, Phase::Draining);
    let mut told = Vec::new();
    while let Some(event) = events.try_next() {
        told.push(event.unwrap().to_string());
    }
    assert_eq!(
        told,
        [
            "run ended, will retry",
            "S(1,0)",
            "X(false,1,\"Retry cancelled\")"
        ]
    );
    assert!(
        !handle.block_until_settled(Duration::from_millis(2)),
        "PR1: the call still runs"
    );
    handle.abort();
    assert_eq!(thread.join().unwrap().to_string(), "cancelled");
}

/// PR2: however a prompt ends, who waits for it is released, and after the last event.
#[tokio::test(start_paused = true)]
async fn pr2_waiters_are_released_on_every_end() {
    type Does = fn(&retry_machine::shell::Handle);
    let failing = || vec![RunEnd::failure(R); 4];
    let cases: [(&str, Vec<RunEnd>, Does, &str); 6] = [
        ("answered", vec![answer()], |_| {}, "settled: answered"),
        (
            "exhausted",
            failing(),
            |_| {},
            "settled: failed (server_error, exhausted): 503 Service Unavailable",
        ),
        (
            "abort retry",
            failing(),
            |handle| handle.abort_retry(),
            "settled: cancelled",
        ),
        (
            "abort",
            failing(),
            |handle| handle.abort(),
            "settled: cancelled",
        ),
        (
            "abort in the call",
            vec![],
            |handle| handle.abort(),
            "settled: cancelled",
        ),
        ("dropped", vec![], |_| {}, "settled: cancelled"),
    ];
    for (name, ends, does, last) in cases {
        let mut session = Session::new(Listed::new(ends), RetrySettings::default());
        let handle = session.handle();
        let log = Log::default();
        note_all(&handle, &log);
        handle.wait_until_settled().await;
        let patience = Duration::from_secs(100);
        let prompt = tokio::spawn(async move {
            let _ = tokio::time::timeout(patience, session.prompt(())).await;
            session
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let waits = [handle.wait_until_settled(), handle.wait_until_settled()];
        let waiters = waits.map(|wait| {
            let log = log.clone();
            tokio::spawn(async move {
                wait.await;
                log.lines().pop().unwrap_or_default()
            })
        });
        does(&handle);
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap(), last, "{name}");
        }
        drop(prompt.await.unwrap());
        assert_eq!(
            log.lines()
                .iter()
                .filter(|line| line.starts_with("settled"))
                .count(),
            1,
            "{name}"
        );
    }
}

/// Who is registered while an event is delivered hears from the next one on; hooks after the others.
#[tokio::test(start_paused = true)]
async fn listeners_registered_by_a_hook() {
    let mut session = Session::new(Listed::new([answer()]), RetrySettings::default());
    let handle = session.handle();
    let log = Log::default();
    let (to_log, mut first) = (log.clone(), true);
    session.hook(move |event| {
        to_log.add(format!("hook: {event}"));
        if std::mem::take(&mut first) {
            let late = to_log.clone();
            handle.hook(move |event| late.add(format!("late hook: {event}")));
            let mut events = handle.subscribe(1);
            let late = to_log.clone();
            tokio::spawn(async move {
                let event = events.next().await.unwrap().unwrap();
                late.add(format!("late subscriber: {event}"));
            });
        }
    });
    session.prompt(()).await;
    tokio::task::yield_now().await;
    assert_eq!(
        log.lines(),
        [
            "hook: run ended",
            "hook: settled: answered",
            "late hook: settled: answered",
            "late subscriber: settled: answered",
        ]
    );
}

/// A session that goes while another thread is in a hook of it takes the hooks along all the same.
#[test]
fn a_session_goes_while_a_hook_is_called() {
    let mut session = Session::new(Listed::new([RunEnd::failure(U)]), RetrySettings::default());
    session.host_mut().hangs_switching = true;
    let handle = session.handle();
    let kept = Arc::new(());
    let in_hook = Arc::clone(&kept);
    let (called, is_called) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    session.hook(move |event| {
        let _ = &in_hook;
        if event.to_string().starts_with("X(") {
            called.send(()).unwrap();
            released.recv_timeout(SOON).unwrap();
        }
    });
    let mut events = handle.subscribe(100);
    let thread = {
        let mut prompt = std::pin::pin!(session.prompt(()));
        assert!(
            prompt
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        let thread = std::thread::spawn({
            let handle = handle.clone();
            move || handle.abort_retry()
        });
        is_called.recv_timeout(SOON).unwrap();
        thread
    };
    drop(session);
    assert_eq!(Arc::strong_count(&kept), 2, "still called");
    release.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(Arc::strong_count(&kept), 1);
    assert!(handle.block_until_settled(SOON));
    let told =
        std::iter::from_fn(|| events.wait_next(SOON)).map(|event| event.unwrap().to_string());
    let last = ["X(false,1,\"Retry cancelled\")", "settled: cancelled"];
    assert_eq!(
        told.collect::<Vec<_>>()[1..],
        last,
        "the end is told, and then the stream ends"
    );
}

/// A waker that can be counted.
struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

/// Dropped waits leave no waker behind, and a session that goes leaves nothing at all.
#[test]
fn nothing_is_left_behind() {
    let mut session = Session::new(Listed::new([]), RetrySettings::default());
    let handle = session.handle();
    let kept = Arc::new(());
    let in_hook = (Arc::clone(&kept), handle.clone());
    session.hook(move |_| {
        let _ = &in_hook;
    });
    let counted = Arc::new(Counted);
    let waker = Waker::from(Arc::clone(&counted));
    let mut cx = Context::from_waker(&waker);
    let wakers = || Arc::strong_count(&counted) - 2;
    {
        let mut prompt = std::pin::pin!(session.prompt(()));
        let mut settled = std::pin::pin!(handle.wait_until_settled());
        let mut again = std::pin::pin!(handle.wait_until_settled());
        for _ in 0..3 {
            assert!(prompt.as_mut().poll(&mut cx).is_pending());
            assert!(
                settled.as_mut().poll(&mut cx).is_ready(),
                "begun before the prompt"
            );
            // One taken while the prompt runs:
            again.set(handle.wait_until_settled());
            assert!(again.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(wakers(), 2, "the prompt's and the waiter's");
    }
    assert_eq!(wakers(), 0, "all were dropped");
    assert!(
        std::pin::pin!(handle.wait_until_settled())
            .poll(&mut cx)
            .is_ready()
    );
    let mut events = handle.subscribe(3);
    drop(session);
    assert_eq!(Arc::strong_count(&kept), 1, "hooks go with the session");
    handle.abort();
    handle.hook(|_| panic!("nobody calls it"));
    assert_eq!(events.try_next(), None);
    assert_eq!(events.wait_next(SOON), None, "closed");
    assert_eq!(
        handle.subscribe(3).wait_next(SOON),
        None,
        "closed from the beginning"
    );
}

/// SE2, RP4: what the getters say before, during and after a wait.
#[tokio::test(start_paused = true)]
async fn se2_toggles_and_getters() {
    let mut session = Session::new(Listed::new([RunEnd::failure(R)]), RetrySettings::default());
    let handle = session.handle();
    assert!(handle.auto_retry_enabled());
    handle.set_auto_retry_enabled(false);
    assert!(!handle.auto_retry_enabled());
    handle.update_settings(
        SettingsPatch::builder()
            .enabled(true)
            .base_delay_ms(500)
            .patch()
            .unwrap(),
    );
    assert!(!handle.state().prompt_running);
    let looks = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let state = handle.state();
        assert!(state.prompt_running && state.is_retrying() && handle.is_retrying());
        assert_eq!(
            (
                state.phase.attempt(),
                state.max_retries,
                state.base_delay_ms
            ),
            (1, 3, 500)
        );
        assert_eq!((state.delay_ms, state.remaining_ms), (Some(500), Some(300)));
        handle.abort_retry();
        assert!(!handle.is_retrying());
    };
    let (settled, ()) = tokio::join!(session.prompt(()), looks);
    assert_eq!(settled.to_string(), "cancelled");
    let state = handle.state();
    assert_eq!(
        (state.delay_ms, state.remaining_ms, state.prompt_running),
        (None, None, false)
    );
    assert_eq!(handle.settings().base_delay_ms(), 500);
}
