//! Texts from outside, for people: on one line, control characters escaped, secrets masked, width respected.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A text on one line: secrets masked, control characters as escapes, cut at `columns`.
///
/// ```
/// use retry_machine::status::text::one_line;
/// assert_eq!(one_line("bad key:\nsk-ant-REDACTED", 40), r"bad key:\nsk…");
/// assert_eq!(one_line("模型过载，请稍后", 7), "模型过…");
/// ```
#[must_use]
pub fn one_line(text: &str, columns: usize) -> String {
    cut(&escaped(&masked(text)), columns)
}

/// Control characters, and what turns the direction of writing or cannot be seen, as escapes: `\n`, `\u{1b}`.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hostile(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Keys, tokens and mail addresses, masked: what they are stays, the secret becomes `…`.
#[must_use]
pub fn masked(text: &str) -> String {
    static SECRETS: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = concat!(
            // ASCII alone: to Unicode a word may begin with 密钥 and go on with a key. The end of an escape is no
            // letter of what follows either.
            r"(?i-u)(?P<edge>\b|\\[nrt]|\x1b\[[0-9;]*m)(?:",
            r"(?P<kind>sk|pk|rk|gsk|xai|hf|r8|AIza|AKIA|ASIA|ghp|gho|ghs|ghu|glpat|xoxb|xoxp)",
            r"[-_]?[A-Za-z0-9_-]{12,}",
            r"|(?P<bearer>bearer\s+)[A-Za-z0-9._~+/=-]{8,}",
            r"|(?P<jwt>eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9._-]+",
            r"|[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+\.[A-Za-z0-9.-]+)",
        );
        #[expect(
            clippy::expect_used,
            reason = "a constant, compiled by every test of this module"
        )]
        Regex::new(pattern).expect("the pattern of secrets")
    });
    SECRETS
        .replace_all(text, |found: &Captures<'_>| {
            let kept = ["kind", "bearer", "jwt"]
                .iter()
                .find_map(|name| found.name(name))
                .map_or("", |kept| kept.as_str());
            format!("{}{kept}…", &found["edge"])
        })
        .into_owned()
}

/// At most `columns` wide, with an ellipsis where it was cut. What is one character to a reader is shown whole or not.
///
/// ```
/// use retry_machine::status::text::cut;
/// assert_eq!(cut("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…");
/// assert_eq!(cut("過負荷", 4), "過…");
/// assert_eq!(cut("anything", 0), "");
/// ```
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    // Marks may pile up on a letter without end.
    let longest = columns.saturating_mul(32);
    let mut used = 0;
    // Where an ellipsis would still have room.
    let mut room = 0;
    for (at, grapheme) in text.grapheme_indices(true) {
        used += width(grapheme);
        let end = at + grapheme.len();
        if used > columns || end > longest {
            let ellipsis = if columns == 0 { "" } else { "…" };
            return format!("{}{ellipsis}", &text[..room]);
        }
        if used < columns {
            room = end;
        }
    }
    text.to_owned()
}

/// Terminals disagree about modifiers and joined emoji: the widest opinion.
fn width(grapheme: &str) -> usize {
    let apart = grapheme.chars().map(|c| c.width().unwrap_or(0)).sum();
    grapheme.width().max(apart)
}
