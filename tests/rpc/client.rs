//! The client over a child process.

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use retry_machine::rpc::{HostEffect, Notice, RpcClient, RpcErrorKind, RpcNotices, RpcOptions};
use retry_machine::{AssistantMessage, Produced, SettingsPatch, StopReason, UnixMillis, Usage};

use super::{PATIENCE, binary};
use crate::support::{R, U, WINDOW};

fn program(args: &[&str]) -> Command {
    let mut program = Command::new(binary());
    program.arg("rpc").args(args);
    program
}

fn start(args: &[&str]) -> (RpcClient, RpcNotices) {
    RpcOptions::default()
        .start(program(args))
        .expect("it starts")
}

#[track_caller]
fn next(notices: &RpcNotices) -> (Option<Arc<str>>, Notice) {
    notices.recv_timeout(PATIENCE).expect("a notice")
}

/// What a notice says, in short.
fn shown(notice: &Notice) -> String {
    match notice {
        Notice::RetryStarted(start) => format!("S({},{})", start.attempt, start.delay_ms),
        Notice::RetryEnded(end) => {
            format!("X({},{},{:?})", end.success, end.attempt, end.final_error)
        }
        Notice::Effect(effect) => format!("{effect:?}"),
        Notice::Restarted => "restarted".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn rpc_client_drives_a_session() {
    let (client, notices) = start(&["--base-delay-ms", "30"]);
    client.prompt_started().expect("answered");
    client
        .message(&AssistantMessage::error(R), WINDOW)
        .expect("answered");
    let Notice::RetryStarted(start) = next(&notices).1 else {
        panic!()
    };
    assert_eq!(
        (
            start.attempt,
            start.max_attempts,
            start.delay_ms,
            start.error_message.as_str()
        ),
        (1, 3, 30, R)
    );
    assert_eq!(shown(&next(&notices).1), "DropFailedMessage");
    let Notice::Effect(HostEffect::ContinueAgent { run }) = next(&notices).1 else {
        panic!()
    };
    let state = client.state().expect("answered");
    assert_eq!(
        (state.is_retrying, state.retry_attempt, state.delay_ms),
        (true, 1, None)
    );
    client.continue_failed(run, "busy").expect("answered");
    assert_eq!(shown(&next(&notices).1), "X(false,1,Some(\"busy\"))");
    client
        .message(
            &AssistantMessage::success().with_usage(Usage::of_input(9, WINDOW)),
            WINDOW,
        )
        .expect("answered");
    assert_eq!(
        shown(&next(&notices).1),
        "CheckCompaction { cause: Overflow }"
    );
}

#[test]
fn rpc_client_commands() {
    let (client, notices) = start(&["--base-delay-ms", "60000"]);
    client.abort_retry().expect("nothing to abort");
    client.set_auto_retry(false).expect("answered");
    assert!(!client.state().expect("answered").auto_retry_enabled);
    client.set_auto_retry(true).expect("answered");
    let mut patch = SettingsPatch::builder()
        .max_retries(7)
        .set("delay.jitter", true)
        .patch()
        .expect("in range");
    patch.merge(
        &SettingsPatch::builder()
            .max_retries(8)
            .set("maxTotalRetries", None::<u32>)
            .patch()
            .expect("in range"),
    );
    assert_eq!(
        serde_json::to_string(&patch).expect("JSON"),
        r#"{"maxRetries":8,"maxTotalRetries":null,"delay":{"jitter":true}}"#
    );
    client.set_retry_settings(&patch).expect("answered");
    assert_eq!(client.state().expect("answered").max_retries, 8);
    let hello = client.hello().expect("answered");
    assert_eq!((hello.name.as_str(), hello.protocol), ("retry-machine", 1));

    // Another session has the settings of the process, and is told by name.
    let other = client.session("other");
    assert_eq!(other.hello().expect("answered"), hello);
    assert_eq!(other.state().expect("answered").max_retries, 3);
    other
        .message(&AssistantMessage::error(U), 0)
        .expect("answered");
    let (name, notice) = next(&notices);
    let Notice::Effect(HostEffect::SwitchCredential {
        request,
        retry_after_ms: None,
    }) = notice
    else {
        panic!("{notice:?}")
    };
    assert_eq!(name.as_deref(), Some("other"));
    other.credential_switched(request, false).expect("answered");
    assert_eq!(shown(&next(&notices).1), "S(1,60000)");
    assert_eq!(shown(&next(&notices).1), "DropFailedMessage");
    let state = other.state().expect("answered");
    assert_eq!(state.delay_ms, Some(60_000));
    assert!(
        state
            .remaining_ms
            .is_some_and(|rest| (50_000..=60_000).contains(&rest))
    );
    other.abort().expect("answered");
    assert_eq!(
        shown(&next(&notices).1),
        "X(false,1,Some(\"Retry cancelled\"))"
    );
    assert_eq!(shown(&next(&notices).1), "AbortAgent");
    other.close_session().expect("answered");

    let refused = client.session("").abort().expect_err("refused");
    assert_eq!(refused.kind(), RpcErrorKind::Refused);
    assert_eq!(
        refused.to_string(),
        "abort: session: expected a string of 1 to 256 bytes"
    );

    client.shutdown().expect("answered");
    assert_eq!(
        notices.recv_timeout(PATIENCE),
        Err(RecvTimeoutError::Disconnected)
    );
    assert_eq!(
        client.abort_retry().expect_err("gone").kind(),
        RpcErrorKind::Died
    );
}

/// A message that is handed over reads as the same message.
#[test]
fn rpc_client_messages() {
    let mut produced = Produced::default();
    (
        produced.visible_text,
        produced.thinking,
        produced.tool_calls,
        produced.images,
    ) = (true, true, 2, 1);
    let mut full = AssistantMessage::error("503 \u{2028} \"x\"")
        .with_usage(Usage::of_input(5, 6))
        .with_provider("anthropic")
        .with_content(produced);
    (full.model, full.timestamp) = (Some("m".to_owned()), Some(UnixMillis(7)));
    let mut messages = vec![full];
    messages.extend(StopReason::ALL.map(AssistantMessage::new));
    for message in messages {
        let written = serde_json::to_string(&message).expect("JSON");
        assert_eq!(
            serde_json::from_str::<AssistantMessage>(&written).expect("reads"),
            message,
            "{written}"
        );
    }
}

/// A process that dies: calls under way fail, the open chain is told as ended, and the next process has the
/// settings of all sessions.
#[test]
fn rpc_client_restarts() {
    let program = program(&["--base-delay-ms", "60000"]);
    let (client, notices) = RpcOptions::default()
        .restarts(1)
        .start(program)
        .expect("it starts");
    let other = client.session("other");
    client.set_auto_retry(true).expect("answered");
    other
        .set_retry_settings(
            &SettingsPatch::builder()
                .max_retries(9)
                .patch()
                .expect("in range"),
        )
        .expect("answered");
    other.set_auto_retry(false).expect("answered");
    for at in 0..2000 {
        client
            .session(&at.to_string())
            .set_auto_retry(false)
            .expect("answered");
    }
    client
        .message(&AssistantMessage::error(U), 0)
        .expect("answered");
    let Notice::Effect(HostEffect::SwitchCredential { request: old, .. }) = next(&notices).1 else {
        panic!()
    };
    kill(&client);
    let end = shown(&next(&notices).1);
    assert!(
        end.starts_with("X(false,1,Some(\"The retry process has ended ("),
        "{end}"
    );
    assert_eq!(next(&notices), (None, Notice::Restarted));
    let state = other.state().expect("answered");
    assert_eq!((state.max_retries, state.auto_retry_enabled), (9, false));
    assert!(!client.state().expect("answered").is_retrying);

    // An answer to the process that is no more is stale, although the new one counts from 1 again.
    client
        .message(&AssistantMessage::error(U), 0)
        .expect("answered");
    let Notice::Effect(HostEffect::SwitchCredential { request: new, .. }) = next(&notices).1 else {
        panic!()
    };
    assert!(new > old, "{new} {old}");
    client.credential_switched(old, true).expect("stale");
    assert!(
        client.state().expect("answered").delay_ms.is_none(),
        "still switching"
    );
    client.credential_switched(new, true).expect("answered");
    assert_eq!(shown(&next(&notices).1), "S(1,0)");
    assert_eq!(shown(&next(&notices).1), "DropFailedMessage");
    assert!(shown(&next(&notices).1).starts_with("ContinueAgent"));

    // One restart was allowed.
    kill(&client);
    assert!(shown(&next(&notices).1).starts_with("X(false,1,"));
    assert_eq!(
        notices.recv_timeout(PATIENCE),
        Err(RecvTimeoutError::Disconnected)
    );
    let error = client.state().expect_err("gone");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (RpcErrorKind::Died, "the retry process has ended")
    );
}

/// Ends the process behind a client as a crash does, without its knowledge.
fn kill(client: &RpcClient) {
    let status = Command::new("kill")
        .args(["-KILL", &client.process_id().to_string()])
        .status();
    assert!(status.expect("kill runs").success());
}

#[test]
fn rpc_client_without_an_answer() {
    let mut silent = Command::new("sleep");
    silent.arg("30");
    let (client, _notices) = RpcOptions::default()
        .timeout(Duration::from_millis(50))
        .start(silent)
        .expect("it starts");
    let error = client.abort_retry().expect_err("no answer");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (RpcErrorKind::Timeout, "no answer within 50 ms")
    );
    kill(&client);

    let error = RpcOptions::default()
        .start(Command::new("/no/such/program"))
        .expect_err("not there");
    assert_eq!(error.kind(), RpcErrorKind::Spawn);
    assert!(
        error
            .to_string()
            .starts_with("cannot start /no/such/program: "),
        "{error}"
    );
}

/// The process ends with its last client, by the end of its input.
#[test]
fn rpc_client_dropped() {
    let (client, mut notices) = start(&["--base-delay-ms", "60000"]);
    client
        .session("a")
        .message(&AssistantMessage::error(R), 0)
        .expect("answered");
    let before = Instant::now();
    drop(client);
    let told: Vec<_> = notices.by_ref().map(|(_, notice)| shown(&notice)).collect();
    assert_eq!(
        told,
        [
            "S(1,60000)",
            "DropFailedMessage",
            "X(false,1,Some(\"Retry cancelled\"))"
        ]
    );
    assert!(before.elapsed() < PATIENCE);
}
