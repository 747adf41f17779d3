//! Hints that headers give. Of the reset headers of several buckets only those of exhausted ones count.

use super::moment::{Moment, Naive};
use super::value::{self, Place, starts_with_word};
use super::{Best, HintKind, HintSource, HintValue, KEY_LEN, REACH};
use super::{contains_ignoring_case, key_kind, normalise, span, within};
use crate::backoff::MAX_DELAY_MS;
use crate::classify::ErrorFacts;
use crate::time::UnixMillis;

/// Now by the clock of the server, from its `Date` header.
pub(super) fn server_now(facts: &ErrorFacts<'_>, now: UnixMillis) -> Option<UnixMillis> {
    let (_, date) = facts
        .headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("date"))?;
    let (moment, _) = Moment::read(within(date.trim(), REACH))?;
    moment.resolve(now, Naive::UTC)
}

/// The hints that headers give.
pub(super) fn read(facts: &ErrorFacts<'_>, server_now: Option<UnixMillis>, best: &mut Best) {
    for (name, text) in &facts.headers {
        let mut buffer = [0; KEY_LEN];
        let key = normalise(name.as_bytes(), &mut buffer);
        if key == b"ratelimit" {
            structured(text, best);
            continue;
        }
        let Some(kind) = header_kind(key) else {
            continue;
        };
        let has_left = Bucket::of(name).is_some_and(|bucket| {
            let others = || {
                facts
                    .headers
                    .iter()
                    .map(|(name, value)| (&**name, &**value))
            };
            bucket.has_left(|word| {
                others()
                    .find(|(name, _)| bucket.is_named(name.as_bytes(), word))
                    .map(|(_, value)| value)
            })
        });
        if has_left {
            continue;
        }
        let text = within(text.trim(), REACH);
        let found = value::read(kind, text, Place::Value, None, best.server_now, Naive::UTC);
        let found = match (found, server_now) {
            (Some(HintValue::Instant(at)), Some(server_now)) => {
                Some(HintValue::Span(at.since(server_now).min(MAX_DELAY_MS)))
            }
            (found, _) => found,
        };
        best.offer(found, HintSource::Header);
    }
}

/// The same for headers alone: families of names whose buckets can only be told apart where all stand.
fn header_kind(key: &[u8]) -> Option<HintKind> {
    key_kind(key).or_else(|| {
        if !key.starts_with(b"xcodex") {
            None
        } else if key.ends_with(b"resetafterseconds") || key.ends_with(b"resetat") {
            Some(HintKind::Reset)
        } else {
            None
        }
    })
}

/// The structured field: `"default";r=0;t=50`, several of them, or the older `limit=9, remaining=0, reset=50`.
fn structured(text: &str, best: &mut Best) {
    let is_dictionary = contains_ignoring_case(text, "reset=");
    for item in text.split(|c| c == ',' && !is_dictionary) {
        let value = |names: [&str; 2]| {
            item.split([';', ','])
                .filter_map(|part| part.trim().split_once('='))
                .find(|(name, _)| {
                    names
                        .iter()
                        .any(|known| known.eq_ignore_ascii_case(name.trim()))
                })
                .map(|(_, value)| value.trim())
        };
        if value(["r", "remaining"]).is_some_and(is_positive) {
            continue;
        }
        let reset = value(["t", "reset"]).and_then(|reset| span::plain(reset, span::SECOND));
        best.offer(reset.map(|(ms, _)| HintValue::Span(ms)), HintSource::Header);
    }
}

/// The bucket that a reset header is of: `x-ratelimit-reset-tokens` has `x-ratelimit-remaining-tokens`.
pub(super) struct Bucket<'n> {
    pub(super) before: &'n str,
    pub(super) after: &'n str,
}

impl<'n> Bucket<'n> {
    pub(super) fn of(reset: &'n str) -> Option<Self> {
        let at = reset
            .as_bytes()
            .windows("reset".len())
            .position(|window| window.eq_ignore_ascii_case(b"reset"))?;
        let after = &reset[at + "reset".len()..];
        // The unit of the reset is not part of the bucket's name.
        let is_unit = ["after", "afterseconds", "ms", "seconds", "at", "in"]
            .iter()
            .any(|unit| {
                let letters = || after.bytes().filter(u8::is_ascii_alphanumeric);
                letters()
                    .map(|byte| byte.to_ascii_lowercase())
                    .eq(unit.bytes())
            });
        Some(Self {
            before: &reset[..at],
            after: if is_unit { "" } else { after },
        })
    }

    /// Whether `name` is that of the bucket's `word`.
    pub(super) fn is_named(&self, name: &[u8], word: &str) -> bool {
        let parts = [self.before, word, self.after];
        let mut rest = name;
        for part in parts {
            match rest.split_at_checked(part.len()) {
                Some((head, tail)) if head.eq_ignore_ascii_case(part.as_bytes()) => rest = tail,
                _ => return false,
            }
        }
        rest.is_empty()
    }

    /// Whether something is left in it: then its reset says nothing about this error. `value` looks up what
    /// stands under one of its names.
    fn has_left<'v>(&self, value: impl Fn(&str) -> Option<&'v str>) -> bool {
        if let Some(left) = value("remaining") {
            return is_positive(left);
        }
        if let Some(status) = value("status") {
            return starts_with_word(status, "allowed");
        }
        let used = value("used-percent").and_then(|used| span::plain(used.trim(), 1));
        used.is_some_and(|(percent, _)| percent < 100)
    }
}

/// Whether a number is above zero.
pub(super) fn is_positive(number: &str) -> bool {
    number
        .trim()
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
        .any(|byte| matches!(byte, b'1'..=b'9'))
}
