//! `retry-machine classify`: what an error is, and why.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use retry_machine::{Classifier, ErrorFacts, Explanation, Signal, Span, UnixMillis, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::corpus;
use crate::lines::{Line, Lines, MAX_LINE, is_blank, is_stdin, open};
use crate::rows::{Row, parse};
use crate::rules::RulesArgs;
use crate::step::now_ms;
use crate::{Failure, Outcome, exit, show};

/// Tell what an error is: class, action, the rule and the words that decided, and the server's delay.
///
/// Exit codes: 0 done; 1 something was skipped or empty; 2 usage refused.
#[derive(Args)]
#[command(after_help = "Examples:
  $ retry-machine classify '529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}'
  $ retry-machine classify --status 429 --header 'Retry-After: 5' 'slow down'
  $ tail -1 agent.log | retry-machine classify -
  $ retry-machine classify --batch errors.jsonl > verdicts.jsonl
  $ retry-machine classify --corpus labelled.jsonl
  $ retry-machine classify --rules my-gateway.toml 'the gateway is asleep'")]
pub struct Classify {
    /// The error's text; - reads standard input.
    #[arg(conflicts_with = "batch")]
    text: Option<String>,
    /// The HTTP status, if known beside the text.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(100..=999))]
    status: Option<u16>,
    /// Who was called.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The provider's error code or type.
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// A header of the response, 'Name: value'; may be given again.
    #[arg(long = "header", value_name = "HEADER", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// The zone of clock times that name none, such as Europe/Berlin.
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    #[command(flatten)]
    rules: RulesArgs,
    /// Write one JSON object.
    #[arg(long)]
    json: bool,
    /// Read JSON objects with `message` (and `id`, `status`, `provider`, `code`, `headers`, `nowMs`), one a line,
    /// and write one line for each; - reads standard input.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["status", "provider", "code", "headers", "time_zone", "json"]
    )]
    batch: Option<PathBuf>,
    /// Score a labelled file: JSON objects as for --batch with `class` and `also`; - reads standard input.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["text", "batch", "status", "provider", "code", "headers", "time_zone"]
    )]
    corpus: Option<PathBuf>,
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected 'Name: value', such as 'Retry-After: 5'".to_owned()),
    }
}

impl Classify {
    pub fn run(self) -> Outcome {
        let classifier = self.rules.classifier()?;
        if let Some(path) = self.batch.as_ref().or(self.corpus.as_ref()) {
            return match open(path) {
                Ok((reader, _)) if self.batch.is_some() => batch(path, reader, &classifier),
                Ok((reader, size)) => {
                    let name = path.display().to_string();
                    corpus::score(&name, reader, size, &classifier, self.json)
                }
                Err(error) => {
                    eprintln!("{}: {error}", path.display());
                    Ok(exit::SKIPPED)
                }
            };
        }
        let text = match self.text.as_deref() {
            Some("-") => read_stdin()?,
            Some(text) => text.to_owned(),
            None if !io::stdin().is_terminal() => read_stdin()?,
            None => return Err(Failure::usage("no text; give one, or - for standard input")),
        };
        let mut facts = ErrorFacts::new();
        if let Some(status) = self.status {
            facts = facts.status(status);
        }
        if let Some(provider) = &self.provider {
            facts = facts.provider(provider.as_str());
        }
        if let Some(code) = &self.code {
            facts = facts.code(code.as_str());
        }
        if let Some(zone) = &self.time_zone {
            facts = facts.time_zone(zone.as_str());
        }
        for (name, value) in &self.headers {
            facts = facts.header(name.as_str(), value.as_str());
        }
        let now = UnixMillis(now_ms());
        let explanation = classifier.explain(&text, &facts, now);
        if self.json {
            let mut out = io::stdout().lock();
            serde_json::to_writer(&mut out, &Whole::of(&explanation, now))
                .map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            print(&text, &explanation, now)?;
        }
        if text.trim().is_empty() {
            eprintln!("the text is empty");
            return Ok(exit::SKIPPED);
        }
        Ok(exit::DONE)
    }
}

/// Standard input; bytes that are no UTF-8 are read as U+FFFD.
fn read_stdin() -> io::Result<String> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// A verdict as one line of `--batch`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flat<'v> {
    class: &'static str,
    action: &'static str,
    rule: &'v str,
    span: Option<[usize; 2]>,
    /// The wait from now that the server asked for.
    retry_after_ms: Option<u64>,
    /// The instant, when the server named one.
    reset_at_ms: Option<u64>,
}

impl<'v> Flat<'v> {
    pub fn of(verdict: &'v Verdict, now: UnixMillis) -> Self {
        Self {
            class: verdict.class.name(),
            action: verdict.action().name(),
            rule: verdict.rule.as_str(),
            span: verdict.span.map(|Span { start, end, .. }| [start, end]),
            retry_after_ms: verdict.hint.map(|hint| hint.delay_ms(now)),
            reset_at_ms: verdict.hint.and_then(|hint| hint.instant()).map(|at| at.0),
        }
    }
}

/// An explanation as one object.
#[derive(Serialize)]
struct Whole<'v> {
    #[serde(flatten)]
    verdict: Flat<'v>,
    details: &'v retry_machine::Details,
    signals: &'v [Signal],
    lost: Vec<Lost<'v>>,
}

#[derive(Serialize)]
struct Lost<'v> {
    rule: &'v str,
    class: &'static str,
    why: &'v str,
}

impl<'v> Whole<'v> {
    fn of(explanation: &'v Explanation, now: UnixMillis) -> Self {
        Self {
            verdict: Flat::of(&explanation.verdict, now),
            details: &explanation.details,
            signals: &explanation.signals,
            lost: explanation
                .lost
                .iter()
                .map(|lost| Lost {
                    rule: lost.rule.as_str(),
                    class: lost.class.name(),
                    why: &lost.why,
                })
                .collect(),
        }
    }
}

/// For people.
fn print(text: &str, explanation: &Explanation, now: UnixMillis) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let bold = anstyle::Style::new().bold();
    let dim = anstyle::Style::new().dimmed();
    let red = anstyle::AnsiColor::Red.on_default().bold();
    let verdict = &explanation.verdict;
    let width = show::width();
    writeln!(out, "class   {bold}{}{bold:#}", verdict.class)?;
    writeln!(out, "action  {bold}{}{bold:#}", verdict.action())?;
    writeln!(out, "rule    {}", verdict.rule)?;
    if let Some(hint) = verdict.hint {
        let wait = show::duration(hint.delay_ms(now));
        writeln!(out, "wait    {wait} (from the {})", hint.source.name())?;
    }
    if let Some(window) = explanation.details.window {
        writeln!(out, "window  {window:?}")?;
    }
    if let Some(overflow) = explanation.details.overflow {
        let number =
            |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
        writeln!(
            out,
            "size    {:?}: {} of at most {}",
            overflow.unit,
            number(overflow.actual),
            number(overflow.limit),
        )?;
    }
    if let Some(span) = verdict.span {
        let (line, mark) = show::underlined(text, span, width);
        writeln!(out, "\n{line}\n{red}{mark}{red:#}")?;
    }
    if !explanation.signals.is_empty() {
        writeln!(out, "\nsignals")?;
        for signal in &explanation.signals {
            let shown = show::one_line(&signal.text, width.saturating_sub(12));
            writeln!(out, "  {:<9} {dim}{shown}{dim:#}", signal.kind)?;
        }
    }
    if !explanation.lost.is_empty() {
        writeln!(out, "\nrules that lost")?;
        for lost in &explanation.lost {
            let shown = show::one_line(&lost.why, width.saturating_sub(40));
            writeln!(
                out,
                "  {:<20} {:<15} {dim}{shown}{dim:#}",
                lost.rule.as_str(),
                lost.class
            )?;
        }
    }
    out.flush()
}

#[derive(Serialize)]
struct BatchLine<'v> {
    id: &'v Value,
    #[serde(flatten)]
    verdict: Flat<'v>,
}

#[derive(Serialize)]
struct BatchError<'v> {
    id: &'v Value,
    error: String,
}

fn verdict_line(row: &Row, classifier: &Classifier) -> Result<String, String> {
    let now = UnixMillis(row.now_ms()?.unwrap_or_else(now_ms));
    let verdict = classifier.classify(row.message()?, &row.facts()?, now);
    let line = BatchLine {
        id: &row.id,
        verdict: Flat::of(&verdict, now),
    };
    serde_json::to_string(&line).map_err(|error| error.to_string())
}

fn batch(path: &Path, reader: Box<dyn BufRead>, classifier: &Arc<Classifier>) -> Outcome {
    let from_stdin = is_stdin(path);
    let mut lines = Lines::new(reader, MAX_LINE);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut skipped = false;
    let mut any = false;
    while let Some(line) = lines.next_line()? {
        let row = match line {
            Line::Whole(line) if is_blank(line) => continue,
            Line::Whole(line) => parse(line),
            Line::TooLong => Err((Value::Null, format!("a line of more than {MAX_LINE} bytes"))),
        };
        any = true;
        let (id, written) = match &row {
            Ok(row) => (&row.id, verdict_line(row, classifier)),
            Err((id, error)) => (id, Err(error.clone())),
        };
        match written {
            Ok(line) => writeln!(out, "{line}")?,
            Err(error) => {
                skipped = true;
                let line = BatchError { id, error };
                writeln!(
                    out,
                    "{}",
                    serde_json::to_string(&line).map_err(io::Error::from)?
                )?;
            }
        }
        if from_stdin {
            out.flush()?;
        }
    }
    out.flush()?;
    if !any {
        eprintln!("{}: nothing in it", path.display());
    }
    Ok(if skipped || !any {
        exit::SKIPPED
    } else {
        exit::DONE
    })
}
