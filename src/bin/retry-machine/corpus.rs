//! `classify --corpus`: how well the classifier does on labelled errors.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal, Write};

use indicatif::ProgressBar;
use retry_machine::{Action, Classifier, ErrorClass, UnixMillis, Verdict};
use serde::Serialize;

use crate::lines::{Line, Lines, MAX_LINE, is_blank};
use crate::rows::{Row, parse};
use crate::{Outcome, exit, show};

/// Counts of right answers.
#[derive(Clone, Copy, Default, Serialize)]
struct Count {
    right: u64,
    all: u64,
}

impl Count {
    fn add(&mut self, right: bool) {
        self.all += 1;
        self.right += u64::from(right);
    }

    fn percent(self) -> f64 {
        100.0 * self.right as f64 / self.all.max(1) as f64
    }
}

#[derive(Default)]
struct Score {
    action: Count,
    class: Count,
    by_class: BTreeMap<ErrorClass, (Count, Count)>,
    /// How often which class was taken for which.
    confusion: BTreeMap<(ErrorClass, ErrorClass), u64>,
    misses: Vec<Miss>,
    malformed: u64,
}

/// A row that was not right.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Miss {
    line: u64,
    id: serde_json::Value,
    want: Vec<&'static str>,
    got: &'static str,
    action_is_right: bool,
    rule: String,
    words: Option<String>,
    message: String,
}

/// Scores every row of `reader`. A class in `also` counts; for usage_limit, billing and auth both switching and
/// stopping count; unknown reads as other_fatal.
pub fn score(
    name: &str,
    reader: Box<dyn BufRead>,
    size: Option<u64>,
    classifier: &Classifier,
    json: bool,
) -> Outcome {
    let progress = match size {
        Some(size) if io::stderr().is_terminal() => ProgressBar::new(size),
        _ => ProgressBar::hidden(),
    };
    let mut lines = Lines::new(reader, MAX_LINE);
    let mut score = Score::default();
    loop {
        let number = lines.number() + 1;
        let row = match lines.next_line()? {
            None => break,
            Some(Line::Whole(line)) if is_blank(line) => continue,
            Some(Line::Whole(line)) => parse(line).map_err(|(_, error)| error),
            Some(Line::TooLong) => Err(format!("a line of more than {MAX_LINE} bytes")),
        };
        if let Err(reason) = row.and_then(|row| score.row(number, &row, classifier)) {
            score.malformed += 1;
            eprintln!(
                "{}:{number}: {}",
                show::one_line(name, 200),
                show::one_line(&reason, 300)
            );
        }
        progress.set_position(lines.bytes());
    }
    progress.finish_and_clear();
    if json {
        score.write_json()?;
    } else {
        score.print()?;
    }
    let empty = score.action.all == 0;
    if empty {
        eprintln!("{}: no labelled errors in it", show::one_line(name, 200));
    }
    Ok(if empty || score.malformed > 0 {
        exit::SKIPPED
    } else {
        exit::DONE
    })
}

/// Unknown reads as other_fatal: both stop.
fn folded(class: ErrorClass) -> ErrorClass {
    match class {
        ErrorClass::Unknown => ErrorClass::OtherFatal,
        class => class,
    }
}

/// Whether the action is one that the label allows.
fn allows(label: ErrorClass, action: Action) -> bool {
    match label {
        ErrorClass::UsageLimit | ErrorClass::Billing | ErrorClass::Auth => {
            matches!(action, Action::Switch | Action::Stop)
        }
        label => label.action() == action,
    }
}

impl Score {
    fn row(&mut self, line: u64, row: &Row, classifier: &Classifier) -> Result<(), String> {
        let labels = row.labels()?;
        let Some(&label) = labels.first() else {
            return Err("no `class`".to_owned());
        };
        let message = row.message()?;
        let facts = row.facts()?;
        let now = UnixMillis(row.now_ms()?.unwrap_or_else(crate::step::now_ms));
        let verdict = classifier.classify(message, &facts, now);
        let got = folded(verdict.class);
        let class_is_right = labels.iter().any(|label| folded(*label) == got);
        let action_is_right = labels.iter().any(|label| allows(*label, verdict.action()));
        self.action.add(action_is_right);
        self.class.add(class_is_right);
        let (actions, classes) = self.by_class.entry(label).or_default();
        actions.add(action_is_right);
        classes.add(class_is_right);
        let counted_as = if class_is_right { folded(label) } else { got };
        *self
            .confusion
            .entry((folded(label), counted_as))
            .or_default() += 1;
        if !class_is_right || !action_is_right {
            self.misses.push(Miss {
                line,
                id: row.id.clone(),
                want: labels.iter().map(|label| label.name()).collect(),
                got: verdict.class.name(),
                action_is_right,
                rule: verdict.rule.to_string(),
                words: words(message, &verdict),
                message: message.to_owned(),
            });
        }
        Ok(())
    }

    fn write_json(&self) -> io::Result<()> {
        let by_class: BTreeMap<_, _> = self
            .by_class
            .iter()
            .map(|(class, (actions, classes))| {
                (
                    class.name(),
                    serde_json::json!({ "action": actions, "class": classes }),
                )
            })
            .collect();
        let confusion: Vec<_> = self
            .confusion
            .iter()
            .map(|((label, got), count)| {
                serde_json::json!({ "label": label.name(), "got": got.name(), "count": count })
            })
            .collect();
        let whole = serde_json::json!({
            "action": self.action,
            "class": self.class,
            "byClass": by_class,
            "confusion": confusion,
            "misses": self.misses,
            "malformed": self.malformed,
        });
        writeln!(io::stdout().lock(), "{whole}")
    }

    fn print(&self) -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        let width = show::width();
        let counted = |count: Count| {
            format!(
                "{:>4} of {:<4} {:>6.2} %",
                count.right,
                count.all,
                count.percent()
            )
        };
        writeln!(out, "{:<16} {:<22} right by class", "", "right by action")?;
        writeln!(
            out,
            "{:<16} {:<22} {}",
            "all",
            counted(self.action),
            counted(self.class)
        )?;
        for (class, (actions, classes)) in &self.by_class {
            writeln!(
                out,
                "{class:<16} {:<22} {}",
                counted(*actions),
                counted(*classes)
            )?;
        }
        let wrong: Vec<_> = self
            .confusion
            .iter()
            .filter(|((label, got), _)| label != got)
            .collect();
        if !wrong.is_empty() {
            writeln!(
                out,
                "\ntaken for something else (rows: label, columns: verdict)"
            )?;
            self.matrix(&mut out)?;
        }
        for miss in &self.misses {
            let action = if miss.action_is_right {
                ""
            } else {
                ", and the action is wrong"
            };
            writeln!(
                out,
                "\nline {} {}: {} taken for {} by `{}`{action}",
                miss.line,
                show::one_line(miss.id.as_str().unwrap_or_default(), 40),
                miss.want.join(" or "),
                miss.got,
                miss.rule,
            )?;
            if let Some(words) = &miss.words {
                writeln!(
                    out,
                    "  decided by  {}",
                    show::one_line(words, width.saturating_sub(14))
                )?;
            }
            writeln!(
                out,
                "  {}",
                show::one_line(&miss.message, width.saturating_sub(2))
            )?;
        }
        out.flush()
    }

    fn matrix(&self, out: &mut impl Write) -> io::Result<()> {
        let classes: Vec<ErrorClass> = ErrorClass::ALL
            .into_iter()
            .filter(|class| {
                self.confusion
                    .keys()
                    .any(|(label, got)| label == class || got == class)
            })
            .collect();
        write!(out, "{:<16}", "")?;
        for class in &classes {
            write!(out, " {:>5}", short(*class))?;
        }
        writeln!(out)?;
        for label in &classes {
            write!(out, "{label:<16}")?;
            for got in &classes {
                match self.confusion.get(&(*label, *got)) {
                    Some(count) => write!(out, " {count:>5}")?,
                    None => write!(out, " {:>5}", "·")?,
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// A column's head.
fn short(class: ErrorClass) -> &'static str {
    let name = class.name();
    name.get(..5).unwrap_or(name)
}

fn words(message: &str, verdict: &Verdict) -> Option<String> {
    verdict
        .span
        .map(|span| message[span.start..span.end].to_owned())
}
