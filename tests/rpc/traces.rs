//! The recorded traces of the reference implementation, through the protocol and through the process.

use std::thread;

use retry_machine::{Classifier, ErrorFacts, UnixMillis};
use serde_json::Value;

use super::host::{Played, play};
use super::{Link, Process, Virtual};
use crate::support::shared;

fn traces() -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(shared("oracle/traces.jsonl")?).expect("readable");
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a trace"))
            .collect(),
    )
}

/// What is compared. A hint lengthens the delay in the recording, as here if it is `honoured`, but not by default.
fn comparable(log: &[Value], honoured: bool) -> Vec<Value> {
    let mut log = log.to_vec();
    for entry in &mut log {
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("isRetrying");
            entry.remove("retryAttempt");
        }
        let hinted = entry["errorMessage"]
            .as_str()
            .is_some_and(|text| text.contains("retry-after"));
        if entry["type"] == "auto_retry_start" && hinted && !honoured && entry["delayMs"] != 0 {
            entry["delayMs"] = "local or hint".into();
        }
    }
    log
}

/// Why it was not played as recorded, up to where the reference leaves a chain open.
fn difference(trace: &Value, played: &Played, honoured: bool) -> Option<String> {
    if let Some(fault) = played.faults.first() {
        return Some(fault.clone());
    }
    let (got, want) = (
        comparable(&played.log, honoured),
        comparable(trace["log"].as_array().expect("a log"), honoured),
    );
    let length = trace["leak"]
        .as_u64()
        .map_or(want.len(), |leak| usize::try_from(leak).expect("an index"));
    if trace["leak"].is_null() && got.len() != want.len() {
        return Some(format!(
            "{} entries, {} recorded: {got:?}",
            got.len(),
            want.len()
        ));
    }
    let mut open = false;
    for entry in &got {
        match entry["type"].as_str() {
            Some("auto_retry_start") => open = true,
            Some("auto_retry_end") => open = false,
            _ if open && (entry.get("prompt").or(entry.get("prompt2"))).is_some() => {
                return Some("a prompt is over with a chain open".to_owned());
            }
            _ => {}
        }
    }
    let at = (0..length).find(|at| got.get(*at) != want.get(*at))?;
    Some(format!(
        "at {at}: {:?}, recorded {:?}",
        got.get(at),
        want.get(at)
    ))
}

fn report(differences: &[(String, String)], played: usize) {
    for (name, why) in differences.iter().take(3) {
        eprintln!("{name}: {why}");
    }
    assert!(
        differences.is_empty(),
        "{} of {played} traces differ",
        differences.len()
    );
    eprintln!("{played} traces as recorded");
}

fn name(trace: &Value) -> String {
    trace["name"].as_str().expect("a name").to_owned()
}

#[test]
fn rpc_traces_in_virtual_time() {
    let Some(traces) = traces() else { return };
    let mut differences = Vec::new();
    for trace in &traces {
        let mut link = Virtual::default();
        if let Some(why) = difference(trace, &play(trace, &mut link, None), false) {
            differences.push((name(trace), why));
        }
    }
    report(&differences, traces.len());
}

/// With the server's delay honoured the delays are the recorded ones as well: the longer of both.
#[test]
fn hi2_honoured_delays_of_the_traces() {
    let Some(traces) = traces() else { return };
    let mut differences = Vec::new();
    let mut hints = 0;
    let honour = r#"{"type":"set_retry_settings","settings":{"delay":{"serverDelay":"honour"}}}"#;
    for trace in traces.iter().filter(|trace| has_no_other_hint(trace)) {
        let mut link = Virtual::default();
        link.ask(honour);
        if let Some(why) = difference(trace, &play(trace, &mut link, None), true) {
            differences.push((name(trace), why));
        }
        hints += usize::from(trace.to_string().contains("retry-after-ms="));
    }
    assert!(hints > 50, "{hints} traces with a hint");
    report(&differences, traces.len());
}

/// Whether no text of the trace asks for a wait in other words than `retry-after-ms=…`.
fn has_no_other_hint(trace: &Value) -> bool {
    let turns = trace["turns"].as_array().expect("turns").iter();
    let mut texts = turns.filter_map(|turn| turn["errorMessage"].as_str());
    texts.all(|text| {
        let facts = ErrorFacts::new();
        let verdict = Classifier::shared().classify(text, &facts, UnixMillis(0));
        verdict.hint.is_none() || text.contains("retry-after-ms=")
    })
}

/// All in one process, each in a session of its own: what one does is nothing to another.
#[test]
fn rpc_traces_as_sessions_of_one_protocol() {
    let Some(traces) = traces() else { return };
    let mut differences = Vec::new();
    let mut link = Virtual::default();
    for trace in &traces {
        let name = name(trace);
        if let Some(why) = difference(trace, &play(trace, &mut link, Some(&name)), false) {
            differences.push((name, why));
        }
    }
    assert_eq!(link.protocol.sessions(), traces.len());
    report(&differences, traces.len());
}

/// The same with all waits so many times as long; None where an action is too near a timer to be told apart in
/// real time, or where a credential's limit, which does not grow, could end meanwhile.
fn scaled(trace: &Value, times: u64) -> Option<Value> {
    let mut trace = trace.clone();
    let longer = |ms: &mut Value| {
        if let Some(now) = ms.as_u64() {
            *ms = (now * times).into();
        }
    };
    longer(&mut trace["settings"]["baseDelayMs"]);
    let mut delays = Vec::new();
    for entry in trace["log"].as_array_mut()? {
        if entry["type"] == "auto_retry_start" {
            longer(&mut entry["delayMs"]);
            delays.push(entry["delayMs"].as_u64()?);
        }
        if !entry["markUsageLimitReached"]["retryAfterMs"].is_null() {
            return None;
        }
    }
    for action in trace["actions"].as_array_mut()? {
        if let Some(after) = action.get_mut("after") {
            longer(after);
        }
        if let Some(base) = action.pointer_mut("/set/retry.baseDelayMs") {
            longer(base);
        }
        let after = action["after"].as_u64().unwrap_or(0);
        if delays.iter().any(|delay| delay.abs_diff(after) < 100) {
            return None;
        }
    }
    Some(trace)
}

/// What a trace waits in all, if nothing ends a wait.
fn waits_ms(trace: &Value) -> u64 {
    let delays = trace["log"].as_array().expect("a log").iter();
    delays.filter_map(|entry| entry["delayMs"].as_u64()).sum()
}

/// Twenty with long waits, all at the same time, each in a process of its own.
#[test]
fn rpc_traces_through_the_process() {
    let Some(traces) = traces() else { return };
    let whole = traces.iter().filter(|trace| trace["leak"].is_null());
    let mut longer: Vec<_> = whole
        .filter_map(|trace| scaled(trace, 10))
        .filter(|trace| waits_ms(trace) < 10_000)
        .collect();
    longer.sort_by_key(|trace| std::cmp::Reverse(waits_ms(trace)));
    longer.truncate(20);
    let waits: Vec<_> = longer.iter().map(waits_ms).collect();
    eprintln!(
        "waits of {:?} to {:?} ms",
        waits.iter().min(),
        waits.iter().max()
    );
    let playing: Vec<_> = longer
        .into_iter()
        .map(|trace| {
            thread::spawn(move || {
                let mut process = Process::start(&["--mode", "rpc", "--no-session"]);
                let before = process.now();
                let played = play(&trace, &mut process, None);
                let took = process.now() - before;
                let (rest, code, diagnostics) = process.finish();
                assert_eq!((rest, code, diagnostics.as_str()), (vec![], Some(0), ""));
                let ends_waits = !trace["actions"].as_array().expect("actions").is_empty();
                let early = (!ends_waits && took + 10 < waits_ms(&trace))
                    .then(|| format!("over after {took} ms"));
                let why = difference(&trace, &played, false).or(early);
                why.map(|why| (name(&trace), why))
            })
        })
        .collect();
    let count = playing.len();
    assert_eq!(count, 20);
    let differences: Vec<_> = playing
        .into_iter()
        .filter_map(|one| one.join().expect("played"))
        .collect();
    report(&differences, count);
}
