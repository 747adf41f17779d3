//! Many sessions over one process, with random faults and cancels: every chain ends once, and memory stays flat.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::scenarios::Dice;
use super::{Link, Process, Virtual};
use crate::support::{F, O, R, U, settings};

/// Hosts of many sessions, each with prompts whose calls fail, succeed, and are cancelled at random.
struct Fleet {
    dice: Dice,
    sessions: BTreeMap<String, Session>,
    /// The sessions between prompts, by when the next begins; and how many are in one.
    idle: BTreeSet<(u64, String)>,
    busy: u64,
    /// How long a session pauses between prompts, at most, in milliseconds.
    pause_ms: u64,
    chains: u64,
    ends: u64,
}

#[derive(Default)]
struct Session {
    prompts_left: u64,
    /// Responses that have not come.
    unanswered: u64,
    /// The attempt of the open chain, as announced; 0 when a credential is awaited before the first.
    open: Option<u64>,
    /// Whether `continueAgent` may come: a wait was announced and is neither over nor cancelled.
    waits: bool,
    is_in_prompt: bool,
    last_id: u64,
}

impl Fleet {
    fn new(sessions: u64, prompts: u64, pause_ms: u64) -> Self {
        let session = |at| {
            let session = Session {
                prompts_left: prompts,
                ..Session::default()
            };
            (format!("session {at}"), session)
        };
        let sessions: BTreeMap<_, _> = (0..sessions).map(session).collect();
        Self {
            dice: Dice(200),
            idle: sessions.keys().map(|name| (0, name.clone())).collect(),
            busy: 0,
            sessions,
            pause_ms,
            chains: 0,
            ends: 0,
        }
    }

    /// Runs until all prompts are over, or until then.
    fn run(&mut self, link: &mut impl Link, until: u64) {
        while link.now() < until {
            let next = self.idle.first().map(|(at, _)| *at);
            if next.is_some_and(|at| at <= link.now()) {
                self.begin(link);
                continue;
            }
            if next.is_none() && self.busy == 0 {
                return;
            }
            // Where nobody begins, something must come.
            let line = link.next_json(next.map(|at| at.min(until)));
            if let Some(line) = line {
                let answers = self.take(&line, link.now());
                self.send(link, answers);
            }
        }
    }

    /// The prompt of the session that is to begin first.
    fn begin(&mut self, link: &mut impl Link) {
        let Some((_, name)) = self.idle.pop_first() else {
            return;
        };
        self.busy += 1;
        let session = self.sessions.get_mut(&name).expect("a session");
        session.prompts_left -= 1;
        session.is_in_prompt = true;
        let lines = [json!({ "input": "promptStarted" }), turn(&mut self.dice)];
        self.send(link, lines.map(|line| (name.clone(), line)).into());
    }

    fn send(&mut self, link: &mut impl Link, lines: Vec<(String, Value)>) {
        for (name, mut line) in lines {
            let session = self.sessions.get_mut(&name).expect("a session");
            session.last_id += 1;
            session.unanswered += 1;
            line["id"] = session.last_id.into();
            line["session"] = name.into();
            link.send_json(&line);
        }
    }

    /// What a session does about a line.
    fn take(&mut self, line: &Value, now: u64) -> Vec<(String, Value)> {
        let name = line["session"].as_str().expect("a session").to_owned();
        let session = self.sessions.get_mut(&name).expect("a session");
        let dice = &mut self.dice;
        let mut answers = Vec::new();
        match (line["type"].as_str(), line["effect"].as_str()) {
            (Some("auto_retry_start"), _) => {
                let attempt = line["attempt"].as_u64().expect("an attempt");
                if session.open.is_none() {
                    self.chains += 1;
                }
                assert!(session.open.is_none_or(|open| open < attempt), "{line}");
                (session.open, session.waits) = (Some(attempt), true);
                match dice.below(10) {
                    0 => answers.push(json!({ "type": "abort_retry" })),
                    1 => answers.push(json!({ "type": "abort" })),
                    2 => answers.push(json!({ "input": "promptStarted" })),
                    // Twice is once.
                    3 => answers.extend([
                        json!({ "type": "abort_retry" }),
                        json!({ "input": "abortRetry" }),
                    ]),
                    _ => {}
                }
            }
            (Some("auto_retry_end"), _) => {
                let attempt = line["attempt"].as_u64().expect("an attempt");
                match session.open.take() {
                    Some(_) => {}
                    // A budget of 0 ends what never started.
                    None => assert_eq!(attempt, 0, "{line}"),
                }
                session.waits = false;
                self.ends += 1;
            }
            (Some("effect"), Some("switchCredential")) => {
                if session.open.is_none() {
                    self.chains += 1;
                    session.open = Some(0);
                }
                session.waits = false;
                let request = line["request"].as_u64().expect("an id");
                let answer = |request: u64| json!({ "input": "credentialSwitched", "request": request, "switched": request.is_multiple_of(2) });
                match dice.below(6) {
                    0 => answers.extend([json!({ "type": "abort_retry" }), answer(request)]),
                    1 => answers.extend([answer(request + 1000), answer(request), answer(request)]),
                    _ => answers.push(answer(request)),
                }
            }
            (Some("effect"), Some("continueAgent")) => {
                assert!(session.waits, "not announced, or cancelled: {line}");
                session.waits = false;
                answers.push(match dice.below(12) {
                    0 => json!({ "input": "continueFailed", "run": line["run"], "error": "busy" }),
                    1 => json!({ "type": "abort" }),
                    _ => turn(dice),
                });
            }
            (Some("effect"), _) => {}
            (Some("response"), _) => {
                assert_eq!(line["success"], true, "{line}");
                session.unanswered -= 1;
            }
            _ => panic!("{line}"),
        }
        let sends = !answers.is_empty();
        if session.is_in_prompt && !sends && session.unanswered == 0 && session.open.is_none() {
            session.is_in_prompt = false;
            self.busy -= 1;
            if session.prompts_left > 0 {
                self.idle
                    .insert((now + self.dice.below(self.pause_ms + 1), name.clone()));
            }
        }
        answers
            .into_iter()
            .map(|line| (name.clone(), line))
            .collect()
    }

    fn check(&self) {
        for (name, session) in &self.sessions {
            assert!(!session.is_in_prompt && session.open.is_none(), "{name}");
            assert_eq!((session.unanswered, session.prompts_left), (0, 0), "{name}");
        }
        assert_eq!(self.chains, self.ends);
    }
}

/// A message that has ended.
fn turn(dice: &mut Dice) -> Value {
    let failed = |text: &str| json!({ "stopReason": "error", "errorMessage": text });
    let message = match dice.below(12) {
        0..4 => failed(R),
        4 | 5 => failed(U),
        6 => failed(F),
        7 => failed(O),
        8 => json!({ "stopReason": "aborted" }),
        9 => json!({ "stopReason": "toolUse" }),
        _ => json!({ "stopReason": "stop" }),
    };
    json!({ "input": "assistantMessage", "message": message })
}

#[test]
fn rpc_200_sessions_over_one_process() {
    let mut process = Process::start(&["--max-retries", "3", "--base-delay-ms", "3"]);
    let mut fleet = Fleet::new(200, 10, 20);
    fleet.run(&mut process, 60_000);
    fleet.check();
    assert!(fleet.chains > 500, "{}", fleet.chains);
    eprintln!("{} chains in 200 sessions, each ended once", fleet.chains);
    let (rest, code, diagnostics) = process.finish();
    assert_eq!((rest, code, diagnostics.as_str()), (vec![], Some(0), ""));
}

/// What an hour leaves behind, compared with the first minutes of it: nothing.
#[test]
fn rpc_an_hour_of_200_sessions_in_flat_memory() {
    const MINUTE: u64 = 60_000;
    let mut link = Virtual::new(settings(3, 2000));
    let mut fleet = Fleet::new(200, u64::MAX, 8 * MINUTE);
    fleet.run(&mut link, 10 * MINUTE);
    let before = fleet.chains;
    let used = allocation_counter::measure(|| fleet.run(&mut link, 60 * MINUTE));
    assert!(fleet.chains - before > 1000, "{}", fleet.chains);
    assert_eq!(link.protocol.sessions(), 200);
    eprintln!(
        "{} chains in fifty minutes: {} allocations, {} bytes more than before",
        fleet.chains - before,
        used.count_total,
        used.bytes_current
    );
    // Some hundred waits more or less are open at an instant, and the hosts' own lines are counted, too.
    assert!(
        used.bytes_current.abs() < 64 << 10,
        "{} bytes",
        used.bytes_current
    );
    for session in fleet.sessions.values_mut() {
        session.prompts_left = 0;
    }
    fleet.idle.clear();
    fleet.run(&mut link, u64::MAX);
    fleet.check();
    assert_eq!(link.protocol.deadline(), None);
}
