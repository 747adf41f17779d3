//! What a replay tells: for people a timeline, for programs JSON lines.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use retry_machine::{
    CompactionCause, Effect, EndReason, ErrorClass, Outcome, RetryEvent, RetrySettings, Verdict,
};
use serde::Serialize;

use crate::classify::Flat;
use crate::show;

/// One thing to tell.
pub enum Record<'r> {
    Session {
        file: &'r str,
        id: Option<&'r str>,
        settings: &'r RetrySettings,
    },
    Failure {
        file: &'r str,
        line: u64,
        now_ms: u64,
        text: &'r str,
        verdict: &'r Verdict,
    },
    Effect {
        file: &'r str,
        line: u64,
        now_ms: u64,
        effect: &'r Effect<'r>,
    },
    Difference {
        file: &'r str,
        line: u64,
        recorded: &'static str,
        machine: &'static str,
        verdict: &'r Verdict,
    },
    Malformed {
        file: &'r str,
        line: u64,
        reason: &'r str,
    },
    Unreadable {
        file: &'r str,
        reason: String,
    },
    Empty {
        file: &'r str,
    },
}

/// Counts of a run, or of all.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub files: u64,
    pub messages: u64,
    pub turns: u64,
    pub failures: u64,
    pub by_class: BTreeMap<ErrorClass, u64>,
    pub retries: u64,
    pub wait_ms: u64,
    pub chains: u64,
    pub recovered: u64,
    pub exhausted: u64,
    pub gave_up: u64,
    pub cancelled: u64,
    pub unfinished: u64,
    pub differences: u64,
    pub malformed: u64,
}

impl Summary {
    pub fn failure(&mut self, class: ErrorClass) {
        self.failures += 1;
        *self.by_class.entry(class).or_default() += 1;
    }

    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.turns += other.turns;
        self.failures += other.failures;
        for (class, count) in &other.by_class {
            *self.by_class.entry(*class).or_default() += count;
        }
        self.retries += other.retries;
        self.wait_ms = self.wait_ms.saturating_add(other.wait_ms);
        self.chains += other.chains;
        self.recovered += other.recovered;
        self.exhausted += other.exhausted;
        self.gave_up += other.gave_up;
        self.cancelled += other.cancelled;
        self.unfinished += other.unfinished;
        self.differences += other.differences;
        self.malformed += other.malformed;
    }

    /// How the chains ended, in words.
    fn outcome(&self) -> String {
        let parts = [
            (self.recovered, "recovered"),
            (self.exhausted, "exhausted"),
            (self.gave_up, "given up"),
            (self.cancelled, "cancelled"),
            (self.unfinished, "unfinished"),
        ];
        let told: Vec<_> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        if told.is_empty() {
            "no retries".to_owned()
        } else {
            told.join(", ")
        }
    }
}

/// Where records go.
pub trait Report {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()>;
    fn run_ended(&mut self, file: &str, summary: &Summary) -> io::Result<()>;
    fn finish(&mut self, summary: &Summary) -> io::Result<()>;
}

/// JSON objects, one a line.
pub struct Json {
    out: BufWriter<io::StdoutLock<'static>>,
}

#[derive(Serialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
enum JsonRecord<'r> {
    Session {
        file: &'r str,
        id: Option<&'r str>,
        settings: &'r RetrySettings,
    },
    Failure {
        file: &'r str,
        line: u64,
        now_ms: u64,
        #[serde(flatten)]
        verdict: Flat<'r>,
        error_message: &'r str,
    },
    Effect {
        file: &'r str,
        line: u64,
        now_ms: u64,
        #[serde(flatten)]
        effect: &'r Effect<'r>,
    },
    Difference {
        file: &'r str,
        line: u64,
        recorded: &'r str,
        machine: &'r str,
        class: &'r str,
        rule: &'r str,
    },
    Malformed {
        file: &'r str,
        line: Option<u64>,
        reason: &'r str,
    },
    Summary {
        files: u64,
        turns: u64,
        failures: u64,
        by_class: BTreeMap<&'static str, u64>,
        retries: u64,
        wait_ms: u64,
        chains: u64,
        recovered: u64,
        exhausted: u64,
        gave_up: u64,
        cancelled: u64,
        unfinished: u64,
        differences: u64,
        malformed: u64,
    },
}

impl Json {
    pub fn new() -> Self {
        Self {
            out: BufWriter::new(io::stdout().lock()),
        }
    }

    fn write(&mut self, record: &JsonRecord<'_>) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, record)?;
        self.out.write_all(b"\n")
    }
}

impl Report for Json {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let record = match *record {
            Record::Session { file, id, settings } => JsonRecord::Session { file, id, settings },
            Record::Failure {
                file,
                line,
                now_ms,
                text,
                verdict,
            } => JsonRecord::Failure {
                file,
                line,
                now_ms,
                verdict: Flat::of(verdict, retry_machine::UnixMillis(now_ms)),
                error_message: text,
            },
            Record::Effect {
                file,
                line,
                now_ms,
                effect,
            } => JsonRecord::Effect {
                file,
                line,
                now_ms,
                effect,
            },
            Record::Difference {
                file,
                line,
                recorded,
                machine,
                verdict,
            } => JsonRecord::Difference {
                file,
                line,
                recorded,
                machine,
                class: verdict.class.name(),
                rule: verdict.rule.as_str(),
            },
            Record::Malformed { file, line, reason } => JsonRecord::Malformed {
                file,
                line: Some(line),
                reason,
            },
            Record::Unreadable { file, ref reason } => JsonRecord::Malformed {
                file,
                line: None,
                reason,
            },
            Record::Empty { file } => JsonRecord::Malformed {
                file,
                line: None,
                reason: "no messages in it",
            },
        };
        self.write(&record)
    }

    fn run_ended(&mut self, _: &str, _: &Summary) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        self.write(&JsonRecord::Summary {
            files: summary.files,
            turns: summary.turns,
            failures: summary.failures,
            by_class: summary
                .by_class
                .iter()
                .map(|(class, count)| (class.name(), *count))
                .collect(),
            retries: summary.retries,
            wait_ms: summary.wait_ms,
            chains: summary.chains,
            recovered: summary.recovered,
            exhausted: summary.exhausted,
            gave_up: summary.gave_up,
            cancelled: summary.cancelled,
            unfinished: summary.unfinished,
            differences: summary.differences,
            malformed: summary.malformed,
        })?;
        self.out.flush()
    }
}

/// A timeline.
pub struct Human {
    out: BufWriter<anstream::AutoStream<io::StdoutLock<'static>>>,
    width: usize,
    many: bool,
    start_ms: Option<u64>,
}

const DIM: anstyle::Style = anstyle::Style::new().dimmed();
const BOLD: anstyle::Style = anstyle::Style::new().bold();
const RED: anstyle::Style = anstyle::AnsiColor::Red.on_default();
const GREEN: anstyle::Style = anstyle::AnsiColor::Green.on_default();
const YELLOW: anstyle::Style = anstyle::AnsiColor::Yellow.on_default();

impl Human {
    pub fn new(many: bool) -> Self {
        Self {
            out: BufWriter::new(anstream::stdout().lock()),
            width: show::width(),
            many,
            start_ms: None,
        }
    }

    /// `line 12  +1.2 s` in front of what happened, or blanks below it.
    fn told(
        &mut self,
        line: u64,
        now_ms: u64,
        style: anstyle::Style,
        text: &str,
    ) -> io::Result<()> {
        let start = *self.start_ms.get_or_insert(now_ms);
        let since = show::duration(now_ms.saturating_sub(start));
        let text = show::cut(text, self.width.saturating_sub(26));
        writeln!(
            self.out,
            "{DIM}{line:>6}  {since:>14}{DIM:#}  {style}{text}{style:#}"
        )
    }
}

impl Report for Human {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        match *record {
            Record::Session { file, id, settings } => {
                self.start_ms = None;
                writeln!(
                    self.out,
                    "{BOLD}{}{BOLD:#}",
                    show::one_line(file, self.width)
                )?;
                let id = id.map_or(String::new(), |id| {
                    format!("session {}, ", show::one_line(id, 40))
                });
                let policy = if settings.enabled() {
                    format!(
                        "at most {} retries, {} before the first",
                        settings.max_retries(),
                        show::duration(settings.base_delay_ms())
                    )
                } else {
                    "retrying is off".to_owned()
                };
                writeln!(self.out, "{DIM}  line            time  {id}{policy}{DIM:#}")
            }
            Record::Failure {
                line,
                now_ms,
                text,
                verdict,
                ..
            } => {
                let shown = show::one_line(text, self.width);
                let told = format!("{} ({}): {shown}", verdict.class, verdict.rule);
                self.told(line, now_ms, RED, &told)
            }
            Record::Effect {
                line,
                now_ms,
                effect,
                ..
            } => match effect {
                Effect::Emit {
                    event: RetryEvent::Start(start),
                } => {
                    let wait = show::duration(start.delay_ms);
                    let told = format!(
                        "  retry {} of {} in {wait}",
                        start.attempt, start.max_attempts
                    );
                    self.told(line, now_ms, YELLOW, &told)
                }
                Effect::Emit {
                    event: RetryEvent::End(end),
                } => match &end.outcome {
                    Outcome::Success => {
                        let told = format!("recovered after {}", retries(end.attempt));
                        self.told(line, now_ms, GREEN, &told)
                    }
                    Outcome::Failure { reason, .. } => {
                        let why = match reason {
                            EndReason::Exhausted => "the budget is used up",
                            EndReason::Fatal => "repeating cannot help",
                            EndReason::Overflow => "the context does not fit",
                            EndReason::Cancelled => "cancelled",
                            EndReason::Disabled => "retrying is off",
                            EndReason::ContinueFailed => "the agent could not go on",
                            EndReason::Deadline => "the next wait would pass the deadline",
                            EndReason::ServerDelayTooLong => "the server asks for too long a wait",
                            _ => "given up",
                        };
                        let told = format!("  gave up after {}: {why}", retries(end.attempt));
                        self.told(line, now_ms, RED, &told)
                    }
                },
                Effect::SwitchCredential { .. } => self.told(
                    line,
                    now_ms,
                    YELLOW,
                    "  asks for another credential; there is none",
                ),
                Effect::CheckCompaction {
                    cause: CompactionCause::Overflow,
                } => self.told(line, now_ms, YELLOW, "  hands over to compaction"),
                Effect::DropFailedMessage
                | Effect::Sleep { .. }
                | Effect::CancelSleep { .. }
                | Effect::ContinueAgent { .. }
                | Effect::AbortAgent
                | Effect::CheckCompaction {
                    cause: CompactionCause::TurnEnd,
                } => Ok(()),
            },
            Record::Difference {
                line,
                recorded,
                machine,
                verdict,
                ..
            } => {
                let did = match recorded {
                    "retry" => "retries",
                    "compact" => "compacts",
                    _ => "does nothing",
                };
                let told = format!(
                    "{line:>6}  difference      the recording {did}, the machine says {machine} ({})",
                    verdict.class
                );
                writeln!(self.out, "{BOLD}{}{BOLD:#}", show::cut(&told, self.width))
            }
            Record::Malformed { file, line, reason } => {
                self.out.flush()?;
                let told = show::one_line(reason, 300);
                anstream::eprintln!("{}:{line}: {told}", show::one_line(file, 300));
                Ok(())
            }
            Record::Unreadable { file, ref reason } => {
                self.out.flush()?;
                anstream::eprintln!(
                    "{}: {}",
                    show::one_line(file, 300),
                    show::one_line(reason, 300)
                );
                Ok(())
            }
            Record::Empty { file } => {
                self.out.flush()?;
                anstream::eprintln!("{}: no messages in it", show::one_line(file, 300));
                Ok(())
            }
        }
    }

    fn run_ended(&mut self, _: &str, summary: &Summary) -> io::Result<()> {
        if self.many {
            writeln!(self.out, "{DIM}        {}{DIM:#}\n", summary.outcome())?;
        }
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        let classes: Vec<_> = summary
            .by_class
            .iter()
            .map(|(class, count)| format!("{count} {class}"))
            .collect();
        if !self.many {
            writeln!(self.out)?;
        }
        if summary.files != 1 {
            writeln!(self.out, "files        {}", summary.files)?;
        }
        writeln!(self.out, "turns        {}", summary.turns)?;
        if summary.failures == 0 {
            writeln!(self.out, "failures     0")?;
        } else {
            writeln!(
                self.out,
                "failures     {} ({})",
                summary.failures,
                classes.join(", ")
            )?;
        }
        writeln!(
            self.out,
            "retries      {}, waiting {} in all",
            summary.retries,
            show::duration(summary.wait_ms)
        )?;
        writeln!(
            self.out,
            "chains       {} ({})",
            summary.chains + summary.unfinished,
            summary.outcome()
        )?;
        writeln!(self.out, "differences  {}", summary.differences)?;
        if summary.malformed > 0 {
            writeln!(self.out, "malformed    {}", summary.malformed)?;
        }
        self.out.flush()
    }
}

fn retries(count: u32) -> String {
    match count {
        1 => "1 retry".to_owned(),
        count => format!("{count} retries"),
    }
}
