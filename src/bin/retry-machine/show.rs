//! Texts from outside, for people: what the library's `status::text` has, and what a report needs besides.

use std::io::IsTerminal;

use retry_machine::Span;
pub use retry_machine::status::text::{cut, one_line};
use retry_machine::status::text::{escaped, masked};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The columns to write in: the terminal's, else 100.
pub fn width() -> usize {
    let terminal = std::io::stdout()
        .is_terminal()
        .then(terminal_size::terminal_size)
        .flatten();
    terminal.map_or(100, |(width, _)| usize::from(width.0).max(20))
}

/// The line of `text` in which `span` begins, and a line that underlines the span.
pub fn underlined(text: &str, span: Span, columns: usize) -> (String, String) {
    let start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[span.start..]
        .find('\n')
        .map_or(text.len(), |at| at + span.start);
    let stop = span.end.min(end);
    let shown = |piece: &str| escaped(&masked(piece));
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
