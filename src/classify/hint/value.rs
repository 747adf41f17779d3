//! What the value of a key, a header or a phrase says.

use super::moment::{Moment, Naive};
use super::{HintKind, HintValue, contains_ignoring_case, is_among, span};
use crate::time::UnixMillis;

/// Where a value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The value of a header, or a quoted one: there is nothing else.
    Value,
    /// The value of a key without quotes, up to where it ends.
    Key,
    /// Behind the name of a header and its colon, in prose.
    Name,
    /// Behind words.
    Prose,
}

/// What leads to a value: `in 5m`, `at 5pm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// A span is told.
    In,
    /// An instant is told.
    At,
}

impl Lead {
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        if is_among(word, "in|after|for|within") {
            Some(Self::In)
        } else if is_among(word, "at|on|by|until|am|um|el|le|à|às|las") {
            Some(Self::At)
        } else {
            None
        }
    }
}

/// Reads a value of the kind. Times are measured from `now`, which is by the server's clock.
pub(super) fn read(
    kind: HintKind,
    text: &str,
    place: Place,
    lead: Option<Lead>,
    now: UnixMillis,
    zone: Naive<'_>,
) -> Option<HintValue> {
    let whole = text;
    let (text, lead) = skip_fillers(whole, place, lead);
    // Most phrases announce nothing: "Please try again later."
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    if !has_digit
        && !["noon", "midnight"]
            .iter()
            .any(|word| contains_ignoring_case(text, word))
    {
        let (ms, rest) = span::with_units(text).filter(|_| place == Place::Prose)?;
        return (!is_past_or_own(rest)).then_some(HintValue::Span(ms));
    }
    let span = || span::with_units(text).map(as_span);
    let number = |unit| {
        let (ms, rest) = span::plain(text, unit)?;
        is_number(rest, place).then_some((HintValue::Span(ms), rest))
    };
    let epoch = |text| {
        let (whole, rest) = span::plain(text, 1)?;
        let at = if whole > EPOCH_MS {
            whole
        } else if whole > EPOCH_S {
            span::plain(text, span::SECOND)?.0
        } else {
            return None;
        };
        Some((HintValue::Instant(UnixMillis(at)), rest))
    };
    let instant = |china: bool| {
        let (moment, rest) = Moment::read(text)?;
        // The next line may begin with the time of a log.
        let is_next_line = lead.is_none() && whole[..whole.len() - text.len()].contains('\n');
        if is_next_line && moment.is_iso() {
            return None;
        }
        let naive = Naive {
            // What is written for machines is not in the user's zone.
            host: zone
                .host
                .filter(|_| place == Place::Prose || !moment.is_iso()),
            china: china || zone.china,
        };
        let at = moment.resolve(now, naive)?;
        Some((HintValue::Instant(at), rest))
    };
    let (found, rest) = match kind {
        // A unit that is written counts more than the one in the name.
        HintKind::Millis => span().or_else(|| number(1))?,
        HintKind::Seconds => span()
            .or_else(|| number(span::SECOND))
            .or_else(|| span::proto(text).map(as_span))
            .or_else(|| instant(false))?,
        HintKind::Reset => epoch(text)
            .or_else(span)
            .or_else(|| number(span::SECOND))
            .or_else(|| instant(false))?,
        HintKind::ResetMillis => {
            let (ms, rest) = span::plain(text, 1)?;
            if ms > EPOCH_MS {
                (HintValue::Instant(UnixMillis(ms)), rest)
            } else {
                (HintValue::Span(ms), rest)
            }
        }
        HintKind::Span => span()?,
        HintKind::Words | HintKind::ChinaTime => {
            let instant = || instant(kind == HintKind::ChinaTime);
            match lead {
                Some(Lead::At) => epoch(text).or_else(instant).or_else(span)?,
                Some(Lead::In) => span()
                    .or_else(|| span::countdown(text).map(as_span))
                    .or_else(instant)?,
                None => span()
                    .or_else(|| span::proto(text).map(as_span))
                    .or_else(|| epoch(text))
                    .or_else(instant)?,
            }
        }
        HintKind::BarredEpoch => {
            let text = whole.trim_start().strip_prefix('|')?;
            epoch(text.trim_start())?
        }
        HintKind::UnitBefore(_) | HintKind::TimeBefore { .. } => return None,
    };
    let is_prose = matches!(place, Place::Prose | Place::Name);
    (!is_prose || !is_past_or_own(rest)).then_some(found)
}

fn as_span((ms, rest): (u64, &str)) -> (HintValue, &str) {
    (HintValue::Span(ms), rest)
}

/// Above this a number of milliseconds is an epoch (HI1).
const EPOCH_MS: u64 = 1_000_000_000_000;
/// Above this a number of seconds is an epoch (HI1).
const EPOCH_S: u64 = 1_000_000_000;

/// Whether a number with this behind it is one of the unit that the name says, rather than a number of
/// things.
fn is_number(rest: &str, place: Place) -> bool {
    let next = rest.trim_start();
    let is_word = next.starts_with(|c: char| c.is_alphabetic());
    match place {
        Place::Value | Place::Key => !is_word,
        Place::Name => !span::counts_things(rest),
        Place::Prose => {
            !is_word
                || is_among(
                    next.split(|c: char| !c.is_alphabetic())
                        .next()
                        .unwrap_or_default(),
                    "and|or|before|to|then|for|please|if|with|when",
                )
        }
    }
}

/// Whether what stands behind a span says that it is over ("5 minutes ago") or part of a client's own
/// schedule ("in 4 seconds… (attempt 4/10)").
fn is_past_or_own(rest: &str) -> bool {
    if starts_with_word(rest.trim_start(), "ago") {
        return true;
    }
    let marks = |c: char| c.is_whitespace() || !c.is_alphanumeric();
    let next = rest.trim_start_matches(marks);
    let is_bracketed = rest[..rest.len() - next.len()].contains(['(', '[', '#']);
    let count = match ["attempt", "retry", "try"]
        .iter()
        .find(|word| starts_with_word(next, word))
    {
        Some(word) => next[word.len()..].trim_start_matches([' ', '#', ':']),
        None if is_bracketed => next,
        None => return false,
    };
    let behind = count.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_counted = behind.len() < count.len();
    let of = behind.trim_start();
    is_counted
        && (of.starts_with('/')
            || starts_with_word(of, "of")
            || (count.len() < next.len() && of.starts_with([')', ']'])))
}

/// Past the separators and small words between a phrase and its value. The last of them tells whether a
/// span or an instant comes.
fn skip_fillers(text: &str, place: Place, lead: Option<Lead>) -> (&str, Option<Lead>) {
    const PHRASES: &[&str] = &[
        "at least",
        "at most",
        "less than",
        "a further",
        "a minimum of",
        "a delay of",
        "up to",
        "dentro de",
        "después de",
        "depois de",
        "cerca de",
        "al menos",
        "pelo menos",
        "au moins",
        "a las",
    ];
    const WORDS: &str = "in|under|after|at|on|for|about|approximately|approx|around|roughly|another|\
        the|within|is|again|later|by|next|only|or|until|just|em|en|el|unos|aproximadamente|dans|environ|\
        à|às|après|após|le|bitte|noch|weitere|mindestens|etwa|ca|nach|am|um|ab|sie|es|tra|fra|через";
    let mut text = text;
    let mut lead = lead;
    loop {
        let before = text.len();
        text = text.trim_start_matches(|c: char| {
            c.is_whitespace() || ":=~<(\"'*…·≈：（约約大".contains(c)
        });
        if place == Place::Prose && text.starts_with(char::is_alphabetic) {
            let len = text
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(text.len());
            // Of several words, before the one that they begin with.
            let phrase = PHRASES.iter().find(|words| starts_with_word(text, words));
            if let Some(words) = phrase {
                text = &text[words.len()..];
                lead = Lead::of(words.rsplit(' ').next().unwrap_or_default().as_bytes()).or(lead);
            } else if is_among(&text[..len], WORDS) {
                let (word, rest) = text.split_at(len);
                lead = Lead::of(word.as_bytes()).or(lead);
                let is_short = is_among(word, "approx|ca");
                text = rest.strip_prefix('.').filter(|_| is_short).unwrap_or(rest);
            }
        }
        if text.len() == before {
            return (text, lead);
        }
    }
}

/// Whether `text` begins with that word in any case.
pub(super) fn starts_with_word(text: &str, word: &str) -> bool {
    text.get(..word.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(word))
        && !text[word.len()..].starts_with(|c: char| c.is_alphanumeric())
}
