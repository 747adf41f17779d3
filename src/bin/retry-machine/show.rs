//! Texts from outside, for people: control characters escaped, secrets masked, width respected.

use std::io::IsTerminal;
use std::sync::LazyLock;

use regex::Regex;
use retry_machine::Span;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The columns to write in: the terminal's, else 100.
pub fn width() -> usize {
    let terminal = std::io::stdout()
        .is_terminal()
        .then(terminal_size::terminal_size)
        .flatten();
    terminal.map_or(100, |(width, _)| usize::from(width.0).max(20))
}

/// A text on one line: control characters as escapes, secrets masked, cut at `columns`.
pub fn one_line(text: &str, columns: usize) -> String {
    cut(&masked(&escaped(text)), columns)
}

/// Control characters and what turns the direction of writing, as escapes.
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
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Keys, tokens and mail addresses, masked.
pub fn masked(text: &str) -> String {
    static SECRETS: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = concat!(
            r"(?i)\b(?P<kind>sk|pk|rk|gsk|xai|hf|r8|AIza|AKIA|ASIA|ghp|gho|ghs|ghu|glpat|xoxb|xoxp)",
            r"(?P<body>[-_]?[A-Za-z0-9_-]{12,})",
            r"|(?P<bearer>\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}",
            r"|(?P<jwt>\beyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9._-]+",
            r"|[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+\.[A-Za-z0-9.-]+",
        );
        #[expect(
            clippy::expect_used,
            reason = "a constant, compiled by every test of this module"
        )]
        Regex::new(pattern).expect("the pattern of secrets")
    });
    SECRETS
        .replace_all(text, |found: &regex::Captures<'_>| {
            let kept = ["kind", "bearer", "jwt"]
                .iter()
                .find_map(|name| found.name(name))
                .map_or("", |kept| kept.as_str());
            format!("{kept}…")
        })
        .into_owned()
}

/// At most `columns` wide, with an ellipsis where it was cut.
pub fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        shown.push(c);
    }
    shown.push('…');
    shown
}

/// The line of `text` in which `span` begins, and a line that underlines the span.
pub fn underlined(text: &str, span: Span, columns: usize) -> (String, String) {
    let start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[span.start..]
        .find('\n')
        .map_or(text.len(), |at| at + span.start);
    let stop = span.end.min(end);
    let shown = |piece: &str| masked(&escaped(piece));
    let before = shown(&text[start..span.start]);
    let inside = shown(&text[span.start..stop]);
    let after = shown(&text[stop..end]);
    // Enough of what stands before to see the place.
    let room = columns.saturating_sub(inside.width()).max(20);
    let lead = last_columns(&before, room / 2);
    let line = cut(&format!("{lead}{inside}{after}"), columns);
    let mark = "^".repeat(
        inside
            .width()
            .max(1)
            .min(columns.saturating_sub(lead.width()).max(1)),
    );
    (line, format!("{}{mark}", " ".repeat(lead.width())))
}

/// The end of `text`, at most `columns` wide.
fn last_columns(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let start = text
        .char_indices()
        .rev()
        .take_while(|(_, c)| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .last()
        .map_or(text.len(), |(at, _)| at);
    format!("…{}", &text[start..])
}

/// Milliseconds for people: `20 ms`, `2.5 s`, `3 min 20 s`, `5 h 2 min`, `3 d 4 h`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 if ms.is_multiple_of(1000) => format!("{seconds} s"),
        1000..60_000 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60_000..3_600_000 => format!("{minutes} min {} s", seconds % 60),
        3_600_000..86_400_000 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}
