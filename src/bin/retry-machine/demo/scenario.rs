//! What goes wrong on purpose, as data.

use clap::ValueEnum;

use super::reply::{Ending, Reply, Trouble};

/// How a provider fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Scenario {
    /// Two requests are turned away, the third is answered.
    Overloaded,
    /// Every second request is told when to come again.
    RateLimit,
    /// The first key has used up its plan, every other key works.
    UsageLimitTwoKeys,
    /// A gateway answers with an HTML page in place of the provider.
    GatewayPage,
    /// A stream breaks off in the middle of the answer.
    CutStream,
    /// A conversation that is too long for the model.
    Overflow,
    /// No key is ever accepted.
    Auth,
    /// Five different failures, one after the other.
    Storm,
}

/// How much of a conversation fits, in bytes of its messages.
const CONTEXT_BYTES: usize = 16_000;

/// A request, as far as a scenario looks at it.
pub struct Seen {
    /// How many came before it in this scenario.
    pub before: u64,
    /// Whether its key is the first that came in this scenario.
    pub first_key: bool,
    /// The bytes of its messages.
    pub bytes: usize,
}

impl Scenario {
    pub const ALL: [Self; 8] = [
        Self::Overloaded,
        Self::RateLimit,
        Self::UsageLimitTwoKeys,
        Self::GatewayPage,
        Self::CutStream,
        Self::Overflow,
        Self::Auth,
        Self::Storm,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::RateLimit => "rate-limit",
            Self::UsageLimitTwoKeys => "usage-limit-two-keys",
            Self::GatewayPage => "gateway-page",
            Self::CutStream => "cut-stream",
            Self::Overflow => "overflow",
            Self::Auth => "auth",
            Self::Storm => "storm",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|scenario| scenario.name() == name)
    }

    /// What is about to happen.
    pub const fn announcement(self) -> &'static str {
        match self {
            Self::Overloaded => {
                "The provider is overloaded and turns two requests away; the third gets through."
            }
            Self::RateLimit => {
                "The provider answers 429 with Retry-After: 2. The retry comes no sooner than that."
            }
            Self::UsageLimitTwoKeys => {
                "The first key has used up its plan for two hours. There is a second key: no wait."
            }
            Self::GatewayPage => {
                "A gateway in between answers 503 with a page of HTML. That is a server's error like any other."
            }
            Self::CutStream => {
                "The connection breaks in the middle of the answer. The half answer is dropped, the retry begins anew."
            }
            Self::Overflow => {
                "The conversation is too long for the model. To repeat it is useless: it is compacted and run again."
            }
            Self::Auth => {
                "The key is not accepted. To repeat it is useless: the failure is told at once."
            }
            Self::Storm => {
                "Everything at once: overload, gateway page, rate limit, cut stream, an error inside a stream."
            }
        }
    }

    pub const fn prompt(self) -> &'static str {
        match self {
            Self::Overloaded => "Are you there?",
            Self::RateLimit => "And now?",
            Self::UsageLimitTwoKeys => "Is there any credit left?",
            Self::GatewayPage => "What was that page?",
            Self::CutStream => "Count to ten.",
            Self::Overflow => "Where were we?",
            Self::Auth => "May I come in?",
            Self::Storm => "Still there?",
        }
    }

    const fn answer(self) -> &'static str {
        match self {
            Self::Overloaded => "Yes. I was busy for a moment.",
            Self::RateLimit => "Now is a good time.",
            Self::UsageLimitTwoKeys => "With this key, yes.",
            Self::GatewayPage => "A gateway's apology. Never mind it.",
            Self::CutStream => "One, two, three, four, five, six, seven, eight, nine, ten.",
            Self::Overflow => "At the end of a long conversation, of which I know the last part.",
            Self::Auth => "No.",
            Self::Storm => "Yes. Five failures, one answer.",
        }
    }

    /// What the provider answers. Scripts begin again after their last line, so that a provider that only serves
    /// fails again and again.
    pub fn reply(self, seen: &Seen) -> Reply {
        let answer = |ending| Reply::Stream {
            text: self.answer(),
            ending,
        };
        let whole = answer(Ending::Whole);
        let script: &[Reply] = match self {
            Self::Overloaded => &[
                Reply::Refused(Trouble::Overloaded),
                Reply::Refused(Trouble::Overloaded),
                whole,
            ],
            Self::RateLimit => &[
                Reply::Refused(Trouble::RateLimit { retry_after_s: 2 }),
                whole,
            ],
            Self::UsageLimitTwoKeys if seen.first_key => &[Reply::Refused(Trouble::UsageLimit)],
            Self::GatewayPage => &[Reply::GatewayPage, whole],
            Self::CutStream => &[answer(Ending::Cut), whole],
            Self::Overflow if seen.bytes > CONTEXT_BYTES => {
                &[Reply::Refused(Trouble::ContextLength {
                    tokens: seen.bytes / 4,
                    maximum: CONTEXT_BYTES / 4,
                })]
            }
            Self::UsageLimitTwoKeys | Self::Overflow => &[whole],
            Self::Auth => &[Reply::Refused(Trouble::Auth)],
            Self::Storm => &[
                Reply::Refused(Trouble::Overloaded),
                Reply::GatewayPage,
                Reply::Refused(Trouble::RateLimit { retry_after_s: 1 }),
                answer(Ending::Cut),
                answer(Ending::Error),
                whole,
            ],
        };
        script[(seen.before % script.len() as u64) as usize]
    }
}
