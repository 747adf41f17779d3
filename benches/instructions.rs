//! Instructions and allocations of a step, counted: the same in every run, whatever else the machine does.
//!
//! Valgrind's callgrind runs this program again as a child, which takes the same step a thousand times, and counts
//! what happens inside [`RetryMachine::handle`] alone.

#![allow(missing_docs, reason = "a bench has no outside")]

mod figures;

use std::hint::black_box;
use std::process::Command;

use figures::Target::{AtMost, None as Compare};
use figures::{Table, measuring};
use retry_machine::{
    Ambient, AssistantMessage, Classifier, Effects, ErrorClass, ErrorFacts, Input, Phase,
    RetryMachine, Turn, UnixMillis, Verdict,
};

/// How often a step is taken.
const TIMES: usize = 1000;

const STEPS: [(&str, Option<f64>); 5] = [
    ("success", Some(150.0)),
    ("success that ends a chain", None),
    ("first failure", Some(600.0)),
    ("timer fired", None),
    ("fatal failure", None),
];

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--step") {
        let step = args.next().unwrap_or_default();
        take(&step);
        return;
    }
    if !measuring() {
        STEPS.iter().for_each(|(step, _)| take(step));
        return;
    }
    let mut table = Table::new("instructions of a step");
    // The classifier of the process is there, as it is for every message but the first.
    drop(RetryMachine::default());
    for (step, most) in STEPS {
        let target = most.map_or(Compare, AtMost);
        match instructions(step) {
            Ok(count) => table.figure(step, Some(count), " instructions", target),
            Err(why) => println!("{step}: instructions are not counted: {why}"),
        }
        let allocations = allocation_counter::measure(|| take(step)).count_total;
        let before = allocation_counter::measure(|| drop(prepared(step))).count_total;
        table.figure(
            "  of it",
            Some((allocations - before) as f64 / TIMES as f64),
            " allocations",
            if step == "success" {
                AtMost(0.0)
            } else {
                Compare
            },
        );
    }
    let classifier = Classifier::shared();
    let text = format!(
        "429 {{\"error\":{{\"message\":\"Rate limit reached. Please try again in 20s. {}\"}}}}",
        "The fleet is full. ".repeat(210)
    );
    let verdict = || black_box(classifier.classify(&text, &ErrorFacts::new(), UnixMillis(0)));
    assert!(text.len() < 4096 && verdict().hint.is_some());
    table.figure(
        format!("verdict of {} bytes with a hint", text.len()),
        Some(allocation_counter::measure(|| drop(verdict())).count_total as f64),
        " allocations",
        AtMost(0.0),
    );
    table.print();
}

/// Machines before the step, each with what it is handed.
fn prepared(step: &str) -> Vec<(RetryMachine, Input<'static>, Ambient)> {
    let fresh = RetryMachine::default();
    let failure = |class| Input::from(Turn::failure("overloaded").verdict(Verdict::new(class)));
    let success = || Input::from(Turn::from(AssistantMessage::success()));
    (0..TIMES)
        .map(|_| {
            let mut machine = fresh.clone();
            let mut waiting = || {
                let _ = machine.handle(failure(ErrorClass::Overloaded), Ambient::at(0));
                let Phase::Waiting { timer, due, .. } = machine.phase() else {
                    unreachable!("a first failure is retried");
                };
                (timer, Ambient::at(due.0))
            };
            let (input, ambient) = match step {
                "success" => (success(), Ambient::at(0)),
                "success that ends a chain" => {
                    let (timer, due) = waiting();
                    let _ = machine.handle(Input::TimerFired(timer), due);
                    (success(), due)
                }
                "first failure" => (failure(ErrorClass::Overloaded), Ambient::at(0)),
                "timer fired" => {
                    let (timer, due) = waiting();
                    (Input::TimerFired(timer), due)
                }
                "fatal failure" => (failure(ErrorClass::Auth), Ambient::at(0)),
                _ => unreachable!("no step is called `{step}`"),
            };
            (machine, input, ambient)
        })
        .collect()
}

fn take(step: &str) {
    for (mut machine, input, ambient) in prepared(step) {
        let _ = black_box(measured(&mut machine, input, ambient));
    }
}

/// Callgrind counts inside of this alone.
#[inline(never)]
fn measured<'m>(machine: &mut RetryMachine, input: Input<'m>, ambient: Ambient) -> Effects<'m> {
    machine.handle(input, ambient)
}

/// Instructions of one `handle` and of handing over what goes in and comes out.
fn instructions(step: &str) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--collect-atstart=no",
            "--toggle-collect=instructions::measured",
        ])
        .arg(program)
        .args(["--step", step])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, count)| count.trim().parse::<f64>().ok())
        .filter(|count| *count > 0.0)
        .ok_or_else(|| format!("callgrind counted nothing: {report}"))?;
    Ok(collected / TIMES as f64)
}
