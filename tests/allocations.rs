//! What takes no memory: a success, a classification, a retry.

use retry_machine::{
    Ambient, AssistantMessage, Classifier, Effect, ErrorFacts, Input, Phase, RetryMachine, Turn,
    UnixMillis,
};

use crate::support::{F, O, R, U};

/// How many allocations something makes.
fn allocations<T>(what: impl FnOnce() -> T) -> (u64, T) {
    let mut made = None;
    let used = allocation_counter::measure(|| made = Some(what()));
    (used.count_total, made.expect("measured"))
}

/// A machine that has retried once already: what is built once is built.
fn warm() -> RetryMachine {
    let mut machine = RetryMachine::default();
    let _ = machine.handle(Input::failure(R), Ambient::at(0));
    let _ = machine.handle(Input::PromptStarted, Ambient::at(0));
    machine
}

#[test]
fn a_success_allocates_nothing() {
    let mut machine = warm();
    let message = AssistantMessage::success();
    let (count, effects) = allocations(|| machine.handle(Input::message(&message), Ambient::at(1)));
    assert_eq!((count, effects.len()), (0, 1));

    // In a chain: the end event too.
    let _ = machine.handle(Input::failure(R), Ambient::at(2));
    let (count, effects) = allocations(|| machine.handle(Input::message(&message), Ambient::at(3)));
    assert_eq!((count, effects.len()), (0, 3));
}

/// Only the text that waits for the credential's answer is kept, and given away with the answer.
#[test]
fn a_failure_allocates_what_it_keeps() {
    for (text, expected) in [(R, 0), (F, 0), (O, 0), (U, 1)] {
        let mut machine = warm();
        let message = AssistantMessage::error(text);
        let turn = || Turn::message(&message);
        let (count, effects) = allocations(|| machine.handle(turn().into(), Ambient::at(1)));
        assert_eq!(count, expected, "{text}");
        let (count, then) = allocations(|| match effects.iter().last() {
            Some(&Effect::SwitchCredential { request, .. }) => {
                let answer = Input::CredentialSwitched {
                    request,
                    switched: false,
                };
                machine.handle(answer, Ambient::at(2))
            }
            Some(&Effect::Sleep { timer, .. }) => {
                machine.handle(Input::TimerFired(timer), Ambient::at(1 << 20))
            }
            _ => machine.handle(Input::AbortRetry, Ambient::at(2)),
        });
        assert_eq!(count, 0, "{text}: {then}");
        assert!(then.len() <= 3);
    }
    let mut machine = warm();
    let _ = machine.handle(Input::failure(R), Ambient::at(1));
    let (count, _) = allocations(|| machine.handle(Input::AbortRetry, Ambient::at(2)));
    assert_eq!((count, machine.phase()), (0, Phase::Idle));
}

/// Texts of the forms that servers send, below 4 kB and without an escape. A zone's name is another matter: its
/// data are read when it is met.
#[cfg(feature = "json")]
#[test]
fn a_classification_allocates_nothing() {
    let classifier = Classifier::shared();
    let rows = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/errors.jsonl"
    ))
    .expect("the composed texts");
    let mut texts: Vec<String> = rows
        .lines()
        .map(|row| serde_json::from_str::<serde_json::Value>(row).expect("JSON"))
        .filter_map(|row| row["message"].as_str().map(str::to_owned))
        .filter(|text| text.len() < 4000 && !text.contains('\\'))
        .filter(|text| {
            !["America/", "Europe/"]
                .iter()
                .any(|zone| text.contains(zone))
        })
        .collect();
    texts.push(format!("{} overloaded", "x ".repeat(1900)));
    assert!(texts.len() > 100, "{} texts", texts.len());
    let facts = ErrorFacts::new();
    let _ = classifier.classify(R, &facts, UnixMillis(0));
    let allocating: Vec<_> = texts
        .iter()
        .map(|text| {
            (
                allocations(|| classifier.classify(text, &facts, UnixMillis(0))).0,
                text,
            )
        })
        .filter(|(count, _)| *count > 0)
        .collect();
    assert!(
        allocating.is_empty(),
        "{} of {}: {allocating:#?}",
        allocating.len(),
        texts.len()
    );
}
