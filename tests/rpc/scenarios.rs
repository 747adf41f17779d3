//! A table of scenarios, in virtual time and through the real process; and random ones, against the bare machine.

use serde_json::{Value, json};

use super::{Link, Process, Virtual, notation};
use crate::support::Do::*;
use crate::support::{Do, F, O, R, U, WINDOW, World, disable, set_base, set_max, settings};

/// A host that does what a script says.
pub struct Host<'l, L> {
    link: &'l mut L,
    session: Option<String>,
    requests: Vec<u64>,
    run: u64,
    last_id: u64,
    /// Whether aborts are commands; else they are machine inputs.
    pub commands: bool,
}

impl<'l, L: Link> Host<'l, L> {
    pub fn new(link: &'l mut L, session: Option<&str>) -> Self {
        Self {
            link,
            session: session.map(str::to_owned),
            requests: Vec::new(),
            run: 0,
            last_id: 0,
            commands: true,
        }
    }

    pub fn play(&mut self, script: &[Do]) -> String {
        let steps: Vec<_> = script.iter().map(|what| self.step(what)).collect();
        steps.join(" · ")
    }

    /// What the line of a script causes, in the notation of the specification, `–` for nothing.
    fn step(&mut self, what: &Do) -> String {
        let lines = if let Wake = what {
            vec![self.next()]
        } else {
            let line = self.line(what);
            self.request(line)
        };
        let shown: Vec<_> = lines.iter().filter_map(notation).collect();
        if shown.is_empty() {
            "–".to_owned()
        } else {
            shown.join(" ")
        }
    }

    fn line(&self, what: &Do) -> Value {
        let message = |message: Value| json!({ "input": "assistantMessage", "message": message, "contextWindow": WINDOW });
        let usage = json!({ "input": WINDOW - 10, "cacheRead": 11 });
        match what {
            E(text) => message(json!({ "stopReason": "error", "errorMessage": text })),
            EFull(text) => {
                message(json!({ "stopReason": "error", "errorMessage": text, "usage": usage }))
            }
            Ok => message(json!({ "role": "assistant", "stopReason": "stop", "content": "fine" })),
            OkFull => message(json!({ "stopReason": "stop", "usage": usage })),
            OkToolUse => {
                message(json!({ "stopReason": "toolUse", "content": [{ "type": "toolCall" }] }))
            }
            OkLength => message(json!({ "stopReason": "length" })),
            Aborted => message(json!({ "stopReason": "aborted" })),
            Switched(switched) => {
                let request = self.requests.last().copied().unwrap_or(0);
                json!({ "input": "credentialSwitched", "switched": switched, "request": request })
            }
            SwitchedFirst(switched) => {
                json!({ "input": "credentialSwitched", "switched": switched, "request": self.requests[0] })
            }
            ContinueFailed(why) => {
                json!({ "input": "continueFailed", "run": self.run, "error": why })
            }
            AbortRetry if self.commands => json!({ "type": "abort_retry" }),
            AbortRetry => json!({ "input": "abortRetry" }),
            Abort if self.commands => json!({ "type": "abort" }),
            Abort => json!({ "input": "abort" }),
            PromptStarted => json!({ "input": "promptStarted" }),
            Set(patch) if self.commands => {
                json!({ "type": "set_retry_settings", "settings": patch })
            }
            Set(patch) => json!({ "input": "settingsChanged", "settings": patch }),
            Wake | WakeEarly(_) | WakeAgain => unreachable!("timers are the process's own"),
        }
    }

    fn request(&mut self, mut line: Value) -> Vec<Value> {
        self.last_id += 1;
        line["id"] = self.last_id.into();
        if let Some(session) = &self.session {
            line["session"] = session.as_str().into();
        }
        let name = line.get("type").unwrap_or(&line["input"]).clone();
        self.link.send_json(&line);
        let mut lines = Vec::new();
        loop {
            let line = self.next();
            if line["type"] == "response" {
                let mut expected = json!({ "id": self.last_id, "type": "response", "command": name, "success": true });
                if let Some(session) = &self.session {
                    expected["session"] = session.as_str().into();
                }
                assert_eq!(line, expected);
                return lines;
            }
            lines.push(line);
        }
    }

    fn next(&mut self) -> Value {
        let line = self.link.next_json(None).expect("a line");
        assert_eq!(line["session"].as_str(), self.session.as_deref(), "{line}");
        match line["effect"].as_str() {
            Some("switchCredential") => {
                self.requests.push(line["request"].as_u64().expect("an id"))
            }
            Some("continueAgent") => self.run = line["run"].as_u64().expect("an id"),
            _ => {}
        }
        line
    }
}

/// Name, settings (retries, base delay in ms), script, and the events and effects of each of its lines. Where
/// something happens during a wait, the wait is long enough for a busy machine.
type Scenario = (&'static str, (u32, u64), Vec<Do>, &'static str);

pub fn table() -> Vec<Scenario> {
    vec![
        ("success", (3, 20), vec![PromptStarted, Ok], "– · cmp"),
        (
            "retried once",
            (3, 20),
            vec![E(R), Wake, Ok],
            "S(1,20) drop · cont · X(true,1) cmp",
        ),
        (
            "budget used up",
            (3, 20),
            vec![E(R), Wake, E(R), Wake, E(R), Wake, E(R)],
            "S(1,20) drop · cont · S(2,40) drop · cont · S(3,80) drop · cont · X(false,3,\"503 Service Unavailable\") cmp",
        ),
        (
            "no budget",
            (0, 20),
            vec![E(R)],
            "X(false,0,\"503 Service Unavailable\") cmp",
        ),
        (
            "cancelled while waiting",
            (3, 5000),
            vec![E(R), AbortRetry, Ok],
            "S(1,5000) drop · X(false,1,\"Retry cancelled\") · cmp",
        ),
        (
            "nothing to cancel",
            (3, 20),
            vec![AbortRetry, AbortRetry],
            "– · –",
        ),
        (
            "cancelled in flight",
            (3, 20),
            vec![E(R), Wake, AbortRetry, E(R), E(R), AbortRetry],
            "S(1,20) drop · cont · X(false,1,\"Retry cancelled\") · – · S(1,20) drop · X(false,1,\"Retry cancelled\")",
        ),
        (
            "aborted while waiting",
            (3, 5000),
            vec![E(R), Abort, E(R), PromptStarted, Ok],
            "S(1,5000) drop · X(false,1,\"Retry cancelled\") abort agent · – · – · cmp",
        ),
        (
            "aborted in flight, tools running",
            (3, 20),
            vec![E(R), Wake, Abort, OkToolUse, E(R)],
            "S(1,20) drop · cont · X(false,1,\"Retry cancelled\") abort agent · – · –",
        ),
        (
            "another credential",
            (3, 20),
            vec![
                E("usage limit reached retry-after-ms=5000"),
                Switched(true),
                Wake,
                Ok,
            ],
            "switch(5000) · S(1,0) drop · cont · X(true,1) cmp",
        ),
        (
            "no other credential",
            (3, 20),
            vec![E(U), Switched(false), Wake, Ok],
            "switch · S(1,20) drop · cont · X(true,1) cmp",
        ),
        (
            "an answer to an earlier request",
            (3, 20),
            vec![
                E(U),
                AbortRetry,
                PromptStarted,
                E(U),
                SwitchedFirst(true),
                Switched(false),
                Switched(true),
                Wake,
                Ok,
            ],
            "switch · X(false,1,\"Retry cancelled\") · – · switch · – · S(1,20) drop · – · cont · X(true,1) cmp",
        ),
        ("overflow", (3, 20), vec![E(O)], "cmp(overflow)"),
        (
            "overflow by numbers",
            (3, 20),
            vec![EFull(R), OkFull],
            "cmp(overflow) · cmp(overflow)",
        ),
        (
            "overflow in a chain",
            (3, 20),
            vec![E(R), Wake, E(O)],
            "S(1,20) drop · cont · X(false,1,\"prompt is too long: 213462 tokens > 200000 maximum\") cmp(overflow)",
        ),
        (
            "fatal in a chain",
            (3, 20),
            vec![E(R), Wake, E(F)],
            "S(1,20) drop · cont · X(false,1,\"401 invalid api key\") cmp",
        ),
        (
            "aborted message in a chain",
            (3, 20),
            vec![E(R), Wake, Aborted],
            "S(1,20) drop · cont · X(false,1,\"Retry cancelled\")",
        ),
        (
            "tools between failures",
            (3, 20),
            vec![E(R), Wake, OkToolUse, E(R), Wake, OkLength],
            "S(1,20) drop · cont · X(true,1) · S(1,20) drop · cont · X(true,1) cmp",
        ),
        (
            "cannot continue",
            (3, 20),
            vec![E(R), Wake, ContinueFailed("busy"), ContinueFailed("late")],
            "S(1,20) drop · cont · X(false,1,\"busy\") · –",
        ),
        (
            "the host runs the agent during a wait",
            (3, 5000),
            vec![E(R), E(R), Ok],
            "S(1,5000) drop · S(2,10000) drop · X(true,2) cmp",
        ),
        (
            "a new prompt",
            (3, 5000),
            vec![E(R), PromptStarted, E(R), AbortRetry],
            "S(1,5000) drop · X(false,1,\"Retry cancelled\") · S(1,5000) drop · X(false,1,\"Retry cancelled\")",
        ),
        (
            "settings during a wait",
            (3, 300),
            vec![E(R), set_base(150), Wake, E(R), set_max(1), Wake, E(R)],
            "S(1,300) drop · – · cont · S(2,300) drop · – · cont · X(false,2,\"503 Service Unavailable\") cmp",
        ),
        (
            "turned off during a wait",
            (3, 300),
            vec![E(R), disable(), Wake, E(R), E(R)],
            "S(1,300) drop · – · cont · X(false,1,\"503 Service Unavailable\") cmp · cmp",
        ),
        ("no text", (3, 20), vec![E("")], "cmp"),
    ]
}

#[test]
fn rpc_scenarios_in_virtual_time() {
    for commands in [true, false] {
        for (name, (max, base), script, expected) in table() {
            let mut link = Virtual::new(settings(max, base));
            let mut host = Host::new(&mut link, None);
            host.commands = commands;
            assert_eq!(host.play(&script), expected, "{name}");
        }
    }
}

/// All through one process, each in a session of its own.
#[test]
fn rpc_scenarios_through_the_process() {
    let mut process = Process::start(&["--max-retries", "9", "--base-delay-ms", "1"]);
    for (name, (max, base), script, expected) in table() {
        let mut host = Host::new(&mut process, Some(name));
        host.step(&set_max(max));
        host.step(&set_base(base));
        assert_eq!(host.play(&script), expected, "{name}");
    }
    let (rest, code, diagnostics) = process.finish();
    assert_eq!((rest, code, diagnostics.as_str()), (vec![], Some(0), ""));
}

/// Any script does to a session what it does to a bare machine, but for the sleeps, which are the process's own.
#[test]
fn rpc_random_scenarios_as_the_machine() {
    let mut dice = Dice(7);
    for round in 0..200 {
        let settings = settings(2, 1000);
        let mut world = World::new(settings.clone());
        let mut link = Virtual::new(settings);
        let mut host = Host::new(&mut link, Some("a"));
        host.commands = round % 2 == 0;
        for _ in 0..30 {
            let waits = world.machine.deadline().is_some();
            let mut what = dice.pick(&[
                E(R),
                E(R),
                E(R),
                E(U),
                E(U),
                E(F),
                E(O),
                EFull(R),
                Ok,
                OkFull,
                OkToolUse,
                Aborted,
                Wake,
                Wake,
                Wake,
                Wake,
                Switched(true),
                Switched(false),
                ContinueFailed("busy"),
                AbortRetry,
                Abort,
                PromptStarted,
                set_max(1),
                set_base(10),
                disable(),
                enable(),
            ]);
            if waits && dice.below(2) == 0 {
                what = Wake;
            }
            let unknown = matches!(what, Wake) && !waits
                || matches!(what, Switched(_)) && world.requests.is_empty()
                || matches!(what, ContinueFailed(_)) && world.run.is_none();
            if !unknown {
                let bare = without_sleeps(&world.step(&what));
                assert_eq!(host.step(&what), bare, "round {round}: {what:?}");
            }
        }
    }
}

fn enable() -> Do {
    Set(retry_machine::SettingsPatch::enabled(true))
}

fn without_sleeps(effects: &str) -> String {
    let words: Vec<_> = effects.split(' ').collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < words.len() {
        match words[at] {
            "sleep" => at += 1,
            "cancel" => {}
            word => kept.push(word),
        }
        at += 1;
    }
    kept.join(" ")
}

/// Numbers that look random and are the same each time.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let at = self.below(from.len() as u64);
        from[usize::try_from(at).expect("an index")].clone()
    }
}
