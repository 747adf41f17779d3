//! The command line as a real child process: replay, classify, step, schema; exit codes and hostile input.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::child::fed;
use crate::support::shared;

/// What a run of the command printed, and its exit code.
#[derive(Debug)]
struct Ran {
    out: String,
    err: String,
    code: i32,
}

impl Ran {
    /// Its output as JSON lines.
    fn json(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }

    fn of_type(&self, kind: &str) -> Vec<Value> {
        self.json()
            .into_iter()
            .filter(|line| line["type"] == kind)
            .collect()
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_retry-machine"));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("NO_COLOR", "1");
    command
}

fn run(args: &[&str], input: &[u8]) -> Ran {
    // A reader that ends early closes the pipe: that is its business.
    let (output, _) = fed(command().args(args), input.to_vec());
    Ran {
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
        code: output.status.code().unwrap_or(-1),
    }
}

/// A folder for the files of one test, removed afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("retry-machine-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

mod replay {
    use super::*;

    /// The README's first command: a recovered, an exhausted and a delegated failure.
    #[test]
    fn timeline() {
        let ran = run(&["replay", "tests/data/runs/a-day.jsonl"], b"");
        insta::assert_snapshot!(ran.out);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    }

    #[test]
    fn json_lines() {
        let ran = run(
            &["replay", "--json", "tests/data/runs/two-faults.jsonl"],
            b"",
        );
        insta::assert_snapshot!(ran.out);
        assert_eq!(ran.code, 0);
    }

    /// Malformed lines are named and counted, everything else is done.
    #[test]
    fn damaged_lines() {
        let ran = run(&["replay", "tests/data/runs/damaged.jsonl"], b"");
        insta::assert_snapshot!(format!("{}\n{}", ran.out, ran.err));
        assert_eq!(ran.code, 1);
    }

    #[test]
    fn one_branch_of_a_history() {
        for (leaf, failures, differences) in [("e5", 1, 0), ("e8", 2, 1)] {
            let file = "tests/data/history/two-branches.jsonl";
            let summary = run(&["replay", "--json", "--leaf", leaf, file], b"").of_type("summary");
            assert_eq!(summary[0]["failures"], failures, "{leaf}");
            assert_eq!(summary[0]["differences"], differences, "{leaf}");
        }
        let whole = run(
            &["replay", "--json", "tests/data/history/two-branches.jsonl"],
            b"",
        );
        assert_eq!(whole.of_type("summary")[0]["turns"], 4);
        let unknown = run(
            &[
                "replay",
                "--leaf",
                "e99",
                "tests/data/history/two-branches.jsonl",
            ],
            b"",
        );
        assert_eq!(unknown.code, 1);
        assert!(
            unknown.err.contains("no entry with the id e99"),
            "{}",
            unknown.err
        );
        assert_eq!(run(&["replay", "--leaf", "e5", "-"], b"").code, 2);
    }

    /// Flags, else a file, else what the recording shows, else the defaults.
    #[test]
    fn settings() {
        let folder = Folder::new("settings");
        let file = folder.file(
            "s.json",
            br#"{"retry":{"maxRetries":1},"theme":{"dark":true}}"#,
        );
        let settings = |args: &[&str]| {
            let mut all = vec!["replay", "--json", "tests/data/runs/a-day.jsonl"];
            all.extend(args);
            let ran = run(&all, b"");
            let session = ran.of_type("session").remove(0)["settings"].clone();
            (
                session["maxRetries"].clone(),
                session["baseDelayMs"].clone(),
                session["enabled"].clone(),
            )
        };
        assert_eq!(settings(&[]), (json!(2), json!(1000), json!(true)));
        assert_eq!(
            settings(&["--settings", &file]),
            (json!(1), json!(1000), json!(true))
        );
        assert_eq!(
            settings(&["--settings", &file, "--max-retries", "7"]),
            (json!(7), json!(1000), json!(true))
        );
        assert_eq!(
            settings(&["--base-delay-ms", "5", "--no-retry"]),
            (json!(2), json!(5), json!(false))
        );
        assert_eq!(
            settings(&["--recommended"]),
            (json!(6), json!(1000), json!(true))
        );
        for (content, told) in [
            (
                r#"{"retry":{"maxRetrys":1}}"#,
                "retry.maxRetrys: unknown key; did you mean `maxRetries`?",
            ),
            (
                r#"{"retry":{"maxRetries":5000}}"#,
                "retry.maxRetries: 5000 is out of range; expected an integer from 0 to 1000",
            ),
            (
                r#"{"retry":{"enabled":1}}"#,
                "retry.enabled: 1 has the wrong type; expected true or false",
            ),
            (
                r#"{"retry":{"baseDelayMs":2.5}}"#,
                "retry.baseDelayMs: 2.5 is not right",
            ),
            ("{", "EOF"),
        ] {
            let file = folder.file("bad.json", content.as_bytes());
            let ran = run(
                &["replay", "--settings", &file, "tests/data/runs/a-day.jsonl"],
                b"",
            );
            assert_eq!(ran.code, 2, "{content}");
            assert!(ran.err.contains(told), "{}", ran.err);
        }
        assert_eq!(run(&["replay", "--max-retries", "5000", "x"], b"").code, 2);
    }

    #[test]
    fn fail_on_difference() {
        let file = "tests/data/runs/two-faults.jsonl";
        assert_eq!(run(&["replay", file], b"").code, 0);
        assert_eq!(run(&["replay", "--fail-on-difference", file], b"").code, 3);
        assert_eq!(
            run(
                &[
                    "replay",
                    "--fail-on-difference",
                    "tests/data/runs/a-day.jsonl"
                ],
                b""
            )
            .code,
            0
        );
    }

    /// Exhaustion and other delays are no differences; a budget that nobody gave is not held against a history.
    #[test]
    fn what_is_no_difference() {
        let differences = |args: &[&str]| {
            let mut all = vec!["replay", "--json"];
            all.extend(args);
            run(&all, b"").of_type("summary")[0]["differences"].clone()
        };
        let day = "tests/data/runs/a-day.jsonl";
        for flags in [
            &["--max-retries", "1"][..],
            &["--max-retries", "9"],
            &["--base-delay-ms", "60000"],
            &["--recommended"],
        ] {
            assert_eq!(differences(&[flags, &[day]].concat()), 0, "{flags:?}");
        }
        // With retrying off each retry of the recording is one.
        assert_eq!(differences(&["--no-retry", day]), 3);
        let Some(history) = shared("recordings/history/fan-overloaded-9.jsonl") else {
            return;
        };
        let history = history.display().to_string();
        assert_eq!(differences(&[&history]), 0);
        assert_eq!(differences(&["--max-retries", "3", &history]), 1);
        assert_eq!(differences(&["--max-retries", "2", &history]), 0);
    }

    /// The 132 runs and four histories of a published agent.
    #[test]
    fn recordings() {
        let Some(folder) = shared("recordings") else {
            return;
        };
        let list = |folder: &Path| {
            let mut files: Vec<_> = fs::read_dir(folder)
                .expect("a folder")
                .map(|entry| entry.expect("an entry").path().display().to_string())
                .filter(|path| path.ends_with(".jsonl") && !path.ends_with("labelled.jsonl"))
                .collect();
            files.sort();
            files
        };
        let files = list(&folder);
        assert_eq!(files.len(), 132);
        let mut args = vec!["replay", "--json"];
        args.extend(files.iter().map(String::as_str));
        let ran = run(&args, b"");
        let differences = ran.of_type("difference");
        let mut by_kind = std::collections::BTreeMap::new();
        let mut with_difference = std::collections::BTreeSet::new();
        for difference in &differences {
            let file = difference["file"].as_str().expect("a name");
            let kind = file
                .rsplit('/')
                .next()
                .and_then(|name| name.split('-').nth(1))
                .expect("a kind");
            *by_kind.entry(kind.to_owned()).or_insert(0) += 1;
            with_difference.insert(file.to_owned());
            assert_eq!(difference["recorded"], "retry");
        }
        assert_eq!((differences.len(), with_difference.len()), (45, 30));
        let kinds = ["oaauth", "oabig", "oaparam", "or402", "toolid"];
        assert_eq!(
            by_kind,
            kinds.iter().map(|kind| ((*kind).to_owned(), 9)).collect()
        );
        let summary = &ran.of_type("summary")[0];
        assert_eq!(
            (
                &summary["files"],
                &summary["differences"],
                &summary["malformed"]
            ),
            (&json!(132), &json!(45), &json!(0))
        );
        for file in list(&folder.join("history")) {
            let expected = if file.ends_with("three-prompts.jsonl") {
                2
            } else {
                0
            };
            assert_eq!(
                run(&["replay", "--json", &file], b"").of_type("summary")[0]["differences"],
                expected,
                "{file}"
            );
        }
    }

    /// Files that cannot be read, or hold nothing, are named; the others are done.
    #[test]
    fn what_cannot_be_read() {
        let folder = Folder::new("unreadable");
        let empty = folder.file("empty.jsonl", b"");
        let blank = folder.file("blank.jsonl", "\n".repeat(1_000_000).as_bytes());
        let folder_name = folder.0.display().to_string();
        let args = [
            "replay",
            "nowhere.jsonl",
            &folder_name,
            &empty,
            &blank,
            "tests/data/runs/a-day.jsonl",
        ];
        let ran = run(&args, b"");
        assert_eq!(ran.code, 1);
        assert!(
            ran.out.contains("recovered after 1 retry"),
            "the rest is done"
        );
        for told in [
            "nowhere.jsonl: ",
            "is a directory",
            "empty.jsonl: no messages in it",
            "blank.jsonl: no messages in it",
        ] {
            assert!(ran.err.contains(told), "{told}: {}", ran.err);
        }
        assert_eq!(run(&["replay", "tests/data/runs/a-day.jsonl"], b"").code, 0);
    }

    /// A line above the limit is passed over, and one of 100 MB is no trouble.
    #[test]
    fn long_lines() {
        let day = fs::read("tests/data/runs/a-day.jsonl").expect("a run");
        let mut input = vec![b'x'; 100 << 20];
        input.push(b'\n');
        input.extend(&day);
        let ran = run(&["replay", "-"], &input);
        assert_eq!(ran.code, 1);
        assert!(
            ran.err.contains("-:1: longer than 67108864 bytes"),
            "{}",
            ran.err
        );
        assert!(ran.out.contains("recovered after 1 retry"));
        let ran = run(
            &["replay", "--max-line", "400", "tests/data/runs/a-day.jsonl"],
            b"",
        );
        assert_eq!(ran.code, 1);
    }

    /// Whoever reads our output may stop reading.
    #[test]
    fn closed_pipe() {
        let line = fs::read_to_string("tests/data/runs/a-day.jsonl").expect("a run");
        let folder = Folder::new("closed-pipe");
        let file = folder.file("long.jsonl", line.repeat(2000).as_bytes());
        for command_line in [
            vec!["replay", "--json", &file],
            vec!["classify", "--batch", "tests/data/errors.jsonl"],
        ] {
            let mut child = command()
                .args(&command_line)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the command starts");
            drop(child.stdout.take());
            let output = child.wait_with_output().expect("the command ends");
            assert_eq!(
                output.status.code(),
                Some(0),
                "{command_line:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

mod classify {
    use super::*;

    #[test]
    fn for_people() {
        let text = "429 {\"error\":{\"message\":\"Rate limit reached for nova-2: Limit 30000, Used 29937. Please try again in 644ms.\",\"code\":\"rate_limit_exceeded\"},\"param\":\"context_length_exceeded\"}";
        let ran = run(&["classify", text], b"");
        insta::assert_snapshot!(ran.out);
        assert_eq!(ran.code, 0);
    }

    #[test]
    fn json() {
        let ran = run(&["classify", "--json", "529 overloaded"], b"");
        let whole = &ran.json()[0];
        assert_eq!(whole["class"], "overloaded");
        assert_eq!(whole["span"], json!([4, 14]));
        assert_eq!(
            whole["signals"][0],
            json!({"kind":"status","text":"529","span":{"start":0,"end":3}})
        );
        assert_eq!(whole["lost"][0]["rule"], "status-529");
    }

    #[test]
    fn further_signals() {
        let class = |args: &[&str]| {
            let mut all = vec!["classify", "--json"];
            all.extend(args);
            let ran = run(&all, b"");
            (
                ran.json()[0]["class"].clone(),
                ran.json()[0]["retryAfterMs"].clone(),
            )
        };
        assert_eq!(
            class(&["--status", "429", "--header", "Retry-After: 5", "no"]),
            (json!("rate_limit"), json!(5000))
        );
        assert_eq!(
            class(&["--code", "insufficient_quota", "no"]),
            (json!("billing"), json!(null))
        );
        for bad in [
            &["classify", "--status", "42", "x"][..],
            &["classify", "--header", "nothing", "x"],
            &["classify", "--fly"],
        ] {
            assert_eq!(run(bad, b"").code, 2, "{bad:?}");
        }
    }

    /// Standard input, bytes that are no UTF-8, and nothing at all.
    #[test]
    fn from_standard_input() {
        assert!(
            run(&["classify", "-"], b"503 Service Unavailable")
                .out
                .contains("server_error")
        );
        assert!(
            run(&["classify"], b"\xff\xfe overloaded")
                .out
                .contains("overloaded")
        );
        for empty in [&b""[..], b" \n"] {
            let ran = run(&["classify", "-"], empty);
            assert_eq!(ran.code, 1);
            assert!(ran.err.contains("empty"));
        }
    }

    /// One line for each, in order, all keys always; a bad line says why.
    #[test]
    fn batch() {
        let input = concat!(
            "{\"id\":\"a\",\"message\":\"prompt is too long\",\"extra\":1}\n",
            "\n",
            "{\"id\":7,\"message\":\"x\",\"status\":429,\"headers\":{\"Retry-After\":\"1.2345\"},\"nowMs\":1000}\r\n",
            "{\"message\":\"x\",\"status\":null,\"code\":null,\"headers\":null,\"provider\":null,\"nowMs\":null,\"id\":null}\n",
            "{\"id\":\"c\",\"message\":5}\n",
            "{\"id\":\"d\"}\n",
            "{\"id\":\"e\",\"message\":\"x\",\"status\":99999}\n",
            "nonsense\n",
            "[1]\n",
            "{\"id\":\"f\",\"message\":\"cut \\ud83d overloaded\"}\n",
            "{\"id\":\"g\",\"message\":\"limit resets at 2026-12-01T00:00:00Z\",\"status\":429,\"nowMs\":1796083200000}\n",
            "{\"id\":\"h\",\"message\":\"x\",\"headers\":[[\"retry-after-ms\",250]],\"status\":503}",
        );
        let ran = run(&["classify", "--batch", "-"], input.as_bytes());
        assert_eq!(ran.code, 1);
        insta::assert_snapshot!(ran.out);
    }

    #[test]
    fn batch_without_faults_exits_with_0() {
        let folder = Folder::new("batch");
        let good = folder.file("good.jsonl", b"{\"message\":\"503\"}\n");
        assert_eq!(run(&["classify", "--batch", &good], b"").code, 0);
        let empty = folder.file("empty.jsonl", b"\n");
        assert_eq!(run(&["classify", "--batch", &empty], b"").code, 1);
        assert_eq!(run(&["classify", "--batch", "nowhere.jsonl"], b"").code, 1);
    }

    #[test]
    fn corpus() {
        let ran = run(
            &["classify", "--corpus", "tests/data/errors.jsonl", "--json"],
            b"",
        );
        let score = &ran.json()[0];
        assert_eq!(score["action"]["right"], score["action"]["all"]);
        assert_eq!(
            (score["class"]["right"].clone(), ran.code),
            (score["class"]["all"].clone(), 0)
        );
        let labelled = concat!(
            "{\"id\":\"right\",\"message\":\"529 overloaded\",\"class\":\"overloaded\"}\n",
            "{\"id\":\"also\",\"message\":\"529 overloaded\",\"class\":\"network\",\"also\":[\"overloaded\"]}\n",
            "{\"id\":\"class\",\"message\":\"529 overloaded\",\"class\":\"network\"}\n",
            "{\"id\":\"both\",\"message\":\"529 overloaded\",\"class\":\"auth\"}\n",
            "{\"id\":\"switch\",\"message\":\"usage limit\",\"class\":\"billing\"}\n",
            "{\"id\":\"unknown\",\"message\":\"hm\",\"class\":\"other_fatal\"}\n",
            "{\"id\":\"no label\",\"message\":\"hm\"}\n",
        );
        let ran = run(&["classify", "--corpus", "-"], labelled.as_bytes());
        insta::assert_snapshot!(format!("{}\n{}", ran.out, ran.err));
        assert_eq!(ran.code, 1);
    }

    /// Rules of the user's own, and what is refused in them.
    #[test]
    fn user_rules() {
        let folder = Folder::new("rules");
        let good = "[[rule]]\nid = \"asleep\"\nclass = \"server_error\"\nmatch.text = 'gateway (is )?asleep'\n\
                    samples.match = [\"the gateway is asleep\"]\nsamples.miss = [\"the user is asleep\"]\n";
        let file = folder.file("good.toml", good.as_bytes());
        let ran = run(
            &[
                "classify",
                "--json",
                "--rules",
                &file,
                "Gateway asleep, quota exceeded",
            ],
            b"",
        );
        let verdict = &ran.json()[0];
        assert_eq!(
            (&verdict["rule"], &verdict["span"]),
            (&json!("asleep"), &json!([0, 14]))
        );
        let lost = verdict["lost"].as_array().expect("a list");
        assert!(
            lost.iter()
                .any(|lost| lost["why"] == "comes after `asleep`"),
            "{lost:?}"
        );
        for (line, replacement, told) in [
            (
                "class = \"server_error\"",
                "class = \"sleepy\"",
                ":3: rule `asleep`: unknown class `sleepy`; expected one of `overloaded`",
            ),
            (
                "match.text = 'gateway (is )?asleep'",
                "match.text = '('",
                ":2: rule `asleep`: match.text: regex parse error",
            ),
            (
                "match.text = 'gateway (is )?asleep'",
                "match.phrase = ['Gateway']",
                ":2: rule `asleep`: match.phrase: pattern `Gateway`: `G`",
            ),
            (
                "match.text = 'gateway (is )?asleep'",
                "match.text = 'asleep'",
                ":2: rule `asleep`: decides \"the user is asleep\", which it must not",
            ),
            (
                "match.text = 'gateway (is )?asleep'",
                "match.text = 'awake'",
                ":2: rule `asleep`: does not decide its sample",
            ),
            (
                "match.text = 'gateway (is )?asleep'",
                "match.text = 'asleep|over'",
                "which the built-in rule `",
            ),
            (
                "match.text = 'gateway (is )?asleep'",
                "match.status = []",
                ":2: rule `asleep`: `match` is empty",
            ),
            ("samples.miss", "samples.mis", ":6: unknown field `mis`"),
            (
                "id = \"asleep\"",
                "id = \"billing\"",
                ":2: rule `billing`: there is a rule of that name already",
            ),
            (
                "id = \"asleep\"",
                "id = \"asleep\"\noverrides = [\"biling\"]",
                ":3: rule `asleep`: overrides `biling`, which is no built-in rule; did you mean `billing`?",
            ),
            ("[[rule]]", "[[rule", ":1: "),
        ] {
            let mut bad = good.replace(line, replacement);
            if told.contains("built-in rule `") && !told.contains("no built-in") {
                bad = bad.replace("samples.miss = [\"the user is asleep\"]\n", "");
            }
            let file = folder.file("bad.toml", bad.as_bytes());
            let ran = run(&["classify", "--rules", &file, "x"], b"");
            assert_eq!(ran.code, 2, "{bad}");
            assert!(ran.err.contains(told), "wanted {told:?}, got {}", ran.err);
        }
        assert_eq!(
            run(&["classify", "--rules", "nowhere.toml", "x"], b"").code,
            2
        );
    }
}

mod step {
    use super::*;

    #[test]
    fn a_chain_from_failure_to_success() {
        let input = concat!(
            "{\"input\":\"assistantMessage\",\"message\":{\"stopReason\":\"error\",\"errorMessage\":\"usage limit retry-after-ms=700\"},\"contextWindow\":200000,\"nowMs\":0,\"entropy\":0}\n",
            "{\"input\":\"credentialSwitched\",\"switched\":false,\"nowMs\":5}\n",
            "\n",
            "{\"input\":\"timerFired\",\"timer\":1,\"nowMs\":2005}\n",
            "{\"input\":\"timerFired\",\"nowMs\":2005}\n",
            "{\"input\":\"continueFailed\",\"run\":99,\"error\":\"x\"}\n",
            "{\"input\":\"continueFailed\",\"error\":\"gone\"}\r\n",
            "{\"input\":\"settingsChanged\",\"settings\":{\"events\":\"extended\"}}\n",
            "{\"input\":\"assistantMessage\",\"message\":{\"stopReason\":\"error\",\"errorMessage\":\"cut \\ud800 overloaded\",\"usage\":null},\"nowMs\":9000}\n",
            "{\"input\":\"abortRetry\"}\n",
            "{\"input\":\"abort\"}\n",
            "{\"input\":\"promptStarted\"}",
        );
        let ran = run(&["step"], input.as_bytes());
        insta::assert_snapshot!(ran.out);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    }

    /// Bad lines are answered and change nothing; the exit code stays 0.
    #[test]
    fn bad_lines() {
        let lines = [
            "{",
            "[]",
            "5",
            "\"abort\"",
            "{}",
            "{\"input\":\"fly\"}",
            "{\"input\":\"abrot\"}",
            "{\"input\":\"abort\",\"timer\":1}",
            "{\"input\":\"abort\",\"colour\":1}",
            "{\"input\":\"abort\",\"nowMs\":-1}",
            "{\"input\":\"abort\",\"nowMs\":1.5}",
            "{\"input\":\"abort\",\"entropy\":9007199254740993}",
            "{\"input\":\"assistantMessage\"}",
            "{\"input\":\"assistantMessage\",\"message\":{}}",
            "{\"input\":\"assistantMessage\",\"message\":{\"stopReason\":\"melted\"}}",
            "{\"input\":\"assistantMessage\",\"message\":{\"role\":\"user\",\"stopReason\":\"stop\"}}",
            "{\"input\":\"credentialSwitched\"}",
            "{\"input\":\"settingsChanged\",\"settings\":{\"maxRetries\":-1}}",
            "{\"input\":\"settingsChanged\",\"settings\":{\"delay\":{\"jiter\":true}}}",
            "{\"input\":\"settingsChanged\",\"settings\":{\"delay\":3}}",
            "{\"input\":\"settingsChanged\"}",
            "\u{0}",
        ];
        let mut input = lines.join("\n").into_bytes();
        input.extend(b"\n\xff\xfe\n{\"input\":\"abortRetry\"}\n");
        let ran = run(&["step"], &input);
        assert_eq!(ran.code, 0);
        let answers: Vec<&str> = ran.out.lines().collect();
        assert_eq!(answers.len(), lines.len() + 2);
        let (last, bad) = answers.split_last().expect("answers");
        assert_eq!(*last, "{\"effects\":[],\"state\":\"idle\",\"attempt\":0}");
        insta::assert_snapshot!(bad.join("\n"));
    }

    /// Each answer comes before the next input is needed.
    #[test]
    fn answers_are_flushed() {
        use std::io::{BufRead, BufReader};
        let mut child = command()
            .arg("step")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        for _ in 0..3 {
            stdin
                .write_all(b"{\"input\":\"abortRetry\"}\n")
                .expect("written");
            let mut line = String::new();
            stdout.read_line(&mut line).expect("an answer");
            assert!(line.starts_with("{\"effects\":[]"), "{line}");
        }
        drop(stdin);
        assert_eq!(child.wait().expect("the end").code(), Some(0));
    }

    /// The 600 traces, by the player that stands beside them.
    #[test]
    fn traces() {
        let (Some(player), Some(traces)) =
            (shared("oracle/play.py"), shared("oracle/traces.jsonl"))
        else {
            return;
        };
        let Ok(output) = Command::new("python3")
            .arg(player)
            .arg(traces)
            .args([env!("CARGO_BIN_EXE_retry-machine"), "step"])
            .output()
        else {
            eprintln!("SKIPPED: no python3");
            return;
        };
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("600/600 traces as recorded"), "{told}");
    }
}

/// Every command has help with an example, and usage errors exit with 2.
#[test]
fn help() {
    for name in [
        "demo", "ask", "replay", "classify", "policy", "step", "rpc", "schema",
    ] {
        let ran = run(&[name, "--help"], b"");
        assert_eq!(ran.code, 0);
        assert!(ran.out.contains("Example"), "{name}");
    }
    assert_eq!(run(&["fly"], b"").code, 2);
    assert_eq!(run(&["replay"], b"").code, 2);
}

/// What is printed for people cannot move the cursor, and shows no keys.
#[test]
fn hostile_text_for_people() {
    let text =
        "\u{1b}[2J\u{202e}401 invalid api key sk-abcdefghijklmnop1234 of ines@harbor.example \u{7}";
    let ran = run(&["classify", text], b"");
    for bad in ["\u{1b}", "\u{202e}", "\u{7}", "abcdefghijklmnop", "ines@"] {
        assert!(!ran.out.contains(bad), "{bad:?} in {}", ran.out);
    }
}

mod manuals {
    use super::*;

    /// Taken from the help, so that a new command cannot be forgotten.
    fn commands() -> Vec<String> {
        let help = run(&["--help"], b"").out;
        let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
        let (list, _) = list.split_once("\n\n").expect("the end of the list");
        let names = list.lines().filter_map(|line| {
            let name = line.strip_prefix("  ")?.split(' ').next()?;
            (!name.is_empty()).then(|| name.to_owned())
        });
        names.collect()
    }

    #[test]
    fn completions_of_each_shell() {
        let commands = commands();
        assert!(commands.contains(&"replay".to_owned()), "{commands:?}");
        for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
            let ran = run(&["completions", shell], b"");
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}");
            for word in commands.iter().map(String::as_str).chain(["max-retries"]) {
                assert!(ran.out.contains(word), "{shell}: {word}");
            }
        }
        assert_eq!(run(&["completions", "csh"], b"").code, 2);
    }

    #[test]
    fn manual_of_all_commands() {
        let ran = run(&["man"], b"");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        for command in commands().iter().filter(|command| *command != "help") {
            let heading = format!(".SH RETRY\\-MACHINE\\-{}", command.to_uppercase());
            assert!(ran.out.contains(&heading), "{heading}");
        }
        assert!(ran.out.contains(r"\-\-max\-retries"));
    }
}
