//! `retry-machine policy`: what settings come to, told by a machine that runs under them.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::Args;
use retry_machine::{
    Action, Ambient, Effect, EndReason, ErrorClass, Input, Outcome as EndOutcome, RetryEvent,
    RetryMachine, RetrySettings, SETTINGS, Turn, Verdict,
};

use crate::settings::SettingsArgs;
use crate::show::duration;
use crate::{Outcome, exit};

/// Show what the settings come to: the waits for each kind of failure, and what differs from the documented policy.
///
/// The waits are not computed but observed: a machine under these settings fails until it gives up.
///
/// Exit codes: 0 done; 2 settings refused.
#[derive(Args)]
#[command(after_help = "Examples:
  $ retry-machine policy
  $ retry-machine policy --recommended
  $ retry-machine policy --settings settings.json --max-retries 10")]
pub struct Policy {
    #[command(flatten)]
    settings: SettingsArgs,
}

/// The columns that the longest wait is drawn in.
const BAR: u64 = 40;

impl Policy {
    pub fn run(self) -> Outcome {
        let mut settings = RetrySettings::default();
        for patch in self.settings.patches()? {
            settings.apply(&patch);
        }
        let mut out = std::io::stdout().lock();
        out.write_all(told(&settings).as_bytes())?;
        Ok(exit::DONE)
    }
}

fn told(settings: &RetrySettings) -> String {
    let mut text = String::new();
    let mut groups: Vec<(Ladder, Vec<&str>)> = Vec::new();
    let retried = |class: &&ErrorClass| matches!(class.action(), Action::Retry | Action::Switch);
    for class in ErrorClass::ALL.iter().filter(retried) {
        let ladder = Ladder::climb(settings, *class);
        match groups.iter_mut().find(|(known, _)| *known == ladder) {
            Some((_, names)) => names.push(class.name()),
            None => groups.push((ladder, vec![class.name()])),
        }
    }
    let longest = groups.iter().flat_map(|(ladder, _)| &ladder.waits);
    let longest = longest.map(|wait| wait.1).max().unwrap_or(0);
    for (ladder, names) in &groups {
        let _ = writeln!(text, "{}", names.join(", "));
        ladder.draw(longest, &mut text);
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "usage_limit: another credential first, and then at once; the waits above are for when there is none"
    );
    for (action, what) in [
        (Action::Compact, "compaction decides"),
        (Action::Stop, "never retried"),
    ] {
        let names = ErrorClass::ALL
            .iter()
            .filter(|class| class.action() == action);
        let names: Vec<_> = names.map(|class| class.name()).collect();
        let _ = writeln!(text, "{}: {what}", names.join(", "));
    }
    let documented = RetrySettings::default();
    let recommended = RetrySettings::recommended();
    let mut heading = "\nnot as documented\n";
    for setting in SETTINGS {
        let value = setting.value_in(settings);
        if value == setting.value_in(&documented) {
            continue;
        }
        text.push_str(heading);
        heading = "";
        let was = setting.value_in(&documented);
        let _ = write!(
            text,
            "  retry.{} = {value} (documented: {was})",
            setting.key
        );
        if value == setting.value_in(&recommended) {
            let _ = write!(text, ": {}", setting.reason);
        }
        text.push('\n');
    }
    text
}

/// The waits of a chain in which every call fails in the same way.
#[derive(PartialEq, Eq)]
struct Ladder {
    /// The shortest and the longest that jitter can make of each, in milliseconds.
    waits: Vec<(u64, u64)>,
    end: Option<EndReason>,
}

impl Ladder {
    fn climb(settings: &RetrySettings, class: ErrorClass) -> Self {
        let (low, _) = chain(settings, class, 0);
        let (high, end) = chain(settings, class, u64::MAX);
        // A chain of longer waits can be cut short by a bound on its time: it is the one that counts.
        let waits = low.iter().zip(&high);
        let waits = waits.map(|(a, b)| (*a.min(b), *a.max(b))).collect();
        Self { waits, end }
    }

    fn draw(&self, longest: u64, text: &mut String) {
        let bar = |ms: u64| (u128::from(ms) * u128::from(BAR)).div_ceil(u128::from(longest.max(1)));
        let bar = |ms: u64| usize::try_from(bar(ms)).unwrap_or(0);
        let mut at = 0;
        for same in self.waits.chunk_by(|a, b| a == b) {
            let (low, high) = same[0];
            let number = match same.len() {
                1 => format!("{}", at + 1),
                more => format!("{}–{}", at + 1, at + more),
            };
            at += same.len();
            let each = if same.len() > 1 { " each" } else { "" };
            let drawn = "█".repeat(bar(low)) + &"░".repeat(bar(high) - bar(low));
            let space = if drawn.is_empty() { "" } else { " " };
            let _ = writeln!(
                text,
                "  {number:>5}  {drawn}{space}{}{each}",
                range(low, high)
            );
        }
        let sum = |pick: fn(&(u64, u64)) -> u64| self.waits.iter().map(pick).sum();
        let end = self.end.map_or("not retried", EndReason::name);
        if self.waits.is_empty() {
            let _ = writeln!(text, "      ✗  {end}");
        } else {
            let total = range(sum(|wait| wait.0), sum(|wait| wait.1));
            let _ = writeln!(text, "      ✗  {end}, after {total} of waiting");
        }
    }
}

fn range(low: u64, high: u64) -> String {
    if low == high {
        duration(low)
    } else {
        format!("{} to {}", duration(low), duration(high))
    }
}

/// Fails until the chain ends: its waits in milliseconds, and why it ended.
fn chain(
    settings: &RetrySettings,
    class: ErrorClass,
    entropy: u64,
) -> (Vec<u64>, Option<EndReason>) {
    let mut machine = RetryMachine::new(settings.clone());
    let mut waits = Vec::new();
    let mut now = Ambient::at(0).with_entropy(entropy);
    let mut reason = None;
    let turn = Turn::failure("failed").verdict(Verdict::new(class));
    let _ = machine.handle(Input::PromptStarted, now);
    let mut next = Some(Input::AssistantMessage(turn.clone()));
    while let Some(input) = next.take() {
        for effect in machine.handle(input, now) {
            match effect {
                Effect::Emit { event } => match event {
                    RetryEvent::Start(start) => waits.push(start.delay_ms),
                    RetryEvent::End(end) => {
                        if let EndOutcome::Failure { reason: why, .. } = end.outcome {
                            reason = Some(why);
                        }
                    }
                },
                Effect::SwitchCredential { request, .. } => {
                    next = Some(Input::CredentialSwitched {
                        request,
                        switched: false,
                    });
                }
                Effect::Sleep { timer, delay_ms } => {
                    now =
                        Ambient::at(now.monotonic.0.saturating_add(delay_ms)).with_entropy(entropy);
                    next = Some(Input::TimerFired(timer));
                }
                Effect::ContinueAgent { .. } => next = Some(Input::AssistantMessage(turn.clone())),
                Effect::DropFailedMessage
                | Effect::CancelSleep { .. }
                | Effect::AbortAgent
                | Effect::CheckCompaction { .. } => {}
            }
        }
    }
    (waits, reason)
}
