//! The status line (SPEC section 12): its texts, and a real terminal.

#[cfg(unix)]
mod terminal;
mod texts;
