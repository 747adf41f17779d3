//! A simulated host: an agent whose provider answers as a recorded trace says, with actions at their instants.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Link;

/// What happened, in the form of the recordings, and what should not have happened.
#[derive(Default)]
pub struct Played {
    pub log: Vec<Value>,
    pub faults: Vec<String>,
}

/// Plays a trace over a link. With a name, over a session of its own.
pub fn play(trace: &Value, link: &mut impl Link, session: Option<&str>) -> Played {
    let mut host = Host {
        trace,
        link,
        session,
        played: Played::default(),
        context: Vec::new(),
        history: Vec::new(),
        schedule: Vec::new(),
        blocked: BTreeMap::new(),
        credential: 0,
        calls: 0,
        last_id: 0,
        is_open: false,
        step: Vec::new(),
    };
    host.play();
    host.played
}

struct Host<'t, L> {
    trace: &'t Value,
    link: &'t mut L,
    session: Option<&'t str>,
    played: Played,
    /// The runtime context and the history, as roles.
    context: Vec<String>,
    history: Vec<String>,
    /// What is to be done when.
    schedule: Vec<(u64, Value)>,
    /// Until when each credential is limited.
    blocked: BTreeMap<u64, u64>,
    credential: u64,
    calls: usize,
    last_id: u64,
    /// Whether a retry is announced and not over.
    is_open: bool,
    /// The effects and events of the last request.
    step: Vec<Value>,
}

impl<L: Link> Host<'_, L> {
    fn play(&mut self) {
        let settings = self.trace["settings"].clone();
        self.request(json!({ "type": "set_retry_settings", "settings": settings }));
        for prompt in 0..self.trace["prompts"].as_u64().expect("prompts") {
            self.context.push("user".to_owned());
            self.history.push("user".to_owned());
            self.request(json!({ "input": "promptStarted" }));
            let mut runs = true;
            while runs {
                runs = self.turn();
                while !runs && self.is_open {
                    runs = self.wait();
                }
            }
            let name = if prompt == 0 { "prompt" } else { "prompt2" };
            self.played.log.push(json!({ name: "resolved" }));
        }
        let state = self.request(json!({ "type": "get_state" }));
        if state["data"]["isRetrying"] != false {
            self.fault(format!("a chain is open at the end: {state}"));
        }
        self.played
            .log
            .push(json!({ "ctx": self.context, "hist": self.history }));
    }

    /// One call of the provider; whether the agent goes on.
    fn turn(&mut self) -> bool {
        let turns = self.trace["turns"].as_array().expect("turns");
        let turn = &turns[self.calls.min(turns.len() - 1)];
        self.calls += 1;
        self.played.log.push(json!({ "call": self.calls }));
        let reason = turn["stopReason"].as_str().unwrap_or("stop");
        self.context.push(format!("assistant:{reason}"));
        self.history.push(format!("assistant:{reason}"));
        let mut message = json!({
            "role": "assistant", "stopReason": reason, "content": [], "provider": "anthropic", "model": "mock",
            "usage": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0 },
        });
        if let Some(text) = turn["text"].as_str() {
            message["content"] = json!([{ "type": "text", "text": text }]);
        }
        let error = turn["errorMessage"].as_str();
        if let Some(error) = error {
            message["errorMessage"] = error.into();
        }
        self.request(json!({ "input": "assistantMessage", "message": message }));
        let checks: Vec<_> = self
            .step
            .iter()
            .filter(|line| line["effect"] == "checkCompaction")
            .map(|line| line["cause"].clone())
            .collect();
        let retries = |line: &Value| {
            line["type"] == "auto_retry_start" || line["effect"] == "switchCredential"
        };
        let overflows = [
            "prompt is too long",
            "exceeds the context window",
            "maximum context length",
        ];
        let over = reason == "error"
            && error.is_some_and(|text| overflows.iter().any(|phrase| text.contains(phrase)));
        let due = if reason == "aborted" || self.step.iter().any(retries) {
            vec![]
        } else {
            vec![if over { "overflow" } else { "turnEnd" }]
        };
        if checks != due {
            self.fault(format!(
                "checks compaction {checks:?}, due {due:?}, after {turn}"
            ));
        }
        let step = std::mem::take(&mut self.step);
        self.answer_switches(&step)
    }

    /// Answers the requests for another credential; whether the agent goes on.
    fn answer_switches(&mut self, step: &[Value]) -> bool {
        for effect in step
            .iter()
            .filter(|line| line["effect"] == "switchCredential")
        {
            let credentials = self.trace["credentials"].as_u64().expect("credentials");
            let mut switched = false;
            if credentials > 1 {
                let hint = effect["retryAfterMs"].clone();
                let until = self.link.now() + hint.as_u64().unwrap_or(60_000);
                self.blocked.insert(self.credential, until);
                let now = self.link.now();
                let free = (0..credentials).find(|credential| {
                    self.blocked
                        .get(credential)
                        .is_none_or(|until| *until <= now)
                });
                switched = free.is_some();
                self.credential = free.unwrap_or(self.credential);
                self.played.log.push(json!({
                    "markUsageLimitReached": { "retryAfterMs": hint }, "switched": switched,
                }));
            }
            self.request(json!({
                "input": "credentialSwitched", "switched": switched, "request": effect["request"],
            }));
        }
        false
    }

    /// During a wait: the next line, or the next action; whether the agent goes on.
    fn wait(&mut self) -> bool {
        self.schedule.sort_by_key(|(at, _)| *at);
        let at = self.schedule.first().map(|(at, _)| *at);
        if let Some(line) = self.link.next_json(at) {
            let goes_on = line["effect"] == "continueAgent";
            self.take(&line);
            return goes_on;
        }
        let (_, action) = self.schedule.remove(0);
        let what = action["do"].as_str().expect("an action");
        self.played.log.push(json!({ "action": what }));
        self.request(match what {
            "abortRetry" => json!({ "type": "abort_retry" }),
            "abort" => json!({ "type": "abort" }),
            "disable" => json!({ "type": "set_auto_retry", "enabled": false }),
            _ => {
                let set = action["set"].as_object().expect("settings");
                let bare = |key: &str| key.strip_prefix("retry.").expect("retry.…").to_owned();
                let settings: Value = set
                    .iter()
                    .map(|(key, value)| (bare(key), value.clone()))
                    .collect::<serde_json::Map<_, _>>()
                    .into();
                json!({ "type": "set_retry_settings", "settings": settings })
            }
        });
        let aborts_agent = self.step.iter().any(|line| line["effect"] == "abortAgent");
        if (what == "abort") != aborts_agent {
            self.fault(format!("{what}: {:?}", self.step));
        }
        if what.starts_with("abort") && self.is_open {
            self.fault(format!("a chain is left open by {what}"));
        }
        false
    }

    /// Sends a line and carries out what it causes, until its response.
    fn request(&mut self, mut line: Value) -> Value {
        self.last_id += 1;
        line["id"] = self.last_id.into();
        if let Some(session) = self.session {
            line["session"] = session.into();
        }
        self.step.clear();
        self.link.send_json(&line);
        loop {
            let Some(line) = self.link.next_json(None) else {
                unreachable!()
            };
            if line["type"] == "response" && line["id"] == self.last_id {
                if line["success"] != true {
                    self.fault(format!("refused: {line}"));
                }
                return line;
            }
            self.take(&line);
            self.step.push(line);
        }
    }

    fn take(&mut self, line: &Value) {
        let mut line = line.clone();
        if let Some(line) = line.as_object_mut() {
            let session = line.remove("session");
            assert_eq!(
                session.as_ref().and_then(Value::as_str),
                self.session,
                "{line:?}"
            );
        }
        match line["type"].as_str() {
            Some("auto_retry_start" | "auto_retry_end") => {
                self.is_open = line["type"] == "auto_retry_start";
                for action in self.trace["actions"].as_array().expect("actions") {
                    let same_attempt =
                        action["attempt"].is_null() || action["attempt"] == line["attempt"];
                    if action["event"] == line["type"] && same_attempt {
                        let after = action["after"].as_u64().unwrap_or(0);
                        self.schedule
                            .push((self.link.now() + after, action.clone()));
                    }
                }
                self.played.log.push(line);
            }
            Some("effect") if line["effect"] == "dropFailedMessage" => {
                if self
                    .context
                    .last()
                    .is_some_and(|role| role.starts_with("assistant"))
                {
                    self.context.pop();
                }
            }
            Some("effect") => {}
            _ => self.fault(format!("unexpected: {line}")),
        }
    }

    fn fault(&mut self, what: String) {
        self.played.faults.push(what);
    }
}
