//! The process itself: framing, arguments, its end, and hosts that misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use retry_machine::rpc::MAX_LINE_BYTES;
use serde_json::{Value, json};

use super::{Link, Process, rpc};
use crate::child::{fed, piped, signal};

const FAILED: &str =
    r#"{"input":"assistantMessage","message":{"stopReason":"error","errorMessage":"overloaded"}}"#;

/// Runs the process on an input to its end.
fn run(args: &[&str], input: &[u8]) -> Output {
    // What is written after its end fails, which is no fault.
    let (output, _) = fed(rpc().args(args), input.to_vec());
    output
}

fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "records end with LF"
    );
    text.split_terminator('\n')
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// CR before LF is dropped, blank lines are passed over, the last line need not end; lines out end with LF alone.
#[test]
fn rp3_framing() {
    let input = b"{\"type\":\"abort_retry\",\"id\":1}\r\n\n  \r\n{\"type\":\"abort_retry\",\"id\":\"\xE2\x80\xA8\"}\n{\"type\":\"abort_retry\",\"id\":3}";
    let output = run(&[], input);
    let expected = concat!(
        "{\"id\":1,\"type\":\"response\",\"command\":\"abort_retry\",\"success\":true}\n",
        "{\"id\":\"\u{2028}\",\"type\":\"response\",\"command\":\"abort_retry\",\"success\":true}\n",
        "{\"id\":3,\"type\":\"response\",\"command\":\"abort_retry\",\"success\":true}\n",
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

/// Garbage is answered line by line, and the exit code is 0.
#[test]
fn rp3_garbage() {
    let mut input = Vec::new();
    let mut state = 7_u64;
    for _ in 0..20_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        input.push((state >> 33) as u8);
    }
    let rows = input.split(|byte| *byte == b'\n');
    let count = rows
        .filter(|row| !row.iter().all(u8::is_ascii_whitespace))
        .count();
    input.extend(b"\n\xFF\xFE\n{\"type\":\"hello\"}\n");
    let output = run(&[], &input);
    let lines = lines(&output);
    assert_eq!(lines.len(), count + 2);
    let (hello, garbage) = lines.split_last().expect("lines");
    assert!(garbage.iter().all(|line| line["command"] == "parse"
        && line["success"] == false
        && line.get("id").is_none()));
    assert_eq!(
        (&hello["command"], &hello["success"]),
        (&json!("hello"), &json!(true))
    );
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

/// At the end of input all that was accepted has been answered, and the open chain is ended.
#[test]
fn rpc_end_of_input() {
    let output = run(
        &[],
        format!("{FAILED}\n{{\"type\":\"get_state\"}}\n").as_bytes(),
    );
    let lines = lines(&output);
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert_eq!(lines[3]["data"]["isRetrying"], true);
    assert_eq!(
        lines[4],
        json!({ "type": "auto_retry_end", "success": false, "attempt": 1, "finalError": "Retry cancelled" })
    );
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    let output = run(&[], b"");
    assert_eq!(
        (
            output.status.code(),
            output.stdout.len(),
            output.stderr.len()
        ),
        (Some(0), 0, 0)
    );
}

/// After `shutdown` nothing is read: the process ends although its input is open.
#[test]
fn rpc_shutdown() {
    let mut process = Process::start(&[]);
    process.send(FAILED);
    process.send(r#"{"type":"shutdown","id":9}"#);
    let code = process.child.wait().expect("it ends").code();
    assert_eq!(code, Some(0));
    let (rest, ..) = process.finish();
    assert_eq!(rest.len(), 5, "{rest:?}");
    assert_eq!(
        rest[4],
        r#"{"id":9,"type":"response","command":"shutdown","success":true}"#
    );
}

#[test]
fn rpc_closed_pipe() {
    let mut child = piped(&mut rpc());
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("a pipe");
    writeln!(stdin, "{FAILED}").expect("read");
    // Its input is still open.
    let code = child.wait().expect("it ends").code();
    let mut diagnostics = String::new();
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut diagnostics)
        .expect("UTF-8");
    assert_eq!((code, diagnostics.as_str()), (Some(0), ""));
}

/// SIGTERM ends it at once, with the ends of its chains.
#[test]
fn rpc_sigterm() {
    let mut process = Process::start(&["--base-delay-ms", "60000"]);
    process.send(FAILED);
    for _ in 0..3 {
        process.next(None);
    }
    let (took, status) = signal(&mut process.child, "-TERM");
    let code = status.code();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(code, Some(0));
    let (rest, _, diagnostics) = process.finish();
    assert_eq!(
        rest,
        [r#"{"type":"auto_retry_end","success":false,"attempt":1,"finalError":"Retry cancelled"}"#]
    );
    assert_eq!(diagnostics, "");
}

/// 10 MB in a line are taken, and the text comes back unchanged; what is longer than allowed is refused, and the
/// stream goes on.
#[test]
fn rpc_long_lines() {
    let text = format!("overloaded {}", "x".repeat(10_000_000) + "\u{2028}\"é");
    let line = json!({ "input": "assistantMessage", "id": 1, "message": { "stopReason": "error", "errorMessage": text } });
    let mut input = line.to_string().into_bytes();
    assert!(input.len() > 10_000_000, "{}", input.len());
    input.push(b'\n');
    input.extend(std::iter::repeat_n(b'x', MAX_LINE_BYTES + 1));
    input.extend(b"\n{\"type\":\"get_state\"}\n");
    let before = Instant::now();
    let output = run(&["--base-delay-ms", "600000"], &input);
    eprintln!("26 MB in two lines: {:?}", before.elapsed());
    let lines = lines(&output);
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[0]["errorMessage"], text);
    assert_eq!(
        lines[3]["error"],
        format!("line 2: longer than {MAX_LINE_BYTES} bytes")
    );
    assert_eq!(lines[4]["data"]["isRetrying"], true);
    assert_eq!(lines[5]["success"], false);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

/// A host that stops reading is read no further; when it reads again, nothing is lost. And it can be ended
/// meanwhile.
#[test]
fn rpc_host_that_stops_reading() {
    const LINES: usize = 20_000;
    let mut child = piped(&mut rpc());
    let mut stdin = child.stdin.take().expect("a pipe");
    let written = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    let writer = thread::spawn(move || {
        for at in 0..LINES {
            writeln!(stdin, r#"{{"type":"get_state","id":{at}}}"#).expect("read");
            counter.store(at + 1, Ordering::SeqCst);
        }
    });
    let stuck = settled(&written);
    // 1,024 lines are queued; what else was taken is in the two pipes and in two buffers, 64 KiB each.
    assert!((1024..9_000).contains(&stuck), "{stuck} lines were taken");
    eprintln!("{stuck} lines were taken of a host that does not read");
    let stdout = child.stdout.take().expect("a pipe");
    let answers = BufReader::new(stdout).lines().take(LINES);
    for (at, answer) in answers.enumerate() {
        let answer: Value = serde_json::from_str(&answer.expect("UTF-8")).expect("JSON");
        assert_eq!(answer["id"], at);
    }
    writer.join().expect("all is written");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// The number, once it has not changed for a while.
fn settled(number: &AtomicUsize) -> usize {
    let mut last = usize::MAX;
    loop {
        let now = number.load(Ordering::SeqCst);
        if now == last && now > 0 {
            return now;
        }
        last = now;
        thread::park_timeout(Duration::from_millis(300));
    }
}

#[test]
fn rpc_sigterm_while_the_host_does_not_read() {
    let mut child = piped(&mut rpc());
    let mut stdin = child.stdin.take().expect("a pipe");
    let written = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    let writer = thread::spawn(move || {
        while writeln!(stdin, r#"{{"type":"get_state"}}"#).is_ok() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    // A little is read, so that it is certain to be up.
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0; 100]).expect("answers");
    settled(&written);
    let (took, status) = signal(&mut child, "-TERM");
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    writer.join().expect("its pipe is closed");
}

/// Lines without a pause do not keep timers from firing.
#[test]
fn rpc_timers_fire_under_load() {
    let mut process = Process::start(&["--base-delay-ms", "100"]);
    let mut stdin = process.stdin.take().expect("a pipe");
    let before = Instant::now();
    let writer = thread::spawn(move || {
        writeln!(stdin, "{FAILED}").expect("read");
        while writeln!(stdin, r#"{{"type":"get_state"}}"#).is_ok() {}
    });
    let continued = loop {
        let line = process.next(None).expect("a line");
        if line.contains("continueAgent") {
            break before.elapsed();
        }
        assert!(
            before.elapsed() < Duration::from_secs(10),
            "no timer has fired"
        );
    };
    assert!(continued >= Duration::from_millis(99), "{continued:?}");
    assert!(continued < Duration::from_secs(3), "{continued:?}");
    process.child.kill().expect("it runs");
    writer.join().expect("its pipe is closed");
}

/// A timer comes at its time: not before it, and not long after.
#[test]
fn rpc_timers_are_on_time() {
    let mut process = Process::start(&["--base-delay-ms", "200"]);
    let before = Instant::now();
    process.send(FAILED);
    while !process
        .next(None)
        .expect("a line")
        .contains("continueAgent")
    {}
    let took = before.elapsed();
    assert!(
        (Duration::from_millis(199)..Duration::from_secs(2)).contains(&took),
        "{took:?}"
    );
}

/// What published clients pass is passed over; the settings flags work among it, wherever they stand.
#[test]
fn rp3_arguments_of_other_programs() {
    let ask = b"{\"type\":\"get_state\"}\n";
    let cases: &[(&[&str], u64, &str)] = &[
        (&[], 3, ""),
        (
            &[
                "--mode",
                "rpc",
                "--no-session",
                "--provider",
                "anthropic",
                "--model",
                "x/y:high",
            ],
            3,
            "",
        ),
        (&["--mode", "rpc", "--max-retries", "5", "--model=x"], 5, ""),
        (&["--max-retries=6", "--mode", "rpc", "--no-session"], 6, ""),
        (
            &["--mode=rpc", "--frobnicate", "--max-retries", "7"],
            7,
            "note: rpc has no `--frobnicate`; it is passed over\n",
        ),
        (
            &["--token", "secret", "-x", "--max-retries", "8"],
            8,
            "note: rpc has no `--token`; it is passed over\nnote: rpc has no `-x`; it is passed over\n",
        ),
        (&["--recommended"], 6, ""),
    ];
    for (args, max_retries, diagnostics) in cases {
        let output = run(args, ask);
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            *diagnostics,
            "{args:?}"
        );
        assert_eq!(
            lines(&output)[0]["data"]["maxRetries"],
            *max_retries,
            "{args:?}"
        );
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
    let output = run(&["--mode", "rpc", "--max-retries", "5000"], ask);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("retry.maxRetries: 5000 is out of range"),
        "{text}"
    );
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let output = run(&["--help"], b"");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("--base-delay-ms"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(0));
}
