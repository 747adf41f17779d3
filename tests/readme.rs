//! The README says what is so: its commands are run, its tables are made again, its examples are classified.
//!
//! Rust snippets are doctests of the crate; the conversation and the hosts of `rpc` are run by `rpc::languages`.
//! With `UPDATE_README=1` outputs and tables are written into it instead.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use retry_machine::{Classifier, ErrorFacts, RetrySettings, SETTINGS, SettingKind, UnixMillis};

/// How the README calls the program before it is installed.
const FROM_SOURCE: &str = "cargo run --release --features cli -- ";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).expect("README.md")
}

/// What a line of shell prints, with the program on its path.
fn printed(line: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_retry-machine"));
    let here = binary.parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args([
            "-c",
            &format!("exec 2>&1; {}", line.replace(FROM_SOURCE, "retry-machine ")),
        ])
        .current_dir(root())
        .env("PATH", format!("{here}:{path}"))
        .env("NO_COLOR", "1")
        .output()
        .expect("a shell");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The README with every output and table as it is now.
fn made_anew(readme: &str) -> String {
    let mut text = String::new();
    let mut lines = readme.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(text, "{line}");
        let end = match line {
            "```console" => {
                let command = lines.next().expect("a command");
                let shell = command.strip_prefix("$ ").expect("a prompt");
                let _ = writeln!(text, "{command}");
                text.push_str(&printed(shell));
                "```"
            }
            "<!-- settings -->" => {
                text.push_str(&settings());
                "<!-- end of settings -->"
            }
            "<!-- table -->" => {
                text.push_str(&table());
                "<!-- end of table -->"
            }
            _ => continue,
        };
        assert!(lines.any(|line| line == end), "no {end} after {line}");
        let _ = writeln!(text, "{end}");
    }
    text
}

fn settings() -> String {
    let mut text = "\n| `retry.` | range | default | recommended | what it does; why so |\n| --- | --- | --- | --- | --- |\n".to_owned();
    let (default, recommended) = (RetrySettings::default(), RetrySettings::recommended());
    for setting in SETTINGS {
        let unit = match setting.kind {
            SettingKind::Integer { unit: "ms", .. } => ", in ms",
            SettingKind::Integer { .. } | SettingKind::Bool | SettingKind::Choice(_) => "",
        };
        let (value, ours) = (setting.value_in(&default), setting.value_in(&recommended));
        let ours = if ours == value {
            String::new()
        } else {
            format!("**{ours}**")
        };
        let why = if setting.reason.is_empty() { "" } else { " " };
        let _ = writeln!(
            text,
            "| `{}` | {}{unit} | {value} | {ours} | {}{why}{} |",
            setting.key, setting.kind, setting.meaning, setting.reason
        );
    }
    text.push('\n');
    text
}

/// The snapshot of what the machine does, which `table` compares cell by cell with the specification.
fn table() -> String {
    let snapshot = include_str!("snapshots/main__table__st_table.snap");
    let (_, table) = snapshot.split_once("\n---\n").expect("a snapshot");
    let (head, rows) = table.split_once('\n').expect("a heading");
    let rule = "| --- ".repeat(head.matches('|').count() - 1);
    format!("\n{head}\n{rule}|\n{rows}\n")
}

#[test]
fn readme_outputs_and_tables() {
    let readme = readme();
    let anew = made_anew(&readme);
    if std::env::var_os("UPDATE_README").is_some() {
        std::fs::write(root().join("README.md"), &anew).expect("written");
        return;
    }
    for (is, should) in readme.lines().zip(anew.lines()) {
        assert_eq!(is, should, "README.md; UPDATE_README=1 writes it");
    }
    assert_eq!(readme.len(), anew.len());
}

#[test]
fn readme_example_of_each_class() {
    let readme = readme();
    let mut classes = Vec::new();
    for row in readme.lines() {
        let cells: Vec<_> = row.split(" | ").collect();
        let [class, action, example, _] = cells[..] else {
            continue;
        };
        let (Some(class), Some(example)) = (
            class
                .strip_prefix("| `")
                .and_then(|class| class.strip_suffix('`')),
            example
                .strip_prefix('`')
                .and_then(|text| text.strip_suffix('`')),
        ) else {
            continue;
        };
        let verdict = Classifier::shared().classify(example, &ErrorFacts::new(), UnixMillis(0));
        assert_eq!(
            (verdict.class.name(), verdict.action().name()),
            (class, action),
            "{example}"
        );
        classes.push(class);
    }
    let all = retry_machine::ErrorClass::ALL.map(retry_machine::ErrorClass::name);
    assert_eq!(classes, all);
}

/// The rule file of the README is one that loads.
#[test]
fn readme_rule_file() {
    let readme = readme();
    let (_, toml) = readme.split_once("```toml\n").expect("a rule file");
    let (toml, _) = toml.split_once("```").expect("its end");
    let file = retry_machine::RuleFile::parse("README.md", toml).expect("TOML");
    let classifier = Classifier::with_rules(&[file]).expect("rules");
    let verdict = classifier.classify("the gateway is dreaming", &ErrorFacts::new(), UnixMillis(0));
    assert_eq!(verdict.rule.as_str(), "gateway-asleep");
}

/// Every feature is in its table.
#[test]
fn readme_features() {
    let manifest = include_str!("../Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").expect("features");
    let (features, _) = features.split_once("\n[").expect("an end");
    let names = features
        .lines()
        .filter_map(|line| line.split_once(" = [").map(|(name, _)| name))
        .filter(|name| *name != "default" && !name.starts_with('#'));
    let readme = readme();
    for name in names {
        assert!(readme.contains(&format!("\n| `{name}` | ")), "{name}");
    }
}
