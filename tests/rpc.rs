//! RPC over JSON lines (SPEC section 11): the protocol in virtual time, and the real process.

mod client;
mod fleet;
mod host;
mod languages;
mod process;
mod protocol;
mod scenarios;
mod schema;
mod traces;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use retry_machine::rpc::Protocol;
use retry_machine::{Ambient, MonotonicMillis, RetrySettings};
use serde_json::Value;

use crate::child::piped;

/// Far more than any answer of these tests takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where lines go to and come from, with its time in milliseconds.
trait Link {
    fn now(&self) -> u64;
    fn send(&mut self, line: &str);
    /// The next line, if one comes until then; without an instant, one must come.
    fn next(&mut self, until: Option<u64>) -> Option<String>;

    fn send_json(&mut self, line: &Value) {
        self.send(&line.to_string());
    }

    fn next_json(&mut self, until: Option<u64>) -> Option<Value> {
        let line = self.next(until)?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}")))
    }
}

/// The protocol in virtual time, which goes on only when nothing else is left to be read.
struct Virtual {
    protocol: Protocol,
    now: u64,
    lines: VecDeque<String>,
}

impl Virtual {
    fn new(settings: RetrySettings) -> Self {
        Self {
            protocol: Protocol::new(settings),
            now: 0,
            lines: VecDeque::new(),
        }
    }

    /// All that a line causes.
    fn ask(&mut self, line: &str) -> Vec<String> {
        self.protocol.line(line.as_bytes(), Ambient::at(self.now))
    }
}

impl Default for Virtual {
    fn default() -> Self {
        Self::new(RetrySettings::default())
    }
}

impl Link for Virtual {
    fn now(&self) -> u64 {
        self.now
    }

    fn send(&mut self, line: &str) {
        let answer = self.ask(line);
        self.lines.extend(answer);
    }

    fn next(&mut self, until: Option<u64>) -> Option<String> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            match (self.protocol.deadline(), until) {
                (Some(MonotonicMillis(due)), until) if until.is_none_or(|until| due <= until) => {
                    self.now = self.now.max(due);
                    self.lines
                        .extend(self.protocol.timer(Ambient::at(self.now)));
                }
                (Some(_) | None, Some(until)) => {
                    self.now = self.now.max(until);
                    return None;
                }
                (Some(_) | None, None) => panic!("nothing comes any more"),
            }
        }
    }
}

/// The real process.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    started: Instant,
}

/// The process, not started yet.
fn rpc() -> Command {
    let mut command = Command::new(binary());
    command.arg("rpc");
    command
}

fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_retry-machine"))
}

impl Process {
    fn start(args: &[&str]) -> Self {
        let mut child = piped(rpc().args(args));
        let stdout = child.stdout.take().expect("a pipe");
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if tell.send(line.expect("UTF-8")).is_err() {
                    return;
                }
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            started: Instant::now(),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("input is open");
        stdin.write_all(bytes).expect("the process reads");
    }

    /// Closes its input and returns the lines that are left, its exit code and what it said on standard error.
    fn finish(mut self) -> (Vec<String>, Option<i32>, String) {
        self.stdin = None;
        let mut rest = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            rest.push(line);
        }
        let output = self.child.wait_with_output().expect("it has ended");
        let diagnostics = String::from_utf8_lossy(&output.stderr).into_owned();
        (rest, output.status.code(), diagnostics)
    }
}

impl Link for Process {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).expect("some milliseconds")
    }

    fn send(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    fn next(&mut self, until: Option<u64>) -> Option<String> {
        let timeout = until.map_or(PATIENCE, |until| {
            Duration::from_millis(until.saturating_sub(self.now()))
        });
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Some(line),
            Err(_) if until.is_some() => None,
            Err(error) => panic!("no line: {error}"),
        }
    }
}

/// A line in the notation of the specification; None for a response.
fn notation(line: &Value) -> Option<String> {
    let number = |key: &str| {
        line[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} in {line}"))
    };
    Some(match line["type"].as_str().expect("a type") {
        "auto_retry_start" => format!("S({},{})", number("attempt"), number("delayMs")),
        "auto_retry_end" if line["success"] == true => format!("X(true,{})", number("attempt")),
        "auto_retry_end" => format!("X(false,{},{})", number("attempt"), line["finalError"]),
        "effect" => match line["effect"].as_str().expect("an effect") {
            "switchCredential" if line["retryAfterMs"].is_null() => "switch".to_owned(),
            "switchCredential" => format!("switch({})", number("retryAfterMs")),
            "dropFailedMessage" => "drop".to_owned(),
            "continueAgent" => "cont".to_owned(),
            "abortAgent" => "abort agent".to_owned(),
            "checkCompaction" if line["cause"] == "overflow" => "cmp(overflow)".to_owned(),
            "checkCompaction" => "cmp".to_owned(),
            other => panic!("effect {other}"),
        },
        "response" => return None,
        other => panic!("type {other}"),
    })
}
