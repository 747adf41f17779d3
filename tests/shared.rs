//! The material that lies outside of the project: recordings, traces, corpus, known bugs.

use std::fs;

use retry_machine::{Action, Classifier, ErrorClass, ErrorFacts, UnixMillis};

use crate::support::shared;

/// Nobody's clock: hints do not matter here.
const NOW: UnixMillis = UnixMillis(1_790_000_000_000);

/// A list of names separated by `|` or in an array.
fn names(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::String(text) => text.split('|').map(str::to_owned).collect(),
        serde_json::Value::Array(list) => list
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

/// The 66 texts of the recordings: action and class, alternatives split by `|`.
#[test]
fn labelled_texts_of_the_recordings() {
    let Some(path) = shared("recordings/labelled.jsonl") else {
        return;
    };
    let text = fs::read_to_string(path).expect("the labelled texts");
    let mut count = 0;
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("a row");
        let message = row["message"].as_str().expect("a message");
        let verdict = Classifier::shared().classify(message, &ErrorFacts::new(), NOW);
        assert!(
            names(&row["want"]).contains(&verdict.action().to_string()),
            "{message}: {verdict:?}"
        );
        assert!(
            names(&row["class"]).contains(&verdict.class.to_string()),
            "{message}: {verdict:?}"
        );
        count += 1;
    }
    assert_eq!(count, 66);
}

/// The corpus: 99 % by action, 98 % by class, and none of the expensive mistakes.
#[test]
fn corpus() {
    let Some(path) = shared("corpus/dev.jsonl") else {
        return;
    };
    let text = fs::read_to_string(path).expect("the corpus");
    let (mut all, mut actions, mut classes) = (0.0, 0.0, 0.0);
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("a row");
        let message = row["message"].as_str().expect("a message");
        let mut facts = ErrorFacts::new();
        if let Some(status) = row["status"].as_u64() {
            facts = facts.status(u16::try_from(status).expect("a status"));
        }
        if let Some(provider) = row["provider"].as_str() {
            facts = facts.provider(provider);
        }
        let verdict = Classifier::shared().classify(message, &facts, NOW);
        let mut labels = names(&row["class"]);
        labels.extend(names(&row["also"]));
        let got = match verdict.class {
            ErrorClass::Unknown => ErrorClass::OtherFatal,
            class => class,
        };
        let action = verdict.action();
        let allows = |label: &String| match label.as_str() {
            "usage_limit" | "billing" | "auth" => matches!(action, Action::Switch | Action::Stop),
            label => ErrorClass::ALL
                .iter()
                .any(|class| class.name() == label && class.action() == action),
        };
        all += 1.0;
        actions += f64::from(u8::from(labels.iter().any(allows)));
        classes += f64::from(u8::from(labels.contains(&got.to_string())));
        let label = labels.first().map(String::as_str);
        let any = |names: &[&str]| labels.iter().any(|label| names.contains(&label.as_str()));
        // No permanent failure is retried, no overflow retried, no rate limit compacted.
        if action == Action::Retry {
            assert!(
                any(&["overloaded", "rate_limit", "server_error", "network"]),
                "{label:?} retried: {message}"
            );
        }
        if label == Some("rate_limit") {
            assert!(
                action != Action::Compact || any(&["overflow"]),
                "compacted: {message}"
            );
        }
    }
    assert!(actions / all >= 0.99, "{actions} of {all} by action");
    assert!(classes / all >= 0.98, "{classes} of {all} by class");
}

/// Part A of the known bugs of two agents, by action.
#[test]
fn known_bugs() {
    let Some(path) = shared("research/known-bugs.md") else {
        return;
    };
    let text = fs::read_to_string(path).expect("the known bugs");
    let part_a = text.split("## Part B").next().expect("part A");
    let mut count = 0;
    let mut wrong = Vec::new();
    for line in part_a.lines() {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, message, context, expected, ..] = cells[..] else {
            continue;
        };
        let is_row = id.len() == 3
            && id.starts_with(['T', 'N', 'U', 'O', 'X'])
            && id[1..].parse::<u8>().is_ok();
        if !is_row {
            continue;
        }
        let mut facts = ErrorFacts::new();
        for fact in context.split_whitespace() {
            match fact.split_once('=') {
                Some(("provider", name)) => facts = facts.provider(name),
                Some(("status", status)) => facts = facts.status(status.parse().expect("a status")),
                _ => {}
            }
        }
        let verdict = Classifier::shared().classify(message, &facts, NOW);
        let allowed = allowed(expected);
        if !allowed.contains(&verdict.action()) {
            wrong.push(format!(
                "{id} {expected}: {} ({}) for {message}",
                verdict.class, verdict.rule
            ));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "of {count}:\n{}", wrong.join("\n"));
    assert_eq!(count, 88, "rows of the table");
}

/// The actions that an expected outcome allows.
fn allowed(expected: &str) -> Vec<Action> {
    let groups: [(&[&str], &[Action]); 6] = [
        (
            &[
                "Retry",
                "Throttle",
                "Concurrency",
                "Capacity",
                "EmptyResponse",
            ],
            &[Action::Retry],
        ),
        (&["Overflow"], &[Action::Compact]),
        (&["Fatal", "by context"], &[Action::Stop]),
        (
            &["UsageLimit", "AccountPolicy"],
            &[Action::Switch, Action::Stop],
        ),
        (&["Payload"], &[Action::Stop, Action::Compact]),
        (&["StaleReset"], &[Action::Retry, Action::Stop]),
    ];
    groups
        .iter()
        .filter(|(words, _)| words.iter().any(|word| expected.contains(word)))
        .flat_map(|(_, actions)| actions.iter().copied())
        .collect()
}
