//! `ask` and `demo` as real processes over real HTTP on the loopback interface.

mod demo;
mod provider;
#[cfg(unix)]
mod terminal;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use crate::child::signal;
use provider::{Asked, Provider, Step, Trouble};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Anthropic,
    OpenaiChat,
    OpenaiResponses,
}

impl Api {
    const ALL: [Self; 3] = [Self::Anthropic, Self::OpenaiChat, Self::OpenaiResponses];

    const fn flag(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
        }
    }

    /// What stands behind the host in a base URL, and behind the base URL in a request.
    const fn paths(self) -> (&'static str, &'static str) {
        match self {
            Self::Anthropic => ("", "/v1/messages"),
            Self::OpenaiChat => ("/v1", "/chat/completions"),
            Self::OpenaiResponses => ("/v1", "/responses"),
        }
    }
}

const KEYS: [&str; 2] = ["sekret-of-the-first", "sekret-of-the-second"];
const PROMPT: &str = "Say \"hello\".";

/// What came of a run of `ask`.
struct Ran {
    out: String,
    err: String,
    code: Option<i32>,
    /// The lines of `--events`.
    events: Vec<Value>,
    file: PathBuf,
}

impl Drop for Ran {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_retry-machine"));
    command
        .env_remove("ANTHROPIC_API_KEY")
        .env_remove("OPENAI_API_KEY")
        .env("FIRST_KEY", KEYS[0])
        .env("SECOND_KEY", KEYS[1])
        // No proxy stands before this machine.
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("http_proxy", "http://127.0.0.1:9");
    command
}

/// A file that no other test has.
fn own_file(name: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("retry-machine-{name}-{}-{number}", std::process::id());
    std::env::temp_dir().join(name)
}

fn ask(api: Api, base_url: &str, flags: &[&str]) -> Ran {
    let file = own_file("events");
    let output = command()
        .args(["ask", "--api", api.flag(), "--base-url", base_url, "-v"])
        .args(["--key-env", "FIRST_KEY", "--events"])
        .arg(&file)
        .args(flags)
        .arg(PROMPT)
        .stdin(Stdio::null())
        .output()
        .expect("ask runs");
    let text = fs::read_to_string(&file).unwrap_or_default();
    let events = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event is JSON"));
    Ran {
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
        code: output.status.code(),
        events: events.collect(),
        file,
    }
}

/// The stream in the notation of the specification; waits of a second and more as `1s+`.
fn notation(events: &[Value]) -> String {
    let words = events.iter().map(|event| {
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        match text("type") {
            "session" => "session".to_owned(),
            "message_end" => match event["message"]["stopReason"].as_str() {
                None => event["message"]["role"]
                    .as_str()
                    .expect("a role")
                    .to_owned(),
                Some(reason) => reason.to_owned(),
            },
            "agent_end" if event["willRetry"] == true => "end+".to_owned(),
            "agent_end" => "end".to_owned(),
            "auto_retry_start" => match event["delayMs"].as_u64().expect("a delay") {
                1000..2500 => format!("S({},1s+)", event["attempt"]),
                delay => format!("S({},{delay})", event["attempt"]),
            },
            "auto_retry_end" => format!("X({},{})", event["success"], event["attempt"]),
            "settled" => text("outcome").to_owned(),
            other => panic!("what is {other}?"),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

struct Case {
    name: &'static str,
    steps: &'static [Step],
    flags: &'static [&'static str],
    code: i32,
    /// Between `session user` and the outcome.
    events: &'static str,
    /// Which key each request had.
    keys: &'static [usize],
    /// What standard output, standard error or the stream of events must say.
    says: &'static str,
}

const RECOVERED: &str = "error end+ S(1,1) stop X(true,1) end answered";
const FAILED: &str = "error end failed";

/// One failure, then an answer: what a case does not say of itself.
const RECOVERS: Case = Case {
    name: "",
    steps: &[],
    flags: &[],
    code: 0,
    events: RECOVERED,
    keys: &[0, 0],
    says: "",
};

const CASES: &[Case] = &[
    Case {
        name: "answered",
        steps: &[Step::Answer],
        events: "stop end answered",
        keys: &[0],
        says: r#""usage":{"cacheRead":7,"cacheWrite""#,
        ..RECOVERS
    },
    Case {
        name: "the final marker left out",
        steps: &[Step::AnswerWithoutEnd],
        events: "stop end answered",
        keys: &[0],
        ..RECOVERS
    },
    Case {
        name: "the answer's length limited",
        steps: &[Step::Length],
        flags: &["--max-tokens", "5"],
        events: "length end answered",
        keys: &[0],
        ..RECOVERS
    },
    Case {
        name: "reset before headers",
        steps: &[Step::Reset, Step::Answer],
        keys: &[9, 0],
        says: "Connection reset",
        ..RECOVERS
    },
    Case {
        name: "429 with Retry-After",
        steps: &[
            Step::Refused(429, "retry-after: 1\r\n", Trouble::RateLimit),
            Step::Answer,
        ],
        flags: &["--recommended"],
        events: "error end+ S(1,1s+) stop X(true,1) end answered",
        says: "Retrying (1/6) in ",
        ..RECOVERS
    },
    Case {
        name: "429 with Retry-After, by the documented settings",
        steps: &[
            Step::Refused(429, "retry-after: 60\r\n", Trouble::RateLimit),
            Step::Answer,
        ],
        says: "Retrying (1/2) in 0s",
        ..RECOVERS
    },
    Case {
        name: "503 with a page, twice",
        steps: &[
            Step::Refused(503, "", Trouble::Page),
            Step::Refused(503, "", Trouble::Page),
            Step::Answer,
        ],
        events: "error end+ S(1,1) error end+ S(2,2) stop X(true,2) end answered",
        keys: &[0, 0, 0],
        says: "503 <html>",
        ..RECOVERS
    },
    Case {
        name: "a page for a stream",
        steps: &[Step::PageFor200, Step::Answer],
        says: "text/html in place of an event stream",
        ..RECOVERS
    },
    Case {
        name: "an error within a stream",
        steps: &[Step::ErrorEvent, Step::Answer],
        ..RECOVERS
    },
    Case {
        name: "cut, and the transport knows",
        steps: &[Step::Cut, Step::Answer],
        ..RECOVERS
    },
    Case {
        name: "cut, and only the API knows",
        steps: &[Step::CutSilently, Step::Answer],
        says: "The stream ended before ",
        ..RECOVERS
    },
    Case {
        name: "stalled",
        steps: &[Step::Stall, Step::Answer],
        flags: &["--idle-timeout-ms", "300"],
        says: "timed out",
        ..RECOVERS
    },
    Case {
        name: "an empty stream",
        steps: &[Step::Empty, Step::Answer],
        says: "or any other event",
        ..RECOVERS
    },
    Case {
        name: "an event that is no JSON",
        steps: &[Step::Garbage, Step::Answer],
        says: "an event in it is not JSON",
        ..RECOVERS
    },
    Case {
        name: "an error of three megabytes",
        steps: &[Step::Huge(3 << 20), Step::Answer],
        says: "500 xxx",
        ..RECOVERS
    },
    Case {
        name: "a usage limit and two keys",
        steps: &[
            Step::Refused(429, "retry-after: 7200\r\n", Trouble::UsageLimit),
            Step::Answer,
        ],
        flags: &["--key-env", "SECOND_KEY", "--recommended"],
        code: 0,
        events: "error end+ S(1,0) stop X(true,1) end answered",
        keys: &[0, 1],
        says: "FIRST_KEY has reached its usage limit; going on with SECOND_KEY",
    },
    Case {
        name: "a usage limit on both keys",
        steps: &[
            Step::Refused(429, "", Trouble::UsageLimit),
            Step::Refused(429, "", Trouble::UsageLimit),
            Step::Refused(429, "", Trouble::UsageLimit),
        ],
        flags: &["--key-env", "SECOND_KEY"],
        code: 5,
        events: "error end+ S(1,0) error end+ S(2,2) error end X(false,2) failed",
        keys: &[0, 1, 1],
        says: "Retry failed after 2 attempts: 429 ",
    },
    Case {
        name: "an account that cannot pay",
        steps: &[Step::Refused(429, "", Trouble::Billing)],
        flags: &[],
        code: 5,
        events: FAILED,
        keys: &[0],
        says: "error: billing: 429 ",
    },
    Case {
        name: "exhausted",
        steps: &[Step::Refused(529, "", Trouble::Overloaded); 3],
        flags: &[],
        code: 3,
        events: "error end+ S(1,1) error end+ S(2,2) error end X(false,2) failed",
        keys: &[0, 0, 0],
        says: "Retry failed after 2 attempts: 529 ",
    },
    Case {
        name: "retrying turned off",
        steps: &[Step::Refused(529, "", Trouble::Overloaded)],
        flags: &["--no-retry"],
        code: 3,
        events: FAILED,
        keys: &[0],
        says: "error: overloaded: 529 ",
    },
    Case {
        name: "overflow",
        steps: &[Step::Refused(400, "", Trouble::ContextLength)],
        flags: &[],
        code: 4,
        events: FAILED,
        keys: &[0],
        says: "error: overflow: 400 ",
    },
    Case {
        name: "overflow in a chain",
        steps: &[
            Step::Refused(529, "", Trouble::Overloaded),
            Step::Refused(400, "", Trouble::ContextLength),
        ],
        code: 4,
        events: "error end+ S(1,1) error end X(false,1) failed",
        says: "Retry failed after 1 attempt: 400 ",
        ..RECOVERS
    },
    Case {
        name: "401",
        steps: &[Step::Refused(401, "", Trouble::Auth)],
        flags: &[],
        code: 1,
        events: FAILED,
        keys: &[0],
        says: "error: auth: 401 ",
    },
    Case {
        name: "a key sent back",
        steps: &[Step::EchoKey],
        flags: &[],
        code: 1,
        events: FAILED,
        keys: &[0],
        says: "error: auth: 401 invalid api key: …!",
    },
    Case {
        name: "a redirect",
        steps: &[Step::Redirect],
        flags: &[],
        code: 1,
        events: FAILED,
        keys: &[0],
        says: "redirects are not followed",
    },
    Case {
        name: "a refusal",
        steps: &[Step::Refusal],
        flags: &[],
        code: 1,
        events: FAILED,
        keys: &[0],
        says: "error: content_filter: The model refused to answer",
    },
];

/// Each case with each API: outcome, events, requests, the runtime context at the end; and what is written can be replayed.
#[test]
fn every_failure_on_every_api() {
    let jobs: Vec<_> = CASES
        .iter()
        .flat_map(|case| Api::ALL.map(|api| (case, api)))
        // Its final event is not a marker that servers leave out.
        .filter(|(case, api)| case.steps != [Step::AnswerWithoutEnd] || *api == Api::OpenaiChat)
        .collect();
    let next = AtomicUsize::new(0);
    let failures: Vec<String> = thread::scope(|scope| {
        let worker = || {
            let mut failures = Vec::new();
            while let Some((case, api)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let wrong = play(case, *api);
                if !wrong.is_empty() {
                    let wrong = wrong.join("\n  ");
                    failures.push(format!("{} with {}:\n  {wrong}", case.name, api.flag()));
                }
            }
            failures
        };
        let workers: Vec<_> = (0..8).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("no panic"))
            .collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What is not as the case says.
fn play(case: &Case, api: Api) -> Vec<String> {
    let provider = Provider::start(api, case.steps);
    let (version, path) = api.paths();
    let base_url = format!("http://{}{version}", provider.address);
    let fast = ["--base-delay-ms", "1", "--max-retries", "2"];
    let recommended = case.flags.contains(&"--recommended");
    let flags = if recommended { &[][..] } else { &fast };
    let ran = ask(api, &base_url, &[flags, case.flags].concat());
    let mut wrong = Vec::new();
    let mut check = |what: &str, holds: bool, found: &dyn std::fmt::Debug| {
        if !holds {
            wrong.push(format!("{what}: {found:?}"));
        }
    };
    check(
        "exit code",
        ran.code == Some(case.code),
        &(ran.code, &ran.err),
    );
    let events = notation(&ran.events);
    check(
        "events",
        events == format!("session user {}", case.events),
        &events,
    );
    let asked = provider.asked();
    let keys: Vec<_> = asked.iter().map(key_of).collect();
    check("keys of the requests", keys == case.keys, &keys);
    for asked in asked.iter().filter(|asked| !asked.body.is_null()) {
        check(
            "path",
            asked.path == format!("{version}{path}"),
            &asked.path,
        );
        // Failed messages have been dropped, also the half ones.
        let messages = match api {
            Api::Anthropic | Api::OpenaiChat => &asked.body["messages"],
            Api::OpenaiResponses => &asked.body["input"],
        };
        let prompt = serde_json::json!([{ "role": "user", "content": PROMPT }]);
        check("runtime context", *messages == prompt, messages);
        check("stream", asked.body["stream"] == true, &asked.body);
    }
    if let [first, second] = &asked[..]
        && events.contains("1s+")
    {
        let waited = second.at - first.at;
        check("Retry-After", waited.as_millis() >= 1000, &waited);
    }
    let answer = if case.code == 0 {
        "Hello, world.\n"
    } else {
        ""
    };
    check("answer", ran.out == answer, &ran.out);
    let lines: Vec<_> = ran.events.iter().map(Value::to_string).collect();
    let all = format!("{}{}{}", ran.out, ran.err, lines.concat());
    check(
        "what is said",
        all.contains(case.says),
        &all.get(..2000.min(all.len())),
    );
    check("no key is shown", !all.contains("sekret"), &all);
    check("plain lines", !all.contains('\u{1b}'), &all);
    check("bounded", all.len() < 5 << 20, &all.len());
    let replay = command()
        .args(["replay", "--json"])
        .arg(&ran.file)
        .output()
        .expect("replay runs");
    let told = String::from_utf8(replay.stdout).expect("UTF-8");
    let summary: Value = told
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_default();
    let turns = case.steps.len();
    check(
        "replay",
        replay.status.code() == Some(0) && summary["turns"] == turns && summary["malformed"] == 0,
        &told,
    );
    wrong
}

fn key_of(asked: &Asked) -> usize {
    KEYS.iter().position(|key| *key == asked.key).unwrap_or(9)
}

/// Nobody listens: each attempt is refused, and the last failure is told.
#[test]
fn refused_connection() {
    // Bound and not listening, so that no other process takes the port.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("a port");
    let address = socket.local_addr().expect("an address");
    for api in Api::ALL {
        let base_url = format!("http://{address}{}", api.paths().0);
        let ran = ask(
            api,
            &base_url,
            &["--base-delay-ms", "1", "--max-retries", "2"],
        );
        assert_eq!(ran.code, Some(3), "{}", ran.err);
        let expected =
            "session user error end+ S(1,1) error end+ S(2,2) error end X(false,2) failed";
        assert_eq!(notation(&ran.events), expected);
        assert!(ran.err.contains("Connection refused"), "{}", ran.err);
        assert_eq!(ran.out, "");
    }
}

/// What is wrong is told before anything is asked.
#[test]
fn usage_errors() {
    let missing_folder = own_file("missing").join("events.jsonl");
    let missing_folder = missing_folder.to_str().expect("UTF-8");
    let url = ["--base-url", "http://127.0.0.1:9"];
    let table: &[(&[&str], &str)] = &[
        (
            &["hi"],
            "the environment variable ANTHROPIC_API_KEY is not set or empty; put the key into it, or name the \
             variable that holds one with --key-env",
        ),
        (&["--api", "openai-chat", "hi"], "OPENAI_API_KEY is not set"),
        (
            &[&url[..], &["--key-env", "NO_SUCH_KEY", "hi"]].concat(),
            "NO_SUCH_KEY is not set or empty",
        ),
        (
            &[&url[..], &["--key-env", "BROKEN_KEY", "hi"]].concat(),
            "the key in BROKEN_KEY has characters that no key has",
        ),
        (
            &["--base-url", "localhost:8080", "hi"],
            "--base-url localhost:8080: the scheme `localhost` is unknown; expected a URL such as \
             https://api.anthropic.com",
        ),
        (
            &["--base-url", "http://me:password@[x]/", "hi"],
            "--base-url [x]/: invalid IPv6 address",
        ),
        (
            &["--base-url", "http://host/?key=1", "hi"],
            "it has a query or a fragment",
        ),
        (&[&url[..], &["  "]].concat(), "the prompt is empty"),
        (&[&url[..], &["-"]].concat(), "the prompt is empty"),
        (
            &[&url[..], &["--max-retries", "5000", "hi"]].concat(),
            "retry.maxRetries: 5000 is out of range",
        ),
        (
            &[&url[..], &["--events", missing_folder, "hi"]].concat(),
            "No such file or directory",
        ),
    ];
    for (args, expected) in table {
        let output = command()
            .arg("ask")
            .args(*args)
            .env("BROKEN_KEY", "a\nb-sekret")
            .stdin(Stdio::null())
            .output()
            .expect("ask runs");
        let err = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
        assert!(
            !err.contains("password") && !err.contains("sekret"),
            "{err}"
        );
    }
}

/// An endpoint of the user's own needs no key, and a prompt can come from standard input.
#[test]
fn without_a_key_from_standard_input() {
    let provider = Provider::start(Api::OpenaiChat, &[Step::Answer]);
    let question = own_file("question");
    fs::write(&question, "Line one\nline two\n").expect("a file");
    let output = command()
        .args(["ask", "--api", "openai-chat", "--model", "llama", "-"])
        .arg("--base-url")
        .arg(format!("http://{}/v1/", provider.address))
        .stdin(fs::File::open(&question).expect("the file"))
        .output()
        .expect("ask runs");
    let _ = fs::remove_file(&question);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"Hello, world.\n");
    let asked = &provider.asked()[0];
    assert_eq!(asked.key, "");
    assert_eq!(asked.body["model"], "llama");
    assert_eq!(asked.body["messages"][0]["content"], "Line one\nline two\n");
}

/// Ctrl-C ends a long wait, and a call that hangs.
#[cfg(unix)]
#[test]
fn interrupted() {
    use std::io::{BufRead, BufReader};

    let table: [(&'static [Step], &str, &str); 2] = [
        (
            &[Step::Refused(529, "", Trouble::Overloaded)],
            "Retrying (1/3) in 60s",
            "session user error end+ S(1,60000) X(false,1) cancelled",
        ),
        (
            &[Step::Stall],
            "response",
            "session user aborted end cancelled",
        ),
    ];
    for (steps, sign, events) in table {
        let provider = Provider::start(Api::Anthropic, steps);
        let file = own_file("interrupted");
        let mut child = command()
            .args(["ask", "-v", "--base-delay-ms", "60000", "--base-url"])
            .arg(format!("http://{}", provider.address))
            .arg("--events")
            .arg(&file)
            .arg("hi")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ask starts");
        let mut err = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        assert!(
            err.by_ref().any(|line| line.expect("UTF-8").contains(sign)),
            "{sign} is never said"
        );
        let (_, status) = signal(&mut child, "-INT");
        assert_eq!(status.code(), Some(130));
        let text = fs::read_to_string(&file).expect("the events");
        let _ = fs::remove_file(&file);
        let lines: Vec<_> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(notation(&lines), events);
    }
}
