//! Why a verdict is what it is: the signals, the rules that lost, and details of limits and overflows.
//!
//! None of this is needed to decide, so the verdict stays small and this may take its time.

use serde::Serialize;

use super::pattern::Found;
use super::signals::Origin;
use super::words::{OPAQUE, Token};
use super::{ErrorClass, Reading, Refusal, RuleId, Span, Verdict};

/// A verdict with all that led to it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The verdict, as [`Classifier::classify`](super::Classifier::classify) gives it.
    pub verdict: Verdict,
    /// What was found in the text and the facts, in order.
    pub signals: Vec<Signal>,
    /// The rules that found something and did not decide, in their order.
    pub lost: Vec<LostRule>,
    /// What there is to know about a limit or an overflow.
    pub details: Details,
}

/// One signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Signal {
    /// `status`, `code`, `message`, `prose`, `title`, `page`, `provider`, `header` or `hint`.
    pub kind: &'static str,
    /// What it says; a text in the form in which rules see it, `‹…›` for what is only echoed.
    pub text: String,
    /// Where it stands, if in the text.
    pub span: Option<Span>,
}

/// A rule that found something and did not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRule {
    /// The rule.
    pub rule: RuleId,
    /// What it would have said.
    pub class: ErrorClass,
    /// Why it did not decide.
    pub why: String,
}

/// What there is to know about a limit or an overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Details {
    /// Over which time a limit counts.
    pub window: Option<LimitWindow>,
    /// What is too much, for an overflow and for a request that is too large otherwise.
    pub overflow: Option<OverflowDetail>,
}

/// Over which time a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum LimitWindow {
    /// Seconds.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// The five hours, or the session, of a plan.
    Session,
    /// A day.
    Day,
    /// A week.
    Week,
    /// A month.
    Month,
    /// How much may run at once.
    Concurrency,
}

/// What is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct OverflowDetail {
    /// Of what.
    pub unit: OverflowUnit,
    /// How much may be, if the text tells.
    pub limit: Option<u64>,
    /// How much was, if the text tells.
    pub actual: Option<u64>,
    /// How much has to go at least, if the text tells.
    pub deficit: Option<u64>,
}

/// Of what there can be too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum OverflowUnit {
    /// Tokens in the context.
    Tokens,
    /// Tokens in one request, against a budget for a minute: no waiting cures it.
    TokensPerMinute,
    /// Bytes of the request.
    Bytes,
    /// Images, files and the like: their number or their size.
    Media,
    /// Output tokens asked for.
    OutputCap,
}

pub(super) fn explain(reading: &Reading<'_>) -> Explanation {
    let mut verdict = None;
    let mut lost = Vec::new();
    let mut details = Details::default();
    #[cfg(feature = "rules")]
    for rule in &reading.classifier.loaded {
        match (rule.judge(reading), &verdict) {
            (Some(won), None) => {
                details = Details::read(reading, won.class, None);
                verdict = Some(won);
            }
            (Some(_), Some(won)) => lost.push(LostRule {
                rule: rule.id().clone(),
                class: rule.class(),
                why: format!("comes after `{}`", won.rule),
            }),
            (None, _) => {}
        }
    }
    for (at, rule) in reading.candidates() {
        let why = match (reading.judge(at, rule), &verdict) {
            (Ok(won), None) => {
                details = Details::read(reading, won.class, rule.about);
                verdict = Some(won);
                continue;
            }
            (Ok(_), Some(won)) => format!("comes after `{}`", won.rule),
            // A rule by status alone with another status found nothing at all.
            (Err(Refusal::Status), _) if rule.any.is_empty() => continue,
            (Err(Refusal::Status), _) => match reading.status {
                Some(status) => format!("does not hold with status {status}"),
                None => "needs a status".to_owned(),
            },
            (Err(Refusal::Hint), _) => "holds only with a shorter delay".to_owned(),
            (Err(Refusal::Without), _) => "needs further words beside".to_owned(),
            (Err(Refusal::Unless(found)), _) => match reading.span(found) {
                Some(span) => format!("yields to \"{}\"", &reading.source[span.start..span.end]),
                None => "yields to the given code".to_owned(),
            },
        };
        lost.push(LostRule {
            rule: RuleId::built_in(&rule.id),
            class: rule.class,
            why,
        });
    }
    Explanation {
        verdict: verdict.unwrap_or_else(|| reading.unknown()),
        signals: signals(reading),
        lost,
        details,
    }
}

fn signals(reading: &Reading<'_>) -> Vec<Signal> {
    let mut signals = Vec::new();
    let given = |kind, text: String| Signal {
        kind,
        text,
        span: None,
    };
    if let Some(status) = reading.status {
        signals.push(Signal {
            kind: "status",
            text: status.to_string(),
            span: reading.status_span(),
        });
    }
    if let Some(provider) = &reading.facts.provider {
        signals.push(given("provider", provider.to_string()));
    }
    for (name, value) in &reading.facts.headers {
        signals.push(given("header", format!("{name}: {value}")));
    }
    let mut first = 0;
    for field in reading
        .signals
        .tokens()
        .chunk_by(|one, next| one.field == next.field)
    {
        let last = first + field.len() - 1;
        signals.push(Signal {
            kind: match field[0].origin {
                Origin::Prose => "prose",
                Origin::Message => "message",
                Origin::Code => "code",
                Origin::Title => "title",
                Origin::Page => "page",
            },
            text: readable(reading, first, field),
            span: reading.span(Found {
                first: first as u16,
                last: last as u16,
            }),
        });
        first = last + 1;
    }
    if let Some(hint) = reading.hint {
        let text = match hint.instant() {
            Some(at) => format!("until {} ({})", at.0, hint.source.name()),
            None => format!(
                "{} ms ({})",
                reading.hint_ms.unwrap_or(0),
                hint.source.name()
            ),
        };
        signals.push(given("hint", text));
    }
    signals
}

/// Words for people, in the form in which rules see them; the first is the word number `first` of all.
fn readable(reading: &Reading<'_>, first: usize, tokens: &[Token]) -> String {
    let mut shown = String::new();
    for (at, token) in tokens.iter().enumerate() {
        if at > 0 {
            shown.push(' ');
        }
        if token.word == OPAQUE {
            shown.push_str("‹…›");
            continue;
        }
        let place = Found {
            first: (first + at) as u16,
            last: (first + at) as u16,
        };
        match (reading.span(place), &reading.facts.code) {
            (Some(span), _) => shown.push_str(&reading.source[span.start..span.end].to_lowercase()),
            (None, Some(code)) => {
                // A code that the host gave stands behind the window.
                let start = usize::from(token.start) - reading.signals.window_len();
                let end = usize::from(token.end) - reading.signals.window_len();
                shown.push_str(&code.get(start..end).unwrap_or_default().to_lowercase());
            }
            (None, None) => {}
        }
    }
    shown
}

impl Details {
    fn read(reading: &Reading<'_>, class: ErrorClass, about: Option<OverflowUnit>) -> Self {
        let text = readable(reading, 0, reading.signals.tokens());
        let limited = matches!(
            class,
            ErrorClass::RateLimit | ErrorClass::UsageLimit | ErrorClass::Billing
        ) || about == Some(OverflowUnit::TokensPerMinute);
        Self {
            window: limited.then(|| window(&text)).flatten(),
            overflow: about.map(|unit| OverflowDetail::read(&text, unit)),
        }
    }
}

/// The window that the text names; the longest, when it names several and none is said to be used up.
fn window(text: &str) -> Option<LimitWindow> {
    use LimitWindow::{Concurrency, Day, Hour, Minute, Month, Second, Session, Week};
    const NAMES: [(LimitWindow, &[&str]); 8] = [
        (Month, &["per month", "monthly", "this month", "by month"]),
        (
            Week,
            &["per week", "weekly", "7 day", "this week", "every week"],
        ),
        (
            Day,
            &[
                "per day", "daily", "rpd", "tpd", "by day", "24 hour", "today",
            ],
        ),
        (
            Session,
            &["5 hour", "5h", "session limit", "session usage", "5 小时"],
        ),
        (Hour, &["per hour", "hourly", "60 minute", "1 hour"]),
        (
            Minute,
            &[
                "per min",
                "rpm",
                "tpm",
                "by minute",
                "last minute",
                "per 60s",
                "每分钟",
            ],
        ),
        (Second, &["per sec", "qps", "rps"]),
        (Concurrency, &["concurren", "parallel", "at once", "并发"]),
    ];
    NAMES
        .iter()
        .find(|(_, names)| names.iter().any(|name| text.contains(name)))
        .map(|(window, _)| *window)
}

impl OverflowDetail {
    fn read(text: &str, unit: OverflowUnit) -> Self {
        let numbers = numbers(text);
        // What stands behind a word for a limit is the limit; what is above it is what was sent.
        const CUES: [&str; 14] = [
            "limit",
            "maximum",
            "max",
            "length",
            "size",
            "window",
            "context",
            "up to",
            "at most",
            "than",
            "<=",
            "n ctx",
            ">",
            "supported is",
        ];
        let cue = |at: usize| {
            let start = text.floor_char_boundary(at.saturating_sub(28));
            let before = &text[start..at];
            CUES.iter()
                .filter_map(|cue| before.rfind(cue))
                .max()
                .is_some()
        };
        let limit = numbers
            .iter()
            .filter(|(at, _)| cue(*at))
            .find(|(_, value)| numbers.iter().any(|(_, other)| other > value))
            .or_else(|| numbers.iter().find(|(at, _)| cue(*at)))
            .map(|(_, value)| *value);
        let actual = limit.and_then(|limit| {
            numbers
                .iter()
                .map(|(_, value)| *value)
                .filter(|value| *value > limit)
                .max()
        });
        let deficit = limit
            .zip(actual)
            .map(|(limit, actual)| actual.saturating_sub(limit));
        Self {
            unit,
            limit,
            actual,
            deficit,
        }
    }
}

/// The whole numbers of a text with their offsets; `1,500` is one number.
fn numbers(text: &str) -> Vec<(usize, u64)> {
    let bytes = text.as_bytes();
    let mut numbers = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        let mut value = 0_u64;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'0'..=b'9' => {
                    value = value
                        .saturating_mul(10)
                        .saturating_add(u64::from(byte - b'0'))
                }
                b',' if bytes
                    .get(at + 1..at + 4)
                    .is_some_and(|next| next.iter().all(u8::is_ascii_digit)) => {}
                _ => break,
            }
            at += 1;
        }
        let glued = start > 0 && bytes[start - 1].is_ascii_alphanumeric()
            || bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
        if !glued && value > 0 {
            numbers.push((start, value));
        }
    }
    numbers
}
