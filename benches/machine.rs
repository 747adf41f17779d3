//! Steps of the machine, with a verdict that is given: no text is read. And a fleet of them in a storm.

#![allow(clippy::disallowed_methods, reason = "a bench has a clock")]
#![allow(missing_docs, reason = "a bench has no outside")]

mod figures;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, BlockingRetryable, ExponentialBuilder};
use figures::Target::{AtMost, None as Compare};
use figures::{Bench, Table, measuring};
use retry_machine::{
    Ambient, AssistantMessage, Classifier, Effect, ErrorClass, Input, RetryMachine, RetrySettings,
    TimerId, Turn, Verdict,
};

fn main() {
    let mut bench = Bench::new(400);
    let mut table = Table::new("machine");
    steps(&mut bench, &mut table);
    if measuring() {
        storm(&mut table);
    }
    table.print();
}

const TEXT: &str = "overloaded_error";

fn failure() -> Input<'static> {
    Turn::failure(TEXT)
        .verdict(Verdict::new(ErrorClass::Overloaded))
        .into()
}

/// Hands in a failure and returns the timer that it arms.
fn fail(machine: &mut RetryMachine, now_ms: u64) -> (TimerId, u64) {
    let effects = machine.handle(failure(), Ambient::at(now_ms));
    for effect in &effects.into_iter().collect::<Vec<_>>()[..] {
        if let Effect::Sleep { timer, delay_ms } = effect {
            return (*timer, *delay_ms);
        }
    }
    unreachable!("a first failure is retried")
}

fn steps(bench: &mut Bench, table: &mut Table) {
    let message = AssistantMessage::success();
    let mut idle = RetryMachine::default();
    let success = bench.time("handle/success", || {
        idle.handle(Input::message(black_box(&message)), Ambient::at(1))
    });
    let fresh = RetryMachine::default();
    let mut machine = fresh.clone();
    let new = bench.time("a new machine", || machine.clone_from(black_box(&fresh)));
    let first = bench.time("handle/first failure", || {
        machine.clone_from(black_box(&fresh));
        machine.handle(black_box(failure()), Ambient::at(1))
    });
    let chain = bench.time("chain of two failures and a success", || {
        machine.clone_from(black_box(&fresh));
        for _ in 0..2 {
            let (timer, delay_ms) = fail(&mut machine, 1);
            let _ = black_box(machine.handle(Input::TimerFired(timer), Ambient::at(1 + delay_ms)));
        }
        machine.handle(Input::message(black_box(&message)), Ambient::at(9))
    });
    // The same loop as backon has it: it computes two delays, and sleeps not at all.
    let delays = ExponentialBuilder::default().with_max_times(3);
    let loop_of_backon = bench.time("backon: two failures and a success", || {
        let mut calls = 0;
        let call = || {
            calls += 1;
            if calls < 3 {
                Err(black_box(TEXT))
            } else {
                Ok(calls)
            }
        };
        let retry = call.retry(black_box(delays)).sleep(|delay: Duration| {
            black_box(delay);
        });
        retry
            .when(|text| black_box(text).contains("overloaded"))
            .call()
    });
    let only_delays = bench.time("backon: two delays", || {
        let mut delays = black_box(delays).build();
        (delays.next(), delays.next())
    });
    let failure = first.zip(new).map(|(first, new)| first - new);
    table.figure("handle, success", success, " ns", Compare);
    table.figure("handle, failure to effects", failure, " ns", Compare);
    table.figure("chain of two failures and a success", chain, " ns", Compare);
    table.ratio(
        "  / the same in backon's loop",
        chain,
        loop_of_backon,
        Compare,
    );
    table.ratio("  / backon's two delays alone", chain, only_delays, Compare);
}

/// A million sessions fail at once, wait, and recover, on one core.
fn storm(table: &mut Table) {
    const FLEET: usize = 1_000_000;
    let settings = Arc::new(RetrySettings::default());
    let classifier = Classifier::shared();
    let message = AssistantMessage::success();
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let machine = || RetryMachine::with_classifier(settings.clone(), classifier.clone());
        let mut fleet: Vec<RetryMachine> = (0..FLEET).map(|_| machine()).collect();
        let start = Instant::now();
        for machine in &mut fleet {
            let effects = machine.handle(failure(), Ambient::at(0));
            assert_eq!(effects.len(), 3);
        }
        for machine in &mut fleet {
            // What a shell does after a restart as well: the deadline stands in the machine.
            let retry_machine::Phase::Waiting { timer, due, .. } = machine.phase() else {
                unreachable!("all have failed once");
            };
            let effects = machine.handle(Input::TimerFired(timer), Ambient::at(due.0));
            assert_eq!(effects.len(), 1);
        }
        for machine in &mut fleet {
            let effects = machine.handle(Input::message(&message), Ambient::at(9000));
            assert_eq!(effects.len(), 2);
        }
        fastest = fastest.min(start.elapsed());
        assert!(fleet.iter().all(|machine| !machine.is_retrying()));
    }
    let per_second = FLEET as f64 / fastest.as_secs_f64();
    table.figure(
        "fleet of 1,000,000 in a storm: machines a second",
        Some(per_second),
        "",
        Compare,
    );
    table.figure("  steps a second", Some(3.0 * per_second), "", Compare);
    table.figure(
        "a machine, beside shared settings and classifier",
        Some(size_of::<RetryMachine>() as f64),
        " bytes",
        AtMost(128.0),
    );
}
