//! Hints in the text: the values of keys, and what phrases announce. The signals tell where they stand; the
//! values are read in the source, in which anything may stand between the words.

use super::header::{Bucket, is_positive};
use super::moment::{Moment, Naive};
use super::value::{self, Lead, Place};
use super::{HintKind, HintValue, KEY_LEN, REACH, is_among, key_kind, normalise, span, within};
use crate::classify::ErrorFacts;
use crate::classify::pattern::Found;
use crate::classify::signals::{KeyValue, Signals};
use crate::time::UnixMillis;

/// How far around a key its bucket's other keys are looked for, in bytes.
const BUCKET_REACH: usize = 512;

/// What hints in the text are read with.
pub(super) struct Reader<'r> {
    pub(super) source: &'r str,
    pub(super) signals: &'r Signals<'r, 'r>,
    pub(super) facts: &'r ErrorFacts<'r>,
    pub(super) zone: Naive<'r>,
    pub(super) now: UnixMillis,
}

impl Reader<'_> {
    /// The value of a key in a structure.
    pub(super) fn key(&self, KeyValue { kind, at }: KeyValue) -> Option<HintValue> {
        let name = self.name_before(at);
        if self.is_given(name) || self.has_left(name, at) {
            return None;
        }
        self.delimited(kind, at, Place::Key)
    }

    /// What a phrase announces.
    pub(super) fn phrase(&self, found: Found, kind: HintKind) -> Option<HintValue> {
        let (first, last) = (found.first.into(), found.last.into());
        let (start, end) = self.signals.source_span(first, last)?;
        let start = self.source.floor_char_boundary(start);
        let end = self.source.ceil_char_boundary(end);
        let phrase = &self.source[start..end];
        match kind {
            HintKind::UnitBefore(unit) => return self.unit_before(phrase, start, end, unit),
            HintKind::TimeBefore { china } => return self.time_before(start, china),
            HintKind::Millis
            | HintKind::Seconds
            | HintKind::Reset
            | HintKind::ResetMillis
            | HintKind::Words
            | HintKind::Span
            | HintKind::ChinaTime
            | HintKind::BarredEpoch => {}
        }
        // The whole name that the phrase stands in: `x-ratelimit-reset-tokens`. Chinese has no blanks between
        // words, so there what is glued to the phrase may be the value.
        let bytes = self.source.as_bytes();
        let (mut name_start, mut name_end) = (start, end);
        if bytes.get(start).is_some_and(is_name_byte) {
            name_start -= name_bytes(bytes[..start].iter().rev());
        }
        if bytes[..end].last().is_some_and(is_name_byte) {
            name_end += name_bytes(bytes[end..].iter());
        }
        let name = &self.source[name_start..name_end];
        if name.as_bytes().iter().all(is_name_byte) {
            let mut buffer = [0; KEY_LEN];
            if let Some(kind) = key_kind(normalise(name.as_bytes(), &mut buffer)) {
                if self.is_given(name) || self.has_left(name, name_end) {
                    return None;
                }
                return self.delimited(kind, name_end, Place::Name);
            }
        }
        // Part of a longer name: `reset-password`, `autoreset`, `chat_with_retry in 2 s`.
        let is_longer = bytes[name_start..start]
            .iter()
            .any(u8::is_ascii_alphanumeric);
        if is_longer || name_end > end || is_told_of_others(phrase, self.words_before(first, start))
        {
            return None;
        }
        // Up to what is echoed, or to the end of the field.
        let limit = self.signals.field_end(last)?;
        let limit = self.source.ceil_char_boundary(limit).max(end);
        let lead = Lead::of(split_last_word(phrase).1.as_bytes());
        let text = within(&self.source[end..limit], REACH);
        unescaped(text, |text| {
            value::read(kind, text, Place::Prose, lead, self.now, self.zone)
        })
    }

    /// The value behind the name of a header or a key.
    fn delimited(&self, kind: HintKind, at: usize, place: Place) -> Option<HintValue> {
        let text = within(self.source.get(at..)?, REACH);
        unescaped(text, |text| {
            let open = text.trim_start_matches(|c: char| {
                c.is_whitespace() || matches!(c, ':' | '=' | '>' | '[' | '(')
            });
            let is_separated = text.trim_start().starts_with([':', '=', '>']);
            let open = open.strip_prefix("Some(").unwrap_or(open);
            let open = open.strip_prefix("Duration ").unwrap_or(open);
            let quote = open
                .chars()
                .next()
                .filter(|c| matches!(c, '"' | '\'' | '`'));
            let value = match (quote, place) {
                (Some(quote), _) => open[1..].split(quote).next(),
                (None, _) if open.starts_with('{') => Some(open),
                (None, Place::Key) => open.split([',', '}', ']', ')', '\n']).next(),
                (None, _) => open.split('\n').next(),
            };
            let place = match place {
                Place::Name if !is_separated => Place::Prose,
                Place::Key if quote.is_some() => Place::Value,
                Place::Value | Place::Key | Place::Name | Place::Prose => place,
            };
            value::read(kind, value?, place, None, self.now, self.zone)
        })
    }

    /// The span before a phrase that begins with its unit.
    fn unit_before(&self, phrase: &str, start: usize, end: usize, unit: u64) -> Option<HintValue> {
        // That a request timed out after so many seconds is no hint.
        let rest = self.source[end..].trim_start_matches([' ', 'に']);
        if ["超时", "逾時", "タイムアウト", "시간 초과", "断开"]
            .iter()
            .any(|word| rest.starts_with(word))
        {
            return None;
        }
        self.before(start, |head| {
            unescaped(phrase, |phrase| {
                let mut buffer = [0; REACH * 2];
                let text = joined(head, phrase, &mut buffer)?;
                span::before(text, head.len(), unit).map(HintValue::Span)
            })
        })
    }

    /// The instant before a phrase.
    fn time_before(&self, start: usize, china: bool) -> Option<HintValue> {
        let is_part =
            |c: char| c.is_ascii_digit() || " :-/.TZ+年月日时時点點分秒년월일시분에".contains(c);
        self.before(start, |head| {
            let run = head
                .chars()
                .rev()
                .take_while(|c| is_part(*c))
                .map(char::len_utf8)
                .sum::<usize>();
            let text = head[head.len() - run..].trim_start_matches(|c: char| !c.is_ascii_digit());
            let (moment, _) = Moment::read(text)?;
            let naive = Naive {
                china: china || self.zone.china,
                ..self.zone
            };
            moment.resolve(self.now, naive).map(HintValue::Instant)
        })
    }

    /// Hands on what stands before `start`.
    fn before(
        &self,
        start: usize,
        then: impl FnOnce(&str) -> Option<HintValue>,
    ) -> Option<HintValue> {
        let from = self.source.ceil_char_boundary(start.saturating_sub(REACH));
        unescaped(&self.source[from..start], then)
    }

    /// The name of the key whose value begins at `at`.
    fn name_before(&self, at: usize) -> &str {
        let head = self.source.get(..at).unwrap_or_default();
        let from = self
            .source
            .floor_char_boundary(at.saturating_sub(KEY_LEN + 32));
        let head = head.get(from..).unwrap_or_default();
        let name = head.trim_end_matches(|c: char| {
            c.is_whitespace() || matches!(c, ':' | '=' | '"' | '\'' | '`' | '\\')
        });
        &name[name.len() - name_bytes(name.as_bytes().iter().rev())..]
    }

    /// Whether the host gave the header of this name: it replaces what the text says of it.
    fn is_given(&self, name: &str) -> bool {
        let mut names = self.facts.headers.iter().map(|(name, _)| name);
        !name.is_empty() && names.any(|given| given.eq_ignore_ascii_case(name))
    }

    /// Whether the text says that something is left in the bucket of this key.
    fn has_left(&self, name: &str, at: usize) -> bool {
        let Some(bucket) = Bucket::of(name) else {
            return false;
        };
        let from = self
            .source
            .floor_char_boundary(at.saturating_sub(BUCKET_REACH));
        let to = self
            .source
            .ceil_char_boundary((at + BUCKET_REACH).min(self.source.len()));
        let around = &self.source[from..to];
        let bytes = around.as_bytes();
        let len = bucket.before.len() + "remaining".len() + bucket.after.len();
        let left = bytes.windows(len).enumerate().find_map(|(at, name)| {
            let is_whole = !bytes.get(at + len).is_some_and(is_name_byte);
            (bucket.is_named(name, "remaining") && is_whole).then_some(at + len)
        });
        left.and_then(|at| around.get(at..)).is_some_and(|value| {
            is_positive(
                value.trim_start_matches(|c: char| c.is_whitespace() || ":=>\"'\\[".contains(c)),
            )
        })
    }

    /// What stands before a phrase in its sentence.
    fn words_before(&self, first: usize, start: usize) -> &str {
        let from = self.signals.field_start(first, 4).unwrap_or(start);
        self.source.get(from..start).unwrap_or_default().trim_end()
    }
}

/// Whether the words around say that the phrase is not the server's word to the caller: what a client plans
/// itself ("will try again in 4s"), and what has happened ("connection reset after 30s").
fn is_told_of_others(phrase: &str, before: &str) -> bool {
    const PLANS: &str = "will|ll|trying|retrying|automatically|auto|going|next";
    const PAST: &str = "connection|connections|stream|socket|upstream|peer|tcp|\
        was|been|got|last|previous|previously|password";
    let (head, last) = split_last_word(before);
    if starts_with(phrase, "reset") {
        return before.ends_with('/') || is_among(last, PAST);
    }
    if starts_with(phrase, "wait") {
        return is_among(last, PLANS) || is_among(last, "max|maximum|total|retry");
    }
    let is_call = ["try", "retry", "again"]
        .iter()
        .any(|verb| starts_with(phrase, verb));
    // "will try again in", "going to retry in": the word before the verb.
    let is_verb = is_among(last, "try|to");
    let planned = if is_verb {
        split_last_word(head).1
    } else {
        last
    };
    is_call && is_among(planned, PLANS)
}

fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

/// What stands before the last word, and the word.
fn split_last_word(words: &str) -> (&str, &str) {
    let words = words.trim_end_matches(|c: char| !c.is_alphanumeric());
    let at = words.rfind(|c: char| !c.is_alphanumeric()).map_or(0, |at| {
        at + words[at..].chars().next().map_or(1, char::len_utf8)
    });
    (&words[..at], &words[at..])
}

/// How many bytes of a name come next.
fn name_bytes<'b>(bytes: impl Iterator<Item = &'b u8>) -> usize {
    bytes
        .take(KEY_LEN * 2)
        .take_while(|byte| is_name_byte(byte))
        .count()
}

fn is_name_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Hands `text` on without the escapes of the strings around it, which it may be several levels deep in.
fn unescaped<T>(text: &str, then: impl FnOnce(&str) -> T) -> T {
    if !text.contains('\\') {
        return then(text);
    }
    let mut buffer = [0; REACH];
    let mut len = 0;
    let mut push = |c: char| {
        if let Some(room) = buffer.get_mut(len..len + c.len_utf8()) {
            c.encode_utf8(room);
            len += c.len_utf8();
        }
    };
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        rest[..at].chars().for_each(&mut push);
        rest = rest[at..].trim_start_matches('\\');
        let mut chars = rest.chars();
        match chars.next() {
            Some('n' | 'r') => push('\n'),
            Some('t') => push(' '),
            Some('u') => {
                let code = rest
                    .get(1..5)
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok());
                let Some(code) = code else {
                    continue;
                };
                push(char::from_u32(code).unwrap_or(' '));
                chars = rest[5..].chars();
            }
            _ => continue,
        }
        rest = chars.as_str();
    }
    rest.chars().for_each(&mut push);
    then(core::str::from_utf8(&buffer[..len]).unwrap_or_default())
}

/// Two pieces of text, one behind the other.
fn joined<'b>(head: &str, tail: &str, buffer: &'b mut [u8]) -> Option<&'b str> {
    let len = head.len() + tail.len();
    let room = buffer.get_mut(..len)?;
    room[..head.len()].copy_from_slice(head.as_bytes());
    room[head.len()..].copy_from_slice(tail.as_bytes());
    core::str::from_utf8(room).ok()
}
