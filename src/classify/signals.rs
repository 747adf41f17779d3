//! Raw text → signals, in one pass and linear time.
//!
//! An error arrives as anything from `Connection error.` to JSON in JSON in a wrapper with a stack trace
//! below. This file finds out what stands where and writes a *normalised text* in which rules can look for
//! phrases without caring for the form:
//!
//! * lower case; blanks, `_`, `-`, line ends and JSON escapes are one space; `RateLimitError` is
//!   `rate limit error`: code and prose read the same;
//! * the text falls into *fields*, each with its [`Origin`]: the provider's own message, a code, a page's
//!   title, the page, or prose around;
//! * what is only echoed (ids, model and parameter names, quoted names, user text, URLs, stack frames) is
//!   not there at all: one [`OPAQUE`] byte stands for it, so that no rule can see it;
//! * statuses are read where they stand as statuses (CL6), and nowhere else.
//!
//! Deliberately absent: a JSON parser. Errors are cut, doubly escaped, and often Python or JavaScript; the
//! pass reads quotes, keys and brackets of any of them, and never fails.

use super::hint::{self, HintKind, KEY_LEN};

/// Stands for something echoed.
pub(super) const OPAQUE: u8 = 0x1E;
/// Ends a field: phrases do not reach across it.
pub(super) const BOUNDARY: u8 = 0x1F;

/// How much of the head and of the tail of a huge text is read, in bytes.
const HEAD: usize = 8 * 1024;
const TAIL: usize = 4 * 1024;
/// The most bytes that are read of any text.
pub(super) const WINDOW: usize = HEAD + TAIL;

/// The most fields; later ones join the last.
const FIELDS: usize = 96;
/// How far behind a status its message may begin, in bytes.
const STATUS_REACH: usize = 32;
/// How deep strings may nest inside strings.
const DEPTH: usize = 8;

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

/// A field of the normalised text: it begins at `start` and goes up to the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) start: u16,
    pub(super) origin: Origin,
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

/// The most hint keys that are looked at.
const HINT_KEYS: usize = 8;

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

/// Where the pass writes: room for the normalised text and for the way back to the source.
pub(super) struct Scratch<'b> {
    pub(super) text: &'b mut [u8],
    pub(super) back: &'b mut [u16],
}

/// What the pass found.
pub(super) struct Signals<'t, 'b> {
    window: Window<'t>,
    text: &'b [u8],
    back: &'b [u16],
    fields: [Field; FIELDS],
    field_count: usize,
    hint_keys: [Option<KeyValue>; HINT_KEYS],
    /// The status that counts: the innermost, which is the last.
    pub(super) status: Option<FoundStatus>,
}

impl<'t, 'b> Signals<'t, 'b> {
    /// Reads `window`. `code` is a code that the host knows, which replaces those in the text.
    pub(super) fn read(window: Window<'t>, code: Option<&str>, scratch: Scratch<'b>) -> Self {
        let mut writer = Writer {
            text: scratch.text,
            back: scratch.back,
            len: 0,
            fields: [Field {
                start: 0,
                origin: Origin::Prose,
            }; FIELDS],
            field_count: 1,
        };
        let mut status = None;
        let mut hint_keys = [None; HINT_KEYS];
        for (part, base) in [(window.head, 0), (window.tail, window.head.len())] {
            if part.is_empty() {
                continue;
            }
            let mut lexer = Lexer::new(part.as_bytes(), base, code.is_none(), &mut writer);
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
            writer.begin_field(Origin::Code);
            let mut lexer = Lexer::new(code.as_bytes(), window.len(), true, &mut writer);
            lexer.words_only();
        }
        writer.boundary();
        let Writer {
            text,
            back,
            len,
            fields,
            field_count,
        } = writer;
        Self {
            window,
            text: &text[..len],
            back: &back[..len],
            fields,
            field_count,
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

    /// The normalised text.
    pub(super) fn text(&self) -> &[u8] {
        self.text
    }

    pub(super) fn fields(&self) -> &[Field] {
        &self.fields[..self.field_count]
    }

    pub(super) fn hint_keys(&self) -> impl Iterator<Item = KeyValue> {
        self.hint_keys.into_iter().flatten()
    }

    /// The source's bytes that `start..end` of the normalised text came from; None if they came from
    /// a code that the host gave.
    pub(super) fn source_span(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let first = usize::from(*self.back.get(start)?);
        let last = usize::from(*self.back.get(end.checked_sub(1)?)?);
        if last >= self.window.len() {
            return None;
        }
        Some((
            self.window.source_offset(first),
            self.window.source_offset(last) + 1,
        ))
    }
}

/// The normalised text while it is written.
struct Writer<'b> {
    text: &'b mut [u8],
    back: &'b mut [u16],
    len: usize,
    fields: [Field; FIELDS],
    field_count: usize,
}

impl Writer<'_> {
    fn push(&mut self, byte: u8, at: usize) {
        if let (Some(text), Some(back)) = (self.text.get_mut(self.len), self.back.get_mut(self.len))
        {
            *text = byte;
            *back = at as u16;
            self.len += 1;
        }
    }

    fn last(&self) -> u8 {
        self.len.checked_sub(1).map_or(BOUNDARY, |at| self.text[at])
    }

    /// One space, however many are asked for.
    fn space(&mut self, at: usize) {
        if !matches!(self.last(), b' ' | BOUNDARY) {
            self.push(b' ', at);
        }
    }

    fn boundary(&mut self) {
        if self.last() == b' ' {
            self.len -= 1;
        }
        if self.last() != BOUNDARY {
            let at = self.back[self.len - 1];
            self.push(BOUNDARY, usize::from(at));
        }
    }

    fn origin(&self) -> Origin {
        self.fields[self.field_count - 1].origin
    }

    fn begin_field(&mut self, origin: Origin) {
        self.boundary();
        let start = self.len as u16;
        let field = Field { start, origin };
        let last = &mut self.fields[self.field_count - 1];
        if last.start == start {
            *last = field;
        } else if self.field_count < FIELDS {
            self.fields[self.field_count] = field;
            self.field_count += 1;
        }
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
            _ => Self::Unknown,
        }
    }
}

/// A string whose inside is being read, or an echoed container.
#[derive(Clone, Copy)]
struct Mode {
    /// Where it ends: the offset of the closing quote, escapes included.
    end: usize,
    /// Behind the closing quote.
    after: usize,
    /// What to go back to.
    outer: Origin,
    /// Whether it holds structure rather than prose.
    is_structure: bool,
}

struct Lexer<'t, 'w, 'b> {
    src: &'t [u8],
    /// Added to offsets in `src`.
    base: usize,
    /// Whether codes found in the text count.
    keep_codes: bool,
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
    /// Quotes that have no partner further on: (quote, backslashes), not to be searched again.
    unclosed: [bool; 12],
    line_start: bool,
    hint_keys: [Option<KeyValue>; HINT_KEYS],
    status: Option<(u16, usize)>,
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

impl<'t, 'w, 'b> Lexer<'t, 'w, 'b> {
    fn new(src: &'t [u8], base: usize, keep_codes: bool, out: &'w mut Writer<'b>) -> Self {
        Self {
            src,
            base,
            keep_codes,
            out,
            at: 0,
            modes: [Mode {
                end: 0,
                after: 0,
                outer: Origin::Prose,
                is_structure: false,
            }; DEPTH],
            mode_count: 0,
            depth: 0,
            echo_above: None,
            pending: None,
            unclosed: [false; 12],
            line_start: true,
            hint_keys: [None; HINT_KEYS],
            status: None,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.src.get(at).copied().unwrap_or(0)
    }

    fn run(&mut self) {
        while self.at < self.src.len() {
            while self.mode_count > 0 && self.at >= self.modes[self.mode_count - 1].end {
                self.mode_count -= 1;
                let Mode { after, outer, .. } = self.modes[self.mode_count];
                self.out.begin_field(outer);
                self.at = self.at.max(after);
            }
            if self.at >= self.src.len() {
                break;
            }
            let byte = self.src[self.at];
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => self.token(),
                b' ' | b'\t' | b'_' | b'-' => {
                    self.out.space(self.base + self.at);
                    self.at += 1;
                }
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
                b'/' | b'~' => self.slash(),
                b',' | b';' => {
                    self.pending = None;
                    self.plain(byte);
                }
                0x80.. => self.non_ascii(),
                _ => self.plain(byte),
            }
        }
    }

    /// Only letters and digits of a code that the host gave.
    fn words_only(&mut self) {
        while self.at < self.src.len() {
            let end = self.word_end(self.at);
            if end > self.at {
                self.emit_words(self.at, end);
                self.at = end;
            } else {
                self.out.space(self.base + self.at);
                self.at += 1;
            }
        }
    }

    fn plain(&mut self, byte: u8) {
        self.line_start = false;
        if byte.is_ascii_control() {
            self.out.space(self.base + self.at);
        } else if self.echo_above.is_none() {
            self.out.push(byte, self.base + self.at);
        }
        self.at += 1;
    }

    fn opaque(&mut self) {
        if self.echo_above.is_none() && self.out.last() != OPAQUE {
            self.out.push(OPAQUE, self.base + self.at);
        }
    }

    // ---- lines and stack frames

    /// A line end of `len` source bytes, real or escaped. A stack frame after it is echoed.
    fn newline(&mut self, len: usize) {
        self.out.space(self.base + self.at);
        self.at += len;
        self.line_start = true;
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

    /// `at name (place:1:2)`, `at place:1:2`, `at name(File.java:12)`: has a line number.
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
            b't' => {
                self.out.space(self.base + start);
                self.at = end + 1;
            }
            b'u' if self.unicode_escape(end) => {}
            _ => self.at = end,
        }
    }

    /// `\u4f59` after the backslashes; surrogate pairs are left as a blank.
    fn unicode_escape(&mut self, at: usize) -> bool {
        let Some(digits) = self.src.get(at + 1..at + 5) else {
            return false;
        };
        let Some(code) = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        else {
            return false;
        };
        let source = self.base + self.at;
        let end = self.base + at + 4;
        match char::from_u32(code) {
            Some(character) if character.is_ascii_control() => self.out.space(source),
            Some(character) => {
                let mut buffer = [0; 4];
                let bytes = character.to_lowercase().next().unwrap_or(character);
                let encoded = bytes.encode_utf8(&mut buffer).as_bytes();
                if self.echo_above.is_none() {
                    for (index, &byte) in encoded.iter().enumerate() {
                        let last = index + 1 == encoded.len();
                        self.out.push(byte, if last { end } else { source });
                    }
                }
            }
            None => self.out.space(source),
        }
        self.at = at + 5;
        true
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
        let kind = match open.kind {
            b'"' => 0,
            b'\'' => 4,
            _ => 8,
        };
        let slot = kind + open.escapes.min(3);
        if self.unclosed[slot] {
            return None;
        }
        let mut at = from;
        let mut escapes = 0;
        while at < self.src.len() {
            if self.src[at] == b'\\' {
                escapes += 1;
                at += 1;
                continue;
            }
            if let Some((byte, len)) = self.quote_at(at)
                && byte == open.kind
                && escapes == open.escapes
                // An apostrophe inside a word closes nothing.
                && !(byte == b'\'' && self.byte(at + len).is_ascii_alphanumeric())
            {
                return Some(at);
            }
            escapes = 0;
            at += 1;
        }
        self.unclosed[slot] = true;
        None
    }

    fn quote(&mut self, quote: Quote) {
        let start = self.at;
        // A fence of three quotes no name.
        if quote.kind == b'`' && self.src[start..].starts_with(b"```") {
            self.out.space(self.base + start);
            self.at = start + 3;
            return;
        }
        let inside = start + quote.len;
        let previous = start
            .checked_sub(1 + quote.escapes)
            .map_or(b' ', |at| self.src[at]);
        self.line_start = false;
        // An apostrophe: model's, doesn't.
        if quote.kind == b'\''
            && previous.is_ascii_alphanumeric()
            && (self.byte(inside).is_ascii_alphanumeric() || !self.opens_string(inside))
        {
            if self.echo_above.is_none() {
                self.out.push(b'\'', self.base + start);
            }
            self.at = inside;
            return;
        }
        let Some(end) = self.closing(quote, inside) else {
            self.at = inside;
            return;
        };
        let text_end = end - quote.escapes;
        let after = end + self.quote_at(end).map_or(1, |(_, len)| len);
        if self.is_key(after)
            && matches!(
                trim_space(&self.out.text[..self.out.len]),
                [] | [.., b',' | b'[' | b'(' | BOUNDARY]
            )
        {
            self.key(inside, text_end.max(inside), self.colon_after(after) + 1);
            return;
        }
        let role = self.pending.take();
        if self.echo_above.is_some() {
            self.at = after;
            return;
        }
        let text = &self.src[inside..text_end.max(inside)];
        let is_structure = matches!(
            text.iter()
                .copied()
                .find(|byte| !byte.is_ascii_whitespace() && *byte != b'\\' && *byte != b'n'),
            Some(b'{' | b'[')
        );
        match role {
            Some(KeyRole::Echo | KeyRole::Unknown) => self.skip_to(after),
            Some(KeyRole::Code) if !self.keep_codes => self.skip_to(after),
            Some(KeyRole::Code) => {
                self.status_value(inside, text_end);
                self.enter(inside, text_end, after, Origin::Code, false);
            }
            Some(KeyRole::Message) => {
                self.enter(inside, text_end, after, Origin::Message, is_structure);
            }
            None if !is_structure && self.is_echo(quote, text) => {
                self.opaque();
                self.at = after;
            }
            None => self.enter(inside, text_end, after, self.out.origin(), is_structure),
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

    /// Whether a quote right before `inside` begins a string though a letter stands before it (`b'{`).
    fn opens_string(&self, inside: usize) -> bool {
        matches!(self.byte(inside), b'{' | b'[' | b'<')
    }

    fn skip_to(&mut self, at: usize) {
        self.out.boundary();
        self.at = at;
    }

    /// Reads the inside of a string as a field of its own.
    fn enter(
        &mut self,
        inside: usize,
        end: usize,
        after: usize,
        origin: Origin,
        is_structure: bool,
    ) {
        let outer = self.out.origin();
        if self.mode_count < DEPTH {
            self.modes[self.mode_count] = Mode {
                end,
                after,
                outer,
                is_structure,
            };
            self.mode_count += 1;
        }
        self.out.begin_field(origin);
        self.at = inside;
        self.line_start = true;
    }

    /// Whether a quoted piece of prose is a name or somebody's words rather than the message itself.
    fn is_echo(&self, quote: Quote, text: &[u8]) -> bool {
        if quote.kind == b'`' {
            return true;
        }
        let written = &self.out.text[..self.out.len];
        // The next of several quoted names.
        if trim_space(written).ends_with(&[OPAQUE, b',']) {
            return true;
        }
        let words = trim_marks(written);
        let is_direct = trim_space(written).len() == words.len();
        let last_word = words
            .rsplit(|byte| !byte.is_ascii_lowercase())
            .next()
            .unwrap_or_default();
        let is_name = !text.iter().any(u8::is_ascii_whitespace);
        if is_name {
            // A single quoted word that is the whole text is the text, and one called a code is one.
            let is_code = matches!(
                last_word,
                b"code" | b"type" | b"reason" | b"status" | b"error"
            );
            return !text.is_empty() && self.out.len > 0 && !is_code;
        }
        if matches!(
            last_word,
            b"value"
                | b"values"
                | b"got"
                | b"input"
                | b"received"
                | b"parameter"
                | b"field"
                | b"name"
                | b"property"
                | b"enum"
                | b"entry"
                | b"listed"
                | b"excerpt"
                | b"content"
                | b"text"
                | b"prompt"
                | b"query"
                | b"title"
                | b"question"
                | b"found"
                | b"snippet"
        ) {
            return true;
        }
        // `403 Forbidden "Your team has …"`: what stands behind a status and its phrase is the message.
        let follows_status = self
            .status
            .is_some_and(|(_, at)| self.base + self.at - at <= STATUS_REACH);
        // Words in quotes right after a word are quoted by the message; after a colon, a bracket or a
        // number they are the message.
        is_direct
            && words.last().is_some_and(u8::is_ascii_lowercase)
            && !follows_status
            && !matches!(
                last_word,
                b"limit"
                    | b"metric"
                    | b"quota"
                    | b"error"
                    | b"message"
                    | b"reason"
                    | b"because"
                    | b"says"
                    | b"said"
                    | b"response"
                    | b"body"
                    | b"with"
                    | b"returned"
                    | b"desc"
            )
    }

    /// Whether a colon follows a string that ends at `after`, and it is the colon of a key.
    fn is_key(&self, after: usize) -> bool {
        let colon = self.colon_after(after);
        self.byte(colon) == b':' || (self.byte(colon) == b'=' && self.byte(colon + 1) == b'>')
    }

    fn colon_after(&self, after: usize) -> usize {
        let mut at = after;
        while matches!(self.byte(at), b' ' | b'\t' | b'\n' | b'\r') {
            at += 1;
        }
        at
    }

    // ---- brackets and pages

    fn open(&mut self, byte: u8) {
        self.line_start = false;
        let role = self.pending.take();
        if role == Some(KeyRole::Echo) && self.echo_above.is_none() {
            self.echo_above = Some(self.depth);
        }
        self.depth += 1;
        if self.echo_above.is_none() {
            if byte == b'{' {
                self.out.boundary();
            } else {
                self.out.push(byte, self.base + self.at);
            }
        }
        self.at += 1;
    }

    fn close(&mut self, byte: u8) {
        self.line_start = false;
        self.pending = None;
        self.depth = self.depth.saturating_sub(1);
        if self.echo_above.is_some_and(|depth| self.depth <= depth) {
            self.echo_above = None;
        }
        if self.echo_above.is_none() {
            if byte == b'}' {
                self.out.boundary();
            } else {
                self.out.push(byte, self.base + self.at);
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
                self.plain(b'<');
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
        if inline {
            self.out.space(self.base + self.at);
        } else {
            self.out.begin_field(origin);
        }
        self.at = (at + 1).min(self.src.len());
        self.line_start = true;
    }

    /// A path, or just a slash.
    fn slash(&mut self) {
        let previous = self.at.checked_sub(1).map_or(b' ', |at| self.src[at]);
        if previous.is_ascii_alphanumeric() {
            self.plain(self.src[self.at]);
            return;
        }
        let end = self.name_end(self.at);
        let text = &self.src[self.at..end];
        let is_path = text.iter().filter(|byte| **byte == b'/').count() >= 2 && text.len() > 3;
        if is_path {
            self.opaque();
            self.at = end;
        } else {
            self.plain(self.src[self.at]);
        }
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

    fn non_ascii(&mut self) {
        if let Some((kind, len)) = self.quote_at(self.at) {
            self.quote(Quote {
                kind,
                escapes: 0,
                len,
            });
            return;
        }
        self.line_start = false;
        let len = match self.src[self.at] {
            0xF0.. => 4,
            0xE0.. => 3,
            _ => 2,
        };
        let end = (self.at + len).min(self.src.len());
        let bytes = &self.src[self.at..end];
        match bytes {
            // Blanks, rules of tables and bullets separate words; so does a replacement character.
            [0xC2, 0xA0 | 0xB7]
            | [
                0xE2,
                0x80,
                0x80..=0x8F | 0x93..=0x94 | 0xA2 | 0xA6 | 0xA8..=0xAF,
            ]
            | [0xE2, 0x88, 0x99]
            | [0xE2, 0x94..=0x97 | 0x8E, _]
            | [0xE3, 0x80, 0x80]
            | [0xEF, 0xBF, 0xBD] => {
                self.out.space(self.base + self.at);
            }
            _ if self.echo_above.is_some() => {}
            _ => {
                for (index, &byte) in bytes.iter().enumerate() {
                    self.out.push(byte, self.base + self.at + index);
                }
            }
        }
        self.at = end;
    }

    // ---- words, names and numbers

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
        let mut end = start;
        let mut joined = false;
        let mut has_at = false;
        let (mut digits, mut letters, mut lower) = (false, false, false);
        while end < self.src.len() {
            let byte = self.src[end];
            match byte {
                b'0'..=b'9' => digits = true,
                b'a'..=b'z' => {
                    letters = true;
                    lower = true;
                }
                b'A'..=b'Z' => letters = true,
                b'-' | b'_' | b'.' | b'/' | b'@' | b'%' | b'+'
                    if self.byte(end + 1).is_ascii_alphanumeric() =>
                {
                    joined = true;
                    has_at |= byte == b'@';
                }
                _ => break,
            }
            end += 1;
        }
        let line_start = std::mem::replace(&mut self.line_start, false);
        if self.byte(end) == b':' && self.src[end..].starts_with(b"://") {
            self.url(end);
            return;
        }
        let starts_with_letter = self.src[start].is_ascii_alphabetic();
        // A key without quotes, as JavaScript and Rust write it: { code: 'x', message: "y" }
        if starts_with_letter
            && self.depth > 0
            && self.modes[..self.mode_count]
                .last()
                .is_none_or(|mode| mode.is_structure)
            && self.byte(end) == b':'
            && matches!(
                trim_space(&self.out.text[..self.out.len]),
                [] | [.., b',' | BOUNDARY]
            )
        {
            self.key(start, end, end + 1);
            return;
        }
        let in_code = self.out.origin() == Origin::Code;
        if self.echo_above.is_some() {
            self.at = end;
            return;
        }
        if has_at || (joined && digits && letters && lower && starts_with_letter && !in_code) {
            self.opaque();
            self.at = end;
            return;
        }
        if starts_with_letter && let Some(end) = self.id_end(start) {
            self.opaque();
            self.at = end;
            return;
        }
        // Only the first run: what it is joined to comes next.
        let word_end = self.word_end(start);
        if starts_with_letter {
            self.emit_words(start, word_end);
        } else {
            self.number(start, word_end, line_start);
        }
        self.at = word_end;
    }

    /// The end of `request id: abc`, `Request-ID abc`, `trace_id=abc`, if such a thing begins here.
    fn id_end(&self, start: usize) -> Option<usize> {
        let rest = &self.src[start..];
        let word = ["request", "req", "trace", "correlation", "session", "call"]
            .iter()
            .find(|word| starts_with_ignoring_case(rest, word.as_bytes()))?;
        let rest = &rest[word.len()..];
        let rest = rest
            .strip_prefix(b" ")
            .or_else(|| rest.strip_prefix(b"-"))
            .or_else(|| rest.strip_prefix(b"_"))
            .unwrap_or(rest);
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
        let url = &self.src[scheme_end..end];
        if let Some(at) = url.windows(11).position(|window| window == b"error-code#") {
            self.out.space(self.base + self.at);
            let from = scheme_end + at;
            let mut at = from;
            while at < end {
                let word_end = self.word_end(at);
                if word_end > at {
                    self.emit_words(at, word_end);
                    at = word_end;
                } else {
                    self.out.space(self.base + at);
                    at += 1;
                }
            }
        } else {
            self.opaque();
        }
        self.at = end;
    }

    /// Letters and digits in lower case, words of `CamelCase` apart.
    fn emit_words(&mut self, start: usize, end: usize) {
        let mut previous = 0_u8;
        for at in start..end {
            let byte = self.src[at];
            if byte.is_ascii_uppercase() && at > start {
                let next_lower = at + 1 < end && self.src[at + 1].is_ascii_lowercase();
                if previous.is_ascii_lowercase()
                    || previous.is_ascii_digit() && next_lower
                    || (previous.is_ascii_uppercase() && next_lower)
                {
                    self.out.space(self.base + at);
                }
            }
            self.out.push(byte.to_ascii_lowercase(), self.base + at);
            previous = byte;
        }
    }

    fn number(&mut self, start: usize, end: usize, line_start: bool) {
        if end - start == 3 && self.is_status(start, end, line_start) {
            self.note_status(start, end);
        }
        for at in start..end {
            let byte = self.src[at].to_ascii_lowercase();
            self.out.push(byte, self.base + at);
        }
        // The value of a code that is a bare number has ended.
        if self.pending.take() == Some(KeyRole::Code) {
            self.out.boundary();
        }
    }

    fn note_status(&mut self, start: usize, end: usize) {
        let digits = &self.src[start..end];
        if let [
            hundreds @ b'4'..=b'5',
            tens @ b'0'..=b'9',
            ones @ b'0'..=b'9',
        ] = *digits
        {
            let value = |digit: u8| u16::from(digit - b'0');
            let status = 100 * value(hundreds) + 10 * value(tens) + value(ones);
            self.status = Some((status, self.base + start));
        }
    }

    /// The string value of a status or code, when it is one: `"code":"429"`.
    fn status_value(&mut self, start: usize, end: usize) {
        if end == start + 3 {
            self.note_status(start, end);
        }
    }

    /// CL6: whether the three digits stand where a status stands.
    fn is_status(&self, start: usize, end: usize, line_start: bool) -> bool {
        let previous = start.checked_sub(1).map_or(b' ', |at| self.src[at]);
        let next = self.byte(end);
        let after = self.byte(end + 1);
        // Part of something longer: an id, a size, a price, a path, a version, a share, a decimal.
        if matches!(
            previous,
            b'-' | b'_' | b'.' | b'/' | b'$' | b'@' | b'+' | b'*' | b'~'
        ) || matches!(next, b'-' | b'_' | b'/' | b'%' | b'@' | b'*')
            || (matches!(next, b'.' | b',' | b':') && after.is_ascii_digit())
            || (matches!(previous, b',' | b':')
                && start >= 2
                && self.src[start - 2].is_ascii_digit())
        {
            return false;
        }
        if self.pending == Some(KeyRole::Code) {
            return true;
        }
        if self.pending.is_some() {
            return false;
        }
        if self.out.origin() == Origin::Title {
            return true;
        }
        let written = &self.out.text[..self.out.len];
        let field_start = self.out.fields[self.out.field_count - 1].start as usize;
        let before = written.get(field_start..).unwrap_or_default();
        let words = trim_marks(before);
        // At the start of the text or of the provider's message.
        if words.is_empty() {
            return !self.counts_things(end);
        }
        let last_word_start = words
            .iter()
            .rposition(|byte| !byte.is_ascii_alphanumeric())
            .map_or(0, |at| at + 1);
        let last_word = &words[last_word_start..];
        let bracketed = matches!(previous, b'(' | b'[') && matches!(next, b')' | b']');
        match last_word {
            b"http" | b"status" | b"code" | b"error" | b"err" | b"exception" | b"returned"
            | b"responded" | b"response" | b"got" | b"failed" | b"gateway" | b"statuscode"
            | b"msg" | b"received" | b"httperror" | b"failure" | b"refused" | b"rejected"
            | b"errors" => !self.counts_things(end),
            // HTTP/1.1 429, HTTP/2 400
            [b'0'..=b'9'] if words.len() >= 6 && ends_with_http(words, last_word_start) => true,
            // A status said twice: 500 500 {...}
            [b'4'..=b'5', b'0'..=b'9', b'0'..=b'9'] => self.status.is_some(),
            _ => {
                (line_start && self.is_reason(end))
                    || self.is_reason(end)
                    || (bracketed && self.byte(end + 1) == b':')
            }
        }
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

fn trim_space(text: &[u8]) -> &[u8] {
    text.strip_suffix(b" ").unwrap_or(text)
}

/// Without blanks and marks at the end: what separates a word from the number that belongs to it.
fn trim_marks(text: &[u8]) -> &[u8] {
    let end = text
        .iter()
        .rposition(|byte| {
            !matches!(
                *byte,
                b' ' | b':'
                    | b'='
                    | b'('
                    | b'['
                    | b'<'
                    | b'#'
                    | b'|'
                    | b'{'
                    | b'"'
                    | b'\''
                    | BOUNDARY
            )
        })
        .map_or(0, |at| at + 1);
    &text[..end]
}

/// Whether the words end with `http/1.1` or `http/2`, of which the last digit begins at `digit`.
fn ends_with_http(words: &[u8], digit: usize) -> bool {
    let head = &words[..digit];
    head.ends_with(b"http/") || head.ends_with(b"http/1.")
}

fn starts_with_ignoring_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}
