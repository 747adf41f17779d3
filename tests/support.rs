//! A machine in virtual time, driven by short scripts.

use std::path::PathBuf;

use retry_machine::{
    Ambient, AssistantMessage, Effect, Effects, Input, Phase, RequestId, RetryMachine,
    RetrySettings, RunId, SettingsPatch, StopReason, TimerId, Turn, Usage,
};

/// The window of the model in all scripts.
pub const WINDOW: u64 = 200_000;
/// A text that is retried, one of a usage limit, one that is fatal, one of an overflow.
pub const R: &str = "503 Service Unavailable";
pub const U: &str = "You have hit your usage limit.";
pub const F: &str = "401 invalid api key";
pub const O: &str = "prompt is too long: 213462 tokens > 200000 maximum";

/// One input of a script.
#[derive(Clone, Debug)]
pub enum Do {
    /// An error message with this text.
    E(&'static str),
    /// The same, with usage above the window.
    EFull(&'static str),
    Ok,
    OkFull,
    OkToolUse,
    OkLength,
    Aborted,
    /// The armed timer, at its instant.
    Wake,
    /// The armed timer so many milliseconds before its instant.
    WakeEarly(u64),
    /// The timer that fired last, again.
    WakeAgain,
    /// The answer to the latest request, or to an earlier one.
    Switched(bool),
    SwitchedFirst(bool),
    ContinueFailed(&'static str),
    AbortRetry,
    Abort,
    PromptStarted,
    Set(SettingsPatch),
}

/// A machine in virtual time.
pub struct World {
    pub machine: RetryMachine,
    pub now: u64,
    pub requests: Vec<RequestId>,
    pub run: Option<RunId>,
    last_timer: Option<TimerId>,
}

impl World {
    pub fn new(settings: RetrySettings) -> Self {
        Self {
            machine: RetryMachine::new(settings),
            now: 0,
            requests: Vec::new(),
            run: None,
            last_timer: None,
        }
    }

    pub fn ambient(&self) -> Ambient {
        Ambient::at(self.now)
    }

    /// One input; the effects in the notation of the specification.
    pub fn step(&mut self, what: &Do) -> String {
        let message = match what {
            Do::E(text) => Some(AssistantMessage::error(*text)),
            Do::EFull(text) => Some(AssistantMessage::error(*text).with_usage(above_window())),
            Do::Ok => Some(AssistantMessage::success()),
            Do::OkFull => Some(AssistantMessage::success().with_usage(above_window())),
            Do::OkToolUse => Some(AssistantMessage::new(StopReason::ToolUse)),
            Do::OkLength => Some(AssistantMessage::new(StopReason::Length)),
            Do::Aborted => Some(AssistantMessage::aborted()),
            _ => None,
        };
        let input = match what {
            Do::Wake | Do::WakeEarly(_) => {
                let Phase::Waiting { timer, due, .. } = self.machine.phase() else {
                    panic!("no timer is armed");
                };
                let early = if let Do::WakeEarly(ms) = what { *ms } else { 0 };
                self.now = self.now.max(due.0 - early);
                self.last_timer = Some(timer);
                Input::TimerFired(timer)
            }
            Do::WakeAgain => Input::TimerFired(self.last_timer.expect("a timer has fired")),
            Do::Switched(switched) => Input::CredentialSwitched {
                request: *self.requests.last().expect("a request was made"),
                switched: *switched,
            },
            Do::SwitchedFirst(switched) => Input::CredentialSwitched {
                request: self.requests[0],
                switched: *switched,
            },
            Do::ContinueFailed(why) => Input::ContinueFailed {
                run: self.run.expect("a run was begun"),
                error: (*why).into(),
            },
            Do::AbortRetry => Input::AbortRetry,
            Do::Abort => Input::Abort,
            Do::PromptStarted => Input::PromptStarted,
            Do::Set(patch) => Input::SettingsChanged(patch.clone()),
            _ => Turn::message(message.as_ref().expect("a message"))
                .context_window(WINDOW)
                .into(),
        };
        let effects = self.machine.handle(input, Ambient::at(self.now));
        self.note(&effects);
        effects.to_string()
    }

    /// A whole script; `·` between the effects of the inputs.
    pub fn play(&mut self, script: &[Do]) -> String {
        let steps: Vec<_> = script.iter().map(|what| self.step(what)).collect();
        steps.join(" · ")
    }

    fn note(&mut self, effects: &Effects<'_>) {
        for effect in effects.iter() {
            match effect {
                Effect::SwitchCredential { request, .. } => self.requests.push(*request),
                Effect::ContinueAgent { run } => self.run = Some(*run),
                _ => {}
            }
        }
    }
}

fn above_window() -> Usage {
    Usage::of_input(WINDOW - 10, 11)
}

/// Defaults but for what is given.
pub fn settings(max_retries: u32, base_delay_ms: u64) -> RetrySettings {
    RetrySettings::builder()
        .max_retries(max_retries)
        .base_delay_ms(base_delay_ms)
        .build()
        .expect("settings in range")
}

pub fn set_max(max_retries: u32) -> Do {
    Do::Set(
        SettingsPatch::builder()
            .max_retries(max_retries)
            .patch()
            .expect("in range"),
    )
}

pub fn set_base(base_delay_ms: u64) -> Do {
    Do::Set(
        SettingsPatch::builder()
            .base_delay_ms(base_delay_ms)
            .patch()
            .expect("in range"),
    )
}

pub fn disable() -> Do {
    Do::Set(SettingsPatch::enabled(false))
}

/// A file of the material that lies outside the project; None, said plainly, when it is not there.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("RETRY_MACHINE_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")),
        PathBuf::from,
    );
    let file = root.join(path);
    if file.exists() {
        Some(file)
    } else {
        eprintln!(
            "SKIPPED: {} is not there (RETRY_MACHINE_SHARED)",
            file.display()
        );
        None
    }
}
