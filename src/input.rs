//! What the shell hands in.

use std::borrow::Cow;

use crate::classify::{ErrorFacts, Verdict};
use crate::effect::{RequestId, RunId, TimerId};
use crate::message::{AssistantMessage, StopReason, Usage};
use crate::settings::SettingsPatch;

/// One input of the machine (SPEC section 2).
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "an input is made, handed in and gone: a box would allocate on each message"
)]
// Exhaustive on purpose: the transition table of SPEC section 4 names exactly these.
pub enum Input<'m> {
    /// A model call has ended (EF1 says when to hand it in).
    AssistantMessage(Turn<'m>),
    /// The timer of an [`Effect::Sleep`](crate::Effect::Sleep) has fired.
    TimerFired(TimerId),
    /// The answer to an [`Effect::SwitchCredential`](crate::Effect::SwitchCredential).
    CredentialSwitched {
        /// The id of the request.
        request: RequestId,
        /// Whether another credential took over. No store, or an error in it: `false`.
        switched: bool,
    },
    /// An [`Effect::ContinueAgent`](crate::Effect::ContinueAgent) could not start, or its run ended
    /// without a message.
    ContinueFailed {
        /// The id of the run.
        run: RunId,
        /// Why.
        error: Cow<'m, str>,
    },
    /// Give up retrying; leave a running call alone (AB1, AB2).
    AbortRetry,
    /// Abort everything (AB3).
    Abort,
    /// A new prompt begins: no earlier run will hand in messages any more (ST11).
    PromptStarted,
    /// Some settings have new values, for the next failure (NU5).
    SettingsChanged(SettingsPatch),
}

impl<'m> Input<'m> {
    /// [`Input::AssistantMessage`] of a message alone.
    #[must_use]
    pub fn message(message: &'m AssistantMessage) -> Self {
        Self::AssistantMessage(Turn::message(message))
    }

    /// [`Input::AssistantMessage`] of a failure that never was a message.
    #[must_use]
    pub fn failure(text: impl Into<Cow<'m, str>>) -> Self {
        Self::AssistantMessage(Turn::failure(text))
    }
}

impl<'m> From<Turn<'m>> for Input<'m> {
    fn from(turn: Turn<'m>) -> Self {
        Self::AssistantMessage(turn)
    }
}

/// A model call that has ended, with all that the host knows about it.
///
/// ```
/// use retry_machine::{AssistantMessage, ErrorClass, ErrorFacts, Turn, Verdict};
///
/// // A message, with the model's window:
/// let message = AssistantMessage::error("503 Service Unavailable");
/// let turn = Turn::message(&message).context_window(200_000);
///
/// // A failure that never was a message, with what the SDK knows:
/// let facts = ErrorFacts::new().status(429).header("retry-after", "5").provider("openai");
/// let turn = Turn::failure("Rate limit reached").facts(facts);
///
/// // A host with its own classifier:
/// let turn = Turn::failure("gateway asleep").verdict(Verdict::new(ErrorClass::ServerError));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Turn<'m> {
    pub(crate) stop_reason: StopReason,
    pub(crate) error_text: Option<Cow<'m, str>>,
    pub(crate) usage: Option<Usage>,
    pub(crate) context_window: u64,
    pub(crate) facts: ErrorFacts<'m>,
    pub(crate) verdict: Option<Verdict>,
}

impl<'m> Turn<'m> {
    /// Of an assistant message.
    #[must_use]
    pub fn message(message: &'m AssistantMessage) -> Self {
        let mut facts = ErrorFacts::new();
        if let Some(provider) = &message.provider {
            facts = facts.provider(provider.as_str());
        }
        Self {
            stop_reason: message.stop_reason,
            error_text: message.error_text().map(Cow::Borrowed),
            usage: message.usage,
            context_window: 0,
            facts,
            verdict: None,
        }
    }

    /// Of a failure that never was a message. A text is needed: without one nothing is retried (CL1).
    #[must_use]
    pub fn failure(text: impl Into<Cow<'m, str>>) -> Self {
        Self {
            stop_reason: StopReason::Error,
            error_text: Some(text.into()).filter(|text| !text.is_empty()),
            usage: None,
            context_window: 0,
            facts: ErrorFacts::new(),
            verdict: None,
        }
    }

    /// Why the call ended.
    #[must_use]
    pub const fn stop_reason(&self) -> StopReason {
        self.stop_reason
    }

    /// The model's context window in tokens; 0 is unknown (CL4).
    #[must_use]
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.context_window = tokens;
        self
    }

    /// What is known beside the text; each fact given replaces the same fact read from the text.
    #[must_use]
    pub fn facts(mut self, facts: ErrorFacts<'m>) -> Self {
        self.facts = facts;
        self
    }

    /// The host's own verdict, in place of the classifier's.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(verdict);
        self
    }

    /// Whether the usage is above the window (CL4, ST6).
    pub(crate) fn over_window(&self) -> bool {
        self.usage
            .is_some_and(|usage| usage.exceeds(self.context_window))
    }
}

/// Of a message that is given away, for a turn that outlives the call.
impl From<AssistantMessage> for Turn<'static> {
    fn from(message: AssistantMessage) -> Self {
        let mut facts = ErrorFacts::new();
        if let Some(provider) = message.provider {
            facts = facts.provider(provider);
        }
        Self {
            stop_reason: message.stop_reason,
            error_text: message
                .error_message
                .filter(|text| !text.is_empty())
                .map(Cow::Owned),
            usage: message.usage,
            context_window: 0,
            facts,
            verdict: None,
        }
    }
}
