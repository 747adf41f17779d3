//! Input that nobody sends in good faith: a sensible answer, nothing lost behind it, and bounded memory.

use std::io::Write;
use std::process::Command;

use retry_machine::{Classifier, ErrorClass, ErrorFacts, UnixMillis};
use serde_json::{Value, json};

use crate::child::fed;

/// The most memory that a process may take for a line of 10 MB, in KiB: some copies of the line, and what a
/// program and its threads reserve.
const MEMORY_KIB: u64 = 300_000;
/// The most memory that reading any error takes beside its text, in bytes: the window and its words.
const WINDOW_BYTES: u64 = 256 << 10;

/// Each with what it is.
fn texts() -> Vec<(&'static str, String, ErrorClass)> {
    let controls: String = (1..0x20_u8).chain([0x7F]).map(char::from).collect();
    let deep = |open: &str| open.repeat(100_000);
    vec![
        (
            "a megabyte of digits",
            "5".repeat(1 << 20),
            ErrorClass::Unknown,
        ),
        ("deep lists", deep("["), ErrorClass::Unknown),
        ("deep objects", deep("{\"error\":"), ErrorClass::Unknown),
        (
            "deep objects behind a status",
            format!("503 Service Unavailable {}", deep("{\"error\":")),
            ErrorClass::ServerError,
        ),
        (
            "ten megabytes of a page",
            format!(
                "<html><head><title>502 Bad Gateway</title></head><body>{}</body></html>",
                "<p class=\"x\">sorry &amp; so on</p>\n".repeat(300_000)
            ),
            ErrorClass::ServerError,
        ),
        (
            "all control characters",
            format!("{controls}overloaded{controls}"),
            ErrorClass::Overloaded,
        ),
        (
            "unpaired escapes",
            r#"{"error":{"message":"overloaded \ud83d \udc00\ud800 \u12"#.to_owned(),
            ErrorClass::Overloaded,
        ),
        (
            "a run of backslashes",
            "\\".repeat(1 << 20),
            ErrorClass::Unknown,
        ),
        (
            "NUL",
            "\0{\"error\":{\"message\":\"overloaded\0\"}}\0".to_owned(),
            ErrorClass::Overloaded,
        ),
        (
            "right to left",
            "\u{202e}503 Service Unavailable\u{202c} \u{2066}\u{200f}".to_owned(),
            ErrorClass::ServerError,
        ),
        (
            "a million phrases",
            "overloaded, invalid api key. ".repeat(500_000),
            ErrorClass::Auth,
        ),
    ]
}

#[test]
fn hostile_texts() {
    let classifier = Classifier::shared();
    let facts = ErrorFacts::new();
    for (name, text, class) in texts() {
        let mut found = None;
        let used = allocation_counter::measure(|| {
            found = Some(classifier.classify(&text, &facts, UnixMillis(0)));
        });
        let verdict = found.expect("measured");
        assert_eq!(verdict.class, class, "{name}: {verdict:?}");
        assert!(
            used.bytes_max <= WINDOW_BYTES,
            "{name}: {} bytes",
            used.bytes_max
        );
        let explanation = classifier.explain(&text, &facts, UnixMillis(0));
        assert_eq!(explanation.verdict, verdict, "{name}");
    }
}

/// A process with bounded memory, on an input to its end; its lines and diagnostics.
fn run(args: &[&str], input: Vec<u8>) -> (Vec<Value>, String) {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\""))
        .arg(env!("CARGO_BIN_EXE_retry-machine"))
        .args(args);
    let (output, read) = fed(&mut command, input);
    read.expect("all is read");
    let diagnostics = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{args:?}: {diagnostics}"
    );
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    (lines, diagnostics)
}

/// Lines that are no right JSON.
fn malformed() -> Vec<Vec<u8>> {
    vec![
        b"[".repeat(100_000),
        b"{\"input\":".repeat(100_000),
        b"5".repeat(1 << 20),
        (0..0x20_u8)
            .filter(|byte| !matches!(byte, b'\n' | b'\r'))
            .collect(),
        br#"{"input":"abort\ud800"}"#.to_vec(),
        b"{\"input\":\"abort\0\"}".to_vec(),
        b"\xff\xfe\x00{}".to_vec(),
        "\u{202e}{\"input\":\"abort\"}".into(),
    ]
}

/// Every malformed line is refused with its reason, and the machine goes on in the state in which it was.
#[test]
fn hostile_lines() {
    let failed = json!({ "input": "assistantMessage", "message": { "stopReason": "error", "errorMessage": "overloaded" } });
    let mut input = format!("{failed}\n").into_bytes();
    for line in malformed() {
        input.extend(line);
        input.push(b'\n');
    }
    input.extend(b"{\"input\":\"abortRetry\"}\n");

    let (lines, _) = run(&["step"], input.clone());
    assert_eq!(lines.len(), malformed().len() + 2);
    for refused in &lines[1..=malformed().len()] {
        assert!(
            refused["error"].is_string() && refused.to_string().len() < 1000,
            "{refused}"
        );
    }
    assert_eq!(lines[0]["attempt"], 1);
    assert_eq!(
        lines[lines.len() - 1]["effects"][0]["effect"],
        "cancelSleep"
    );

    let (lines, _) = run(&["rpc", "--base-delay-ms", "600000"], input);
    let responses: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "response")
        .collect();
    assert_eq!(responses.len(), malformed().len() + 2);
    for refused in &responses[1..=malformed().len()] {
        assert_eq!(refused["success"], false, "{refused}");
        assert!(refused.to_string().len() < 1000, "{refused}");
    }
    assert_eq!(
        lines
            .iter()
            .filter(|line| line["type"] == "auto_retry_end")
            .count(),
        1
    );
}

/// Hostile texts in right lines come back unchanged, and are judged as they are in process.
#[test]
fn hostile_texts_in_lines() {
    let message =
        |text: &str| json!({ "role": "assistant", "stopReason": "error", "errorMessage": text });
    let mut step = Vec::new();
    let mut replay = Vec::new();
    for (_, text, _) in texts() {
        for line in [
            json!({ "input": "promptStarted" }),
            json!({ "input": "assistantMessage", "message": message(&text) }),
        ] {
            writeln!(step, "{line}").expect("a vector");
        }
        let line = json!({ "type": "message_end", "message": message(&text) });
        writeln!(replay, "{line}").expect("a vector");
    }
    let retried = |class: ErrorClass| matches!(class.action().name(), "retry" | "switch");
    let starts: Vec<_> = texts()
        .into_iter()
        .filter(|(.., class)| retried(*class))
        .map(|(_, text, _)| text)
        .collect();
    let told = |lines: &[Value]| -> Vec<String> {
        let start = |event: &Value| event["type"] == "auto_retry_start";
        let event = |line: &Value| {
            let inside = line["effects"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|effect| effect["event"].clone());
            inside.chain([line.clone()]).find(|event| start(event))
        };
        let text = |event: Value| event["errorMessage"].as_str().map(str::to_owned);
        lines.iter().filter_map(event).filter_map(text).collect()
    };
    let (lines, diagnostics) = run(&["step"], step.clone());
    assert_eq!(lines.len(), 2 * texts().len());
    assert_eq!(diagnostics, "");
    assert!(told(&lines) == starts, "step");
    let (lines, diagnostics) = run(&["rpc", "--base-delay-ms", "600000"], step);
    assert_eq!(diagnostics, "");
    assert!(told(&lines) == starts, "rpc");

    let (lines, diagnostics) = run(&["replay", "--json", "-"], replay);
    assert_eq!(diagnostics, "");
    let summary = lines
        .iter()
        .find(|line| line["type"] == "summary")
        .expect("a summary");
    assert_eq!(
        (&summary["files"], &summary["malformed"]),
        (&json!(1), &json!(0)),
        "{summary}"
    );
}
