//! Delay hints (SPEC section 7): how long the server said to wait, from headers, keys and words.
//!
//! Every form that is found is a candidate; the longest credible one counts (HI2). A span stays a span; a
//! date or a clock time becomes an instant. Instants are by the server's clock: where the host gives a `Date`
//! header, the skew between the clocks is taken out.
//!
//! A header that the host gives replaces what the text says under the same name. The reset of a bucket
//! counts only if nothing is left in it. What a client plans itself ("Retrying in 4 s… attempt 4/10") is no
//! hint, and neither is what is only echoed.
//!
//! Integers only; a fraction of a millisecond is rounded up, and nothing overflows. What is negative,
//! garbage or of an unknown unit is no hint. Deliberately absent: a clock, and guesses. A clock time
//! without a zone ("resets 3am") is no hint unless the host says which zone is meant
//! ([`ErrorFacts::time_zone`]), and zones by name need the feature `tz-bundled`.

mod header;
mod moment;
mod span;
mod text;
mod value;

use super::ErrorFacts;
use super::pattern::Found;
use super::signals::Signals;
use crate::backoff::MAX_DELAY_MS;
use crate::time::UnixMillis;
use moment::Naive;
use text::Reader;

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
    /// A number needs its unit, and nothing else is read: one waits for minutes, not for dates.
    Span,
    /// A date or a time of day, of a service in China unless it says otherwise.
    ChinaTime,
    /// An epoch behind a bar, and nothing else: `usage limit reached|1782288090`.
    BarredEpoch,
    /// The number and its unit stand before, up to the unit that the phrase begins with: `30秒后重试`.
    UnitBefore(u64),
    /// The date or time of day stands before: `2026-06-24 17:41 重置`.
    TimeBefore {
        /// Of a service in China.
        china: bool,
    },
}

/// The keys and headers that carry hints, without case and separators.
pub(super) fn key_kind(key: &[u8]) -> Option<HintKind> {
    Some(match key {
        b"retryafterms"
        | b"xmsretryafterms"
        | b"xamzretryafter"
        | b"grpcretrypushbackms"
        | b"retrydelayms"
        | b"retryinms"
        | b"retryaftermillis"
        | b"retryaftermilliseconds"
        | b"resetinms"
        | b"resetsinms"
        | b"resetafterms"
        | b"waitms" => HintKind::Millis,
        b"retryafter"
        | b"retryafterseconds"
        | b"retryaftersecs"
        | b"retryaftersec"
        | b"retryafters"
        | b"xretryafter"
        | b"retryin"
        | b"retryinseconds"
        | b"retrydelayseconds"
        | b"resetsinseconds"
        | b"resetinseconds"
        | b"resetafterseconds"
        | b"resetafter"
        | b"resetsafter"
        | b"resetsin"
        | b"resetin"
        | b"quotaresetdelay"
        | b"estimatedtime"
        | b"waitseconds"
        | b"cooldownseconds"
        | b"xratelimitresetafter"
        | b"waittime"
        | b"retryafterinseconds" => HintKind::Seconds,
        // Google writes its unit; clients write their own plain numbers under the same name.
        b"retrydelay" => HintKind::Words,
        b"resetms" => HintKind::ResetMillis,
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

/// The phrases that announce hints in prose, as patterns. The names of headers
/// stand here too; what is joined to them is read in the source.
pub(super) const PHRASES: &[(&str, HintKind)] = &[
    ("retry after ms", HintKind::Millis),
    (
        "(retry after|retryafter|retry after seconds)",
        HintKind::Seconds,
    ),
    ("retry delay", HintKind::Words),
    ("(reset|resets|resetting)", HintKind::Words),
    ("limit reached", HintKind::BarredEpoch),
    ("(reset|resets) (time|date|timestamp)", HintKind::Words),
    (
        "(try again|regain access|not before|wait till)",
        HintKind::Words,
    ),
    (
        "(retry|try|back|again|available|next request|resume|resumes|unblocked|unlocks|lifted|restored|renews|renewed|refreshes|refreshed|replenishes|replenished|refills|refilled) in",
        HintKind::Words,
    ),
    (
        "(back|again|available|resume|resumes|unblocked|unlocks|lifted|restored|renews|renewed|refreshes|refreshed|replenishes|replenished|refills|refilled) (at|on|after)",
        HintKind::Words,
    ),
    ("retry (at|on)", HintKind::Words),
    (
        "(limit|ban|block|lockout|cooldown|penalty) expires (in|at|on)",
        HintKind::Words,
    ),
    (
        "(wait|blocked|limited|limit|limits|exhausted|unavailable|paused|suspended|locked|again|requests|retry|throttled|cooldown|cool down|disabled|reached|hold off|maintenance|down) until",
        HintKind::Words,
    ),
    (
        "(wait time|estimated time|wait|cooldown|cool down|back off for|slow down for|hold off for)",
        HintKind::Span,
    ),
    // Spanish, Portuguese, Italian
    (
        "(nuevo|vez|intentarlo|inténtalo|intentalo|intente|disponible|novamente|novo|disponível|disponivel|riprova|riprovare|riprovi|nuovo|disponibile) (en|dentro de|después de|tras|em|após|depois de|às|as|a las|el|tra|fra)",
        HintKind::Words,
    ),
    ("(tente|tentar|intenta) (em|en)", HintKind::Words),
    (
        "(redefinido|redefine|renova|renovado|reinicia|reiniciará|restablece|restablecerá|renueva) (em|en|el|dia|às|a las)",
        HintKind::Words,
    ),
    (
        "(espera|espere|esperar|aguarde|aguardar|attendi|attenda|attendere)",
        HintKind::Span,
    ),
    // German, French, Russian
    (
        "(erneut|nochmal|noch einmal|wieder|versuchen sie es|versuche es|versuch es|bitte|verfügbar|wird|werden|zurücksetzung) (in|nach|am|um|ab)",
        HintKind::Words,
    ),
    ("(warten sie|warte|warten|bitte)", HintKind::Span),
    (
        "(réessayez|réessayer|réessaie|reessayez|reessayer|nouveau|disponible|réinitialisé|réinitialisée|réinitialise|réinitialisera) (dans|à|après|le)",
        HintKind::Words,
    ),
    ("(attendre|attendez|patienter|patientez)", HintKind::Span),
    ("(через|подождите)", HintKind::Span),
    // Chinese, Japanese, Korean
    (
        "(将在|将于|將於|將在|将会在|請在|请在|请于|請於|请等待|請等待|等待|请稍候|请稍等|重置时间|重置時間|恢复时间|重试时间|重置于)",
        HintKind::ChinaTime,
    ),
    (
        "(リセット時刻|リセット日時|リセット|초기화 시간)",
        HintKind::Words,
    ),
    (
        "(后|後|之后|之後)(重置|恢复|重试|再试|重試|再試)",
        HintKind::TimeBefore { china: true },
    ),
    ("(重置|恢复|解除)", HintKind::TimeBefore { china: true }),
    (
        "(にリセット|に再開|に回復|에 초기화|에 재설정|이후 다시|以降)",
        HintKind::TimeBefore { china: false },
    ),
    (
        "(秒|초 |초)(后|後|之后|之後|以后|钟后|鐘後|후|뒤|이후|동안|待|お待ち|ほど待|ほどお待ち|間待|間お待ち)",
        HintKind::UnitBefore(span::SECOND),
    ),
    (
        "(分|分钟|分鐘|분 |분)(后|後|之后|之後|以后|후|뒤|이후|동안|待|お待ち|ほど待|ほどお待ち|間待|間お待ち)",
        HintKind::UnitBefore(span::MINUTE),
    ),
    (
        "(小时|小時|時間|시간 |시간)(后|後|之后|之後|以后|후|뒤|이후|동안|待|お待ち|ほど待)",
        HintKind::UnitBefore(span::HOUR),
    ),
    (
        "(天|日|일 |일)(后|後|之后|之後|以后|후|뒤)",
        HintKind::UnitBefore(span::DAY),
    ),
];

/// How much of the text behind a key or a phrase is read, in bytes.
const REACH: usize = 96;

/// The longest credible hint of headers and text.
pub(super) fn find(
    source: &str,
    signals: &Signals<'_, '_>,
    phrases: impl Iterator<Item = (HintKind, Found)>,
    facts: &ErrorFacts<'_>,
    now: UnixMillis,
) -> Option<DelayHint> {
    let server_now = header::server_now(facts, now);
    let mut best = Best {
        hint: None,
        now,
        server_now: server_now.unwrap_or(now),
    };
    header::read(facts, server_now, &mut best);
    let reader = Reader {
        source,
        signals,
        facts,
        zone: zone(facts),
        now: best.server_now,
    };
    for key in signals.hint_keys() {
        best.offer(reader.key(key), HintSource::Key);
    }
    for (kind, found) in phrases {
        best.offer(reader.phrase(found, kind), HintSource::Words);
    }
    best.hint
}

/// The longest offered so far.
struct Best {
    hint: Option<DelayHint>,
    now: UnixMillis,
    /// The same instant by the server's clock.
    server_now: UnixMillis,
}

impl Best {
    /// Instants are by the server's clock: the skew is taken out.
    fn offer(&mut self, value: Option<HintValue>, source: HintSource) {
        let Some(value) = value else {
            return;
        };
        let value = match value {
            HintValue::Instant(at) if self.server_now != self.now => {
                let at =
                    at.0.saturating_add(self.now.0)
                        .saturating_sub(self.server_now.0);
                HintValue::Instant(UnixMillis(at.min(MAX_DELAY_MS)))
            }
            HintValue::Span(_) | HintValue::Instant(_) => value,
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
fn zone<'a>(facts: &'a ErrorFacts<'_>) -> Naive<'a> {
    let china = facts.provider.as_deref().is_some_and(|provider| {
        ["zai", "z.ai", "zhipu", "bigmodel", "glm"]
            .iter()
            .any(|name| contains_ignoring_case(provider, name))
    });
    Naive {
        host: facts.time_zone.as_deref(),
        china,
    }
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

/// At most `len` bytes of the text.
fn within(text: &str, len: usize) -> &str {
    &text[..text.floor_char_boundary(len)]
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Whether `word` is one of the words between the bars, in any case.
fn is_among(word: impl AsRef<[u8]>, words: &str) -> bool {
    let word = word.as_ref();
    let Some(first) = word.first() else {
        return false;
    };
    let words = words.as_bytes();
    let mut at = 0;
    // By hand, as most lists are long and most words in none.
    while let Some(candidate) = words.get(at..at + word.len()) {
        if candidate[0].eq_ignore_ascii_case(first)
            && candidate.eq_ignore_ascii_case(word)
            && matches!(words.get(at + word.len()), None | Some(b'|'))
        {
            return true;
        }
        while words.get(at).is_some_and(|byte| *byte != b'|') {
            at += 1;
        }
        at += 1;
    }
    false
}

fn contains_ignoring_case(text: &str, part: &str) -> bool {
    text.as_bytes()
        .windows(part.len())
        .any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}
