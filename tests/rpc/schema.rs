//! The schema of the lines, against every kind of line that is really read and written.

use std::collections::BTreeSet;
use std::process::Command;

use jsonschema::Validator;
use retry_machine::rpc::Protocol;
use retry_machine::{Ambient, EventForm, RetrySettings};
use serde_json::{Value, json};

use super::scenarios::{self, Host};
use super::{Link, Virtual, binary};

/// The validators of what is read and of what is written.
fn validators() -> (Validator, Validator) {
    let schema = retry_machine::schema::rpc();
    let of = |name: &str| {
        let part = json!({ "$ref": format!("#/$defs/{name}"), "$defs": schema["$defs"] });
        jsonschema::validator_for(&part).expect("a schema")
    };
    jsonschema::validator_for(&schema).expect("a schema");
    (of("LineIn"), of("LineOut"))
}

#[track_caller]
fn valid(validator: &Validator, line: &str) {
    let line: Value = serde_json::from_str(line).expect("JSON");
    let errors: Vec<_> = validator
        .iter_errors(&line)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{line}: {errors:?}");
}

/// Virtual time with a witness of all lines.
struct Witness {
    link: Virtual,
    lines_in: Vec<String>,
    lines_out: Vec<String>,
}

impl Link for Witness {
    fn now(&self) -> u64 {
        self.link.now()
    }

    fn send(&mut self, line: &str) {
        self.lines_in.push(line.to_owned());
        self.link.send(line);
    }

    fn next(&mut self, until: Option<u64>) -> Option<String> {
        let line = self.link.next(until)?;
        self.lines_out.push(line.clone());
        Some(line)
    }
}

/// All scenarios, in both forms of events, with commands and with inputs, and every line that is in none of them.
#[test]
fn rpc_schema_of_every_line() {
    let (line_in, line_out) = validators();
    let mut kinds = BTreeSet::new();
    for (form, session, commands) in [
        (EventForm::Documented, None, true),
        (EventForm::Extended, Some("a"), false),
    ] {
        for (_, (max, base), script, _) in scenarios::table() {
            let settings = RetrySettings::builder()
                .max_retries(max)
                .base_delay_ms(base)
                .set("events", form)
                .build();
            let mut witness = Witness {
                link: Virtual::new(settings.expect("in range")),
                lines_in: Vec::new(),
                lines_out: Vec::new(),
            };
            let mut host = Host::new(&mut witness, session);
            host.commands = commands;
            host.play(&script);
            for line in [
                r#"{"type":"get_state","id":"x"}"#,
                r#"{"type":"set_auto_retry","enabled":true,"session":null,"id":null}"#,
                r#"{"input":"assistantMessage","message":{"stopReason":"error","errorMessage":"overloaded"},"nowMs":1,"entropy":2}"#,
                r#"{"type":"get_state"}"#,
                r#"{"type":"hello"}"#,
                r#"{"type":"close_session"}"#,
                r#"{"type":"shutdown"}"#,
            ] {
                witness.send(line);
            }
            while let Some(line) = witness.link.lines.pop_front() {
                witness.lines_out.push(line);
            }
            for line in &witness.lines_in {
                valid(&line_in, line);
                kinds.insert(kind(line));
            }
            for line in &witness.lines_out {
                valid(&line_out, line);
                kinds.insert(kind(line));
            }
        }
    }
    // Nothing that there is has been left out.
    let mut protocol = Protocol::new(RetrySettings::default());
    let hello: Value =
        serde_json::from_str(&protocol.line(br#"{"type":"hello"}"#, Ambient::at(0))[0])
            .expect("JSON");
    let names =
        ["commands", "inputs"].map(|key| hello["data"][key].as_array().expect("names").clone());
    let effects = [
        "switchCredential",
        "dropFailedMessage",
        "continueAgent",
        "abortAgent",
        "checkCompaction",
    ];
    let expected = names
        .concat()
        .into_iter()
        .map(|name| name.as_str().expect("a name").to_owned())
        .chain(
            effects
                .into_iter()
                .chain(["auto_retry_start", "auto_retry_end", "response"])
                .map(str::to_owned),
        );
    assert_eq!(kinds, expected.collect());
}

/// What tells a line's kind.
fn kind(line: &str) -> String {
    let line: Value = serde_json::from_str(line).expect("JSON");
    let kind = ["effect", "input", "type"]
        .iter()
        .find_map(|key| line[key].as_str());
    kind.expect("a kind").to_owned()
}

/// What the protocol refuses, the schema refuses; the answers to it are as described.
#[test]
fn rpc_schema_refuses_what_is_refused() {
    let (line_in, line_out) = validators();
    for line in [
        r#"{"type":"fly"}"#,
        r#"{"type":"set_auto_retry"}"#,
        r#"{"type":"set_auto_retry","enabled":"no"}"#,
        r#"{"type":"set_retry_settings","settings":{"maxRetries":5000}}"#,
        r#"{"type":"set_retry_settings","settings":{"maxRetrys":5}}"#,
        r#"{"type":"set_retry_settings","settings":[]}"#,
        r#"{"type":"abort_retry","sesion":"a"}"#,
        r#"{"type":"abort_retry","enabled":true}"#,
        r#"{"type":"abort_retry","nowMs":1}"#,
        r#"{"type":"abort_retry","id":[]}"#,
        r#"{"type":"shutdown","session":"a"}"#,
        r#"{"type":"abort","session":""}"#,
        r#"{"type":"abort","session":7}"#,
        r#"{"type":"abort","input":"abort"}"#,
        r#"{"input":"timerFired","timer":1}"#,
        r#"{"input":"abrot"}"#,
        r#"{"input":"abort","error":"x"}"#,
        r#"{"input":"abort","nowMs":-1}"#,
        r#"{"input":"abort","entropy":1e300}"#,
        r#"{"input":"credentialSwitched"}"#,
        r#"{"input":"credentialSwitched","switched":true,"request":"4"}"#,
        r#"{"input":"continueFailed","run":1,"error":7}"#,
        r#"{"input":"assistantMessage"}"#,
        r#"{"input":"assistantMessage","message":{}}"#,
        r#"{"input":"assistantMessage","message":{"stopReason":"bored"}}"#,
        r#"{"input":"assistantMessage","message":{"role":"user","stopReason":"stop"}}"#,
        "{}",
    ] {
        let value: Value = serde_json::from_str(line).expect("JSON");
        assert!(!line_in.is_valid(&value), "{line}");
        let mut link = Virtual::default();
        let out = link.ask(line);
        assert_eq!(out.len(), 1);
        assert!(out[0].contains(r#""success":false"#), "{line}: {out:?}");
        valid(&line_out, &out[0]);
    }
    for line in [
        r#"{"type":"auto_retry_start","attempt":1}"#,
        r#"{"type":"effect","effect":"sleep","timer":1,"delayMs":5}"#,
        r#"{"type":"effect","effect":"switchCredential","request":1}"#,
        r#"{"type":"response","command":"abort"}"#,
        r#"{"type":"agent_end"}"#,
    ] {
        let value: Value = serde_json::from_str(line).expect("JSON");
        assert!(!line_out.is_valid(&value), "{line}");
    }
}

#[test]
fn rpc_schema_on_the_command_line() {
    let output = Command::new(binary())
        .args(["schema", "rpc"])
        .output()
        .expect("it runs");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(printed, retry_machine::schema::rpc());
    assert_eq!(output.status.code(), Some(0));
}
