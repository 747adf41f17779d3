//! The tour, and its provider for other agents.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use super::{Api, KEYS, ask, command, notation, own_file};

const SCENARIOS: [&str; 8] = [
    "overloaded",
    "rate-limit",
    "usage-limit-two-keys",
    "gateway-page",
    "cut-stream",
    "overflow",
    "auth",
    "storm",
];

/// Settings under which nothing waits, and a budget that a storm does not use up.
const FAST: &str =
    r#"{"retry":{"baseDelayMs":0,"delay":{"serverDelay":"ignore","minTransportDelayMs":0}}}"#;

/// Each scenario is announced and told; what must fail fails, and the tour ends well. Without a terminal all lines
/// are plain.
#[test]
fn tour() {
    let settings = own_file("settings.json");
    fs::write(&settings, FAST).expect("a file");
    for api in Api::ALL {
        let output = command()
            .args([
                "demo",
                "--word-delay-ms",
                "0",
                "--api",
                api.flag(),
                "--settings",
            ])
            .arg(&settings)
            .stdin(Stdio::null())
            .output()
            .expect("demo runs");
        let out = String::from_utf8(output.stdout).expect("UTF-8");
        let err = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(0), "{out}{err}");
        assert!(
            !out.contains('\u{1b}') && !err.contains('\u{1b}'),
            "{out}{err}"
        );
        let parts: Vec<_> = out.split("\n\n").skip(1).collect();
        let ends = [
            "Yes. I was busy for a moment.\nAnswered: 3 requests, 2 retries.",
            "Now is a good time.\nAnswered: 2 requests, 1 retry.",
            "With this key, yes.\nAnswered: 2 requests, 1 retry.",
            "A gateway's apology. Never mind it.\nAnswered: 2 requests, 1 retry.",
            "One, two, three, four, five, six, seven, eight, nine, ten.\nAnswered: 2 requests, 1 retry.",
            "At the end of a long conversation, of which I know the last part.\nAnswered: 2 requests, 0 retries.",
            "> May I come in?\nFailed (auth): 1 request, 0 retries; `ask` exits with 1.",
            "Yes. Five failures, one answer.\nAnswered: 6 requests, 5 retries.",
        ];
        assert_eq!(parts.len(), SCENARIOS.len(), "{out}");
        for ((at, (part, scenario)), end) in parts.iter().zip(SCENARIOS).enumerate().zip(ends) {
            assert!(
                part.starts_with(&format!("{}/8 {scenario}: ", at + 1)),
                "{part}"
            );
            assert!(part.trim_end().ends_with(end), "{part}");
        }
        for said in [
            "Retrying (2/",
            "The first key has reached its usage limit; going on with the second key",
            "The context does not fit: 24 older messages are cut",
            "error: auth: 401 ",
        ] {
            assert!(err.contains(said), "{said}: {err}");
        }
        if api == Api::Anthropic {
            let told: Vec<_> = out.lines().chain(err.lines()).collect();
            for line in readme_tour()
                .lines()
                .filter(|line| !line.starts_with("Retrying"))
            {
                assert!(told.contains(&line), "README.md: {line}");
            }
        }
    }
    let _ = fs::remove_file(&settings);
}

/// The tour as the README shows it; how long it waits there is left to jitter.
fn readme_tour() -> String {
    let readme = include_str!("../../README.md");
    let start = readme.find("```text\n8 ways").expect("the tour");
    let (_, tour) = readme[start..].split_once('\n').expect("a fence");
    tour.split("```").next().unwrap_or_default().to_owned()
}

/// A scenario by its name exits as `ask` would.
#[test]
fn one_scenario() {
    for (args, code, end) in [
        (&["auth"][..], 1, "`ask` exits with 1."),
        (
            &["overloaded", "--max-retries", "1", "--base-delay-ms", "0"],
            3,
            "`ask` exits with 3.",
        ),
    ] {
        // The class has a budget of its own among the recommended settings.
        let settings = own_file("settings.json");
        fs::write(
            &settings,
            r#"{"retry":{"classes":{"overloaded":{"maxRetries":1}}}}"#,
        )
        .expect("a file");
        let output = command()
            .args(["demo", "--word-delay-ms", "0", "--settings"])
            .arg(&settings)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .expect("demo runs");
        let _ = fs::remove_file(&settings);
        let out = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(output.status.code(), Some(code), "{out}");
        assert!(out.trim_end().ends_with(end), "{out}");
    }
}

/// `demo --serve`, ended with the test.
struct Served {
    child: Child,
    _out: BufReader<ChildStdout>,
    urls: Vec<(String, String)>,
}

impl Served {
    fn start() -> Self {
        let mut child = command()
            .args(["demo", "--serve", "0", "--word-delay-ms", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("demo starts");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = Vec::new();
        for _ in 0..SCENARIOS.len() + 2 {
            let mut line = String::new();
            out.read_line(&mut line).expect("a line");
            lines.push(line);
        }
        let urls = lines[1..=SCENARIOS.len()].iter().map(|line| {
            let (anthropic, openai) = line.trim().split_once(' ').expect("two URLs");
            (anthropic.to_owned(), openai.trim().to_owned())
        });
        Self {
            child,
            _out: out,
            urls: urls.collect(),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The provider serves `ask` in all three APIs, as it would any other agent.
#[test]
fn served() {
    let served = Served::start();
    for (scenario, urls) in SCENARIOS.iter().zip(&served.urls) {
        assert!(urls.0.ends_with(&format!("/{scenario}")), "{urls:?}");
    }
    let url = |scenario: &str, api: Api| {
        let at = SCENARIOS.iter().position(|name| *name == scenario);
        let (anthropic, openai) = &served.urls[at.expect("a scenario")];
        match api {
            Api::Anthropic => anthropic,
            Api::OpenaiChat | Api::OpenaiResponses => openai,
        }
    };
    let fast = ["--base-delay-ms", "1"];
    for api in Api::ALL {
        let ran = ask(api, url("overloaded", api), &fast);
        let expected =
            "session user error end+ S(1,1) error end+ S(2,2) stop X(true,2) end answered";
        assert_eq!(
            (ran.code, notation(&ran.events).as_str()),
            (Some(0), expected),
            "{}",
            ran.err
        );
        assert_eq!(ran.out, "Yes. I was busy for a moment.\n");
        let ran = ask(api, url("auth", api), &fast);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
    }
    let count = |path: &str| -> Value {
        let host = served.urls[0].0.trim_start_matches("http://");
        let host = host.split('/').next().expect("a host");
        let mut stream = TcpStream::connect(host).expect("a connection");
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {host}\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let body = text.split_once("\r\n\r\n").expect("a body").1;
        serde_json::from_str(body).expect("JSON")
    };
    let counts = count("/requests");
    assert_eq!(
        (&counts["overloaded"], &counts["auth"], &counts["storm"]),
        (&9.into(), &3.into(), &0.into())
    );
    assert_eq!(
        count("/nowhere")["error"]["paths"].as_array().map(Vec::len),
        Some(8)
    );
    // One key that is not the first that came.
    let limited = url("usage-limit-two-keys", Api::Anthropic);
    let ran = ask(Api::Anthropic, limited, &["--max-retries", "0"]);
    assert_eq!(ran.code, Some(5), "{}", ran.err);
    let ran = ask(Api::Anthropic, limited, &["--key-env", "SECOND_KEY"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(!ran.err.contains(KEYS[0]));
}
