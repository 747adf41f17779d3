//! Instants as servers write them: HTTP dates, RFC 3339, `3am (Europe/London)`, `Apr 10 at 7am`, …
//!
//! One reader of pieces in any order (weekday, month, day, year, time of day, zone) rather than a format
//! each: what is missing is filled in from the handed-in time.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

use crate::time::UnixMillis;

/// How far behind a phrase its instant is looked for, in bytes.
const REACH: usize = 72;

/// The pieces of an instant.
#[derive(Debug, Default)]
pub(super) struct Moment<'t> {
    year: Option<i16>,
    month: Option<i8>,
    day: Option<i8>,
    time: Option<Time>,
    /// Days from today: `tomorrow`.
    days_ahead: Option<i64>,
    zone: Option<Named<'t>>,
}

#[derive(Debug, Clone, Copy)]
enum Named<'t> {
    Offset(i32),
    Iana(&'t str),
}

impl<'t> Moment<'t> {
    /// The instant that `text` begins with.
    pub(super) fn read(text: &'t str) -> Option<Self> {
        let end = text.floor_char_boundary(REACH);
        let mut rest = &text[..end];
        let mut moment = Self::default();
        let mut idle = 0;
        loop {
            rest = rest.trim_start_matches(|c: char| {
                c.is_whitespace() || matches!(c, ',' | '(' | '[' | '"' | '\'' | '\\')
            });
            if rest.is_empty() {
                break;
            }
            match moment.piece(rest) {
                Some(after) => {
                    rest = after;
                    idle = 0;
                }
                None => {
                    // Small words between the pieces; a zone closes with a bracket.
                    let len = rest
                        .char_indices()
                        .find(|(_, c)| !c.is_alphanumeric())
                        .map_or(rest.len(), |(at, c)| {
                            at.max(c.len_utf8() * usize::from(at == 0))
                        });
                    let (word, after) = rest.split_at(len);
                    let small = is_one_of(
                        word,
                        &[
                            "at", "on", "the", "de", "of", "el", "la", "las", "a", "às", "um", "à",
                            "time", ")", "]", "·", "∙", "t", "/",
                        ],
                    );
                    idle += 1;
                    if !small || idle > 3 {
                        break;
                    }
                    rest = after;
                }
            }
        }
        let has_date = moment.day.is_some() && moment.month.is_some();
        (has_date || moment.time.is_some()).then_some(moment)
    }

    /// Takes the piece at the start; what follows it, or None if there is none.
    fn piece(&mut self, text: &'t str) -> Option<&'t str> {
        self.iso_date(text)
            .or_else(|| self.clock(text))
            .or_else(|| self.number_piece(text))
            .or_else(|| self.zone_piece(text))
            .or_else(|| self.word(text))
    }

    /// `2026-06-24`, `2026/06/24`, with an optional `T` behind.
    fn iso_date(&mut self, text: &'t str) -> Option<&'t str> {
        if self.year.is_some() {
            return None;
        }
        let (year, rest) = digits(text, 4, 4)?;
        let separator = rest
            .chars()
            .next()
            .filter(|c| matches!(c, '-' | '/' | '年' | '.'))?;
        let (month, rest) = digits(&rest[separator.len_utf8()..], 1, 2)?;
        let separator = rest
            .chars()
            .next()
            .filter(|c| matches!(c, '-' | '/' | '月' | '.'))?;
        let (day, rest) = digits(&rest[separator.len_utf8()..], 1, 2)?;
        self.year = Some(i16::try_from(year).ok()?);
        self.month = Some(i8::try_from(month).ok()?);
        self.day = Some(i8::try_from(day).ok()?);
        let rest = rest.strip_prefix('日').unwrap_or(rest);
        Some(rest.strip_prefix(['T', 't']).unwrap_or(rest))
    }

    /// `07:28:00`, `10:30pm`, `3am`, `7 AM`, `17:41:17.5`.
    fn clock(&mut self, text: &'t str) -> Option<&'t str> {
        if self.time.is_some() {
            return None;
        }
        let (mut hour, rest) = digits(text, 1, 2)?;
        let (minute, second, rest) = match rest.strip_prefix(':') {
            Some(after) => {
                let (minute, rest) = digits(after, 2, 2)?;
                let (second, rest) = match rest.strip_prefix(':') {
                    Some(after) => digits(after, 2, 2)?,
                    None => (0, rest),
                };
                let fraction = rest
                    .strip_prefix('.')
                    .map(|after| after.trim_start_matches(|c: char| c.is_ascii_digit()));
                (minute, second, fraction.unwrap_or(rest))
            }
            None => {
                // Without minutes only with am or pm.
                half_of_day(rest)?;
                (0, 0, rest)
            }
        };
        let mut rest = rest;
        if let Some((is_pm, after)) = half_of_day(rest) {
            if !(1..=12).contains(&hour) {
                return None;
            }
            hour = hour % 12 + if is_pm { 12 } else { 0 };
            rest = after;
        }
        // 24:00 and leap seconds do not occur; what does not exist is no time.
        self.time = Some(
            Time::new(
                i8::try_from(hour).ok()?,
                i8::try_from(minute).ok()?,
                i8::try_from(second).ok()?,
                0,
            )
            .ok()?,
        );
        Some(rest)
    }

    /// A day of the month (`10`, `3rd`, `10.`) or a year.
    fn number_piece(&mut self, text: &'t str) -> Option<&'t str> {
        if let Some((year, rest)) = digits(text, 4, 4)
            && self.year.is_none()
            && (1970..=9999).contains(&year)
        {
            self.year = i16::try_from(year).ok();
            return Some(rest);
        }
        let (value, rest) = digits(text, 1, 2)?;
        let rest = ["st", "nd", "rd", "th", "."]
            .iter()
            .find_map(|suffix| rest.strip_prefix(suffix))
            .unwrap_or(rest);
        if self.day.is_none() {
            self.day = i8::try_from(value)
                .ok()
                .filter(|day| (1..=31).contains(day));
            self.day?;
        } else if self.month.is_some() && self.year.is_none() {
            // The two digits of `Wednesday, 21-Oct-26`.
            let century = if value < 70 { 2000 } else { 1900 };
            self.year = i16::try_from(century + value).ok();
        } else {
            return None;
        }
        Some(rest.strip_prefix('-').unwrap_or(rest))
    }

    /// `UTC`, `GMT`, `Z`, `+08:00`, `(Europe/London)`, `PST`.
    fn zone_piece(&mut self, text: &'t str) -> Option<&'t str> {
        self.time?;
        if self.zone.is_some() {
            return None;
        }
        if let Some(rest) = text.strip_prefix(['+', '-', '−']) {
            let (hours, rest) = digits(rest, 1, 2)?;
            let rest = rest.strip_prefix(':').unwrap_or(rest);
            let (minutes, rest) = digits(rest, 2, 2).unwrap_or((0, rest));
            if hours > 15 || minutes > 59 {
                return None;
            }
            let seconds = i32::try_from(hours * 3600 + minutes * 60).ok()?;
            let sign = if text.starts_with('+') { 1 } else { -1 };
            self.zone = Some(Named::Offset(sign * seconds));
            return Some(rest);
        }
        let len = text
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+')))
            .unwrap_or(text.len());
        let (name, rest) = text.split_at(len);
        if name.contains('/') {
            self.zone = Some(Named::Iana(name));
            return Some(rest);
        }
        const ABBREVIATIONS: &[(i32, &[&str])] = &[
            (0, &["UTC", "GMT", "Z", "WET"]),
            (1, &["BST", "CET", "WEST"]),
            (2, &["CEST", "EET"]),
            (3, &["EEST", "MSK"]),
            (8, &["SGT", "HKT"]),
            (9, &["JST", "KST"]),
            (10, &["AEST"]),
            (-4, &["EDT"]),
            (-5, &["EST", "CDT"]),
            (-6, &["CST", "MDT"]),
            (-7, &["MST", "PDT"]),
            (-8, &["PST"]),
        ];
        let (hours, _) = ABBREVIATIONS
            .iter()
            .find(|(_, names)| is_one_of(name, names))?;
        // UTC+8
        if is_one_of(name, &["UTC", "GMT"]) && rest.starts_with(['+', '-']) {
            return self.zone_piece(rest);
        }
        self.zone = Some(Named::Offset(hours * 3600));
        Some(rest)
    }

    /// A month, a weekday, or a day that is told from today.
    fn word(&mut self, text: &'t str) -> Option<&'t str> {
        let len = text
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(text.len());
        let (word, rest) = text.split_at(len);
        let rest = rest.strip_prefix(['.', '-']).unwrap_or(rest);
        if let Some(month) = month(word) {
            if self.month.is_some() {
                return None;
            }
            self.month = Some(month);
            return Some(rest);
        }
        let weekday = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
            .iter()
            .any(|day| {
                let head = word.get(..3).unwrap_or_default();
                let tail = word.get(word.len().saturating_sub(3)..).unwrap_or_default();
                head.eq_ignore_ascii_case(day)
                    && (word.len() == 3 || tail.eq_ignore_ascii_case("day"))
            });
        if weekday {
            return Some(rest);
        }
        if is_one_of(word, &["today", "tonight"]) {
            self.days_ahead = Some(0);
        } else if is_one_of(word, &["tomorrow"]) {
            self.days_ahead = Some(1);
        } else if is_one_of(word, &["noon", "midnight"]) && self.time.is_none() {
            let hour = if word.eq_ignore_ascii_case("noon") {
                12
            } else {
                0
            };
            self.time = Time::new(hour, 0, 0, 0).ok();
        } else {
            return None;
        }
        Some(rest)
    }

    /// The instant, measured from `now`. Times without a zone are in `host_zone`; else in China's if `china`;
    /// else UTC when there is a full date, and no instant when there is only a time of day.
    pub(super) fn resolve(
        &self,
        now: UnixMillis,
        host_zone: Option<&str>,
        china: bool,
    ) -> Option<UnixMillis> {
        let zone = match (self.zone, host_zone) {
            (Some(Named::Offset(seconds)), _) => {
                TimeZone::fixed(Offset::from_seconds(seconds).ok()?)
            }
            (Some(Named::Iana(name)), _) => TimeZone::get(name).ok()?,
            (None, _) if china => TimeZone::fixed(Offset::constant(8)),
            (None, Some("UTC")) => TimeZone::UTC,
            (None, Some(name)) => TimeZone::get(name).ok()?,
            (None, None) if self.day.is_some() => TimeZone::UTC,
            (None, None) => return None,
        };
        let now = Timestamp::from_millisecond(i64::try_from(now.0).ok()?).ok()?;
        let today = zone.to_datetime(now).date();
        let time = self.time.unwrap_or(Time::midnight());
        let instant = |date: Date| -> Option<Timestamp> {
            let datetime = DateTime::from_parts(date, time);
            // A time that a spring's change skips is read as the one an hour later; of one that an
            // autumn's change repeats, the first (jiff's `compatible`).
            zone.to_timestamp(datetime).ok()
        };
        let found = match (self.year, self.month, self.day) {
            (Some(year), Some(month), Some(day)) => instant(Date::new(year, month, day).ok()?)?,
            (None, Some(month), Some(day)) => {
                // The nearest such day that is not long past.
                let this_year = instant(Date::new(today.year(), month, day).ok()?)?;
                if this_year < now.checked_sub(48.hours()).ok()? {
                    instant(Date::new(today.year() + 1, month, day).ok()?)?
                } else {
                    this_year
                }
            }
            _ => {
                let ahead = self.days_ahead.unwrap_or(0);
                let first = instant(today.checked_add(ahead.days()).ok()?)?;
                if first <= now && self.days_ahead.is_none() {
                    instant(today.checked_add(1.day()).ok()?)?
                } else {
                    first
                }
            }
        };
        u64::try_from(found.as_millisecond()).ok().map(UnixMillis)
    }
}

fn is_one_of(word: &str, names: &[&str]) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(word))
}

/// Between `min` and `max` digits that no further digit follows.
fn digits(text: &str, min: usize, max: usize) -> Option<(u32, &str)> {
    let len = text
        .bytes()
        .take(max + 1)
        .take_while(u8::is_ascii_digit)
        .count();
    if !(min..=max).contains(&len) {
        return None;
    }
    let value = text[..len].parse().ok()?;
    Some((value, &text[len..]))
}

/// `am`, `PM`, `p.m.`, with a blank before or not.
fn half_of_day(text: &str) -> Option<(bool, &str)> {
    let text = text
        .strip_prefix([' ', '\u{202f}', '\u{a0}'])
        .unwrap_or(text);
    let is_pm = text.starts_with(['p', 'P']);
    let rest = [("am", "pm"), ("a.m.", "p.m.")]
        .iter()
        .find_map(|(am, pm)| {
            let head = text.get(..am.len())?;
            is_one_of(head, &[am, pm]).then(|| &text[am.len()..])
        })?;
    (!rest.starts_with(|c: char| c.is_alphanumeric())).then_some((is_pm, rest))
}

/// The month by its name in English, Spanish, Portuguese, German or French, whole or short.
fn month(word: &str) -> Option<i8> {
    const MONTHS: [&[&str]; 12] = [
        &[
            "jan", "january", "enero", "ene", "janeiro", "januar", "janvier",
        ],
        &[
            "feb",
            "february",
            "febrero",
            "fev",
            "fevereiro",
            "februar",
            "février",
        ],
        &["mar", "march", "marzo", "março", "märz", "mars"],
        &["apr", "april", "abril", "abr", "avril"],
        &["may", "mayo", "maio", "mai"],
        &["jun", "june", "junio", "junho", "juni", "juin"],
        &["jul", "july", "julio", "julho", "juli", "juillet"],
        &["aug", "august", "agosto", "ago", "août"],
        &[
            "sep",
            "sept",
            "september",
            "septiembre",
            "setembro",
            "set",
            "septembre",
        ],
        &[
            "oct", "october", "octubre", "outubro", "out", "oktober", "okt", "octobre",
        ],
        &["nov", "november", "noviembre", "novembro", "novembre"],
        &[
            "dec",
            "december",
            "diciembre",
            "dic",
            "dezembro",
            "dez",
            "dezember",
            "décembre",
        ],
    ];
    let at = MONTHS.iter().position(|names| is_one_of(word, names))?;
    i8::try_from(at + 1).ok()
}
