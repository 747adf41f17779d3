//! Phrases: how rules say what they look for in the normalised text, and finding them all in one pass.
//!
//! A pattern is a sequence of pieces with gaps (`…`) between them, all in one field and each at most
//! [`GAP`] bytes after the last. A piece is a literal of whole words with alternatives:
//!
//! | written | means |
//! | --- | --- |
//! | `(prompt\|input) is too long` | one of the two literals |
//! | `exceed*` | the last word may go on: exceeds, exceeded, exceeding |
//! | `limit of #` | a number follows |
//! | `^overloaded` | at the start of a field |
//! | `terminated$` | at the end of a field, but for marks |
//! | `context length … exceed*` | the one, then the other |
//! | `@` | something echoed stands here |
//!
//! Every literal stands once in one Aho-Corasick automaton, however many patterns use it.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::signals::{BOUNDARY, Field, OPAQUE, Origin};

/// The most bytes of normalised text between two pieces of a pattern.
const GAP: usize = 80;
/// The most occurrences that are looked at; of more, the first and the last ones.
pub(super) const MAX_HITS: usize = 160;

/// One occurrence of a literal in the normalised text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hit {
    literal: u16,
    pub(super) start: u16,
    pub(super) end: u16,
    field: u8,
    flags: u8,
}

impl Hit {
    pub(super) fn literal(&self) -> usize {
        self.literal.into()
    }

    /// Whether no further letter follows it.
    pub(super) fn is_whole(&self) -> bool {
        self.flags & WHOLE != 0
    }
}

const WHOLE: u8 = 1;
const NUMBER: u8 = 2;
const AT_START: u8 = 4;
const AT_END: u8 = 8;

/// All occurrences, in order of their ends.
pub(super) struct Hits {
    hits: [Hit; MAX_HITS],
    len: usize,
}

impl Hits {
    pub(super) fn as_slice(&self) -> &[Hit] {
        &self.hits[..self.len]
    }

    fn push(&mut self, hit: Hit) {
        if self.len < MAX_HITS {
            self.hits[self.len] = hit;
            self.len += 1;
        } else {
            // Full: the head stays, the tail moves on.
            self.hits.copy_within(MAX_HITS / 2 + 1.., MAX_HITS / 2);
            self.hits[MAX_HITS - 1] = hit;
        }
    }
}

/// A literal as one piece of a pattern uses it.
#[derive(Clone, Copy, Debug)]
struct Use {
    literal: u16,
    needs: u8,
}

/// Where a pattern was found, in bytes of the normalised text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Several patterns, of which one must be found.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    // Each a sequence of pieces, each piece a list of alternatives.
    patterns: Vec<Vec<Vec<Use>>>,
}

impl Patterns {
    pub(super) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The literals that can begin one of them.
    pub(super) fn first_literals(&self) -> impl Iterator<Item = u16> {
        self.patterns
            .iter()
            .filter_map(|pieces| pieces.first())
            .flatten()
            .map(|used| used.literal)
    }

    /// The first that stands in a field of one of the `origins`.
    pub(super) fn find(&self, hits: &[Hit], origins: &[Origin], fields: &[Field]) -> Option<Found> {
        self.patterns.iter().find_map(|pieces| {
            hits.iter().enumerate().find_map(|(at, hit)| {
                let allowed = || {
                    fields
                        .get(usize::from(hit.field))
                        .is_some_and(|field| origins.contains(&field.origin))
                };
                if !fits(&pieces[0], hit) || !allowed() {
                    return None;
                }
                let end = follow(&pieces[1..], hit, &hits[at..])?;
                Some(Found {
                    start: hit.start.into(),
                    end: end.into(),
                })
            })
        })
    }
}

fn fits(piece: &[Use], hit: &Hit) -> bool {
    piece
        .iter()
        .any(|used| used.literal == hit.literal && hit.flags & used.needs == used.needs)
}

/// The end of the last of `pieces` behind `previous`, each within the gap.
fn follow(pieces: &[Vec<Use>], previous: &Hit, hits: &[Hit]) -> Option<u16> {
    let Some((piece, rest)) = pieces.split_first() else {
        return Some(previous.end);
    };
    hits.iter()
        .enumerate()
        .filter(|(_, hit)| {
            hit.field == previous.field
                && hit.start >= previous.end
                && usize::from(hit.start - previous.end) <= GAP
                && fits(piece, hit)
        })
        .find_map(|(at, hit)| follow(rest, hit, &hits[at..]))
}

/// Compiles patterns; literals get their numbers here.
#[derive(Default)]
pub(super) struct Compiler {
    literals: BTreeMap<String, u16>,
    order: Vec<String>,
}

impl Compiler {
    pub(super) fn compile<'p>(
        &mut self,
        patterns: impl IntoIterator<Item = &'p str>,
    ) -> Result<Patterns, String> {
        let patterns = patterns
            .into_iter()
            .map(|pattern| {
                pattern
                    .split('…')
                    // What follows a number is a piece of its own: `limit of # tokens`.
                    .flat_map(|piece| piece.split_inclusive("# "))
                    .map(|piece| self.piece(pattern, piece.trim()))
                    .collect::<Result<_, _>>()
            })
            .collect::<Result<_, String>>()?;
        Ok(Patterns { patterns })
    }

    fn piece(&mut self, pattern: &str, piece: &str) -> Result<Vec<Use>, String> {
        let mut uses = Vec::new();
        for literal in alternatives(piece).map_err(|why| format!("pattern `{pattern}`: {why}"))? {
            uses.push(
                self.literal(&literal)
                    .map_err(|why| format!("pattern `{pattern}`: {why}"))?,
            );
        }
        Ok(uses)
    }

    fn literal(&mut self, written: &str) -> Result<Use, String> {
        let mut needs = 0;
        let mut text = written;
        if let Some(rest) = text.strip_prefix('^') {
            needs |= AT_START;
            text = rest;
        }
        if let Some(rest) = text.strip_suffix('$') {
            needs |= AT_END;
            text = rest;
        }
        if let Some(rest) = text.strip_suffix('#') {
            needs |= NUMBER;
            text = rest.trim_end();
        }
        if let Some(rest) = text.strip_suffix('*') {
            text = rest;
        } else {
            needs |= WHOLE;
        }
        if text.is_empty() {
            return Err(format!("`{written}` has no words"));
        }
        if let Some(odd) = text.chars().find(|c| {
            c.is_ascii_uppercase() || matches!(c, '_' | '-' | '#' | '*' | '^' | '$' | '|')
        }) {
            return Err(format!(
                "`{odd}` in `{written}`: texts are compared in lower case, with spaces for `_` and `-`"
            ));
        }
        let text = text.replace('@', &char::from(OPAQUE).to_string());
        let next = u16::try_from(self.order.len()).map_err(|_| "too many literals".to_owned())?;
        let literal = *self.literals.entry(text.clone()).or_insert_with(|| {
            self.order.push(text);
            next
        });
        Ok(Use { literal, needs })
    }

    pub(super) fn finish(self) -> Finder {
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&self.order);
        Finder {
            automaton,
            literals: self.order,
        }
    }
}

/// `a (b|c (d|e))` → `a b`, `a c d`, `a c e`. An empty alternative is allowed: `is (too |)long`.
fn alternatives(piece: &str) -> Result<Vec<String>, String> {
    let mut rest = piece;
    let mut whole = sequence(&mut rest)?;
    if !rest.is_empty() {
        return Err("`)` without `(`".to_owned());
    }
    for text in &mut whole {
        // Around an empty alternative two spaces may stand.
        while let Some(at) = text.find("  ") {
            text.remove(at);
        }
        *text = text.trim().to_owned();
    }
    Ok(whole)
}

/// Literals and groups up to a `|` or `)` of the group around, or the end.
fn sequence(rest: &mut &str) -> Result<Vec<String>, String> {
    let mut whole = vec![String::new()];
    loop {
        let plain = rest.find(['(', '|', ')']).unwrap_or(rest.len());
        let (text, next) = rest.split_at(plain);
        for head in &mut whole {
            head.push_str(text);
        }
        *rest = next;
        if !rest.starts_with('(') {
            return Ok(whole);
        }
        let mut options = Vec::new();
        loop {
            // Past the `(` or the `|`.
            *rest = &rest[1..];
            options.extend(sequence(rest)?);
            if !rest.starts_with('|') {
                break;
            }
        }
        *rest = rest.strip_prefix(')').ok_or("`(` without `)`")?;
        whole = whole
            .iter()
            .flat_map(|head| options.iter().map(move |option| format!("{head}{option}")))
            .collect();
    }
}

/// Finds every literal in one pass.
#[derive(Debug)]
pub(super) struct Finder {
    automaton: Result<AhoCorasick, aho_corasick::BuildError>,
    literals: Vec<String>,
}

impl Finder {
    pub(super) fn literal_count(&self) -> usize {
        self.literals.len()
    }

    /// The literals, for a benchmark that runs over the same ones.
    pub(super) fn literals(&self) -> &[String] {
        &self.literals
    }

    pub(super) fn find(&self, text: &[u8], fields: &[Field]) -> Hits {
        let mut hits = Hits {
            hits: [Hit::default(); MAX_HITS],
            len: 0,
        };
        let Ok(automaton) = &self.automaton else {
            return hits;
        };
        let mut field = 0;
        for found in automaton.find_overlapping_iter(text) {
            let (start, end) = (found.start(), found.end());
            while fields
                .get(field + 1)
                .is_some_and(|next| usize::from(next.start) <= start)
            {
                field += 1;
            }
            // An occurrence that began before the current field's start cannot be: fields are apart by
            // a boundary, which no literal has. But occurrences come in order of their ends.
            let field = if usize::from(fields[field].start) > start {
                field.saturating_sub(1)
            } else {
                field
            };
            let before = start.checked_sub(1).map_or(BOUNDARY, |at| text[at]);
            if before.is_ascii_alphanumeric() && text[start].is_ascii_alphanumeric() {
                continue;
            }
            hits.push(Hit {
                literal: found.pattern().as_u32() as u16,
                start: start as u16,
                end: end as u16,
                field: field as u8,
                flags: flags(text, start, end, usize::from(fields[field].start)),
            });
        }
        hits
    }
}

fn flags(text: &[u8], start: usize, end: usize, field_start: usize) -> u8 {
    let mut flags = 0;
    let next = text.get(end).copied().unwrap_or(BOUNDARY);
    if !(next.is_ascii_alphanumeric() && text[end - 1].is_ascii_alphanumeric()) {
        flags |= WHOLE;
    }
    let mark = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte < 0x80;
    if text[field_start..start].iter().rev().take(8).all(mark) && start - field_start <= 8 {
        flags |= AT_START;
    }
    let rest = &text[end..];
    if rest
        .iter()
        .take_while(|byte| **byte != BOUNDARY)
        .take(8)
        .all(mark)
        && rest.iter().take(9).any(|byte| *byte == BOUNDARY)
    {
        flags |= AT_END;
    }
    let number = rest
        .iter()
        .take(4)
        .find(|byte| !matches!(byte, b' ' | b':' | b'=' | b'(' | b'~' | b'[' | b'<'));
    if number.is_some_and(u8::is_ascii_digit) {
        flags |= NUMBER;
    }
    flags
}
