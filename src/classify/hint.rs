//! Delay hints (SPEC section 7): how long the server said to wait, from headers, keys and words.
//!
//! Every form that is found is a candidate; the longest credible one counts (HI2). A span stays a span; a
//! date or a clock time becomes an instant. An instant in a header is taken as a span from the `Date` header
//! beside it, if there is one: that takes the skew between the clocks out.
//!
//! Integers only; a fraction of a millisecond is rounded up, and nothing overflows. What is negative,
//! garbage or of an unknown unit is no hint. Deliberately absent: a clock, and guesses. A clock time
//! without a zone ("resets 3am") is no hint unless the host says which zone is meant
//! ([`ErrorFacts::time_zone`]), and zones by name need the feature `tz-bundled`.

mod moment;
mod span;

use super::ErrorFacts;
use super::pattern::Found;
use super::signals::{KeyValue, Signals};
use crate::backoff::MAX_DELAY_MS;
use crate::time::UnixMillis;
use moment::Moment;

/// How long to wait, and where that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DelayHint {
    /// The span or the instant.
    pub value: HintValue,
    /// Where it was read.
    pub source: HintSource,
}

/// A span from when the error arrived, or an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a server says one or the other.
pub enum HintValue {
    /// Milliseconds from when the error arrived.
    Span(u64),
    /// An instant by the wall clock.
    Instant(UnixMillis),
}

/// Where a hint was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HintSource {
    /// A header of the response.
    Header,
    /// The value of a key in the text: `"retryDelay": "34s"`.
    Key,
    /// The words of the text: `try again in 2.5s`.
    Words,
    /// The host.
    Host,
}

impl HintSource {
    /// `header`, `key`, `words` or `host`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Key => "key",
            Self::Words => "words",
            Self::Host => "host",
        }
    }
}

impl DelayHint {
    /// The host's own: a span in milliseconds.
    #[must_use]
    pub const fn span_ms(ms: u64) -> Self {
        Self {
            value: HintValue::Span(ms),
            source: HintSource::Host,
        }
    }

    /// The host's own: an instant.
    #[must_use]
    pub const fn at(instant: UnixMillis) -> Self {
        Self {
            value: HintValue::Instant(instant),
            source: HintSource::Host,
        }
    }

    /// The wait from `now` in milliseconds; an instant in the past counts as 0 (HI2).
    #[must_use]
    pub const fn delay_ms(self, now: UnixMillis) -> u64 {
        match self.value {
            HintValue::Span(ms) => ms,
            HintValue::Instant(at) => at.since(now),
        }
    }

    /// The span in milliseconds, if the server told one.
    #[must_use]
    pub const fn span(self) -> Option<u64> {
        match self.value {
            HintValue::Span(ms) => Some(ms),
            HintValue::Instant(_) => None,
        }
    }

    /// The instant, if the server named one.
    #[must_use]
    pub const fn instant(self) -> Option<UnixMillis> {
        match self.value {
            HintValue::Span(_) => None,
            HintValue::Instant(at) => Some(at),
        }
    }
}

/// What the value behind a key, a header or a phrase means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HintKind {
    /// A plain number is milliseconds.
    Millis,
    /// A plain number is seconds; units and dates are understood.
    Seconds,
    /// A number is a span in seconds, or an epoch in seconds or milliseconds when it is large.
    Reset,
    /// A number is a span in milliseconds, or an epoch in milliseconds when it is large.
    ResetMillis,
    /// A number needs its unit, or it is a date or a time of day.
    Words,
    /// A date or a time of day, of a service in China unless it says otherwise.
    ChinaTime,
    /// The number and its unit stand before: `30秒后重试`.
    UnitBefore(u64),
}

/// The keys and headers that carry hints, without case and separators.
pub(super) fn key_kind(key: &[u8]) -> Option<HintKind> {
    Some(match key {
        b"retryafterms"
        | b"xmsretryafterms"
        | b"grpcretrypushbackms"
        | b"retrydelayms"
        | b"retryinms"
        | b"waitms" => HintKind::Millis,
        b"retryafter"
        | b"retryafterseconds"
        | b"retryafters"
        | b"xretryafter"
        | b"retrydelay"
        | b"retryin"
        | b"retryinseconds"
        | b"retrydelayseconds"
        | b"resetsinseconds"
        | b"resetinseconds"
        | b"resetafterseconds"
        | b"resetafter"
        | b"resetsin"
        | b"resetin"
        | b"quotaresetdelay"
        | b"estimatedtime"
        | b"waitseconds"
        | b"cooldownseconds"
        | b"xratelimitresetafter"
        | b"waittime"
        | b"retryafterinseconds" => HintKind::Seconds,
        b"xratelimitresetms" | b"ratelimitresetms" | b"resetms" => HintKind::ResetMillis,
        b"xratelimitreset"
        | b"ratelimitreset"
        | b"resetsat"
        | b"resetat"
        | b"resettime"
        | b"resettimestamp"
        | b"quotaresettimestamp"
        | b"quotaresettime"
        | b"nextresettime"
        | b"resetdate"
        | b"limitresetat"
        | b"retryat"
        | b"nextresetat" => HintKind::Reset,
        _ => {
            // x-ratelimit-reset-requests, anthropic-ratelimit-tokens-reset, …
            let limits = contains(key, b"ratelimit");
            if limits && contains(key, b"reset") && key.ends_with(b"ms") {
                HintKind::ResetMillis
            } else if limits && contains(key, b"reset") {
                HintKind::Reset
            } else {
                return None;
            }
        }
    })
}

/// The phrases that announce hints in prose, as patterns of the normalised text.
pub(super) const PHRASES: &[(&str, HintKind)] = &[
    ("retry after ms", HintKind::Millis),
    ("x ratelimit reset ms", HintKind::ResetMillis),
    ("x ratelimit reset", HintKind::Reset),
    ("ratelimit reset", HintKind::Reset),
    ("retry after", HintKind::Seconds),
    ("retryafter", HintKind::Seconds),
    ("retry after seconds", HintKind::Seconds),
    ("retry delay", HintKind::Seconds),
    ("try again", HintKind::Words),
    (
        "(please retry|. retry|: retry|, retry|and retry|then retry|can retry|to retry|retry again|try|back|again|available|available again|resume|resumes|wait|wait for) in",
        HintKind::Words,
    ),
    (
        "(please wait|wait|wait for|wait another|wait about|wait at least)",
        HintKind::Words,
    ),
    ("(reset|resets) (in|after|at|on|by)", HintKind::Words),
    (
        "(reset|resets|resetting|reset time|resets:)",
        HintKind::Words,
    ),
    (
        "(available|retry|resume|resumes|restored|back) (at|on|after)",
        HintKind::Words,
    ),
    ("regain access (on|at|in)", HintKind::Words),
    ("(until|not before)", HintKind::Words),
    (
        "(novamente|nuevamente|de nuevo|otra vez|intentarlo|erneut|reintente|reintentar) (em|en|in)",
        HintKind::Words,
    ),
    (
        "(redefinido|reinicia|restablecerá|restablece|renovado) (em|en|el|às|a las)",
        HintKind::Words,
    ),
    ("(réessayez|réessayer) (dans|à|après)", HintKind::Words),
    (
        "(warten sie|versuchen sie es) (in|bitte|noch)",
        HintKind::Words,
    ),
    ("(将在|将于|將於|将会在)", HintKind::ChinaTime),
    ("(请等待|请在|等待|重试时间)", HintKind::Words),
    (
        "(秒后|秒後|秒钟后|秒之后|초 후)",
        HintKind::UnitBefore(span::SECOND),
    ),
    (
        "(分钟后|分鐘後|分後|分钟之后|분 후)",
        HintKind::UnitBefore(span::MINUTE),
    ),
    (
        "(小时后|小時後|時間後|小时之后|시간 후)",
        HintKind::UnitBefore(span::HOUR),
    ),
    ("(天后|天後|日後|일 후)", HintKind::UnitBefore(span::DAY)),
];

/// The longest credible hint of headers and text.
pub(super) fn find(
    source: &str,
    signals: &Signals<'_, '_>,
    phrases: impl Iterator<Item = (HintKind, Found)>,
    facts: &ErrorFacts<'_>,
    now: UnixMillis,
) -> Option<DelayHint> {
    let mut best = Best { hint: None, now };
    let zone = Zone::of(facts);
    headers(facts, now, &zone, &mut best);
    for KeyValue { kind, at } in signals.hint_keys() {
        let after_key = source.get(at..).unwrap_or_default();
        let given = is_given(facts, source, at);
        if !given {
            best.offer(value(kind, after_key, now, &zone, true), HintSource::Key);
        }
    }
    for (kind, found) in phrases {
        let Some((start, end)) = signals.source_span(found.first.into(), found.last.into()) else {
            continue;
        };
        let found = if let HintKind::UnitBefore(unit) = kind {
            span::before(source.get(..start).unwrap_or_default(), unit).map(HintValue::Span)
        } else if is_name(kind) && is_given(facts, source, start + 1) {
            continue;
        } else {
            value(
                kind,
                &source[source.ceil_char_boundary(end)..],
                now,
                &zone,
                false,
            )
        };
        best.offer(found, HintSource::Words);
    }
    best.hint
}

/// Phrases that are the names of headers.
fn is_name(kind: HintKind) -> bool {
    match kind {
        HintKind::Millis | HintKind::Seconds | HintKind::Reset | HintKind::ResetMillis => true,
        HintKind::Words | HintKind::ChinaTime | HintKind::UnitBefore(_) => false,
    }
}

/// Whether the host gave a header of the name that ends or begins around `at` in the text.
fn is_given(facts: &ErrorFacts<'_>, source: &str, at: usize) -> bool {
    if facts.headers.is_empty() {
        return false;
    }
    let start = source.floor_char_boundary(at.saturating_sub(48));
    let end = source.ceil_char_boundary((at + 32).min(source.len()));
    let around = &source.as_bytes()[start..end];
    facts.headers.iter().any(|(name, _)| {
        around
            .windows(name.len().max(1))
            .any(|window| window.eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// The longest offered so far.
struct Best {
    hint: Option<DelayHint>,
    now: UnixMillis,
}

impl Best {
    fn offer(&mut self, value: Option<HintValue>, source: HintSource) {
        let Some(value) = value else {
            return;
        };
        let hint = DelayHint { value, source };
        let longer = self
            .hint
            .is_none_or(|best| hint.delay_ms(self.now) > best.delay_ms(self.now));
        if longer {
            self.hint = Some(hint);
        }
    }
}

/// The zone in which times without a zone are meant.
pub(super) struct Zone<'a> {
    host: Option<&'a str>,
    china: bool,
}

impl<'a> Zone<'a> {
    fn of(facts: &'a ErrorFacts<'_>) -> Self {
        let china = facts.provider.as_deref().is_some_and(|provider| {
            ["zai", "z.ai", "zhipu", "bigmodel", "glm"]
                .iter()
                .any(|name| contains_ignoring_case(provider, name))
        });
        Self {
            host: facts.time_zone.as_deref(),
            china,
        }
    }
}

/// Reads what stands behind a key or a phrase. `is_value` if nothing but the value stands there.
fn value(
    kind: HintKind,
    text: &str,
    now: UnixMillis,
    zone: &Zone<'_>,
    is_value: bool,
) -> Option<HintValue> {
    let text = skip_fillers(text, is_value);
    match kind {
        HintKind::Millis => span::plain(text, 1).map(HintValue::Span),
        HintKind::Seconds => span::with_units(text)
            .or_else(|| span::plain(text, span::SECOND))
            .map(HintValue::Span)
            .or_else(|| instant(text, now, zone, false)),
        HintKind::Reset => epoch(text)
            .or_else(|| span::with_units(text).map(HintValue::Span))
            .or_else(|| span::plain(text, span::SECOND).map(HintValue::Span))
            .or_else(|| instant(text, now, zone, false)),
        HintKind::ResetMillis => {
            let ms = span::plain(text, 1)?;
            Some(if ms > EPOCH_MS {
                HintValue::Instant(UnixMillis(ms))
            } else {
                HintValue::Span(ms)
            })
        }
        HintKind::Words => span::with_units(text)
            .map(HintValue::Span)
            .or_else(|| instant(text, now, zone, false)),
        HintKind::ChinaTime => span::with_units(text)
            .map(HintValue::Span)
            .or_else(|| instant(text, now, zone, true)),
        HintKind::UnitBefore(_) => None,
    }
}

/// Above this a number of milliseconds is an epoch (HI1).
const EPOCH_MS: u64 = 1_000_000_000_000;
/// Above this a number of seconds is an epoch (HI1).
const EPOCH_S: u64 = 1_000_000_000;

fn epoch(text: &str) -> Option<HintValue> {
    let seconds_as_ms = span::plain(text, span::SECOND)?;
    let whole = span::plain(text, 1)?;
    if whole > EPOCH_MS {
        Some(HintValue::Instant(UnixMillis(whole)))
    } else if seconds_as_ms / span::SECOND > EPOCH_S {
        Some(HintValue::Instant(UnixMillis(
            seconds_as_ms.min(MAX_DELAY_MS),
        )))
    } else {
        None
    }
}

fn instant(text: &str, now: UnixMillis, zone: &Zone<'_>, china: bool) -> Option<HintValue> {
    let moment = Moment::read(text)?;
    let at = moment.resolve(now, zone.host, china || zone.china)?;
    Some(HintValue::Instant(at))
}

/// Past the separators and small words between a phrase and its value.
fn skip_fillers(text: &str, is_value: bool) -> &str {
    let mut text = text;
    loop {
        let before = text.len();
        text = text.trim_start_matches(|c: char| {
            c.is_whitespace()
                || matches!(
                    c,
                    ':' | '=' | '~' | '(' | '"' | '\'' | '\\' | '*' | '`' | '…' | '·' | '≈'
                )
        });
        if !is_value {
            for word in [
                "in",
                "after",
                "at",
                "on",
                "for",
                "about",
                "approximately",
                "approx.",
                "around",
                "another",
                "the",
                "a further",
                "within",
                "at least",
                "is",
                "again",
                "later",
                "by",
                "next",
                "bitte",
                "noch",
                "em",
                "en",
                "dans",
                "à",
                "el",
                "to",
                "up to",
                "from now",
                "your",
                "or",
                "and",
            ] {
                if let Some(rest) = strip_word(text, word) {
                    text = rest;
                    break;
                }
            }
        }
        if text.len() == before {
            return text;
        }
    }
}

/// `text` behind `word`, if it begins with that word in any case.
fn strip_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let head = text.get(..word.len())?;
    let rest = &text[word.len()..];
    (head.eq_ignore_ascii_case(word) && !rest.starts_with(|c: char| c.is_alphanumeric()))
        .then_some(rest)
}

/// The hints that headers give.
fn headers(facts: &ErrorFacts<'_>, now: UnixMillis, zone: &Zone<'_>, best: &mut Best) {
    let server_now = facts
        .headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("date"))
        .and_then(|(_, date)| Moment::read(date))
        .and_then(|moment| moment.resolve(now, Some("UTC"), false));
    for (name, text) in &facts.headers {
        let mut buffer = [0; KEY_LEN];
        let key = normalise(name.as_bytes(), &mut buffer);
        // The structured field `RateLimit: "default";r=0;t=50`.
        if key == b"ratelimit" {
            let rest = text.split(';').map(str::trim);
            let exhausted = rest.clone().all(|part| {
                !matches!(part.split_once('='), Some(("r" | "remaining", left)) if left.trim() != "0")
            });
            let reset = rest
                .clone()
                .chain(text.split(',').map(str::trim))
                .find_map(|part| {
                    part.strip_prefix("t=")
                        .or_else(|| part.strip_prefix("reset="))
                });
            if let Some(reset) = reset.filter(|_| exhausted) {
                best.offer(
                    span::plain(reset, span::SECOND).map(HintValue::Span),
                    HintSource::Header,
                );
            }
            continue;
        }
        let Some(kind) = key_kind(key) else {
            continue;
        };
        if has_budget_left(facts, name) {
            continue;
        }
        let found = match (value(kind, text.trim(), now, zone, true), server_now) {
            (Some(HintValue::Instant(at)), Some(server_now)) => {
                Some(HintValue::Span(at.since(server_now)))
            }
            (found, _) => found,
        };
        best.offer(found, HintSource::Header);
    }
}

/// Whether the bucket of a reset header has something left: then its reset says nothing about this error.
fn has_budget_left(facts: &ErrorFacts<'_>, reset: &str) -> bool {
    let Some(at) = reset
        .as_bytes()
        .windows("reset".len())
        .position(|window| window.eq_ignore_ascii_case(b"reset"))
    else {
        return false;
    };
    let (before, after) = (&reset[..at], &reset[at + "reset".len()..]);
    facts.headers.iter().any(|(name, left)| {
        let middle = name
            .get(before.len()..name.len().saturating_sub(after.len()))
            .is_some_and(|middle| middle.eq_ignore_ascii_case("remaining"));
        middle
            && name[..before.len()].eq_ignore_ascii_case(before)
            && name[name.len() - after.len()..].eq_ignore_ascii_case(after)
            && !matches!(left.trim(), "0" | "")
            && !left.trim().starts_with('-')
            && !left.trim().starts_with("0.0")
    })
}

/// The longest key that is compared.
pub(super) const KEY_LEN: usize = 48;

/// Lower-case letters and digits of a key: `errorMessage`, `error_message` and `Error-Message` are one.
/// Empty if it is longer than any key that means something.
pub(super) fn normalise<'k>(key: &[u8], buffer: &'k mut [u8; KEY_LEN]) -> &'k [u8] {
    let mut len = 0;
    for byte in key.iter().filter(|byte| byte.is_ascii_alphanumeric()) {
        let Some(slot) = buffer.get_mut(len) else {
            return b"";
        };
        *slot = byte.to_ascii_lowercase();
        len += 1;
    }
    &buffer[..len]
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn contains_ignoring_case(text: &str, part: &str) -> bool {
    text.as_bytes()
        .windows(part.len())
        .any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}
