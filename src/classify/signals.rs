//! Raw text → signals, in one pass and linear time.
//!
//! An error arrives as anything from `Connection error.` to JSON in JSON in a wrapper with a stack trace below. This
//! file finds out what stands where and hands on *words* ([`Token`]) in which rules can look for phrases without
//! caring for the form:
//!
//! * the text falls into *fields*, each with its [`Origin`]: the provider's own message, a code, a page's title, the
//!   page, or prose around;
//! * what is only echoed (ids, model and parameter names, quoted names, user text, URLs, stack frames) is not there at
//!   all: one [`OPAQUE`] word stands for it, so that no rule can see it;
//! * statuses are read where they stand as statuses (CL6), and nowhere else;
//! * keys that carry delays are noted for the hints.
//!
//! Deliberately absent: a JSON parser. Errors are cut, doubly escaped, and often Python or JavaScript; the pass reads
//! quotes, keys and brackets of any of them, and never fails.

use super::hint::{self, HintKind, KEY_LEN};
use super::words::{
    LONGEST, OPAQUE, Sense, Token, UNKNOWN, Vocabulary, comparison, is_alone, is_letter,
};

/// How much of the head and of the tail of a huge text is read, in bytes.
const HEAD: usize = 8 * 1024;
const TAIL: usize = 4 * 1024;
/// The most bytes that are read of any text.
pub(super) const WINDOW: usize = HEAD + TAIL;
/// How far behind a status its message may begin, in bytes.
const STATUS_REACH: usize = 32;
/// How deep strings may nest inside strings.
const DEPTH: usize = 8;
/// How much of an id behind its name is looked at, in bytes.
const LONGEST_ID: usize = 128;
/// The most hint keys that are looked at.
const HINT_KEYS: usize = 8;

/// Who speaks in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Prose that is not inside any structure: the whole text, or what a client library put around.
    Prose,
    /// The value of a message-like key: the provider's own words.
    Message,
    /// The value of a code, type, status or reason.
    Code,
    /// The title or first heading of an HTML page.
    Title,
    /// The rest of an HTML page.
    Page,
}

/// An HTTP status and where it stood in the source, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundStatus {
    pub(super) status: u16,
    pub(super) start: usize,
}

/// A key that carries a delay hint, and where its value begins in the source.
#[derive(Clone, Copy)]
pub(super) struct KeyValue {
    pub(super) kind: HintKind,
    pub(super) at: usize,
}

/// The part of a text that is read: a bounded head, and a bounded tail of huge ones.
#[derive(Clone, Copy)]
pub(super) struct Window<'t> {
    pub(super) head: &'t str,
    pub(super) tail: &'t str,
    /// Where the tail begins in the source.
    tail_start: usize,
}

impl<'t> Window<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        if text.len() <= WINDOW {
            return Self {
                head: text,
                tail: "",
                tail_start: text.len(),
            };
        }
        let head_end = text.floor_char_boundary(HEAD);
        let tail_start = text.ceil_char_boundary(text.len() - TAIL);
        Self {
            head: &text[..head_end],
            tail: &text[tail_start..],
            tail_start,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// From an offset in head and tail joined to one in the source.
    fn source_offset(&self, at: usize) -> usize {
        if at < self.head.len() || self.tail.is_empty() {
            at
        } else {
            at - self.head.len() + self.tail_start
        }
    }
}

/// What the pass found.
pub(super) struct Signals<'t, 'b> {
    window: Window<'t>,
    tokens: &'b [Token],
    hint_keys: [Option<KeyValue>; HINT_KEYS],
    /// The status that counts: the innermost, which is the last.
    pub(super) status: Option<FoundStatus>,
}

impl<'t, 'b> Signals<'t, 'b> {
    /// Reads `window` into `room`. `code` is a code that the host knows, which replaces those in the text.
    pub(super) fn read(
        window: Window<'t>,
        code: Option<&str>,
        vocabulary: &Vocabulary,
        room: &'b mut [Token],
    ) -> Self {
        let mut out = Writer {
            tokens: room,
            len: 0,
            limit: 0,
            field: 0,
            origin: Origin::Prose,
            fresh: true,
            first: true,
            mark: 0,
        };
        let mut status = None;
        let mut hint_keys = [None; HINT_KEYS];
        let room = out.tokens.len();
        for (part, base, limit) in [
            (window.head, 0, room * 2 / 3),
            (window.tail, window.head.len(), room),
        ] {
            if part.is_empty() {
                continue;
            }
            out.limit = if window.tail.is_empty() { room } else { limit };
            let mut lexer = Lexer::new(part.as_bytes(), base, code.is_none(), vocabulary, &mut out);
            lexer.run();
            status = lexer.status.or(status);
            for found in lexer.hint_keys.into_iter().flatten() {
                if let Some(free) = hint_keys.iter_mut().find(|slot| slot.is_none()) {
                    *free = Some(KeyValue {
                        at: window.source_offset(base + found.at),
                        ..found
                    });
                }
            }
        }
        if let Some(code) = code {
            out.begin_field(Origin::Code);
            let mut lexer = Lexer::new(code.as_bytes(), window.len(), true, vocabulary, &mut out);
            lexer.words_only();
        }
        out.boundary();
        let Writer { tokens, len, .. } = out;
        Self {
            window,
            tokens: &tokens[..len],
            hint_keys,
            status: status.map(|(status, start)| FoundStatus {
                status,
                start: window.source_offset(start),
            }),
        }
    }

    /// What was read of the source: its head, its tail, and where the tail begins.
    #[cfg(feature = "rules")]
    pub(super) fn parts(&self) -> (&str, &str, usize) {
        (self.window.head, self.window.tail, self.window.tail_start)
    }

    /// How many bytes were read of the source; words behind that are of a code that the host gave.
    pub(super) fn window_len(&self) -> usize {
        self.window.len()
    }

    /// The words.
    pub(super) fn tokens(&self) -> &[Token] {
        self.tokens
    }

    pub(super) fn hint_keys(&self) -> impl Iterator<Item = KeyValue> {
        self.hint_keys.into_iter().flatten()
    }

    /// The source's bytes that the words `first..=last` came from; None if they came from a code that the host gave.
    pub(super) fn source_span(&self, first: usize, last: usize) -> Option<(usize, usize)> {
        let start = usize::from(self.tokens.get(first)?.start);
        let end = usize::from(self.tokens.get(last)?.end);
        if end > self.window.len() {
            return None;
        }
        // An end is that of the byte before it: the window may break off there.
        let end = self.window.source_offset(end.saturating_sub(1)) + 1;
        Some((self.window.source_offset(start), end))
    }

    /// Where in the source the field, or the structure in it, ends that the word `last` stands in, or where
    /// something echoed begins.
    pub(super) fn field_end(&self, last: usize) -> Option<usize> {
        let field = self.tokens.get(last)?.field;
        let end = (last..self.tokens.len())
            .take_while(|at| *at == last || !self.tokens[at - 1].has(Token::LAST))
            .take_while(|at| self.tokens[*at].field == field && self.tokens[*at].word != OPAQUE)
            .last()?;
        self.source_span(end, end).map(|(_, end)| end)
    }

    /// Where in the source the words before the word `first` begin, at most `count` of them, in its field.
    pub(super) fn field_start(&self, first: usize, count: usize) -> Option<usize> {
        let field = self.tokens.get(first)?.field;
        let start = (first.saturating_sub(count)..first)
            .rev()
            .take_while(|at| self.tokens[*at].field == field && !self.tokens[*at].has(Token::LAST))
            .last()?;
        self.source_span(start, start).map(|(start, _)| start)
    }
}

/// The words while they are written.
struct Writer<'b> {
    tokens: &'b mut [Token],
    len: usize,
    /// No more than so many for now: the tail of a huge text has its own share.
    limit: usize,
    field: u8,
    origin: Origin,
    /// Nothing has been written since the field, or the structure in it, began.
    fresh: bool,
    /// No word has been written in the field.
    first: bool,
    /// The last mark since the last word, or 0.
    mark: u8,
}

impl Writer<'_> {
    fn push(&mut self, word: (u16, u16), start: usize, end: usize, flags: u8) {
        if self.len < self.limit {
            let first = if self.first { Token::FIRST } else { 0 };
            self.tokens[self.len] = Token {
                word: word.0,
                stem: word.1,
                start: start as u16,
                end: end as u16,
                field: self.field,
                origin: self.origin,
                flags: flags | first,
            };
            self.len += 1;
        }
        // An echo leaves the next word the first one.
        self.first &= word.0 == OPAQUE;
        self.fresh = false;
        self.mark = 0;
    }

    /// The last word of the field, if there is one.
    fn last(&self) -> Option<&Token> {
        self.tokens[..self.len]
            .last()
            .filter(|token| token.field == self.field)
    }

    fn last_word(&self) -> u16 {
        self.last().map_or(UNKNOWN, |token| token.word)
    }

    /// Structure begins or ends: what comes next is not the rest of a sentence.
    fn boundary(&mut self) {
        if let Some(last) = self.len.checked_sub(1) {
            self.tokens[last].flags |= Token::LAST;
        }
        self.fresh = true;
        self.mark = 0;
    }

    fn begin_field(&mut self, origin: Origin) {
        self.boundary();
        if self.last().is_some() {
            self.field = self.field.saturating_add(1);
        }
        self.origin = origin;
        self.first = true;
    }
}

/// What the value of a key is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyRole {
    /// The provider's words.
    Message,
    /// A code, or a status if it is a number.
    Code,
    /// Echoed, whatever it holds.
    Echo,
    /// A key that says nothing: a string in it is echoed, structure in it is read.
    Unknown,
}

impl KeyRole {
    fn of(key: &[u8]) -> Self {
        match key {
            b"message"
            | b"msg"
            | b"error"
            | b"err"
            | b"errors"
            | b"detail"
            | b"details"
            | b"description"
            | b"errormessage"
            | b"errormsg"
            | b"errmsg"
            | b"errordescription"
            | b"errordetail"
            | b"displaymessage"
            | b"usermessage"
            | b"title"
            | b"raw"
            | b"grpcmessage"
            | b"body"
            | b"cause"
            | b"statustext"
            | b"statusmessage"
            | b"lasterror"
            | b"upstreamerror"
            | b"blockreasonmessage"
            | b"response"
            | b"responsebody"
            | b"data"
            | b"reasonphrase"
            | b"statusmsg"
            | b"finalerror"
            | b"errorstring" => Self::Message,
            b"code"
            | b"type"
            | b"status"
            | b"reason"
            | b"errortype"
            | b"errorcode"
            | b"name"
            | b"kind"
            | b"finishreason"
            | b"stopreason"
            | b"exceptiontype"
            | b"blockreason"
            | b"statuscode"
            | b"httpcode"
            | b"httpstatus"
            | b"httpstatuscode"
            | b"rawstatuscode"
            | b"grpcstatus"
            | b"errno"
            | b"errtype"
            | b"providererrorcode"
            | b"quotaid"
            | b"quotametric"
            | b"limittype"
            | b"xamznerrortype"
            | b"error_type"
            | b"nativefinishreason"
            | b"category"
            | b"subtype"
            | b"errorname"
            | b"statusname" => Self::Code,
            b"input" | b"inputs" | b"request" | b"requestbody" | b"arguments" | b"args"
            | b"content" | b"contents" | b"prompt" | b"tools" | b"messages" | b"flaggedinput"
            | b"failedgeneration" | b"callstack" | b"stack" | b"stacktrace" | b"traceback"
            | b"parameters" | b"params" | b"context" | b"query" | b"text" | b"user" | b"loc"
            | b"output" | b"choices" | b"delta" | b"instructions" | b"system" | b"metadatauser" => {
                Self::Echo
            }
            // The message of a code: `stopReasonMessage`.
            _ => match key.strip_suffix(b"message").map(Self::of) {
                Some(Self::Code | Self::Message) => Self::Message,
                Some(Self::Echo | Self::Unknown) | None => Self::Unknown,
            },
        }
    }
}

/// A string whose inside is being read.
#[derive(Clone, Copy)]
struct Mode {
    /// Where it ends: the offset of the closing quote, escapes included.
    end: usize,
    /// Behind the closing quote.
    after: usize,
    /// What to go back to.
    outer: Origin,
    /// Open brackets before it. One that is cut leaves brackets open.
    depth: u32,
    /// Whether it holds structure rather than prose.
    is_structure: bool,
}

struct Lexer<'t, 'w, 'b> {
    src: &'t [u8],
    /// Added to offsets in `src`.
    base: usize,
    /// Whether codes found in the text count.
    keep_codes: bool,
    vocabulary: &'w Vocabulary,
    out: &'w mut Writer<'b>,
    at: usize,
    modes: [Mode; DEPTH],
    mode_count: usize,
    /// Open brackets.
    depth: u32,
    /// Inside an echoed container: until the depth is back at this.
    echo_above: Option<u32>,
    /// The role of the key whose value comes next.
    pending: Option<KeyRole>,
    /// Up to where no partner of a quote is to be found, by kind and escapes: not to be searched again.
    unclosed: [usize; 18],
    /// The run of letters and digits that was looked at last.
    run: Run,
    hint_keys: [Option<KeyValue>; HINT_KEYS],
    status: Option<(u16, usize)>,
}

/// Letters, digits and what joins them: `x-ratelimit-reset`, `gpt-4.1`, `a@b.c`. Its words are read one by
/// one; what it holds is found once, as where each kind of byte stands last.
#[derive(Clone, Copy, Default)]
struct Run {
    end: usize,
    digit: Option<usize>,
    lower: Option<usize>,
    joint: Option<usize>,
    at_sign: Option<usize>,
}

impl Run {
    fn of(src: &[u8], start: usize) -> Self {
        let mut run = Self {
            end: start,
            ..Self::default()
        };
        while let Some(byte) = src.get(run.end) {
            let at = run.end;
            match byte {
                b'a'..=b'z' => run.lower = Some(at),
                b'0'..=b'9' => run.digit = Some(at),
                b'A'..=b'Z' => {}
                b'-' | b'_' | b'.' | b'/' | b'@' | b'%' | b'+'
                    if src.get(at + 1).is_some_and(u8::is_ascii_alphanumeric) =>
                {
                    run.joint = Some(at);
                    if *byte == b'@' {
                        run.at_sign = Some(at);
                    }
                }
                _ => break,
            }
            run.end += 1;
        }
        run
    }
}

/// One quote character as the source spells it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Quote {
    /// `"`, `'` or a backtick; typographic quotes count as the plain ones.
    kind: u8,
    /// Backslashes before it.
    escapes: usize,
    /// Bytes of the quote itself.
    len: usize,
}

impl Quote {
    /// Whether a quote with so many backslashes before it closes this one. In a string that is encoded k times a quote
    /// has 2^k − 1 of them, and a backslash that ends the string is 2^(k + 1) more.
    const fn is_closed_by(self, escapes: usize) -> bool {
        escapes == self.escapes
            || (self.escapes + 1).is_power_of_two()
                && escapes % (2 * (self.escapes + 1)) == self.escapes
    }
}

impl<'t, 'w, 'b> Lexer<'t, 'w, 'b> {
    fn new(
        src: &'t [u8],
        base: usize,
        keep_codes: bool,
        vocabulary: &'w Vocabulary,
        out: &'w mut Writer<'b>,
    ) -> Self {
        Self {
            src,
            base,
            keep_codes,
            vocabulary,
            out,
            at: 0,
            modes: [Mode {
                end: 0,
                after: 0,
                outer: Origin::Prose,
                depth: 0,
                is_structure: false,
            }; DEPTH],
            mode_count: 0,
            depth: 0,
            echo_above: None,
            pending: None,
            unclosed: [0; 18],
            run: Run::default(),
            hint_keys: [None; HINT_KEYS],
            status: None,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.src.get(at).copied().unwrap_or(0)
    }

    /// Up to the first byte that is not blank.
    fn skip_blanks(&self, from: usize) -> usize {
        let mut at = from;
        while matches!(self.byte(at), b' ' | b'\t' | b'\n' | b'\r') {
            at += 1;
        }
        at
    }

    fn run(&mut self) {
        while self.at < self.src.len() {
            while self.mode_count > 0 && self.at >= self.modes[self.mode_count - 1].end {
                self.mode_count -= 1;
                let Mode {
                    after,
                    outer,
                    depth,
                    ..
                } = self.modes[self.mode_count];
                self.depth = depth;
                self.echo_above = None;
                self.out.begin_field(outer);
                self.at = self.at.max(after);
            }
            let byte = self.byte(self.at);
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => self.token(),
                b' ' | b'\t' | b'_' | b'-' => self.at += 1,
                b'\n' | b'\r' => self.newline(1),
                b'\\' => self.escape(),
                b'"' | b'\'' | b'`' => self.quote(Quote {
                    kind: byte,
                    escapes: 0,
                    len: 1,
                }),
                b'{' | b'[' => self.open(byte),
                b'}' | b']' => self.close(byte),
                b'<' => self.angle(),
                b'>' => self.comparison(b'>'),
                b'/' | b'~' => self.slash(),
                b',' | b';' => {
                    self.pending = None;
                    self.mark(byte);
                }
                0x80.. => self.non_ascii(),
                _ => self.mark(byte),
            }
        }
    }

    /// Only words, as in a code that the host gave.
    fn words_only(&mut self) {
        while self.at < self.src.len() {
            let end = self.word_end(self.at);
            if end > self.at {
                self.emit_words(self.at, end, 0);
                self.at = end;
            } else {
                self.at += 1;
            }
        }
    }

    fn mark(&mut self, byte: u8) {
        if self.echo_above.is_none() {
            self.out.mark = byte;
            // A colon or a dash may stand before the first word of all.
            self.out.fresh &= matches!(byte, b'(' | b'*' | b'#' | b'|' | b':');
        }
        self.at += 1;
    }

    /// `<`, `<=`, `>`, `>=` between words say which is more.
    fn comparison(&mut self, byte: u8) {
        let or_equal = self.byte(self.at + 1) == b'=';
        let len = 1 + usize::from(or_equal);
        let previous = self.at.checked_sub(1).map_or(b' ', |at| self.src[at]);
        let next = self.byte(self.at + len);
        // Not the bracket of `<503>` or of a tag.
        let compares = previous == b' '
            && (next == b' ' || (next.is_ascii_digit() && (or_equal || byte == b'>')));
        if !compares {
            self.mark(byte);
            return;
        }
        if self.echo_above.is_none() {
            let word = self.vocabulary.find(comparison(byte, or_equal).as_bytes());
            let start = self.base + self.at;
            self.out.push(word, start, start + len, 0);
        }
        self.at += len;
    }

    fn opaque(&mut self, end: usize) {
        if self.echo_above.is_none() && self.out.last_word() != OPAQUE {
            self.out
                .push((OPAQUE, UNKNOWN), self.base + self.at, self.base + end, 0);
        } else {
            self.out.mark = 0;
        }
        self.at = end;
    }

    // ---- lines and stack frames

    /// A line end of `len` source bytes, real or escaped. A stack frame after it is echoed.
    fn newline(&mut self, len: usize) {
        self.at += len;
        let mut start = self.at;
        while matches!(self.byte(start), b' ' | b'\t') {
            start += 1;
        }
        let rest = &self.src[start..];
        let is_frame = (rest.starts_with(b"at ") && self.is_frame_line(start))
            || rest.starts_with(b"File \"")
            || rest.starts_with(b"File \\\"");
        if is_frame {
            self.at = self.line_end(start);
            self.out.boundary();
        }
    }

    /// Up to the next line end, real or escaped.
    fn line_end(&self, from: usize) -> usize {
        let mut at = from;
        while at < self.src.len() {
            match self.src[at] {
                b'\n' | b'\r' => break,
                b'\\' if matches!(self.byte(at + 1), b'n' | b'r') => break,
                _ => at += 1,
            }
        }
        at
    }

    /// `at name (place:1:2)`, `at place:1:2`, `at name(File.java:12)`: has a line number or a bracket.
    fn is_frame_line(&self, start: usize) -> bool {
        let line = &self.src[start..self.line_end(start).min(start + 300)];
        line.windows(2)
            .any(|pair| pair[0] == b':' && pair[1].is_ascii_digit())
            || line.contains(&b'(')
    }

    // ---- escapes and quotes

    fn escape(&mut self) {
        let start = self.at;
        let mut end = start;
        while self.byte(end) == b'\\' {
            end += 1;
        }
        let escapes = end - start;
        match self.byte(end) {
            byte @ (b'"' | b'\'' | b'`') => {
                self.at = end;
                self.quote(Quote {
                    kind: byte,
                    escapes,
                    len: 1,
                });
            }
            b'n' | b'r' => self.newline(escapes + 1),
            b't' => self.at = end + 1,
            b'u' => match self.escaped_char(start) {
                Some((c, after)) if is_letter(c) => {
                    if self.echo_above.is_some() {
                        self.at = after;
                    } else {
                        self.slow_word();
                    }
                }
                Some((c, after)) => {
                    if is_alone(c) {
                        self.lone_char(c, after);
                    } else {
                        self.at = after;
                    }
                }
                None => self.at = end + 1,
            },
            _ => self.at = end,
        }
    }

    /// The character of `\u4f59` at the backslashes, and where it ends.
    fn escaped_char(&self, at: usize) -> Option<(char, usize)> {
        let mut digits = at;
        while self.byte(digits) == b'\\' {
            digits += 1;
        }
        let hex = self.src.get(digits + 1..digits + 5)?;
        if digits == at || self.byte(digits) != b'u' || !hex.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let code = hex.iter().fold(0, |code, digit| {
            code << 4 | char::from(*digit).to_digit(16).unwrap_or(0)
        });
        // Halves of surrogate pairs are no characters: what they stand for is no word either.
        Some((char::from_u32(code).unwrap_or(' '), digits + 5))
    }

    /// The quote at `at`, if one stands there.
    fn quote_at(&self, at: usize) -> Option<(u8, usize)> {
        match self.byte(at) {
            byte @ (b'"' | b'\'' | b'`') => Some((byte, 1)),
            0xE2 if self.byte(at + 1) == 0x80 => match self.byte(at + 2) {
                0x98 | 0x99 => Some((b'\'', 3)),
                0x9C | 0x9D => Some((b'"', 3)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The offset of the quote that closes `open`, whose text begins at `from`.
    fn closing(&mut self, open: Quote, from: usize) -> Option<usize> {
        // `'{"a":"dogs' b"}'`: put in quotes by a template, which escapes nothing.
        let is_template = open.kind == b'\'' && matches!(self.byte(from), b'{' | b'[');
        let behind_bracket = if is_template {
            self.partner(open, from, true)
        } else {
            None
        };
        behind_bracket.or_else(|| self.partner(open, from, false))
    }

    /// The next quote that can close `open`, or the next that does so behind a bracket: a straight one for a straight
    /// one, a typographic one for a typographic one, and each within the string that it stands in.
    fn partner(&mut self, open: Quote, from: usize, behind_bracket: bool) -> Option<usize> {
        let slot = match (open.kind, open.len) {
            _ if behind_bracket => 14 + open.escapes.min(3),
            (b'"', 1) => open.escapes.min(3),
            (b'\'', 1) => 4 + open.escapes.min(3),
            (b'"', _) => 12,
            (b'\'', _) => 13,
            _ => 8 + open.escapes.min(3),
        };
        let end = match self.mode_count {
            0 => self.src.len(),
            inner => self.modes[inner - 1].end,
        };
        let mut at = from.max(self.unclosed[slot]);
        let mut escapes = 0;
        while at < end {
            let byte = self.src[at];
            if byte == b'\\' {
                escapes += 1;
                at += 1;
                continue;
            }
            if (byte == open.kind || byte == 0xE2)
                && open.is_closed_by(escapes)
                && let Some((byte, len)) = self.quote_at(at)
                && (byte, len) == (open.kind, open.len)
                // An apostrophe inside a word closes nothing.
                && !(byte == b'\'' && self.byte(at + len).is_ascii_alphanumeric())
                && (!behind_bracket || matches!(self.src[at - 1 - escapes], b'}' | b']'))
            {
                return Some(at);
            }
            escapes = 0;
            at += 1;
        }
        self.unclosed[slot] = end;
        None
    }

    fn quote(&mut self, quote: Quote) {
        let start = self.at;
        // A fence of three quotes no name.
        if quote.kind == b'`' && self.src[start..].starts_with(b"```") {
            self.at = start + 3;
            return;
        }
        let inside = start + quote.len;
        let previous = start
            .checked_sub(1 + quote.escapes)
            .map_or(b' ', |at| self.src[at]);
        // b'…', f'…' and r'…', as Python writes its strings.
        let is_literal = start
            .checked_sub(2)
            .is_none_or(|at| !self.src[at].is_ascii_alphanumeric())
            && matches!(previous, b'b' | b'f' | b'r' | b'u');
        // An apostrophe between words, or behind one, is no quote.
        if quote.kind == b'\''
            && previous.is_ascii_alphanumeric()
            && !is_literal
            && !matches!(self.byte(inside), b'{' | b'[' | b'<')
        {
            self.at = inside;
            return;
        }
        let Some(end) = self.closing(quote, inside) else {
            self.at = inside;
            return;
        };
        let text_end = (end - quote.escapes).max(inside);
        let after = end + self.quote_at(end).map_or(1, |(_, len)| len);
        let colon = self.skip_blanks(after);
        let is_key =
            self.byte(colon) == b':' || (self.byte(colon) == b'=' && self.byte(colon + 1) == b'>');
        if is_key && (self.out.fresh || matches!(self.out.mark, b',' | b'[' | b'(')) {
            self.key(inside, text_end, colon + 1);
            return;
        }
        let role = self.pending.take();
        if self.echo_above.is_some() {
            self.at = after;
            return;
        }
        let text = &self.src[inside..text_end];
        let is_structure = matches!(
            text.iter()
                .find(|byte| !byte.is_ascii_whitespace() && !matches!(byte, b'\\' | b'n')),
            Some(b'{' | b'[')
        );
        let string = Mode {
            end: text_end,
            after,
            outer: self.out.origin,
            depth: self.depth,
            is_structure,
        };
        match role {
            Some(KeyRole::Echo | KeyRole::Unknown) => self.skip_to(after),
            Some(KeyRole::Code) if !self.keep_codes => self.skip_to(after),
            Some(KeyRole::Code) => {
                if text.len() == 3 {
                    self.note_status(inside);
                }
                self.enter(inside, string, Origin::Code);
            }
            Some(KeyRole::Message) => self.enter(inside, string, Origin::Message),
            None if !is_structure && !is_literal && self.is_echo(quote, text) => {
                self.opaque(after);
            }
            None => self.enter(inside, string, self.out.origin),
        }
    }

    /// A key from `start` to `end`, whose value begins at `value`.
    fn key(&mut self, start: usize, end: usize, value: usize) {
        let mut buffer = [0; KEY_LEN];
        let key = hint::normalise(&self.src[start..end], &mut buffer);
        if self.echo_above.is_none()
            && let Some(kind) = hint::key_kind(key)
            && let Some(free) = self.hint_keys.iter_mut().find(|slot| slot.is_none())
        {
            *free = Some(KeyValue { kind, at: value });
        }
        self.pending = Some(KeyRole::of(key));
        self.out.boundary();
        self.at = value;
    }

    fn skip_to(&mut self, at: usize) {
        self.out.boundary();
        self.at = at;
    }

    /// Reads the inside of a string as a field of its own.
    fn enter(&mut self, inside: usize, string: Mode, origin: Origin) {
        if self.mode_count < DEPTH {
            self.modes[self.mode_count] = string;
            self.mode_count += 1;
        }
        self.out.begin_field(origin);
        self.at = inside;
    }

    /// Whether a quoted piece of prose is a name or somebody's words rather than the message itself.
    fn is_echo(&self, quote: Quote, text: &[u8]) -> bool {
        if quote.kind == b'`' {
            return true;
        }
        let Some(last) = self.out.last() else {
            return false;
        };
        // The next of several quoted names.
        if last.word == OPAQUE && self.out.mark == b',' {
            return true;
        }
        let sense = self.vocabulary.sense(last.word);
        let is_name = !text.iter().any(u8::is_ascii_whitespace);
        if is_name {
            // A quoted word that is called a code is one.
            return !text.is_empty() && sense != Sense::Code;
        }
        if matches!(sense, Sense::Value | Sense::Got) {
            return true;
        }
        // `403 Forbidden "Your team has …"`: what stands behind a status and its phrase is the message.
        let follows_status = self
            .status
            .is_some_and(|(_, at)| self.base + self.at - at <= STATUS_REACH);
        // Words in quotes right after a word are quoted by the message; after a colon, a bracket or a number they are
        // the message.
        let is_direct = self.out.mark == 0 && last.word != OPAQUE && !last.has(Token::NUMBER);
        is_direct && !follows_status && !matches!(sense, Sense::Words | Sense::Status | Sense::Code)
    }

    // ---- brackets and pages

    fn open(&mut self, byte: u8) {
        let role = self.pending.take();
        if role == Some(KeyRole::Echo) && self.echo_above.is_none() {
            self.echo_above = Some(self.depth);
        }
        self.depth += 1;
        self.bracket(byte, b'{');
    }

    fn close(&mut self, byte: u8) {
        self.pending = None;
        self.depth = self.depth.saturating_sub(1);
        if self.echo_above.is_some_and(|depth| self.depth <= depth) {
            self.echo_above = None;
        }
        self.bracket(byte, b'}');
    }

    fn bracket(&mut self, byte: u8, brace: u8) {
        if self.echo_above.is_none() {
            if byte == brace {
                self.out.boundary();
            } else {
                self.out.mark = byte;
            }
        }
        self.at += 1;
    }

    /// A tag of an HTML page, or just a `<`.
    fn angle(&mut self) {
        let rest = &self.src[self.at..];
        let name_start = usize::from(rest.get(1) == Some(&b'/')) + 1;
        let name: &[u8] = rest.get(name_start..).unwrap_or_default();
        let len = name
            .iter()
            .take(12)
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'!')
            .count();
        let mut lower = [0_u8; 12];
        for (slot, byte) in lower.iter_mut().zip(&name[..len]) {
            *slot = byte.to_ascii_lowercase();
        }
        let closing = name_start == 2;
        let origin = match &lower[..len] {
            b"html" if closing => Origin::Prose,
            b"title" | b"h1" | b"h2" if !closing => Origin::Title,
            b"html" | b"!doctype" | b"head" | b"body" | b"title" | b"h1" | b"h2" | b"h3"
            | b"h4" | b"p" | b"div" | b"span" | b"center" | b"hr" | b"br" | b"meta" | b"link"
            | b"script" | b"style" | b"a" | b"b" | b"i" | b"ul" | b"ol" | b"li" | b"table"
            | b"tr" | b"td" | b"strong" | b"em" | b"pre" | b"code" | b"header" | b"footer"
            | b"section" | b"img" | b"noscript" | b"form" | b"input" | b"button" | b"svg"
            | b"path" => Origin::Page,
            b"!" if rest.starts_with(b"<!--") => Origin::Page,
            _ => {
                self.comparison(b'<');
                return;
            }
        };
        let skip_until: Option<&[u8]> = match &lower[..len] {
            b"script" if !closing => Some(b"</script"),
            b"style" if !closing => Some(b"</style"),
            _ => None,
        };
        let mut at = self.at;
        if let Some(end) = skip_until {
            while at < self.src.len() && !starts_with_ignoring_case(&self.src[at..], end) {
                at += 1;
            }
        }
        while at < self.src.len() && self.src[at] != b'>' {
            at += 1;
        }
        // A heading below the first counts as page.
        let inline = matches!(
            &lower[..len],
            b"span" | b"a" | b"b" | b"i" | b"strong" | b"em" | b"br"
        );
        if !inline {
            self.out.begin_field(origin);
        }
        self.at = (at + 1).min(self.src.len());
    }

    /// A path, or just a slash.
    fn slash(&mut self) {
        let previous = self.at.checked_sub(1).map_or(b' ', |at| self.src[at]);
        if !previous.is_ascii_alphanumeric() {
            let end = self.name_end(self.at);
            let text = &self.src[self.at..end];
            if text.iter().filter(|byte| **byte == b'/').count() >= 2 && text.len() > 3 {
                self.opaque(end);
                return;
            }
        }
        self.mark(b'/');
    }

    /// Up to the end of something without blanks, quotes and closing brackets.
    fn name_end(&self, from: usize) -> usize {
        let mut at = from;
        while at < self.src.len() {
            match self.src[at] {
                b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\'' | b'`' | b')' | b']' | b'}' | b'>'
                | b'<' | b',' | b'\\' => break,
                // The marks of Chinese and Japanese, and typographic quotes.
                0xE3 if self.byte(at + 1) == 0x80 => break,
                0xEF if self.byte(at + 1) == 0xBC => break,
                0xE2 if self.byte(at + 1) == 0x80 => break,
                _ => at += 1,
            }
        }
        at
    }

    // ---- words, names and numbers

    fn non_ascii(&mut self) {
        if let Some((kind, len)) = self.quote_at(self.at) {
            self.quote(Quote {
                kind,
                escapes: 0,
                len,
            });
            return;
        }
        let (c, len) = self.char_at(self.at);
        if is_letter(c) {
            if self.echo_above.is_some() {
                self.at += len;
            } else {
                self.slow_word();
            }
        } else if is_alone(c) {
            self.lone_char(c, self.at + len);
        } else {
            // Blanks, rules of tables, bullets, dashes, the marks of other scripts.
            if matches!(c, '，' | '；' | '、') {
                self.out.mark = b',';
            } else if matches!(c, '：') {
                self.out.mark = b':';
            }
            self.at += len;
        }
    }

    /// The character at `at` and its length in bytes; a byte that is none counts as a blank.
    fn char_at(&self, at: usize) -> (char, usize) {
        let len = match self.byte(at) {
            0xF0.. => 4,
            0xE0.. => 3,
            0xC0.. => 2,
            _ => 1,
        };
        let bytes = self.src.get(at..at + len).unwrap_or_default();
        match std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.chars().next())
        {
            Some(c) => (c, len),
            None => (' ', 1),
        }
    }

    /// A character that is a word.
    fn lone_char(&mut self, c: char, end: usize) {
        if self.echo_above.is_none() {
            let mut buffer = [0; 4];
            let word = self.vocabulary.find(c.encode_utf8(&mut buffer).as_bytes());
            self.out.push(word, self.base + self.at, self.base + end, 0);
        }
        self.at = end;
    }

    /// A word with letters beyond ASCII, escaped or not.
    fn slow_word(&mut self) {
        let start = self.at;
        let mut buffer = [0; LONGEST];
        let mut len = 0;
        let mut at = start;
        loop {
            let (c, next) = match self.byte(at) {
                0x80.. => {
                    let (c, len) = self.char_at(at);
                    (c, at + len)
                }
                b'\\' => match self.escaped_char(at) {
                    Some((c, after)) if c > '\x7f' => (c, after),
                    _ => break,
                },
                byte => (char::from(byte), at + 1),
            };
            if !is_letter(c) {
                break;
            }
            for lower in c.to_lowercase() {
                let mut bytes = [0; 4];
                for byte in lower.encode_utf8(&mut bytes).bytes() {
                    // A longer word is none that a rule knows.
                    if len < LONGEST {
                        buffer[len] = byte;
                    }
                    len += 1;
                }
            }
            at = next;
        }
        let word = match buffer.get(..len) {
            Some(word) => self.vocabulary.find(word),
            None => (UNKNOWN, UNKNOWN),
        };
        self.out.push(word, self.base + start, self.base + at, 0);
        self.at = at.max(start + 1);
    }

    fn word_end(&self, from: usize) -> usize {
        let mut at = from;
        while self.byte(at).is_ascii_alphanumeric() {
            at += 1;
        }
        at
    }

    /// A run of letters and digits, with what it is joined to.
    fn token(&mut self) {
        let start = self.at;
        if self.run.end <= start {
            self.run = Run::of(self.src, start);
        }
        let Run { end, .. } = self.run;
        let has = |last: Option<usize>| last.is_some_and(|at| at >= start);
        let joined = has(self.run.joint);
        let has_at = has(self.run.at_sign);
        let after = self.byte(end);
        if after == b':' && self.src[end..].starts_with(b"://") {
            self.url(end);
            return;
        }
        let starts_with_letter = self.src[start].is_ascii_alphabetic();
        // A key without quotes, as JavaScript and Rust write it: { code: 'x', message: "y" }
        if after == b':'
            && starts_with_letter
            && self.depth > 0
            && (self.out.fresh || self.out.mark == b',')
            && self.modes[..self.mode_count]
                .last()
                .is_none_or(|mode| mode.is_structure)
        {
            self.key(start, end, end + 1);
            return;
        }
        if self.echo_above.is_some() {
            self.at = end;
            return;
        }
        let is_name = joined && has(self.run.digit) && has(self.run.lower) && starts_with_letter;
        if has_at || (is_name && self.out.origin != Origin::Code) {
            self.opaque(end);
            return;
        }
        if starts_with_letter && let Some(end) = self.id_end(start) {
            self.opaque(end);
            return;
        }
        // Only the first run: what it is joined to comes next.
        let word_end = if joined { self.word_end(start) } else { end };
        if word_end == end && (after >= 0xC3 || after == b'\\') && self.goes_on(end) {
            self.slow_word();
        } else if starts_with_letter {
            let end = self.emit_words(start, word_end, 0);
            self.at = self.past_apostrophe(end);
        } else {
            self.number(start, word_end);
        }
    }

    /// Whether a word goes on with a letter beyond ASCII.
    fn goes_on(&self, at: usize) -> bool {
        let next = match self.byte(at) {
            b'\\' => self.escaped_char(at).map(|(c, _)| c),
            _ => Some(self.char_at(at).0),
        };
        next.is_some_and(|c| c > '\x7f' && is_letter(c))
    }

    /// Behind `'s`, which says nothing.
    fn past_apostrophe(&self, at: usize) -> usize {
        let Some((b'\'', len)) = self.quote_at(at) else {
            return at;
        };
        if self.byte(at + len) == b's' && !self.byte(at + len + 1).is_ascii_alphanumeric() {
            at + len + 1
        } else {
            at
        }
    }

    /// The end of `request id: abc`, `Request-ID abc`, `trace_id=abc`, if such a thing begins here.
    fn id_end(&self, start: usize) -> Option<usize> {
        let rest = &self.src[start..];
        if !matches!(rest[0] | 0x20, b'r' | b't' | b'c' | b's') {
            return None;
        }
        let word = ["request", "req", "trace", "correlation", "session", "call"]
            .iter()
            .find(|word| starts_with_ignoring_case(rest, word.as_bytes()))?;
        let rest = &rest[word.len()..];
        let rest = match rest {
            [b' ' | b'-' | b'_', rest @ ..] => rest,
            rest => rest,
        };
        if !starts_with_ignoring_case(rest, b"id") {
            return None;
        }
        let rest = &rest[2..];
        let marks = rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b':' | b'=' | b'#'))
            .count();
        let value = &rest[marks..];
        let len = value
            .iter()
            .take(LONGEST_ID)
            .take_while(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.')
            })
            .count();
        let has_digit = value[..len].iter().any(u8::is_ascii_digit);
        (marks > 0 && has_digit).then(|| self.src.len() - value.len() + len)
    }

    /// A URL is echoed, but for the anchor of an error-code page, which is the provider's.
    fn url(&mut self, scheme_end: usize) {
        let end = self.name_end(scheme_end);
        if self.echo_above.is_some() {
            self.at = end;
            return;
        }
        let url = &self.src[scheme_end..end];
        let Some(anchor) = url.windows(11).position(|window| window == b"error-code#") else {
            self.opaque(end);
            return;
        };
        let mut at = scheme_end + anchor;
        while at < end {
            let word_end = self.word_end(at).min(end);
            if word_end > at {
                self.emit_words(at, word_end, 0);
            }
            at = word_end.max(at + 1);
        }
        self.at = end;
    }

    /// The words of a run of ASCII letters and digits, those of `CamelCase` apart; `n't` is part of a word. Returns the
    /// end.
    fn emit_words(&mut self, start: usize, end: usize, flags: u8) -> usize {
        let mut buffer = [0; LONGEST];
        let mut len = 0;
        let mut word_start = start;
        let mut previous = 0_u8;
        let mut at = start;
        while at < end {
            let byte = self.src[at];
            if byte.is_ascii_uppercase() && at > start {
                let next_lower = at + 1 < end && self.src[at + 1].is_ascii_lowercase();
                if previous.is_ascii_lowercase()
                    || (next_lower && (previous.is_ascii_digit() || previous.is_ascii_uppercase()))
                {
                    self.emit(&buffer, len, word_start, at, flags);
                    word_start = at;
                    len = 0;
                }
            }
            // A longer word is none that a rule knows.
            if len < LONGEST {
                buffer[len] = byte.to_ascii_lowercase();
            }
            len += 1;
            previous = byte;
            at += 1;
        }
        // isn't, you've: what follows the apostrophe belongs to the word.
        let mut word_end = end;
        if let Some((b'\'', quote)) = self.quote_at(end) {
            let more = self.word_end(end + quote) - end - quote;
            let rest = &self.src[end + quote..end + quote + more];
            if matches!(rest, b"t" | b"ve" | b"re" | b"d" | b"ll" | b"m") && len + more <= LONGEST {
                buffer[len..len + more].copy_from_slice(rest);
                len += more;
                word_end = end + quote + more;
            }
        }
        self.emit(&buffer, len, word_start, word_end, flags);
        word_end
    }

    fn emit(&mut self, buffer: &[u8; LONGEST], len: usize, start: usize, end: usize, flags: u8) {
        let word = match buffer.get(..len) {
            Some(word) => self.vocabulary.find(word),
            None => (UNKNOWN, UNKNOWN),
        };
        self.out
            .push(word, self.base + start, self.base + end, flags);
    }

    fn number(&mut self, start: usize, word_end: usize) {
        // 1,500 and 2.5 are one number.
        let mut end = word_end;
        while matches!(self.byte(end), b'.' | b',') && self.byte(end + 1).is_ascii_digit() {
            end = self.word_end(end + 1);
        }
        if end - start == 3 && self.is_status(start, end) {
            self.note_status(start);
        }
        self.emit_words(start, end, Token::NUMBER);
        // The value of a code that is a bare number has ended.
        if self.pending.take() == Some(KeyRole::Code) {
            self.out.boundary();
        }
        self.at = end;
    }

    /// Notes the three digits at `start` if they are those of an error.
    fn note_status(&mut self, start: usize) {
        if let Some(
            &[
                hundreds @ b'4'..=b'5',
                tens @ b'0'..=b'9',
                ones @ b'0'..=b'9',
            ],
        ) = self.src.get(start..start + 3)
        {
            let value = |digit: u8| u16::from(digit - b'0');
            let status = 100 * value(hundreds) + 10 * value(tens) + value(ones);
            self.status = Some((status, self.base + start));
        }
    }

    /// CL6: whether the three digits stand where a status stands.
    fn is_status(&self, start: usize, end: usize) -> bool {
        let previous = start.checked_sub(1).map_or(b' ', |at| self.src[at]);
        let next = self.byte(end);
        let after = self.byte(end + 1);
        // Part of something longer: an id, a size, a price, a path, a version, a share, a time.
        if matches!(
            previous,
            b'-' | b'_' | b'.' | b'/' | b'$' | b'@' | b'+' | b'*' | b'~'
        ) || matches!(next, b'-' | b'_' | b'/' | b'%' | b'@' | b'*')
            || (next == b':' && after.is_ascii_digit())
            || (matches!(previous, b',' | b':')
                && start >= 2
                && self.src[start - 2].is_ascii_digit())
        {
            return false;
        }
        match self.pending {
            Some(KeyRole::Code) => return true,
            Some(KeyRole::Message | KeyRole::Echo | KeyRole::Unknown) => return false,
            None => {}
        }
        if self.out.origin == Origin::Title {
            return true;
        }
        // At the start of the text or of the provider's message.
        let Some(last) = self.out.last() else {
            return !self.counts_things(end);
        };
        match self.vocabulary.sense(last.word) {
            Sense::Status | Sense::Http | Sense::Code | Sense::Got => {
                return !self.counts_things(end);
            }
            Sense::None | Sense::Value | Sense::Words => {}
        }
        // HTTP/1.1 429, HTTP/2 400; and a status said twice: 500 500 {...}
        let tokens = &self.out.tokens[..self.out.len];
        let before_version = tokens
            .iter()
            .rev()
            .take(3)
            .find(|token| !token.has(Token::NUMBER));
        let is_version = last.has(Token::NUMBER)
            && last.end - last.start <= 3
            && before_version.is_some_and(|token| self.vocabulary.sense(token.word) == Sense::Http);
        let is_twice = self
            .status
            .is_some_and(|(_, at)| at == usize::from(last.start));
        let is_bracketed =
            matches!(previous, b'(' | b'[') && matches!(next, b')' | b']') && after == b':';
        is_version || is_twice || is_bracketed || self.is_reason(end)
    }

    /// Whether what follows the number is what it counts: `error 500 tokens`.
    fn counts_things(&self, end: usize) -> bool {
        let rest = &self.src[end..];
        let rest = rest.strip_prefix(b" ").unwrap_or(rest);
        [
            "token", "char", "byte", "second", "ms", "minute", "request", "image", "message", "kb",
            "mb", "gb", "pixel", "item", "times", "retries", "attempt", "word", "line", "day",
            "hour", "credit", "usd",
        ]
        .iter()
        .any(|unit| starts_with_ignoring_case(rest, unit.as_bytes()))
    }

    /// `NNN Reason-Phrase`.
    fn is_reason(&self, end: usize) -> bool {
        let rest = &self.src[end..];
        let Some(rest) = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b": ")) else {
            return false;
        };
        [
            "bad request",
            "unauthorized",
            "payment required",
            "forbidden",
            "not found",
            "method not allowed",
            "request timeout",
            "conflict",
            "payload too large",
            "content too large",
            "request entity too large",
            "unprocessable",
            "too many requests",
            "internal server error",
            "not implemented",
            "bad gateway",
            "service unavailable",
            "service temporarily unavailable",
            "gateway time",
            "unsupported media",
            "gone",
            "status code",
            "site is overloaded",
            "precondition",
        ]
        .iter()
        .any(|reason| starts_with_ignoring_case(rest, reason.as_bytes()))
    }
}

fn starts_with_ignoring_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}
