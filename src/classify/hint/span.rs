//! Spans as servers write them: `12`, `0.5`, `591ms`, `1h 2m`, `5 days 22 hours and 11 minutes`, `PT30S`.
//!
//! Integers only: a decimal is read digit by digit, and a fraction of a millisecond is rounded up.

use crate::backoff::MAX_DELAY_MS;

pub(super) const SECOND: u64 = 1000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;

/// A decimal number without a sign.
#[derive(Clone, Copy)]
struct Decimal {
    whole: u64,
    /// Up to nine digits behind the point, as billionths; more digits only round up.
    billionths: u64,
}

impl Decimal {
    fn times(self, unit_ms: u64) -> u64 {
        let whole = u128::from(self.whole) * u128::from(unit_ms);
        let part = (u128::from(self.billionths) * u128::from(unit_ms)).div_ceil(1_000_000_000);
        u64::try_from(whole + part).map_or(MAX_DELAY_MS, |ms| ms.min(MAX_DELAY_MS))
    }
}

/// The number at the start, and what follows.
fn number(text: &str) -> Option<(Decimal, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut whole = 0_u64;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'0'..=b'9' => {
                whole = whole
                    .saturating_mul(10)
                    .saturating_add(u64::from(byte - b'0'));
            }
            // 1,500: a comma between thousands.
            b',' if at > 0
                && bytes
                    .get(at + 1..at + 4)
                    .is_some_and(|next| next.iter().all(u8::is_ascii_digit))
                && !bytes.get(at + 4).is_some_and(u8::is_ascii_digit) => {}
            _ => break,
        }
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let mut billionths = 0;
    if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at += 1;
        let mut scale = 100_000_000;
        let mut rest = false;
        while let Some(byte @ b'0'..=b'9') = bytes.get(at) {
            if scale > 0 {
                billionths += u64::from(byte - b'0') * scale;
                scale /= 10;
            } else {
                rest |= *byte != b'0';
            }
            at += 1;
        }
        billionths += u64::from(rest);
    }
    Some((Decimal { whole, billionths }, &text[at..]))
}

/// A number without a unit, in `unit_ms`. What follows must not make it something else.
pub(super) fn plain(text: &str, unit_ms: u64) -> Option<u64> {
    let (value, rest) = number(text)?;
    let next = rest.chars().next();
    let is_part = next.is_some_and(|c| c.is_alphanumeric() || c == '%' || c == '_')
        || (next.is_some_and(|c| matches!(c, '-' | ':' | '/' | '.'))
            && rest[1..].starts_with(|c: char| c.is_ascii_digit()));
    (!is_part).then(|| value.times(unit_ms))
}

/// A span with units, of one or more parts.
pub(super) fn with_units(text: &str) -> Option<u64> {
    if let Some(span) = iso8601(text) {
        return Some(span);
    }
    let mut total = 0_u64;
    let mut rest = text;
    let mut last_unit = u64::MAX;
    let mut any = false;
    while let Some((value, unit, after)) = part(rest) {
        // Parts go down: `1h 2m`, never `2m 1h`.
        if unit >= last_unit {
            break;
        }
        total = total.saturating_add(value.times(unit)).min(MAX_DELAY_MS);
        last_unit = unit;
        any = true;
        rest = after.trim_start_matches([' ', ',', '\t', '\n', '\u{a0}']);
        rest = ["and ", "et ", "und ", "e ", "y "]
            .iter()
            .find_map(|word| rest.strip_prefix(word))
            .unwrap_or(rest);
    }
    any.then_some(total)
}

/// One number with its unit.
fn part(text: &str) -> Option<(Decimal, u64, &str)> {
    let one = Decimal {
        whole: 1,
        billionths: 0,
    };
    let (value, rest) = match number(text) {
        Some(found) => found,
        // "a minute", "an hour", "one hour"
        None => ["a ", "an ", "one "].iter().find_map(|word| {
            let head = text.get(..word.len())?;
            head.eq_ignore_ascii_case(word)
                .then(|| (one, &text[word.len()..]))
        })?,
    };
    let rest = rest.trim_start_matches([' ', '\t', '\n', '\u{a0}', '-']);
    let len = rest
        .find(|c: char| !c.is_alphabetic())
        .unwrap_or(rest.len());
    let (word, after) = rest.split_at(len);
    let (unit, used) = unit(word)?;
    Some((
        value,
        unit,
        if used == word.len() {
            after
        } else {
            &rest[used..]
        },
    ))
}

/// The unit that `word` is, in milliseconds, and how much of the word that is: in Chinese the next word
/// follows without a space.
fn unit(word: &str) -> Option<(u64, usize)> {
    const UNITS: &[(u64, &[&str])] = &[
        (
            1,
            &[
                "ms",
                "msec",
                "msecs",
                "millisecond",
                "milliseconds",
                "millis",
                "毫秒",
            ],
        ),
        (
            SECOND,
            &[
                "s",
                "sec",
                "secs",
                "second",
                "seconds",
                "segundo",
                "segundos",
                "seconde",
                "secondes",
                "sekunde",
                "sekunden",
                "секунд",
                "секунды",
            ],
        ),
        (
            MINUTE,
            &[
                "m",
                "min",
                "mins",
                "minute",
                "minutes",
                "minuto",
                "minutos",
                "minuten",
                "минут",
                "минуты",
            ],
        ),
        (
            HOUR,
            &[
                "h",
                "hr",
                "hrs",
                "hour",
                "hours",
                "hora",
                "horas",
                "heure",
                "heures",
                "stunde",
                "stunden",
                "часов",
                "часа",
            ],
        ),
        (
            DAY,
            &[
                "d", "day", "days", "día", "días", "dia", "dias", "jour", "jours", "tag", "tage",
                "tagen", "дней",
            ],
        ),
        (
            WEEK,
            &[
                "w", "wk", "wks", "week", "weeks", "semana", "semanas", "semaine", "woche",
                "wochen",
            ],
        ),
    ];
    const GLUED: &[(u64, &str)] = &[
        (1, "毫秒"),
        (SECOND, "秒"),
        (SECOND, "초"),
        (MINUTE, "分钟"),
        (MINUTE, "分鐘"),
        (MINUTE, "分"),
        (MINUTE, "분"),
        (HOUR, "小时"),
        (HOUR, "小時"),
        (HOUR, "時間"),
        (HOUR, "时"),
        (HOUR, "시간"),
        (DAY, "天"),
        (DAY, "日"),
        (DAY, "일"),
    ];
    let named = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(word));
    if let Some((unit, _)) = UNITS.iter().find(|(_, names)| named(names)) {
        return Some((*unit, word.len()));
    }
    GLUED
        .iter()
        .find(|(_, name)| word.starts_with(name))
        .map(|(unit, name)| (*unit, name.len()))
}

/// `PT1M30S`, `P1DT2H`.
fn iso8601(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix(['P', 'p'])?;
    let mut in_time = false;
    let mut total = 0_u64;
    let mut any = false;
    loop {
        if !in_time && let Some(after) = rest.strip_prefix(['T', 't']) {
            in_time = true;
            rest = after;
        }
        let Some((value, after)) = number(rest) else {
            break;
        };
        let mut units = after.chars();
        let unit = match (units.next()?.to_ascii_uppercase(), in_time) {
            ('W', false) => WEEK,
            ('D', false) => DAY,
            ('H', true) => HOUR,
            ('M', true) => MINUTE,
            ('S', true) => SECOND,
            _ => return None,
        };
        total = total.saturating_add(value.times(unit)).min(MAX_DELAY_MS);
        any = true;
        rest = units.as_str();
    }
    (any && !rest.starts_with(|c: char| c.is_alphanumeric())).then_some(total)
}

/// The number that ends right before a phrase, in `unit_ms`: `30秒后重试`.
pub(super) fn before(text: &str, unit_ms: u64) -> Option<u64> {
    let text = text.trim_end();
    let start = text
        .char_indices()
        .rev()
        .take(24)
        .take_while(|(_, c)| c.is_ascii_digit() || *c == '.')
        .last()
        .map(|(at, _)| at)?;
    if text[..start].ends_with('-') {
        return None;
    }
    let (value, rest) = number(&text[start..])?;
    rest.is_empty().then(|| value.times(unit_ms))
}
