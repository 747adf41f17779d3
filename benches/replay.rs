//! `retry-machine replay` as a user runs it, a process with its reading and its output, against `serde_json` merely
//! parsing the same lines into the same type.

#![allow(clippy::disallowed_methods, reason = "a bench has a clock")]
#![allow(missing_docs, reason = "a bench has no outside")]

mod figures;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use figures::Target::{AtLeast, AtMost, None as Compare};
use figures::{Bench, Table, measuring};
use retry_machine::wire::AgentLine;
use retry_machine::{LossyString, Produced, Usage};
use serde::Deserialize;

const MEGABYTE: u64 = 1 << 20;
/// What is replayed for its speed, and for the least of its memory.
const SIZE: u64 = 64 * MEGABYTE;

fn main() {
    if !measuring() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("retry-machine-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the recording");
    let file = folder.join("run.jsonl");
    let measured = write_run(&file, SIZE).map(|()| measure(&file));
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    measured.expect("the recording can be written");
}

fn measure(file: &Path) {
    let mut bench = Bench::new(2000);
    let mut table = Table::new("replay");
    let megabytes = |ns: f64| SIZE as f64 / 1e6 / (ns / 1e9);
    let replay = bench.time("replay 64 MB", || {
        let status = command(file).status().expect("replay runs");
        assert!(status.success());
    });
    let parse = bench.time("serde_json: the same lines into the same type", || {
        lines(file, |line| {
            serde_json::from_slice::<Line>(line).map_err(|error| error.to_string())
        })
    });
    let read = bench.time("AgentLine::parse: the same lines", || {
        lines(file, AgentLine::parse)
    });
    let speed = |ns: Option<f64>| ns.map(megabytes);
    table.figure("replay, 64 MB", speed(replay), " MB/s", Compare);
    table.figure("serde_json alone", speed(parse), " MB/s", Compare);
    table.ratio(
        "speed: replay / serde_json into the same type",
        parse,
        replay,
        AtLeast(0.5),
    );
    table.ratio("speed: replay / AgentLine::parse", read, replay, Compare);
    if replay.is_some() {
        let once = peak(file, 1).expect("replay reads a pipe");
        let often = peak(file, 16).expect("replay reads a pipe");
        table.figure("peak memory, 64 MB", Some(once / 1e6), " MB", Compare);
        table.figure("peak memory, 1 GB", Some(often / 1e6), " MB", Compare);
        table.ratio(
            "peak memory: 1 GB / 64 MB",
            Some(often),
            Some(once),
            AtMost(1.1),
        );
    }
    table.print();
}

fn command(file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_retry-machine"));
    command.arg("replay").arg(file).stdout(Stdio::null());
    command
}

/// Parses each line of the file, and does nothing with it.
fn lines<T>(file: &Path, parse: impl Fn(&[u8]) -> Result<T, String>) -> u64 {
    let mut reader = BufReader::with_capacity(1 << 18, File::open(file).expect("it was written"));
    let mut line = Vec::new();
    let mut count = 0;
    while reader.read_until(b'\n', &mut line).expect("it can be read") > 0 {
        std::hint::black_box(parse(&line).expect("a whole line"));
        line.clear();
        count += 1;
    }
    count
}

/// What `AgentLine` reads of a line.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "it is parsed, and that is all")]
struct Line {
    #[serde(rename = "type")]
    kind: Option<LossyString>,
    id: Option<LossyString>,
    parent_id: Option<LossyString>,
    message: Option<Message>,
    attempt: Option<u32>,
    max_attempts: Option<u32>,
    delay_ms: Option<f64>,
    success: Option<bool>,
    will_retry: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "it is parsed, and that is all")]
struct Message {
    role: Option<LossyString>,
    stop_reason: Option<LossyString>,
    error_message: Option<LossyString>,
    usage: Option<Usage>,
    #[serde(default)]
    content: Produced,
    provider: Option<LossyString>,
    model: Option<LossyString>,
    timestamp: Option<u64>,
}

/// The most memory, in bytes, of a replay of the file so many times one after the other, through a pipe.
fn peak(file: &Path, times: u32) -> io::Result<f64> {
    let mut child = command(Path::new("-")).stdin(Stdio::piped()).spawn()?;
    let mut pipe = child.stdin.take().expect("it is piped");
    let mut peak = 0.0;
    let status = format!("/proc/{}/status", child.id());
    let look = || -> Option<f64> {
        let status = std::fs::read_to_string(&status).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(1024.0 * line.trim().strip_suffix(" kB")?.parse::<f64>().ok()?)
    };
    for _ in 0..times {
        io::copy(&mut File::open(file)?, &mut pipe)?;
        // It is still there, and waits for more.
        peak = look().unwrap_or(peak);
    }
    drop(pipe);
    // The rest of what the pipe held is less than what has been read.
    assert!(child.wait()?.success());
    if peak == 0.0 {
        return Err(io::Error::other(format!("no VmHWM in {status}")));
    }
    Ok(peak)
}

/// A recorded run of so many bytes: prompts, answers, deltas, results of tools, and every tenth turn an error or two.
fn write_run(file: &Path, size: u64) -> io::Result<()> {
    let started = Instant::now();
    let mut out = io::BufWriter::new(File::create(file)?);
    let mut written = 0;
    let mut line = |text: String| -> io::Result<u64> {
        written += text.len() as u64 + 1;
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")?;
        Ok(written)
    };
    line(
        r#"{"type":"session","version":3,"id":"a-long-day","cwd":"/home/ines/harbor"}"#.to_owned(),
    )?;
    let prose = r#"The berths are sorted by draught.\nEach ship has its place, and the tide table says \"when\" — \u00e0 quai. "#;
    let mut turn = 0_u64;
    loop {
        turn += 1;
        let now = 1_767_261_600_000 + turn * 60_000;
        let long = prose.repeat(4 + (turn * 7 % 23) as usize);
        line(format!(
            r#"{{"type":"message_end","message":{{"role":"user","content":[{{"type":"text","text":"{prose}"}}],"timestamp":{now}}}}}"#
        ))?;
        let assistant = |content: &str, tail: &str, at: u64| {
            format!(
                r#"{{"type":"message_end","message":{{"role":"assistant","content":[{content}],"api":"harbor-messages","provider":"harbor","model":"nova-core-4","usage":{{"input":{},"output":220,"cacheRead":1100,"cacheWrite":0}},{tail},"timestamp":{at}}}}}"#,
                1000 + turn % 5000
            )
        };
        if turn.is_multiple_of(10) {
            let error = r#"529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"The fleet is full right now\"},\"request_id\":\"req_5029NovaPier\"}"#;
            line(assistant(
                "",
                &format!(r#""stopReason":"error","errorMessage":"{error}""#),
                now + 1,
            ))?;
            line(format!(
                r#"{{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"{error}"}}"#
            ))?;
        }
        for delta in 0..8 {
            line(format!(
                r#"{{"type":"message_update","assistantMessageEvent":{{"type":"text_delta","contentIndex":0,"delta":"{}"}}}}"#,
                &prose[..8 + delta]
            ))?;
        }
        let call = r#"{"type":"toolCall","id":"t1","name":"read","arguments":{"path":"/home/ines/harbor/tides.csv","limit":200}}"#;
        line(assistant(call, r#""stopReason":"toolUse""#, now + 4000))?;
        line(format!(
            r#"{{"type":"message_end","message":{{"role":"toolResult","toolCallId":"t1","content":[{{"type":"text","text":"{long}"}}],"timestamp":{}}}}}"#,
            now + 5000
        ))?;
        let answer = format!(r#"{{"type":"text","text":"{long}"}}"#);
        let bytes = line(assistant(&answer, r#""stopReason":"stop""#, now + 9000))?;
        if bytes >= size {
            break;
        }
    }
    out.flush()?;
    if started.elapsed() > Duration::from_secs(10) {
        eprintln!(
            "the disk is slow: {:?} for the recording",
            started.elapsed()
        );
    }
    Ok(())
}
