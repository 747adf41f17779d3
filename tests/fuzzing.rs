//! The bodies of the fuzz targets in `fuzz/`, which include this file, and the replay of their seeds.
//!
//! They stand here so that they compile with every change, and so that what was once found stays found.

#[path = "fuzzing/texts.rs"]
pub mod texts;

use std::collections::BTreeMap;

use retry_machine::rpc::Protocol;
use retry_machine::wire::Stepper;
use retry_machine::{Ambient, RetryMachine, RetrySettings};
use serde_json::{Value, json};

/// Any bytes are answered by one line with effects or an error, and leave a machine that goes on.
pub fn step_line(line: &[u8]) {
    let mut stepper = Stepper::new(RetryMachine::default());
    for _ in 0..2 {
        let answer = parsed(&stepper.line(line, (7, 7)));
        let keys: Vec<_> = answer
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        assert!(
            matches!(keys[..], ["error"] | ["attempt", "effects", "state"]),
            "{answer}"
        );
    }
    let line = br#"{"input":"promptStarted"}"#;
    let answer = parsed(&stepper.line(line, (7, 7)));
    assert_eq!(answer["state"], "idle");
}

/// Any bytes are answered by lines of which the last alone is a response; then they are taken again, in a chain.
pub fn rpc_line(line: &[u8]) {
    let mut world = World::new();
    world.line(line);
    world.known(json!({ "input": "assistantMessage", "message": failed("overloaded") }));
    world.line(line);
    world.known(json!({ "type": "get_state" }));
    world.end();
}

/// A sequence of lines and waits: each byte is one, by its letter.
pub fn rpc_sequence(bytes: &[u8]) {
    let mut world = World::new();
    let mut bytes = bytes.iter().copied();
    while let Some(byte) = bytes.next() {
        let mut number = || u64::from(bytes.next().unwrap_or(0));
        let message = |message: Value| json!({ "input": "assistantMessage", "message": message });
        let line = match byte {
            b'A'..=b'D' => {
                world.session = Some(char::from(byte.to_ascii_lowercase()).to_string());
                continue;
            }
            b'E' => {
                world.session = None;
                continue;
            }
            b'p' => json!({ "input": "promptStarted" }),
            b'e' => message(failed("503 Service Unavailable")),
            b'u' => message(failed("You have hit your usage limit.")),
            b'h' => message(failed("usage limit reached retry-after-ms=5000")),
            b'f' => message(failed("401 invalid api key")),
            b'o' => message(failed("prompt is too long: 213462 tokens > 200000 maximum")),
            b'v' => message(failed("")),
            b'k' => message(json!({ "stopReason": "stop" })),
            b't' => message(json!({ "stopReason": "toolUse" })),
            b'x' => message(json!({ "stopReason": "aborted" })),
            b'y' => json!({ "input": "credentialSwitched", "switched": true }),
            b'n' => json!({ "input": "credentialSwitched", "switched": false }),
            b'Y' => json!({ "input": "credentialSwitched", "switched": true, "request": number() }),
            b'c' => json!({ "input": "continueFailed" }),
            b'R' => json!({ "input": "continueFailed", "run": number(), "error": "busy" }),
            b'r' => json!({ "type": "abort_retry" }),
            b'b' => json!({ "type": "abort" }),
            b'i' => json!({ "type": "set_auto_retry", "enabled": true }),
            b'j' => json!({ "type": "set_auto_retry", "enabled": false }),
            b'm' => {
                json!({ "type": "set_retry_settings", "settings": { "maxRetries": number() % 4 } })
            }
            b'd' => {
                json!({ "type": "set_retry_settings", "settings": { "baseDelayMs": number() } })
            }
            b'H' => {
                json!({ "type": "set_retry_settings", "settings": { "delay": { "serverDelay": "honour" } } })
            }
            b'J' => {
                json!({ "type": "set_retry_settings", "settings": { "delay": { "jitter": true }, "events": "extended" } })
            }
            b'L' => {
                json!({ "type": "set_retry_settings", "settings": { "maxTotalRetries": number() } })
            }
            b'g' => json!({ "type": "get_state" }),
            b'q' => json!({ "type": "close_session" }),
            b'Q' => json!({ "type": "hello" }),
            // To the next timer, or by some time.
            b'w' => {
                world.now = world
                    .now
                    .max(world.protocol.deadline().map_or(world.now, |due| due.0));
                world.timers();
                continue;
            }
            b'+' => {
                world.now += number() * 16;
                world.timers();
                continue;
            }
            // Any line, in any state.
            b'l' => {
                let line: Vec<_> = bytes.by_ref().take_while(|byte| *byte != b'\n').collect();
                world.line(&line);
                continue;
            }
            _ => continue,
        };
        world.known(line);
    }
    world.end();
}

/// The protocol in virtual time, with what must hold of its sessions.
struct World {
    protocol: Protocol,
    now: u64,
    /// Whom the next lines are for.
    session: Option<String>,
    /// The open chains, by the name of the session.
    chains: BTreeMap<Option<String>, Chain>,
}

/// What has been told of an open chain.
struct Chain {
    /// The last attempt that was announced; 0 before the first.
    attempt: u64,
    /// Whether a wait was announced that is not over.
    waits: bool,
}

impl World {
    fn new() -> Self {
        Self {
            protocol: Protocol::new(RetrySettings::default()),
            now: 0,
            session: None,
            chains: BTreeMap::new(),
        }
    }

    /// A line that is right, for the session.
    fn known(&mut self, mut line: Value) {
        if let Some(session) = self.session.as_ref().filter(|_| line["type"] != "hello") {
            line["session"] = session.as_str().into();
        }
        line["id"] = "x".into();
        let Some(response) = self.line(line.to_string().as_bytes()) else {
            assert!(self.protocol.is_shut_down());
            return;
        };
        assert_eq!(
            (&response["id"], &response["success"]),
            (&"x".into(), &true.into()),
            "{line}"
        );
        if line["type"] == "get_state" {
            let state = &response["data"];
            let chain = self.chains.get(&self.session);
            assert_eq!(state["isRetrying"], chain.is_some(), "{state}");
            assert_eq!(state["retryAttempt"] != 0, chain.is_some(), "{state}");
            let waits = chain.is_some_and(|chain| chain.waits);
            assert_eq!(!state["remainingMs"].is_null(), waits, "{state}");
            assert!(
                state["remainingMs"].as_u64() <= state["delayMs"].as_u64(),
                "{state}"
            );
        }
    }

    /// Any line; its response.
    fn line(&mut self, line: &[u8]) -> Option<Value> {
        let over = self.protocol.is_shut_down();
        let lines = self.protocol.line(line, Ambient::at(self.now));
        let Some((response, caused)) = lines.split_last() else {
            assert!(
                over || line.iter().all(u8::is_ascii_whitespace),
                "not answered"
            );
            return None;
        };
        let response = parsed(response);
        assert_eq!(response["type"], "response");
        assert_eq!(
            response["success"] == false,
            response["error"].is_string(),
            "{response}"
        );
        assert!(
            response["success"] == true || caused.is_empty(),
            "refused, and yet {caused:?}"
        );
        self.take(caused);
        Some(response)
    }

    /// Fires what is due.
    fn timers(&mut self) {
        while self
            .protocol
            .deadline()
            .is_some_and(|due| due.0 <= self.now)
        {
            let lines = self.protocol.timer(Ambient::at(self.now));
            assert!(!lines.is_empty(), "a timer that was due caused nothing");
            self.take(&lines);
        }
        assert!(self.protocol.timer(Ambient::at(self.now)).is_empty());
    }

    /// Events and effects.
    fn take(&mut self, lines: &[String]) {
        for line in lines {
            assert!(!line.contains('\n'), "{line}");
            let line = parsed(line);
            let session = line["session"].as_str().map(str::to_owned);
            let chain = self.chains.get_mut(&session);
            match line["effect"].as_str().or(line["type"].as_str()) {
                Some("auto_retry_start") => {
                    let attempt = line["attempt"].as_u64().expect("a number");
                    assert!(chain.is_none_or(|chain| chain.attempt < attempt), "{line}");
                    self.chains.insert(
                        session,
                        Chain {
                            attempt,
                            waits: true,
                        },
                    );
                }
                Some("auto_retry_end") => {
                    let attempt = line["attempt"].as_u64().expect("a number");
                    let ended = self.chains.remove(&session);
                    assert!(
                        ended.map_or(attempt == 0, |chain| chain.attempt <= attempt),
                        "{line}"
                    );
                }
                Some("switchCredential") => match chain {
                    Some(chain) => chain.waits = false,
                    None => {
                        let chain = Chain {
                            attempt: 0,
                            waits: false,
                        };
                        self.chains.insert(session, chain);
                    }
                },
                Some("continueAgent") => {
                    let waits = chain.map(|chain| std::mem::take(&mut chain.waits));
                    assert_eq!(waits, Some(true), "not announced, or over: {line}");
                }
                Some("dropFailedMessage" | "abortAgent" | "checkCompaction") => {}
                _ => panic!("{line}"),
            }
        }
        let waits = self.chains.values().any(|chain| chain.waits);
        assert_eq!(
            self.protocol.deadline().is_some(),
            waits,
            "a wait without a timer, or the other way round"
        );
    }

    /// Every open chain is ended, and nothing is left.
    fn end(mut self) {
        let open = self.chains.len();
        let lines = self.protocol.finish(Ambient::at(self.now));
        assert_eq!(lines.len(), open);
        self.take(&lines);
        assert!(self.chains.is_empty() && self.protocol.deadline().is_none());
    }
}

fn failed(text: &str) -> Value {
    json!({ "stopReason": "error", "errorMessage": text })
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The seeds, and what was found, in the ordinary suite.
#[cfg(test)]
mod replay {
    use std::path::Path;

    fn seeds(target: &str, body: fn(&[u8])) {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/seeds")
            .join(target);
        let Ok(entries) = std::fs::read_dir(&directory) else {
            eprintln!("SKIPPED: {} is not there", directory.display());
            return;
        };
        let mut count = 0;
        for entry in entries {
            let path = entry.expect("readable").path();
            eprintln!("{}", path.display());
            body(&std::fs::read(&path).expect("readable"));
            count += 1;
        }
        assert!(count > 3, "{count} seeds");
    }

    #[test]
    fn fuzz_step_line() {
        seeds("step_line", super::step_line);
    }

    #[test]
    fn fuzz_rpc_line() {
        seeds("rpc_line", super::rpc_line);
    }

    #[test]
    fn fuzz_rpc_sequence() {
        seeds("rpc_sequence", super::rpc_sequence);
    }

    #[test]
    fn fuzz_machine() {
        seeds("machine", crate::model::machine);
    }

    #[test]
    fn fuzz_classifier() {
        seeds("classifier", super::texts::classifier);
    }

    #[test]
    fn fuzz_signals() {
        seeds("signals", super::texts::signals);
    }

    #[test]
    fn fuzz_hints() {
        seeds("hints", super::texts::hints);
    }

    #[test]
    fn fuzz_settings() {
        seeds("settings", super::texts::settings);
    }

    #[test]
    fn fuzz_history() {
        seeds("history", super::texts::history);
    }

    #[cfg(feature = "rules")]
    #[test]
    fn fuzz_rules() {
        seeds("rules", super::texts::rules);
    }
}
