//! Instants as servers write them: HTTP dates, RFC 3339, `3am (Europe/London)`, `Apr 10 at 7am`, …
//!
//! One reader of pieces in any order (weekday, date, year, time of day, zone) rather than a format each:
//! what is missing is filled in from the handed-in time. A piece is only taken where its form says what
//! it is: `10` alone is no day, and a date that could be read in two ways (`10/07/2026`) is none.

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

use super::is_among;
use super::span::counts_things;
use crate::time::UnixMillis;

/// How long ago a day without a year may be to be past rather than next year's.
const PAST_HOURS: i64 = 48;

/// The pieces of an instant.
#[derive(Debug, Default)]
pub(super) struct Moment<'t> {
    year: Option<i16>,
    month: Option<i8>,
    day: Option<i8>,
    weekday: Option<Weekday>,
    time: Option<Time>,
    /// Days from today: `tomorrow`.
    days_ahead: Option<i64>,
    zone: Option<Named<'t>>,
    /// Whether the date is written for machines: `2026-06-24`.
    is_iso: bool,
}

#[derive(Debug, Clone, Copy)]
enum Named<'t> {
    /// Seconds east of Greenwich.
    Offset(i32),
    Iana(&'t str),
    /// `CST`: of China or of America.
    Cst,
}

/// Where times without a zone are meant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Naive<'a> {
    /// The zone that the host says.
    pub(super) host: Option<&'a str>,
    /// Whether the words are those of a service in China.
    pub(super) china: bool,
}

impl Naive<'_> {
    /// As in headers: UTC for a whole date, nothing for a time of day.
    pub(super) const UTC: Self = Self {
        host: None,
        china: false,
    };
}

impl<'t> Moment<'t> {
    /// The instant that `text` begins with, and what follows it.
    pub(super) fn read(text: &'t str) -> Option<(Self, &'t str)> {
        let mut moment = Self::default();
        let mut rest = text;
        let mut end = text;
        let mut words = 0;
        loop {
            rest = rest.trim_start_matches(is_separator);
            if let Some(after) = moment.piece(rest, words > 0) {
                rest = after;
                end = after;
                words = 0;
                continue;
            }
            let Some(after) = small_word(rest) else {
                break;
            };
            words += 1;
            if words > 3 {
                break;
            }
            rest = after;
        }
        // A time of day that does not exist is no midnight.
        let hour = digits(rest, 1, 2).and_then(|(_, rest)| rest.strip_prefix(':'));
        let is_broken = moment.time.is_none()
            && hour.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if is_broken {
            return None;
        }
        let has_date = moment.day.is_some() && moment.month.is_some();
        let is_instant = has_date || moment.time.is_some() && moment.month.is_none();
        is_instant.then_some((moment, end))
    }

    /// Takes the piece at the start; what follows it, or None if there is none. `joined` by a small word.
    fn piece(&mut self, text: &'t str, joined: bool) -> Option<&'t str> {
        // What stands behind the zone belongs to another sentence, but for `17:41 UTC 2026` and
        // `7am (Europe/London) on Apr 10`.
        if self.zone.is_some() && self.time.is_some() && !joined {
            return self.year(text);
        }
        self.iso_date(text)
            .or_else(|| self.clock(text))
            .or_else(|| self.date(text))
            .or_else(|| self.year(text))
            .or_else(|| self.zone(text))
            .or_else(|| self.word(text))
    }

    fn has_date(&self) -> bool {
        self.day.is_some() || self.month.is_some()
    }

    /// `2026-06-24`, `2026/06/24`, `2026年6月24日`, with an optional `T` behind.
    fn iso_date(&mut self, text: &'t str) -> Option<&'t str> {
        if self.has_date() || self.year.is_some() {
            return None;
        }
        let (year, rest) = digits(text, 4, 4)?;
        let (month, rest) = digits(strip_any(rest, &["-", "/", ".", "年", "년"])?, 1, 2)?;
        let (day, rest) = digits(strip_any(rest, &["-", "/", ".", "月", "월"])?, 1, 2)?;
        self.year = Some(i16::try_from(year).ok()?);
        self.month = Some(i8::try_from(month).ok()?);
        self.day = Some(i8::try_from(day).ok()?);
        self.is_iso = true;
        let rest = strip_any(rest, &["日", "일", "号"]).unwrap_or(rest);
        match rest.strip_prefix(['T', 't']) {
            Some(after) if after.starts_with(|c: char| c.is_ascii_digit()) => Some(after),
            _ => Some(rest),
        }
    }

    /// `07:28:00`, `10:30pm`, `3am`, `7 AM`, `17:41:17.5`, `19h30`, `17时41分`, `下午3:00`.
    fn clock(&mut self, text: &'t str) -> Option<&'t str> {
        if self.time.is_some() {
            return None;
        }
        const MORNING: &[&str] = &["上午", "午前", "오전", "早上", "凌晨"];
        const EVENING: &[&str] = &["下午", "午後", "오후", "晚上"];
        let (mut half, text) = match (strip_any(text, MORNING), strip_any(text, EVENING)) {
            (Some(rest), _) => (Some(false), rest.trim_start()),
            (_, Some(rest)) => (Some(true), rest.trim_start()),
            _ => (None, text),
        };
        let (mut hour, rest) = digits(text, 1, 2)?;
        let (minute, second, nanosecond, rest) = minutes(rest)?;
        let mut rest = rest;
        if let Some((is_pm, after)) = half_of_day(rest) {
            half = Some(is_pm);
            rest = after;
        }
        if let Some(is_pm) = half {
            if !(1..=12).contains(&hour) {
                return None;
            }
            hour = hour % 12 + if is_pm { 12 } else { 0 };
        }
        self.time = Some(match (hour, minute, second) {
            // The end of the day, and a leap second: the last nanosecond before, which is rounded up.
            (24, 0, 0) => time(23, 59, 59, LAST_NANOSECOND)?,
            (_, _, 60) => time(hour, minute, 59, LAST_NANOSECOND)?,
            _ => time(hour, minute, second, nanosecond)?,
        });
        Some(rest)
    }

    /// `Apr 10`, `May 3rd`, `10 de jul.`, `21-Oct-26`, `24. Juni`, `24.06.2026`, `6月24日`, `1st`.
    fn date(&mut self, text: &'t str) -> Option<&'t str> {
        if self.has_date() {
            return None;
        }
        let (month, day, year, rest) = month_day(text)
            .or_else(|| day_month(text))
            .or_else(|| numeric_date(text))
            .or_else(|| ordinal(text))?;
        self.month = month;
        self.day = Some(i8::try_from(day).ok()?);
        self.year = year.or(self.year);
        Some(rest)
    }

    /// The year behind a date.
    fn year(&mut self, text: &'t str) -> Option<&'t str> {
        if self.year.is_some() || self.month.is_none() {
            return None;
        }
        let (year, rest) = digits(text, 4, 4)?;
        let is_part = rest.starts_with(|c: char| c.is_alphanumeric() || c == ':' || c == '-');
        if is_part || !(1970..=9999).contains(&year) || counts_things(rest) {
            return None;
        }
        self.year = i16::try_from(year).ok();
        Some(rest)
    }

    /// `UTC`, `GMT+1`, `Z`, `+08:00`, `(Europe/London)`, `PST`, `Pacific Time`.
    fn zone(&mut self, text: &'t str) -> Option<&'t str> {
        if self.zone.is_some() {
            return None;
        }
        const CHINA: &[&str] = &["北京时间", "北京時間"];
        if let Some(rest) = strip_any(text, CHINA) {
            self.zone = Some(Named::Offset(8 * 3600));
            return Some(rest);
        }
        if let Some(rest) = strip_any(text, &["日本時間", "한국시간", "한국 시간"]) {
            self.zone = Some(Named::Offset(9 * 3600));
            return Some(rest);
        }
        if self.time.is_some() && text.starts_with(['+', '-', '−']) {
            let (seconds, rest) = offset(text, 2)?;
            self.zone = Some(Named::Offset(seconds));
            return Some(rest);
        }
        let len = text
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+')))
            .unwrap_or(text.len());
        let (name, rest) = text.split_at(len);
        if name.contains('/') {
            self.time?;
            self.zone = Some(Named::Iana(name));
            return Some(rest);
        }
        let len = name
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(name.len());
        let (name, rest) = text.split_at(len);
        // Only these also stand before the time.
        if is_among(name, "UTC|GMT") {
            let (seconds, rest) = offset(rest, 1).unwrap_or((0, rest));
            self.zone = Some(Named::Offset(seconds));
            return Some(rest);
        }
        self.time?;
        if is_among(name, "CST") {
            self.zone = Some(Named::Cst);
            return Some(rest);
        }
        const REGIONS: &[(&str, &str)] = &[
            ("America/Los_Angeles", "PT|Pacific"),
            ("America/Denver", "Mountain"),
            ("America/Chicago", "CT|Central"),
            ("America/New_York", "ET|Eastern"),
            ("Asia/Shanghai", "Beijing"),
        ];
        if let Some((iana, _)) = REGIONS.iter().find(|(_, names)| is_among(name, names)) {
            self.zone = Some(Named::Iana(iana));
            let mut rest = rest;
            for word in [
                " Standard",
                " Daylight",
                " Time",
                " standard",
                " daylight",
                " time",
            ] {
                rest = rest.strip_prefix(word).unwrap_or(rest);
            }
            return Some(rest);
        }
        // In minutes. Of zones that share the letters the one that most people mean, or none.
        const ABBREVIATIONS: &[(i32, &str)] = &[
            (0, "Z|WET"),
            (60, "BST|CET|WEST|MEZ"),
            (120, "CEST|EET|MESZ|SAST"),
            (180, "EEST|MSK"),
            (330, "IST"),
            (420, "ICT|WIB"),
            (480, "SGT|HKT|AWST|PHT"),
            (540, "JST|KST"),
            (570, "ACST"),
            (600, "AEST"),
            (630, "ACDT"),
            (660, "AEDT"),
            (720, "NZST"),
            (780, "NZDT"),
            (-150, "NDT"),
            (-180, "BRT|ART|ADT"),
            (-240, "EDT"),
            (-300, "EST|CDT"),
            (-360, "MDT"),
            (-420, "MST|PDT"),
            (-480, "PST|AKDT"),
            (-540, "AKST"),
            (-600, "HST"),
        ];
        let (minutes, _) = ABBREVIATIONS
            .iter()
            .find(|(_, names)| is_among(name, names))?;
        self.zone = Some(Named::Offset(minutes * 60));
        Some(rest)
    }

    /// A weekday, noon and midnight, or a day that is told from today.
    fn word(&mut self, text: &'t str) -> Option<&'t str> {
        for (word, ahead) in [
            ("明天", 1),
            ("明日", 1),
            ("今天", 0),
            ("今日", 0),
            ("내일", 1),
        ] {
            if let Some(rest) = text.strip_prefix(word) {
                self.days_ahead = Some(ahead);
                return Some(rest);
            }
        }
        let (word, rest) = first_word(text);
        if let Some(weekday) = weekday(word) {
            self.weekday = Some(weekday);
            // seg., segunda-feira
            let rest = rest.strip_prefix("-feira").unwrap_or(rest);
            return Some(rest.strip_prefix('.').unwrap_or(rest));
        }
        if is_among(word, "today|tonight|hoy|hoje|heute") {
            self.days_ahead = Some(0);
        } else if is_among(word, "tomorrow|mañana|amanhã|demain|morgen") {
            self.days_ahead = Some(1);
        } else if is_among(word, "noon|midnight") && self.time.is_none() {
            let hour = if word.eq_ignore_ascii_case("noon") {
                12
            } else {
                0
            };
            self.time = time(hour, 0, 0, 0);
        } else {
            return None;
        }
        Some(rest)
    }

    /// The instant, measured from `now`. Times without a zone are China's if `naive` says so; else the
    /// host's; else UTC when there is a whole date, and no instant when there is only a time of day.
    ///
    /// A time that spring skips is read as the one after the change; of one that autumn repeats, the
    /// second counts: never earlier than asked.
    pub(super) fn resolve(&self, now: UnixMillis, naive: Naive<'_>) -> Option<UnixMillis> {
        let zone = match (self.zone, naive.host) {
            (Some(Named::Offset(seconds)), _) => fixed(seconds)?,
            (Some(Named::Cst), _) => fixed(if naive.china { 8 } else { -6 } * 3600)?,
            (Some(Named::Iana(name)), _) => TimeZone::get(name).ok()?,
            (None, _) if naive.china => fixed(8 * 3600)?,
            (None, Some(name)) if is_among(name, "UTC|GMT|Etc/UTC") => TimeZone::UTC,
            (None, Some(name)) => TimeZone::get(name).ok()?,
            (None, None) if self.day.is_some() => TimeZone::UTC,
            (None, None) => return None,
        };
        let now = Timestamp::from_millisecond(i64::try_from(now.0).ok()?).ok()?;
        let today = zone.to_datetime(now).date();
        let time = self.time.unwrap_or(Time::midnight());
        let instant = |date: Date| -> Option<Timestamp> {
            zone.to_ambiguous_timestamp(date.to_datetime(time))
                .later()
                .ok()
        };
        let day_ahead = |days: i64| today.checked_add(days.days()).ok();
        let found = match (self.year, self.month, self.day) {
            (Some(year), Some(month), Some(day)) => instant(Date::new(year, month, day).ok()?)?,
            (None, Some(month), Some(day)) => {
                // The first such day that is not long past.
                let earliest = now.checked_sub(PAST_HOURS.hours()).ok()?;
                (-1..=1)
                    .filter_map(|years| Date::new(today.year() + years, month, day).ok())
                    .filter_map(instant)
                    .find(|found| *found >= earliest)?
            }
            (_, Some(_), None) => return None,
            (_, None, Some(day)) => {
                let first = today.first_of_month();
                (0..=2_i64)
                    .filter_map(|months| first.checked_add(months.months()).ok())
                    .filter_map(|month| Date::new(month.year(), month.month(), day).ok())
                    .filter_map(instant)
                    .find(|found| *found > now)?
            }
            (_, None, None) => match (self.days_ahead, self.weekday) {
                (Some(days), _) => instant(day_ahead(days)?)?,
                (None, weekday) => (0..=7)
                    .filter_map(day_ahead)
                    .filter(|day| weekday.is_none_or(|weekday| day.weekday() == weekday))
                    .filter_map(instant)
                    .find(|found| *found > now)?,
            },
        };
        let ms = found.as_nanosecond().div_euclid(1_000_000)
            + i128::from(found.as_nanosecond().rem_euclid(1_000_000) > 0);
        u64::try_from(ms).ok().map(UnixMillis)
    }

    /// Whether the date is written for machines.
    pub(super) fn is_iso(&self) -> bool {
        self.is_iso
    }
}

const LAST_NANOSECOND: u32 = 999_999_999;

fn time(hour: u32, minute: u32, second: u32, nanosecond: u32) -> Option<Time> {
    Time::new(
        i8::try_from(hour).ok()?,
        i8::try_from(minute).ok()?,
        i8::try_from(second).ok()?,
        i32::try_from(nanosecond).ok()?,
    )
    .ok()
}

fn fixed(seconds: i32) -> Option<TimeZone> {
    Some(TimeZone::fixed(Offset::from_seconds(seconds).ok()?))
}

/// What stands between the pieces.
fn is_separator(c: char) -> bool {
    c.is_whitespace() || ",()[]·∙|、，（）".contains(c)
}

/// The letters at the start, and what follows.
fn first_word(text: &str) -> (&str, &str) {
    let len = text
        .find(|c: char| !c.is_alphabetic())
        .unwrap_or(text.len());
    text.split_at(len)
}

/// Behind a small word between the pieces.
fn small_word(text: &str) -> Option<&str> {
    let (word, rest) = first_word(text);
    is_among(word, "at|on|the|daily|time|next|de|del|of|el|la|las|los|a|à|às|le|den|der|am|um|dia|día|の|に|月|火|水|木|金|土")
    .then_some(rest)
}

/// Behind one of the prefixes and the blanks that follow it.
fn strip_any<'t>(text: &'t str, prefixes: &[&str]) -> Option<&'t str> {
    let rest = prefixes
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))?;
    // Korean writes blanks between the parts of a date, the others do not.
    let is_cjk = text.starts_with(|c| c > '\u{2e80}');
    Some(if is_cjk {
        rest.trim_start_matches(' ')
    } else {
        rest
    })
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

/// Minutes, seconds and nanoseconds behind the hour. Without minutes there must be am or pm.
fn minutes(text: &str) -> Option<(u32, u32, u32, &str)> {
    if let Some(after) = text.strip_prefix(':') {
        let (minute, rest) = digits(after, 2, 2)?;
        let Some(after) = rest.strip_prefix(':') else {
            return Some((minute, 0, 0, rest));
        };
        let (second, rest) = digits(after, 2, 2)?;
        let Some(fraction) = rest.strip_prefix('.') else {
            return Some((minute, second, 0, rest));
        };
        let len = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let nanosecond = fraction[..len]
            .bytes()
            .chain(core::iter::repeat(b'0'))
            .take(9)
            .fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
        return Some((minute, second, nanosecond, &fraction[len..]));
    }
    if let Some(after) = strip_any(text, &["时", "時", "点", "點", "시"]) {
        // 時間 and 시간 are spans.
        if after.starts_with(['間', '간', '间']) {
            return None;
        }
        let Some((minute, rest)) = digits(after, 1, 2)
            .and_then(|(minute, rest)| Some((minute, strip_any(rest, &["分", "분"])?)))
        else {
            return Some((0, 0, 0, after));
        };
        return Some((minute, 0, 0, rest));
    }
    if let Some((minute, rest)) = text
        .strip_prefix(['h', 'H'])
        .and_then(|after| digits(after, 2, 2))
    {
        return (!rest.starts_with(|c: char| c.is_alphanumeric())).then_some((minute, 0, 0, rest));
    }
    // 10.30pm, 17.41 Uhr
    if let Some((minute, rest)) = text.strip_prefix('.').and_then(|after| digits(after, 2, 2)) {
        let is_time = half_of_day(rest).is_some() || rest.trim_start().starts_with("Uhr");
        return is_time.then_some((minute, 0, 0, rest));
    }
    let is_time = half_of_day(text).is_some() || text.trim_start().starts_with("Uhr");
    is_time.then_some((0, 0, 0, text))
}

/// `am`, `PM`, `p.m.`, with a blank before or not.
fn half_of_day(text: &str) -> Option<(bool, &str)> {
    let text = text
        .strip_prefix([' ', '\u{202f}', '\u{a0}'])
        .unwrap_or(text);
    let is_pm = text.starts_with(['p', 'P']);
    let rest = [("a. m.", "p. m."), ("a.m.", "p.m."), ("am", "pm")]
        .iter()
        .find_map(|(am, pm)| {
            let head = text.get(..am.len())?;
            (head.eq_ignore_ascii_case(am) || head.eq_ignore_ascii_case(pm))
                .then(|| &text[am.len()..])
        })?;
    (!rest.starts_with(|c: char| c.is_alphanumeric())).then_some((is_pm, rest))
}

/// `+8`, `+08`, `+0800`, `-07:00` in seconds; the hours alone have at least `min` digits.
fn offset(text: &str, min: usize) -> Option<(i32, &str)> {
    let rest = text.strip_prefix(['+', '-', '−'])?;
    let (hours, minutes, rest) = match digits(rest, 4, 4) {
        Some((both, rest)) => (both / 100, both % 100, rest),
        None => {
            let (hours, after) = digits(rest, 1, 2)?;
            match after
                .strip_prefix(':')
                .and_then(|after| digits(after, 2, 2))
            {
                Some((minutes, rest)) => (hours, minutes, rest),
                None if rest.len() - after.len() >= min => (hours, 0, after),
                None => return None,
            }
        }
    };
    if hours > 15 || minutes > 59 || rest.starts_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let seconds = i32::try_from(hours * 3600 + minutes * 60).ok()?;
    Some((
        if text.starts_with('+') {
            seconds
        } else {
            -seconds
        },
        rest,
    ))
}

/// Month, day, year if there is one, and what follows.
type FoundDate<'t> = Option<(Option<i8>, u32, Option<i16>, &'t str)>;

/// `Apr 10`, `May 3rd`, `Oct  1`.
fn month_day(text: &str) -> FoundDate<'_> {
    let (word, rest) = first_word(text);
    let month = month(word)?;
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let rest = rest.trim_start_matches([' ', '-', '\n']);
    let rest = rest.strip_prefix("the ").unwrap_or(rest);
    let (day, rest) = digits(rest, 1, 2)?;
    let rest = strip_ordinal(rest).unwrap_or(rest);
    let is_clock = rest.starts_with(':') || half_of_day(rest).is_some();
    let is_part = rest.starts_with(|c: char| c.is_alphanumeric());
    if is_clock || is_part || counts_things(rest) {
        return None;
    }
    Some((Some(month), day, None, rest))
}

/// `10 Apr`, `3rd of May`, `10 de jul.`, `24. Juni`, `21-Oct-26`.
fn day_month(text: &str) -> FoundDate<'_> {
    let (day, rest) = digits(text, 1, 2)?;
    let rest = strip_ordinal(rest).unwrap_or(rest);
    let is_hyphenated = rest.starts_with('-');
    let rest = rest.trim_start_matches(['.', '-', 'º', ' ', '\n']);
    let rest = strip_any(rest, &["de ", "of ", "d'"]).unwrap_or(rest);
    let (word, rest) = first_word(rest);
    let month = month(word)?;
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    // Only RFC 850 has years of two digits.
    if is_hyphenated
        && let Some(after) = rest.strip_prefix('-')
        && let Some((year, rest)) = digits(after, 2, 4)
    {
        let year = match year {
            0..=69 => 2000 + year,
            70..=99 => 1900 + year,
            _ => year,
        };
        return Some((Some(month), day, i16::try_from(year).ok(), rest));
    }
    Some((Some(month), day, None, rest))
}

/// `24.06.2026`, `6月24日`, and `24/06/2026` where only one order is possible.
fn numeric_date(text: &str) -> FoundDate<'_> {
    let (first, rest) = digits(text, 1, 2)?;
    if let Some(rest) = strip_any(rest, &["月", "월"]) {
        let (day, rest) = digits(rest, 1, 2)?;
        let rest = strip_any(rest, &["日", "일", "号"])?;
        return Some((Some(i8::try_from(first).ok()?), day, None, rest));
    }
    let separator = rest.chars().next().filter(|c| matches!(c, '.' | '/'))?;
    let (second, rest) = digits(&rest[1..], 1, 2)?;
    let (year, rest) = digits(rest.strip_prefix(separator)?, 4, 4)?;
    let (day, month) = match separator {
        '.' => (first, second),
        _ if first > 12 || first == second => (first, second),
        _ if second > 12 => (second, first),
        _ => return None,
    };
    let year = i16::try_from(year).ok()?;
    Some((Some(i8::try_from(month).ok()?), day, Some(year), rest))
}

/// `1st`, `the 15th`: a day of this month or the next.
fn ordinal(text: &str) -> FoundDate<'_> {
    let (day, rest) = digits(text, 1, 2)?;
    let rest = strip_ordinal(rest)?;
    (!rest.starts_with(|c: char| c.is_alphanumeric())).then_some((None, day, None, rest))
}

fn strip_ordinal(text: &str) -> Option<&str> {
    ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|suffix| text.strip_prefix(suffix))
}

/// The month by its name in English, Spanish, Portuguese, Italian, German or French, whole or short.
fn month(word: &str) -> Option<i8> {
    const MONTHS: [&str; 12] = [
        "jan|january|enero|ene|janeiro|januar|janvier|janv|gennaio",
        "feb|february|febrero|fev|fevereiro|februar|février|févr|febbraio",
        "mar|march|marzo|março|märz|mars",
        "apr|april|abril|abr|avril|avr|aprile",
        "may|mayo|maio|mai|maggio",
        "jun|june|junio|junho|juni|juin|giugno",
        "jul|july|julio|julho|juli|juillet|juil|luglio",
        "aug|august|agosto|ago|août",
        "sep|sept|september|septiembre|setembro|set|septembre|settembre",
        "oct|october|octubre|outubro|out|oktober|okt|octobre|ottobre",
        "nov|november|noviembre|novembro|novembre",
        "dec|december|diciembre|dic|dezembro|dez|dezember|décembre|déc|dicembre",
    ];
    let at = MONTHS.iter().position(|names| is_among(word, names))?;
    i8::try_from(at + 1).ok()
}

/// The weekday by its name in the same languages.
fn weekday(word: &str) -> Option<Weekday> {
    const WEEKDAYS: [&str; 7] = [
        "mon|monday|lunes|segunda|lundi|montag",
        "tue|tues|tuesday|martes|terça|mardi|dienstag",
        "wed|weds|wednesday|miércoles|quarta|mercredi|mittwoch",
        "thu|thur|thurs|thursday|jueves|quinta|jeudi|donnerstag",
        "fri|friday|viernes|sexta|vendredi|freitag",
        "sat|saturday|sábado|samedi|samstag",
        "sun|sunday|domingo|dimanche|sonntag",
    ];
    let at = WEEKDAYS.iter().position(|names| is_among(word, names))?;
    Weekday::from_monday_zero_offset(i8::try_from(at).ok()?).ok()
}
