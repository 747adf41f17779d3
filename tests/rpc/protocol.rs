//! What each line is answered: RP2 to RP5, sessions, limits.

use retry_machine::rpc::{MAX_LINE_BYTES, MAX_SESSIONS, Protocol};
use retry_machine::{Ambient, EventForm, MonotonicMillis, RetrySettings, UnixMillis};
use serde_json::{Value, json};

use super::{Link, Virtual};

const FAILED: &str =
    r#"{"input":"assistantMessage","message":{"stopReason":"error","errorMessage":"overloaded"}}"#;
const LIMITED: &str = r#"{"input":"assistantMessage","message":{"stopReason":"error","errorMessage":"You have hit your usage limit."}}"#;

/// The answers to lines of a fresh process.
#[track_caller]
fn answers(line: &[u8], expected: &[&str]) {
    let mut protocol = Protocol::new(RetrySettings::default());
    let out = protocol.line(line, Ambient::at(0));
    assert_eq!(out, expected, "{}", String::from_utf8_lossy(line));
}

/// The same with `session` in a JSON line.
fn of(session: &str, line: &str) -> String {
    let mut line: Value = serde_json::from_str(line).expect("JSON");
    line["session"] = session.into();
    line.to_string()
}

#[test]
fn rp2_success_without_data_also_when_there_is_nothing_to_abort() {
    answers(
        br#"{"type":"abort_retry"}"#,
        &[r#"{"type":"response","command":"abort_retry","success":true}"#],
    );
    answers(
        br#"{"id":"7","type":"abort_retry"}"#,
        &[r#"{"id":"7","type":"response","command":"abort_retry","success":true}"#],
    );
    answers(
        br#"{"type":"set_auto_retry","enabled":false,"id":"8"}"#,
        &[r#"{"id":"8","type":"response","command":"set_auto_retry","success":true}"#],
    );
}

#[test]
fn rp3_unknown_commands() {
    answers(
        br#"{"id":"3","type":"fly"}"#,
        &[
            r#"{"id":"3","type":"response","command":"fly","success":false,"error":"Unknown command: fly"}"#,
        ],
    );
    answers(
        br#"{"id":"4","type":"prompt","message":"hi","images":[]}"#,
        &[
            r#"{"id":"4","type":"response","command":"prompt","success":false,"error":"Unknown command: prompt"}"#,
        ],
    );
    answers(
        br#"{"type":""}"#,
        &[r#"{"type":"response","command":"","success":false,"error":"Unknown command: "}"#],
    );
}

/// An id is repeated as it was written.
#[test]
fn rp3_ids() {
    for id in [
        r#""""#,
        r#""a\u2028b""#,
        "0",
        "-1.50e3",
        "123456789012345678901234567890",
        "\"\u{2028}\"",
    ] {
        answers(
            format!(r#"{{"type":"abort_retry","id":{id}}}"#).as_bytes(),
            &[&format!(
                r#"{{"id":{id},"type":"response","command":"abort_retry","success":true}}"#
            )],
        );
    }
    answers(
        br#"{"type":"abort_retry","id":null}"#,
        &[r#"{"type":"response","command":"abort_retry","success":true}"#],
    );
    // Half of a character, and a number beyond all doubles, would break the lines out for strict readers.
    for id in ["[1]", "{}", "true", r#""\ud83d""#, "1e999"] {
        answers(
            format!(r#"{{"type":"abort","id":{id}}}"#).as_bytes(),
            &[
                r#"{"type":"response","command":"abort","success":false,"error":"id: expected a string or a number"}"#,
            ],
        );
    }
}

/// Malformed lines: command `parse`, no id, what is wrong and where.
#[test]
fn rp3_malformed_lines() {
    let cases: &[(&[u8], &str)] = &[
        (b"fly", "not a JSON object"),
        (b"  [1]", "not a JSON object"),
        (br#"["abort",null,null,null]"#, "not a JSON object"),
        (b"\"abort\"", "not a JSON object"),
        (b"\xEF\xBB\xBF{}", "not a JSON object"),
        (b"\0", "not a JSON object"),
        (
            br#"{"type":"abort""#,
            "malformed JSON: EOF while parsing an object at column 15",
        ),
        (
            br#"{"type":"abort"} {"#,
            "malformed JSON: trailing characters at column 18",
        ),
        (
            br#"{"type":"abort",}"#,
            "malformed JSON: trailing comma at column 17",
        ),
        (
            br#"{"id":"1","type":abort}"#,
            "malformed JSON: expected value at column 18",
        ),
        (b"{\"type\":\"ab\xFFort\"}", "invalid UTF-8 at byte 12"),
        (
            br#"{"type":7}"#,
            "invalid type: integer `7`, expected a string at column 9",
        ),
        (
            br#"{"id":"1"}"#,
            "a line needs `type`, a command, or `input`, a machine input",
        ),
        (
            b"{}",
            "a line needs `type`, a command, or `input`, a machine input",
        ),
        (
            br#"{"type":null}"#,
            "a line needs `type`, a command, or `input`, a machine input",
        ),
        (
            br#"{"type":"abort","input":"abort"}"#,
            "`type` and `input` exclude each other: a line asks for one thing",
        ),
        (
            br#"{"type":"abort","type":"hello"}"#,
            "duplicate field `type` at column 22",
        ),
    ];
    for (line, why) in cases {
        let why = Value::from(format!("line 1: {why}"));
        answers(
            line,
            &[&format!(
                r#"{{"type":"response","command":"parse","success":false,"error":{why}}}"#
            )],
        );
    }
}

/// The stream goes on after a malformed line, and lines are counted, blank ones too.
#[test]
fn rp3_the_stream_goes_on() {
    let mut link = Virtual::default();
    assert_eq!(link.ask(""), [""; 0]);
    assert_eq!(link.ask(" \t\r"), [""; 0]);
    assert_eq!(
        link.ask("{"),
        [
            r#"{"type":"response","command":"parse","success":false,"error":"line 3: malformed JSON: EOF while parsing an object at column 1"}"#
        ],
    );
    assert_eq!(link.ask(FAILED).len(), 3);
}

/// A line that is understood and refused names its command, repeats its id, and changes nothing.
#[test]
fn rp3_refused_lines() {
    let cases = [
        (
            r#"{"type":"set_auto_retry"}"#,
            "`set_auto_retry` needs `enabled`, true or false",
        ),
        (
            r#"{"type":"set_auto_retry","enabled":null}"#,
            "`set_auto_retry` needs `enabled`, true or false",
        ),
        (
            r#"{"type":"set_auto_retry","enabled":"no"}"#,
            "invalid type: string \"no\", expected a boolean at column 39",
        ),
        (
            r#"{"type":"set_retry_settings"}"#,
            "`set_retry_settings` needs `settings`, an object with settings of the group `retry`",
        ),
        (
            r#"{"type":"set_retry_settings","settings":{"maxRetries":5000}}"#,
            "retry.maxRetries: 5000 is out of range; expected an integer from 0 to 1000 at column 58",
        ),
        (
            r#"{"type":"abort_retry","sesion":"a"}"#,
            "unknown field `sesion`, expected one of `type`, `id`, `session`, `enabled`, `settings` at column 30",
        ),
        (
            r#"{"type":"abort_retry","enabled":true}"#,
            "`enabled` is no key of the command `abort_retry`",
        ),
        (
            r#"{"type":"shutdown","session":"a"}"#,
            "`session` is no key of the command `shutdown`",
        ),
        (
            r#"{"type":"abort","session":""}"#,
            "session: expected a string of 1 to 256 bytes",
        ),
        (
            r#"{"type":"abort","session":7}"#,
            "session: expected a string of 1 to 256 bytes",
        ),
        (
            r#"{"input":"abrot"}"#,
            "unknown input `abrot`; did you mean `abort`?",
        ),
        (
            r#"{"input":"timerFired"}"#,
            "`timerFired` is no input here: timers are the process's own",
        ),
        (
            r#"{"input":"credentialSwitched"}"#,
            "the input `credentialSwitched` needs `switched`",
        ),
        (
            r#"{"input":"abort","error":"x"}"#,
            "`error` is no key of the input `abort`",
        ),
        (
            r#"{"input":"assistantMessage","message":{"stopReason":"bored"}}"#,
            "unknown variant `bored`, expected one of `stop`, `length`, `toolUse`, `error`, `aborted` at column 59",
        ),
    ];
    for (line, why) in cases {
        let mut value: Value = serde_json::from_str(line).expect("JSON");
        let name = value
            .get("type")
            .or(value.get("input"))
            .expect("a name")
            .clone();
        let session = value.get("session").filter(|name| **name == "a").cloned();
        // With an id behind it, so that columns stay.
        value["id"] = 9.into();
        let line = line.strip_suffix('}').expect("an object").to_owned() + r#","id":9}"#;
        let mut link = Virtual::default();
        let before = link.ask(r#"{"type":"get_state"}"#);
        let out: Vec<Value> = link
            .ask(&line)
            .iter()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let mut expected =
            json!({ "id": 9, "type": "response", "command": name, "success": false, "error": why });
        if let Some(session) = session {
            expected["session"] = session;
        }
        assert_eq!(out, [expected], "{line}");
        assert_eq!(link.ask(r#"{"type":"get_state"}"#), before, "{line}");
        assert_eq!(link.protocol.sessions(), 0, "{line}");
    }
    // A name is repeated as it is, so half of a character is none.
    answers(
        br#"{"type":"abort","session":"\ud83d","id":1}"#,
        &[
            r#"{"id":1,"type":"response","command":"abort","success":false,"error":"session: expected a string of 1 to 256 bytes"}"#,
        ],
    );
}

/// A CR before the LF is for the reader to drop; one that is left is white space. U+2028 and U+2029 are
/// ordinary characters, in and out.
#[test]
fn rp3_unicode_separators() {
    let text = "overloaded \u{2028}\u{2029}\u{85}\u{b}";
    let line = json!({ "input": "assistantMessage", "message": { "stopReason": "error", "errorMessage": text } });
    let mut link = Virtual::default();
    let out = link.ask(&format!("{line}\r"));
    let start: Value = serde_json::from_str(&out[0]).expect("JSON");
    assert_eq!(start["errorMessage"], text);
    assert!(out[0].contains('\u{2028}'), "as it is: {}", out[0]);
}

#[test]
fn rp4_get_state() {
    let mut link = Virtual::default();
    let state = |link: &mut Virtual| {
        let out = link.ask(r#"{"type":"get_state","id":"s"}"#);
        let line: Value = serde_json::from_str(&out[0]).expect("JSON");
        line["data"].clone()
    };
    let settings = json!({ "autoRetryEnabled": true, "maxRetries": 3, "baseDelayMs": 2000 });
    let with = |more: Value| {
        let mut all = settings.clone();
        all.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        all
    };
    assert_eq!(
        state(&mut link),
        with(json!({ "isRetrying": false, "retryAttempt": 0 }))
    );
    assert_eq!(link.protocol.sessions(), 0, "asking opens no session");
    link.ask(FAILED);
    link.now = 1500;
    let waiting =
        json!({ "isRetrying": true, "retryAttempt": 1, "delayMs": 2000, "remainingMs": 500 });
    assert_eq!(state(&mut link), with(waiting));
    assert!(
        link.next(None)
            .is_some_and(|line| line.contains("continueAgent"))
    );
    assert_eq!(
        state(&mut link),
        with(json!({ "isRetrying": true, "retryAttempt": 1 }))
    );
    link.ask(r#"{"type":"set_auto_retry","enabled":false}"#);
    assert_eq!(state(&mut link)["autoRetryEnabled"], false);
    link.ask(r#"{"type":"set_retry_settings","settings":{"enabled":"on","maxRetries":7,"baseDelayMs":5}}"#);
    let state = state(&mut link);
    assert_eq!(
        (
            &state["autoRetryEnabled"],
            &state["maxRetries"],
            &state["baseDelayMs"]
        ),
        (&true.into(), &7.into(), &5.into())
    );
}

#[test]
fn rp5_hello() {
    let mut link = Virtual::default();
    let out = link.ask(r#"{"type":"hello","id":1}"#);
    let line: Value = serde_json::from_str(&out[0]).expect("JSON");
    let data = &line["data"];
    assert_eq!(
        (&data["name"], &data["protocol"]),
        (&"retry-machine".into(), &1.into())
    );
    assert_eq!(data["version"], env!("CARGO_PKG_VERSION"));
    // Whatever it tells to be there is there.
    for (key, list) in [("type", &data["commands"]), ("input", &data["inputs"])] {
        for name in list.as_array().expect("names") {
            let mut link = Virtual::default();
            let out = link.ask(&json!({ key: name }).to_string());
            let line: Value = serde_json::from_str(out.last().expect("an answer")).expect("JSON");
            assert_eq!(line["command"], *name);
            assert!(
                !line.to_string().to_lowercase().contains("unknown"),
                "{line}"
            );
        }
    }
}

/// Lines of a named session carry its name, those of the unnamed one do not; one is nothing to another.
#[test]
fn rp5_sessions() {
    let mut link = Virtual::default();
    assert_eq!(
        link.ask(&of("a", FAILED)),
        [
            r#"{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"overloaded","session":"a"}"#,
            r#"{"type":"effect","effect":"dropFailedMessage","session":"a"}"#,
            r#"{"type":"response","command":"assistantMessage","success":true,"session":"a"}"#,
        ]
    );
    link.ask(&of(
        "b",
        r#"{"type":"set_retry_settings","settings":{"baseDelayMs":500}}"#,
    ));
    link.ask(&of("b", FAILED));
    assert_eq!(
        link.ask(r#"{"type":"abort_retry"}"#).len(),
        1,
        "the unnamed session has no chain"
    );
    assert_eq!(
        link.next(None).expect("b's timer"),
        r#"{"type":"effect","effect":"continueAgent","run":3,"session":"b"}"#
    );
    assert_eq!(link.now(), 500);
    assert_eq!(
        link.ask(&of("a", r#"{"id":"x","type":"abort_retry"}"#)),
        [
            r#"{"type":"auto_retry_end","success":false,"attempt":1,"finalError":"Retry cancelled","session":"a"}"#,
            r#"{"id":"x","type":"response","command":"abort_retry","success":true,"session":"a"}"#,
        ]
    );
    assert_eq!(link.protocol.deadline(), None);
    assert_eq!(
        link.ask(r#"{"type":"abort","session":null}"#)[0],
        r#"{"type":"effect","effect":"abortAgent"}"#
    );
}

/// Timers fire in the order in which they are due, those of the same instant by the sessions' names.
#[test]
fn rp5_timers_of_sessions() {
    let mut link = Virtual::default();
    for (name, base) in [("late", 900), ("z", 300), ("m", 300), ("early", 100)] {
        let settings = json!({ "type": "set_retry_settings", "session": name, "settings": { "baseDelayMs": base } });
        link.ask(&settings.to_string());
        link.ask(&of(name, FAILED));
    }
    let mut order = Vec::new();
    while link.protocol.deadline().is_some() {
        let line = link.next_json(None).expect("a timer");
        order.push((
            link.now(),
            line["session"].as_str().expect("a name").to_owned(),
        ));
    }
    let expected = [(100, "early"), (300, "m"), (300, "z"), (900, "late")];
    assert_eq!(order, expected.map(|(at, name)| (at, name.to_owned())));
}

#[test]
fn rp5_close_session() {
    let mut link = Virtual::default();
    let close = of("a", r#"{"type":"close_session"}"#);
    assert_eq!(
        link.ask(&close),
        [r#"{"type":"response","command":"close_session","success":true,"session":"a"}"#]
    );
    link.ask(&of("a", r#"{"type":"set_auto_retry","enabled":false}"#));
    link.ask(&of("a", r#"{"type":"set_auto_retry","enabled":true}"#));
    link.ask(&of("a", LIMITED));
    assert_eq!(
        link.ask(&close),
        [
            r#"{"type":"auto_retry_end","success":false,"attempt":1,"finalError":"Retry cancelled","session":"a"}"#,
            r#"{"type":"response","command":"close_session","success":true,"session":"a"}"#,
        ]
    );
    assert_eq!(
        (link.protocol.sessions(), link.protocol.deadline()),
        (0, None)
    );
    // Opened again, its settings are those of the process, and an answer to the closed one is stale.
    assert_eq!(
        link.ask(&of("a", LIMITED))[0],
        r#"{"type":"effect","effect":"switchCredential","request":2,"retryAfterMs":null,"session":"a"}"#
    );
    let answer = |request: u64| json!({ "input": "credentialSwitched", "request": request, "switched": true });
    assert_eq!(link.ask(&of("a", &answer(1).to_string())).len(), 1, "stale");
    assert_eq!(link.ask(&of("a", &answer(2).to_string())).len(), 3);
    // A wait that is closed fires no more.
    assert_eq!(link.ask(&close).len(), 2);
    assert_eq!(link.protocol.deadline(), None);
    // The unnamed session can be closed, too.
    link.ask(FAILED);
    assert_eq!(link.ask(r#"{"type":"close_session"}"#).len(), 2);
}

/// A late or stale answer is a success without any effect.
#[test]
fn rp5_stale_answers() {
    let mut link = Virtual::default();
    for line in [
        r#"{"input":"credentialSwitched","switched":true}"#,
        r#"{"input":"credentialSwitched","switched":true,"request":18446744073709551615}"#,
        r#"{"input":"continueFailed"}"#,
        r#"{"input":"continueFailed","run":0,"error":"gone"}"#,
    ] {
        let out = link.ask(line);
        assert_eq!(out.len(), 1, "{out:?}");
        assert!(out[0].ends_with(r#""success":true}"#), "{out:?}");
    }
    link.ask(LIMITED);
    assert_eq!(
        link.ask(r#"{"input":"credentialSwitched","switched":false}"#)
            .len(),
        3,
        "without an id: the latest"
    );
    link.now = 2000;
    assert_eq!(
        link.next(None).as_deref(),
        Some(r#"{"type":"effect","effect":"continueAgent","run":3}"#)
    );
    assert_eq!(
        link.ask(r#"{"input":"continueFailed","run":2,"error":"gone"}"#)
            .len(),
        1
    );
    assert_eq!(
        link.ask(r#"{"input":"continueFailed"}"#)[0],
        r#"{"type":"auto_retry_end","success":false,"attempt":1,"finalError":"Unknown error"}"#
    );
}

#[test]
fn rp5_shutdown() {
    let mut link = Virtual::default();
    link.ask(FAILED);
    link.ask(&of("a", FAILED));
    link.ask(&of("idle", r#"{"input":"promptStarted"}"#));
    assert_eq!(
        link.ask(r#"{"type":"shutdown","id":"last"}"#),
        [
            r#"{"type":"auto_retry_end","success":false,"attempt":1,"finalError":"Retry cancelled"}"#,
            r#"{"type":"auto_retry_end","success":false,"attempt":1,"finalError":"Retry cancelled","session":"a"}"#,
            r#"{"id":"last","type":"response","command":"shutdown","success":true}"#,
        ]
    );
    assert!(link.protocol.is_shut_down());
    assert_eq!(link.ask(FAILED), [""; 0]);
    assert_eq!(link.protocol.long_line(), [""; 0]);
    assert_eq!(link.protocol.timer(Ambient::at(u64::MAX)), [""; 0]);
    assert_eq!(link.protocol.finish(Ambient::at(u64::MAX)), [""; 0]);
}

/// Time in a line is wall time, which a server's instants are measured against; timers are the process's.
#[test]
fn rp5_now_ms_and_entropy() {
    let limited = |more: Value| {
        let text = "usage limit reached, Retry-After: Thu, 01 Jan 2026 00:00:10 GMT";
        let mut line = json!({ "input": "assistantMessage", "message": { "stopReason": "error", "errorMessage": text } });
        line.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        line.to_string()
    };
    let settings = RetrySettings::builder()
        .set("delay.jitter", true)
        .build()
        .expect("in range");
    let new_year_2026 = 1_767_225_600_000;
    let mut protocol = Protocol::new(settings);
    let ambient = Ambient::new(UnixMillis(new_year_2026 + 3000), MonotonicMillis(77));
    let out = protocol.line(limited(json!({})).as_bytes(), ambient);
    assert!(out[0].contains(r#""retryAfterMs":7000"#), "{out:?}");
    let out = protocol.line(
        limited(json!({ "nowMs": new_year_2026, "entropy": 0 })).as_bytes(),
        ambient,
    );
    assert!(out[0].contains(r#""retryAfterMs":10000"#), "{out:?}");
    let out = protocol.line(
        br#"{"input":"credentialSwitched","switched":false,"entropy":0,"nowMs":0}"#,
        ambient,
    );
    let start: Value = serde_json::from_str(&out[0]).expect("JSON");
    let delay = start["delayMs"].as_u64().expect("a delay");
    assert_eq!(protocol.deadline(), Some(MonotonicMillis(77 + delay)));
}

/// The extended form of events goes through, with the session behind it.
#[test]
fn rp5_extended_events() {
    let settings = RetrySettings::builder()
        .set("events", EventForm::Extended)
        .build()
        .expect("in range");
    let mut link = Virtual::new(settings);
    let start: Value = serde_json::from_str(&link.ask(&of("a", FAILED))[0]).expect("JSON");
    assert_eq!(
        (&start["chainId"], &start["class"], &start["session"]),
        (&1.into(), &"overloaded".into(), &"a".into())
    );
}

#[test]
fn limits_of_lines() {
    let mut link = Virtual::default();
    let long = "overloaded ".repeat(1 + MAX_LINE_BYTES / 11);
    let refused = format!(
        r#"{{"type":"response","command":"parse","success":false,"error":"line 1: longer than {MAX_LINE_BYTES} bytes"}}"#
    );
    assert_eq!(link.ask(&long), [refused.as_str()]);
    let second = refused.replace("line 1", "line 2");
    assert_eq!(link.protocol.long_line(), [second]);
}

/// Sessions that are never closed: as many as there may be, each small, then a refusal that says what to do.
#[test]
fn limits_of_sessions() {
    let mut protocol = Protocol::new(RetrySettings::default());
    let prompt = |at: usize| format!(r#"{{"input":"promptStarted","session":"session-{at}"}}"#);
    let mut refused = Vec::new();
    let used = allocation_counter::measure(|| {
        for at in 0..MAX_SESSIONS {
            let out = protocol.line(prompt(at).as_bytes(), Ambient::at(0));
            assert!(out[0].contains(r#""success":true"#), "{out:?}");
        }
    });
    refused.extend(protocol.line(prompt(MAX_SESSIONS).as_bytes(), Ambient::at(0)));
    assert!(
        refused[0].contains("session: there are 65536 already; close one with close_session"),
        "{refused:?}"
    );
    assert_eq!(
        protocol.line(FAILED.as_bytes(), Ambient::at(0)).len(),
        3,
        "the unnamed session has a place"
    );
    let each = used.bytes_current / MAX_SESSIONS as i64;
    eprintln!("an idle session takes {each} bytes");
    assert!(each <= 512, "{each} bytes");
    for close in [
        r#"{"type":"close_session","session":"session-5"}"#,
        r#"{"type":"close_session"}"#,
    ] {
        assert!(!protocol.line(close.as_bytes(), Ambient::at(0)).is_empty());
    }
    assert!(
        protocol.line(prompt(MAX_SESSIONS).as_bytes(), Ambient::at(0))[0]
            .contains(r#""success":true"#)
    );
}
