//! `retry-machine replay`: what the machine does on a recorded run, and where the recording did otherwise.
//!
//! Each file is one run on a fresh machine in virtual time. What a recording decided about a failure stands
//! behind it, so a failed message waits until the next message (or the end) before it is handed in.

mod report;
mod run;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::lines::{Line, Lines, MAX_LINE, is_blank, is_stdin, open};
use crate::rules::RulesArgs;
use crate::settings::SettingsArgs;
use crate::{Failure, Outcome, exit};
use report::{Human, Json, Record, Report, Summary};
use retry_machine::wire::AgentLine;
use run::{Branch, Run};

/// Replay recorded agent runs: what failed, what the machine does, and where the recording did otherwise.
///
/// Reads streams of events (message_end lines) and history files (message entries). A difference is a retry
/// that the recording starts and the machine would not, or the other way round; other delays and a used-up
/// budget are none.
///
/// Settings: flags, else --settings, else what the recording shows (maxAttempts, first delayMs), else the
/// defaults. Exit codes: 0 done; 1 something was skipped or empty; 2 usage or settings refused; 3 a difference,
/// with --fail-on-difference.
#[derive(Args)]
#[command(after_help = "Examples:
  $ retry-machine replay run.jsonl
  $ agent --mode json 'fix the tests' | retry-machine replay -
  $ retry-machine replay --json --max-retries 5 history/*.jsonl | jq 'select(.type == \"difference\")'")]
pub struct Replay {
    /// Recorded runs, one a file; - reads standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    rules: RulesArgs,
    /// The model's context window in tokens.
    #[arg(long, value_name = "TOKENS")]
    context_window: Option<u64>,
    /// Of a history file, only the branch that ends with this entry.
    #[arg(long, value_name = "ID")]
    leaf: Option<String>,
    /// Write JSON objects, one a line.
    #[arg(long)]
    json: bool,
    /// Exit with 3 if there is a difference.
    #[arg(long)]
    fail_on_difference: bool,
    /// The longest line that is read, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = MAX_LINE)]
    max_line: usize,
}

impl Replay {
    pub fn run(self) -> Outcome {
        let settings = self.settings.patches()?;
        let classifier = self.rules.classifier()?;
        if self.leaf.is_some() && self.files.iter().any(|file| is_stdin(file)) {
            return Err(Failure::usage(
                "--leaf needs a file: standard input cannot be read twice",
            ));
        }
        let mut report: Box<dyn Report> = if self.json {
            Box::new(Json::new())
        } else {
            Box::new(Human::new(self.files.len() > 1))
        };
        let mut total = Summary::default();
        let mut skipped = false;
        for file in &self.files {
            let name = file.display().to_string();
            let branch = match &self.leaf {
                None => Ok(None),
                Some(leaf) => Branch::to(leaf, open(file), self.max_line).map(Some),
            };
            let mut run = Run::new(
                &name,
                &classifier,
                &settings,
                self.context_window.unwrap_or(0),
            );
            let summary =
                match branch.and_then(|branch| self.one(file, branch, &mut run, &mut *report)) {
                    Ok(summary) => summary,
                    Err(Stop::Output(error)) => return Err(error.into()),
                    Err(Stop::Input(error)) => {
                        skipped = true;
                        report.record(&Record::Unreadable {
                            file: &name,
                            reason: error.to_string(),
                        })?;
                        // What was read before it broke still counts.
                        run.into_summary()
                    }
                };
            skipped |= summary.malformed > 0 || summary.messages == 0;
            total.add(&summary);
        }
        total.files = self.files.len() as u64;
        report.finish(&total)?;
        Ok(if self.fail_on_difference && total.differences > 0 {
            exit::DIFFERENCE
        } else if skipped {
            exit::SKIPPED
        } else {
            exit::DONE
        })
    }

    fn one(
        &self,
        file: &Path,
        branch: Option<Branch>,
        run: &mut Run,
        report: &mut dyn Report,
    ) -> Result<Summary, Stop> {
        let (reader, size) = open(file)?;
        let progress = progress(size);
        let mut lines = Lines::new(reader, self.max_line);
        loop {
            let number = lines.number() + 1;
            let parsed = match lines.next_line().map_err(Stop::Input)? {
                None => break,
                Some(Line::Whole(line)) if is_blank(line) => continue,
                Some(Line::Whole(line)) => AgentLine::parse(line),
                Some(Line::TooLong) => Err(format!("longer than {} bytes", self.max_line)),
            };
            match parsed {
                Ok(line) if branch.as_ref().is_none_or(|branch| branch.contains(&line)) => {
                    run.line(number, line, report).map_err(Stop::Output)?;
                }
                Ok(_) => {}
                Err(reason) => run
                    .malformed(number, &reason, report)
                    .map_err(Stop::Output)?,
            }
            if number % 1024 == 0 {
                progress.set_position(lines.bytes());
            }
        }
        progress.finish_and_clear();
        run.end(report).map_err(Stop::Output)
    }
}

/// What ends the reading of a file.
enum Stop {
    /// It cannot be read.
    Input(io::Error),
    /// Nobody reads what we write, or it cannot be written.
    Output(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Input(error)
    }
}

/// A bar on a terminal, for files that take long enough to see one.
fn progress(size: Option<u64>) -> ProgressBar {
    const WORTH_IT: u64 = 16 << 20;
    match size {
        Some(size) if size >= WORTH_IT && io::stderr().is_terminal() => {
            let bar = ProgressBar::new(size);
            if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}")
            {
                bar.set_style(style);
            }
            bar
        }
        _ => ProgressBar::hidden(),
    }
}
