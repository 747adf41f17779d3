//! Spans as servers write them: `12`, `0.5`, `591ms`, `1h 2m`, `5 days 22 hours and 11 minutes`, `PT30S`.
//!
//! Integers only: a decimal is read digit by digit, and a fraction of a millisecond is rounded up. Of a
//! range the longer end counts: never earlier than asked.

use super::is_among;
use crate::backoff::MAX_DELAY_MS;

pub(super) const SECOND: u64 = 1000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;

/// A span in milliseconds, and what follows it.
pub(super) type Read<'t> = Option<(u64, &'t str)>;

/// Blanks between the parts of a span; texts are wrapped at any of them.
const BLANKS: [char; 5] = [' ', '\t', '\n', '\r', '\u{a0}'];

/// A decimal number without a sign.
#[derive(Clone, Copy)]
struct Decimal {
    whole: u64,
    /// Up to nine digits behind the point, as billionths; more digits only round up.
    billionths: u64,
}

impl Decimal {
    const HALF: Self = Self {
        whole: 0,
        billionths: 500_000_000,
    };

    const fn whole(whole: u64) -> Self {
        Self {
            whole,
            billionths: 0,
        }
    }

    fn times(self, unit_ms: u64) -> u64 {
        let whole = u128::from(self.whole) * u128::from(unit_ms);
        let part = (u128::from(self.billionths) * u128::from(unit_ms)).div_ceil(1_000_000_000);
        u64::try_from(whole + part).map_or(MAX_DELAY_MS, |ms| ms.min(MAX_DELAY_MS))
    }
}

/// The number at the start, and what follows. The point is a point.
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
    let (billionths, rest) = fraction(&text[at..], '.').unwrap_or((0, &text[at..]));
    Some((Decimal { whole, billionths }, rest))
}

/// The digits behind a decimal point or comma, as billionths.
fn fraction(text: &str, point: char) -> Option<(u64, &str)> {
    let digits = text.strip_prefix(point)?;
    let len = digits
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(digits.len());
    if len == 0 {
        return None;
    }
    let mut billionths = 0;
    let mut scale = 100_000_000;
    let mut rest = false;
    for byte in digits[..len].bytes() {
        if scale > 0 {
            billionths += u64::from(byte - b'0') * scale;
            scale /= 10;
        } else {
            rest |= byte != b'0';
        }
    }
    Some((billionths + u64::from(rest), &digits[len..]))
}

/// A number without a unit, in `unit_ms`. What is glued to it must not make it something else.
pub(super) fn plain(text: &str, unit_ms: u64) -> Read<'_> {
    let (value, rest) = number(text)?;
    let next = rest.chars().next();
    let is_part = next.is_some_and(|c| c.is_alphanumeric() || c == '%' || c == '_')
        || (next.is_some_and(|c| matches!(c, '-' | ':' | '/' | '.' | ','))
            && rest[1..].starts_with(|c: char| c.is_ascii_digit()));
    (!is_part).then(|| (value.times(unit_ms), rest))
}

/// A span with units, of one or more parts.
pub(super) fn with_units(text: &str) -> Read<'_> {
    if let Some(found) = iso8601(text) {
        return Some(found);
    }
    let (value, mut last_unit, mut rest) = part(text)?;
    let mut total = value.times(last_unit);
    // "30 seconds to 2 minutes", "5m-10m": the longer end.
    if let Some((value, unit, after)) = range_end(rest).and_then(part)
        && unit >= last_unit
    {
        return Some((value.times(unit).max(total), after));
    }
    loop {
        let next = rest.trim_start_matches(BLANKS);
        let next = next.strip_prefix(',').unwrap_or(next);
        let next = next.trim_start_matches(BLANKS);
        let next = ["and ", "et ", "und ", "e ", "y ", "и "]
            .iter()
            .find_map(|word| next.strip_prefix(word))
            .unwrap_or(next);
        // Parts go down: `1h 2m`, never `2m 1h`.
        match part(next) {
            Some((value, unit, after)) if unit < last_unit => {
                total = total.saturating_add(value.times(unit)).min(MAX_DELAY_MS);
                last_unit = unit;
                rest = after;
            }
            _ if rest.starts_with(|c: char| c.is_ascii_alphanumeric()) => {
                // 6h30; else it is a name that begins like a span.
                let (more, after) = plain(rest, MINUTE).filter(|_| last_unit == HOUR)?;
                return Some((total.saturating_add(more).min(MAX_DELAY_MS), after));
            }
            _ => return Some((total, rest)),
        }
    }
}

/// Behind what joins the two ends of a range.
fn range_end(text: &str) -> Option<&str> {
    let text = text.trim_start_matches(BLANKS);
    [
        "-", "–", "—", "to ", "or ", "bis ", "à ", "a ", "至", "到", "~",
    ]
    .iter()
    .find_map(|word| text.strip_prefix(word))
    .map(|rest| rest.trim_start_matches(BLANKS))
}

/// One number, or the upper end of a range, with its unit in milliseconds.
fn part(text: &str) -> Option<(Decimal, u64, &str)> {
    let (value, rest) = number(text).or_else(|| numeral(text))?;
    // 2,5 Sekunden: a unit must follow, so that it is no list.
    let (value, rest) = match fraction(rest, ',') {
        Some((billionths, after)) if value.billionths == 0 => (
            Decimal {
                whole: value.whole,
                billionths,
            },
            after,
        ),
        _ => (value, rest),
    };
    let (value, rest) = range_end(rest)
        .and_then(number)
        .filter(|(end, _)| end.whole >= value.whole)
        .unwrap_or((value, rest));
    let mut rest = rest.trim_start_matches(BLANKS);
    rest = rest.strip_prefix('-').unwrap_or(rest);
    for word in ["more ", "additional ", "further ", "个", "個"] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let len = rest
        .find(|c: char| !c.is_alphabetic())
        .unwrap_or(rest.len());
    let (unit, used) = unit(&rest[..len])?;
    let after = &rest[used..];
    // `5m tokens` is a number of tokens, `5m3` is a name.
    if used == 1 && counts_things(after) || used == len && after.starts_with('_') {
        return None;
    }
    Some((value, unit, after))
}

/// A number in words: "a minute", "an hour", "half an hour", "two minutes".
fn numeral(text: &str) -> Option<(Decimal, &str)> {
    const NUMERALS: &[(u64, &str)] = &[
        (1, "a|an|one|un|una|une|um|uma|eine|einer|einem"),
        (2, "two"),
        (3, "three"),
        (4, "four"),
        (5, "five"),
        (10, "ten"),
        (15, "fifteen"),
        (20, "twenty"),
        (30, "thirty"),
        (60, "sixty"),
    ];
    let (word, rest) = text.split_once(' ')?;
    if word.eq_ignore_ascii_case("half") {
        let (article, rest) = rest.split_once(' ')?;
        return is_among(article, "a|an").then_some((Decimal::HALF, rest));
    }
    let (value, _) = NUMERALS.iter().find(|(_, names)| is_among(word, names))?;
    Some((Decimal::whole(*value), rest))
}

/// The unit that `word` is, in milliseconds, and how much of the word that is: in Chinese the next word
/// follows without a space.
fn unit(word: &str) -> Option<(u64, usize)> {
    const UNITS: &[(u64, &str)] = &[
        (
            1,
            "ms|msec|msecs|millisecond|milliseconds|millis|milisegundos|millisecondes|millisekunden",
        ),
        (
            SECOND,
            "s|sec|secs|second|seconds|seg|segs|segundo|segundos|seconde|secondes|sek|sekunde|sekunden|\
             secondo|secondi|секунд|секунду|секунды",
        ),
        (
            MINUTE,
            "m|min|mins|minute|minutes|minuto|minutos|minuten|minuti|минут|минуту|минуты",
        ),
        (
            HOUR,
            "h|hr|hrs|hour|hours|hora|horas|heure|heures|std|stunde|stunden|ora|ore|час|часа|часов",
        ),
        (
            DAY,
            "d|day|days|día|días|dia|dias|jour|jours|tag|tage|tagen|giorno|giorni|день|дня|дней",
        ),
        (
            WEEK,
            "w|wk|wks|week|weeks|semana|semanas|semaine|semaines|woche|wochen",
        ),
    ];
    // Of two that begin alike the longer one comes first.
    const GLUED: &[(u64, &str)] = &[
        (1, "毫秒"),
        (1, "ミリ秒"),
        (1, "밀리초"),
        (SECOND, "秒"),
        (SECOND, "초"),
        (MINUTE, "分钟"),
        (MINUTE, "分鐘"),
        (MINUTE, "分"),
        (MINUTE, "분"),
        (HOUR, "小时"),
        (HOUR, "小時"),
        (HOUR, "時間"),
        (HOUR, "시간"),
        (DAY, "天"),
        (DAY, "日"),
        (DAY, "일"),
        (WEEK, "周"),
        (WEEK, "週間"),
        (WEEK, "주"),
    ];
    // A capital M counts millions, not minutes.
    if word == "M" {
        return None;
    }
    // 30s后重试
    let ascii = word.bytes().take_while(u8::is_ascii).count();
    if ascii > 0 && word[ascii..].starts_with(|c| c >= '\u{2e80}') {
        return unit(&word[..ascii]);
    }
    if let Some((unit, _)) = UNITS.iter().find(|(_, names)| is_among(word, names)) {
        return Some((*unit, word.len()));
    }
    let (unit, name) = GLUED.iter().find(|(_, name)| word.starts_with(name))?;
    Some((*unit, name.len()))
}

/// Whether what follows a number is what it counts: `5 attempts`.
pub(super) fn counts_things(rest: &str) -> bool {
    const THINGS: &str = "attempt|attempts|tries|retry|retries|request|requests|token|tokens|\
        message|messages|time|times|error|errors|failure|failures|failed|call|calls|turn|turns|item|items|step|steps|\
        character|characters|byte|bytes|word|words|prompts|image|images|consecutive|successive";
    let rest = rest.trim_start_matches(BLANKS);
    let len = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    is_among(&rest[..len], THINGS)
}

/// `PT1M30S`, `P1DT2H`.
fn iso8601(text: &str) -> Read<'_> {
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
    (any && !rest.starts_with(|c: char| c.is_alphanumeric())).then_some((total, rest))
}

/// `02:15:30` as a span of hours, minutes and seconds. Of two numbers (`04:59`) nobody can tell the units.
pub(super) fn countdown(text: &str) -> Read<'_> {
    let (hours, rest) = number(text)?;
    let (minutes, rest) = number(rest.strip_prefix(':')?)?;
    let (seconds, rest) = number(rest.strip_prefix(':')?)?;
    let is_clock = rest
        .trim_start()
        .starts_with(['a', 'p', 'A', 'P', 'Z', '+']);
    if minutes.whole > 59 || seconds.whole > 59 || is_clock {
        return None;
    }
    let total = hours
        .times(HOUR)
        .saturating_add(minutes.times(MINUTE))
        .saturating_add(seconds.times(SECOND));
    Some((total.min(MAX_DELAY_MS), rest))
}

/// A duration as protocol buffers print it: `{ seconds: 36 nanos: 500000000 }`, with quotes and commas or
/// not.
pub(super) fn proto(text: &str) -> Read<'_> {
    let skip = |text: &str| -> usize {
        text.find(|c: char| !(c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ':')))
            .unwrap_or(text.len())
    };
    let mut rest = text.strip_prefix('{')?;
    let mut total = 0_u64;
    let mut any = false;
    loop {
        rest = &rest[skip(rest)..];
        let is_seconds = rest.starts_with("seconds");
        let Some(after) = ["seconds", "nanos"]
            .iter()
            .find_map(|name| rest.strip_prefix(name))
        else {
            break;
        };
        let (value, after) = number(&after[skip(after)..])?;
        let ms = if is_seconds {
            value.times(SECOND)
        } else {
            value.whole.div_ceil(1_000_000)
        };
        total = total.saturating_add(ms).min(MAX_DELAY_MS);
        any = true;
        rest = after;
    }
    any.then_some((total, rest))
}

/// The span that ends with the unit of a phrase: `30秒后重试`, `1小时30分钟后`. `text` ends with that unit, which
/// begins at `unit_at` and is `unit_ms` long.
pub(super) fn before(text: &str, unit_at: usize, unit_ms: u64) -> Option<u64> {
    let head = text.get(..unit_at)?;
    let is_number =
        |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | ' ' | '\u{a0}' | '-' | '~' | '–');
    let is_larger = |c: char| "天小时時間分钟鐘시간분".contains(c);
    let start = head
        .char_indices()
        .rev()
        .take(40)
        .take_while(|(_, c)| is_number(*c) || is_larger(*c))
        .last()
        .map(|(at, _)| at)?;
    let run = &head[start..];
    let first_digit = start + run.find(|c: char| c.is_ascii_digit())?;
    // A sign makes it no hint; between two numbers it is a range.
    if text[start..first_digit].trim_end().ends_with(['-', '–']) {
        return None;
    }
    let last_part = |text: &str| {
        let digits = text.trim_end();
        let from = digits
            .char_indices()
            .rev()
            .take_while(|(_, c)| c.is_ascii_digit() || *c == '.')
            .last()
            .map(|(at, _)| at)?;
        number(&digits[from..]).map(|(value, _)| value.times(unit_ms))
    };
    match with_units(&text[first_digit..]) {
        // The whole run is the span.
        Some((total, rest)) if rest.len() < text.len() - unit_at => Some(total),
        _ => last_part(head),
    }
}
