//! Patterns: how rules say what they look for, and finding all of them in one pass over the words.
//!
//! A pattern is a sequence of pieces with gaps (`…`) between them, all in one field and each at most [`GAP`] words
//! after the last. A piece is words in a row, with alternatives:
//!
//! | written | means |
//! | --- | --- |
//! | `(prompt\|input) is (too \|)long` | one of the alternatives, which may be empty |
//! | `exceed*` | a word that begins so: exceeds, exceeded, exceeding |
//! | `limit of #` | a number |
//! | `@ does not exist` | something echoed |
//! | `^overloaded` | at the start of a field |
//! | `terminated$` | at the end of a field |
//! | `context length … exceed*` | the one, then the other |
//! | `>`, `<=` | comparisons; other marks say nothing |
//!
//! Each pattern waits for its rarest piece (the *anchor*); the words of a text call up the patterns whose anchor
//! they can begin, and only these are compared. So the time does not grow with the number of rules.

use std::borrow::Cow;

use super::hint::HintKind;
use super::signals::Origin;
use super::words::{ANY_NUMBER, Numbers, OPAQUE, STEMS, Token, Vocabulary, Word, words_of};

/// The most words between two pieces of a pattern.
const GAP: usize = 14;
/// The most hints that are looked at.
const MAX_HINTS: usize = 12;
/// The most rules of one table.
pub(super) const MAX_RULES: usize = 128;

/// A set of rules by their place in the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RuleSet([u64; MAX_RULES / 64]);

impl RuleSet {
    pub(super) fn insert(&mut self, rule: usize) {
        self.0[rule / 64] |= 1 << (rule % 64);
    }

    pub(super) fn contains(self, rule: usize) -> bool {
        self.0[rule / 64] & (1 << (rule % 64)) != 0
    }

    pub(super) fn or(mut self, other: Self) -> Self {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
        self
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(at, mut word)| {
            core::iter::from_fn(move || {
                let bit = word.trailing_zeros() as usize;
                word &= word.checked_sub(1)?;
                Some(at * 64 + bit)
            })
        })
    }
}

/// Whom a pattern serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// One of these makes a rule hold.
    Any(usize),
    /// One of these must stand beside.
    With(usize),
    /// None of these may stand beside.
    Unless(usize),
    /// It announces a delay.
    Hint(HintKind),
    /// One of these makes a rule of the user's hold.
    #[cfg(feature = "rules")]
    Loaded(usize),
}

/// Where a pattern was found: the first and the last of its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) first: u16,
    pub(super) last: u16,
}

/// What was found for whom.
pub(super) struct Findings {
    pub(super) any: RuleSet,
    pub(super) with: RuleSet,
    pub(super) unless: RuleSet,
    any_at: [Found; MAX_RULES],
    unless_at: [Found; MAX_RULES],
    hints: [Option<(HintKind, Found)>; MAX_HINTS],
    hint_count: usize,
    #[cfg(feature = "rules")]
    loaded: Vec<(usize, Found)>,
}

impl Findings {
    pub(super) fn any(&self, rule: usize) -> Option<Found> {
        self.any.contains(rule).then(|| self.any_at[rule])
    }

    pub(super) fn unless(&self, rule: usize) -> Option<Found> {
        self.unless.contains(rule).then(|| self.unless_at[rule])
    }

    pub(super) fn hints(&self) -> impl Iterator<Item = (HintKind, Found)> {
        self.hints[..self.hint_count].iter().copied().flatten()
    }

    #[cfg(feature = "rules")]
    pub(super) fn loaded(&self, rule: usize) -> Option<Found> {
        self.loaded
            .iter()
            .find(|(found, _)| *found == rule)
            .map(|(_, at)| *at)
    }

    /// Whether there is nothing left to find for this one.
    fn has(&self, owner: Owner) -> bool {
        match owner {
            Owner::Any(rule) => self.any.contains(rule),
            Owner::With(rule) => self.with.contains(rule),
            Owner::Unless(rule) => self.unless.contains(rule),
            Owner::Hint(_) => self.hint_count == MAX_HINTS,
            #[cfg(feature = "rules")]
            Owner::Loaded(rule) => self.loaded(rule).is_some(),
        }
    }

    fn note(&mut self, owner: Owner, found: Found) {
        match owner {
            Owner::Any(rule) => {
                self.any.insert(rule);
                self.any_at[rule] = found;
            }
            Owner::With(rule) => self.with.insert(rule),
            Owner::Unless(rule) => {
                self.unless.insert(rule);
                self.unless_at[rule] = found;
            }
            Owner::Hint(kind) => {
                self.hints[self.hint_count] = Some((kind, found));
                self.hint_count += 1;
            }
            #[cfg(feature = "rules")]
            Owner::Loaded(rule) => self.loaded.push((rule, found)),
        }
    }
}

/// Words in a row, what one alternative of a group stands for: where they stand among those of all rows. There are
/// thousands, too many to be allocated one by one.
#[derive(Clone, Copy, Debug)]
struct Row {
    start: u32,
    end: u32,
}

impl Row {
    fn of(self, rows: &[Word]) -> &[Word] {
        &rows[self.start as usize..self.end as usize]
    }

    const fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Words in a row, with alternatives.
#[derive(Debug)]
struct Piece {
    groups: Box<[Box<[Row]>]>,
    at_start: bool,
    at_end: bool,
}

#[derive(Debug)]
struct Pattern {
    owner: Owner,
    /// The origins in which it may stand, a bit each.
    origins: u8,
    pieces: Box<[Piece]>,
    /// The piece that calls it up.
    anchor: u8,
}

/// A pattern and its anchor, called up by a word.
#[derive(Clone, Copy, Debug)]
struct Posting {
    pattern: u16,
    /// The word that must follow the first one, or 0: most calls end here.
    second: Word,
}

/// All patterns, ready to be looked for.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) vocabulary: Vocabulary,
    patterns: Vec<Pattern>,
    /// For each word, then for each beginning of words, where its postings begin.
    starts: Vec<u32>,
    postings: Vec<Posting>,
    stem_base: usize,
    /// The words of all rows.
    rows: Vec<Word>,
}

/// What is compared: the words of a text, and those of all rows.
#[derive(Clone, Copy)]
struct Place<'p> {
    tokens: &'p [Token],
    rows: &'p [Word],
}

impl Engine {
    /// Everything that is found in the words.
    pub(super) fn find(&self, tokens: &[Token]) -> Findings {
        let mut findings = Findings {
            any: RuleSet::default(),
            with: RuleSet::default(),
            unless: RuleSet::default(),
            any_at: [Found::default(); MAX_RULES],
            unless_at: [Found::default(); MAX_RULES],
            hints: [None; MAX_HINTS],
            hint_count: 0,
            #[cfg(feature = "rules")]
            loaded: Vec::new(),
        };
        for (at, token) in tokens.iter().enumerate() {
            if token.word > ANY_NUMBER {
                self.call(usize::from(token.word), at, tokens, &mut findings);
            }
            if token.stem != 0 {
                let slot = self.stem_base + usize::from(token.stem - STEMS);
                self.call(slot, at, tokens, &mut findings);
            }
            if token.has(Token::NUMBER) {
                self.call(usize::from(ANY_NUMBER), at, tokens, &mut findings);
            }
        }
        findings
    }

    /// Compares the patterns that the word at `at` calls up.
    fn call(&self, slot: usize, at: usize, tokens: &[Token], findings: &mut Findings) {
        let (from, to) = (self.starts[slot] as usize, self.starts[slot + 1] as usize);
        let origin = 1 << tokens[at].origin as u8;
        for posting in &self.postings[from..to] {
            if posting.second != 0
                && !tokens
                    .get(at + 1)
                    .is_some_and(|next| fits(posting.second, next))
            {
                continue;
            }
            let pattern = &self.patterns[usize::from(posting.pattern)];
            if pattern.origins & origin == 0 || findings.has(pattern.owner) {
                continue;
            }
            let place = Place {
                tokens,
                rows: &self.rows,
            };
            if let Some(found) = pattern.around(at, place) {
                findings.note(pattern.owner, found);
            }
        }
    }
}

impl Pattern {
    /// The whole pattern with its anchor at `at`.
    fn around(&self, at: usize, place: Place<'_>) -> Option<Found> {
        let tokens = place.tokens;
        let anchor = usize::from(self.anchor);
        let mut end = self.pieces[anchor].at(at, place)?;
        let mut first = at;
        for piece in &self.pieces[anchor + 1..] {
            let last = (end + GAP).min(tokens.len());
            end = (end..=last).find_map(|start| piece.at(start, place))?;
            if tokens[end - 1].field != tokens[at].field {
                return None;
            }
        }
        for piece in self.pieces[..anchor].iter().rev() {
            first = (first.saturating_sub(GAP + piece.longest())..first)
                .rev()
                .find(|start| {
                    tokens[*start].field == tokens[at].field
                        && piece
                            .at(*start, place)
                            .is_some_and(|end| end <= first && first - end <= GAP)
                })?;
        }
        Some(Found {
            first: first as u16,
            last: (end - 1) as u16,
        })
    }
}

impl Piece {
    /// The end of the piece that begins at `at`.
    fn at(&self, at: usize, place: Place<'_>) -> Option<usize> {
        let first = place.tokens.get(at)?;
        if self.at_start && !first.has(Token::FIRST) {
            return None;
        }
        self.follow(&self.groups, at, first.field, place)
            .filter(|end| *end > at)
    }

    /// The end of the groups that follow at `at`: the first alternatives with which all of it fits.
    fn follow(
        &self,
        groups: &[Box<[Row]>],
        at: usize,
        field: u8,
        place: Place<'_>,
    ) -> Option<usize> {
        let tokens = place.tokens;
        let Some((group, rest)) = groups.split_first() else {
            return (!self.at_end || is_end(at, field, tokens)).then_some(at);
        };
        group.iter().find_map(|row| {
            let here = tokens.get(at..at + row.len())?;
            let fit = row
                .of(place.rows)
                .iter()
                .zip(here)
                .all(|(word, token)| token.field == field && fits(*word, token));
            if fit {
                self.follow(rest, at + row.len(), field, place)
            } else {
                None
            }
        })
    }

    fn longest(&self) -> usize {
        self.groups
            .iter()
            .map(|group| group.iter().map(|row| row.len()).max().unwrap_or(0))
            .sum()
    }
}

/// Whether nothing but echoes follows in the field.
fn is_end(end: usize, field: u8, tokens: &[Token]) -> bool {
    end > 0 && tokens[end - 1].has(Token::LAST)
        || tokens[end..]
            .iter()
            .take_while(|token| token.field == field)
            .all(|token| token.word == OPAQUE)
}

fn fits(word: Word, token: &Token) -> bool {
    if word >= STEMS {
        token.stem == word
    } else if word == ANY_NUMBER {
        token.has(Token::NUMBER)
    } else {
        token.word == word
    }
}

/// Compiles patterns.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    numbers: Numbers,
    patterns: Vec<Pattern>,
    rows: Vec<Word>,
}

impl Compiler {
    /// Adds a pattern that may stand in fields of `origins`.
    pub(super) fn add(
        &mut self,
        pattern: &str,
        owner: Owner,
        origins: &[Origin],
    ) -> Result<(), String> {
        let pieces = pattern
            .split('…')
            .map(|piece| self.piece(piece.trim()))
            .collect::<Result<Box<[_]>, _>>()
            .map_err(|why| format!("pattern `{pattern}`: {why}"))?;
        self.patterns.push(Pattern {
            owner,
            origins: origins
                .iter()
                .fold(0, |bits, origin| bits | 1 << *origin as u8),
            pieces,
            anchor: 0,
        });
        Ok(())
    }

    fn piece(&mut self, written: &str) -> Result<Piece, String> {
        let (written, at_start) = match written.strip_prefix('^') {
            Some(rest) => (rest, true),
            None => (written, false),
        };
        let (written, at_end) = match written.strip_suffix('$') {
            Some(rest) => (rest, true),
            None => (written, false),
        };
        let mut rest = written;
        let mut groups: Vec<Box<[Row]>> = Vec::new();
        while !rest.is_empty() {
            let plain = rest.find(['(', ')', '|']).unwrap_or(rest.len());
            if plain > 0 {
                groups.push(Box::new([self.row(&rest[..plain])?]));
                rest = &rest[plain..];
                continue;
            }
            if !rest.starts_with('(') {
                return Err(format!("`{}` without `(`", &rest[..1]));
            }
            let options = options(&mut rest)?;
            groups.push(
                options
                    .iter()
                    .map(|option| self.row(option))
                    .collect::<Result<_, _>>()?,
            );
        }
        // Words that always follow each other are one row.
        groups.retain(|group| group.iter().any(|row| !row.is_empty()));
        if groups
            .iter()
            .all(|group| group.iter().any(|row| row.is_empty()))
        {
            return Err("has no words".to_owned());
        }
        Ok(Piece {
            groups: groups.into_boxed_slice(),
            at_start,
            at_end,
        })
    }

    fn row(&mut self, written: &str) -> Result<Row, String> {
        if let Some(odd) = written
            .chars()
            .find(|c| c.is_ascii_uppercase() || matches!(c, '_' | '-' | '^' | '$'))
        {
            return Err(format!(
                "`{odd}` in `{written}`: texts are compared in lower case, with spaces for `_` and `-`"
            ));
        }
        let start = self.rows.len() as u32;
        for part in written.split_whitespace() {
            match part {
                "#" => self.rows.push(ANY_NUMBER),
                "@" => self.rows.push(OPAQUE),
                // Most are: one word, as it stands.
                _ if part.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                    self.rows.push(self.numbers.word(part));
                }
                _ => {
                    let (part, is_stem) = match part.strip_suffix('*') {
                        Some(stem) => (stem, true),
                        None => (part, false),
                    };
                    let mut words: Vec<String> = words_of(part).collect();
                    let last = if is_stem { words.pop() } else { None };
                    let words = words.iter().map(|word| self.numbers.word(word));
                    self.rows.extend(words);
                    self.rows
                        .extend(last.iter().map(|stem| self.numbers.stem(stem)));
                }
            }
        }
        Ok(Row {
            start,
            end: self.rows.len() as u32,
        })
    }

    /// Everything that was added, ready to be looked for.
    pub(super) fn finish(mut self) -> Engine {
        let vocabulary = self.numbers.finish();
        let (words, stems) = vocabulary.sizes();
        let slot = |word: Word| {
            if word >= STEMS {
                words + usize::from(word - STEMS)
            } else {
                usize::from(word)
            }
        };
        // With what each piece of each pattern can begin.
        let openings: Vec<Vec<_>> = self
            .patterns
            .iter()
            .map(|pattern| {
                let pieces = pattern.pieces.iter();
                pieces
                    .map(|piece| beginnings(&piece.groups, &self.rows))
                    .collect()
            })
            .collect();
        // How many pieces a word can begin: the fewer, the better it calls.
        let mut calls = vec![0_usize; words + stems];
        for (first, _) in openings.iter().flatten().flatten() {
            calls[slot(*first)] += 1;
        }
        // Words that most errors have call too often, however few patterns begin with them.
        let weight = |(first, second): (Word, Word)| {
            let common = usize::from(first <= OPAQUE) * 4000;
            let alone = if second == 0 { 4 } else { 1 };
            (calls[slot(first)] + common) * alone
        };
        let mut called = Vec::new();
        for (at, (pattern, pieces)) in self.patterns.iter_mut().zip(&openings).enumerate() {
            let heaviest = |piece: &Vec<_>| piece.iter().copied().map(weight).max();
            let anchor = (0..pieces.len())
                .min_by_key(|piece| heaviest(&pieces[*piece]).unwrap_or(usize::MAX))
                .unwrap_or(0);
            pattern.anchor = anchor as u8;
            called.extend(pieces[anchor].iter().map(|(first, second)| {
                let posting = Posting {
                    pattern: at as u16,
                    second: *second,
                };
                (slot(*first), posting)
            }));
        }
        // Stable: the patterns of a word stay in their order.
        called.sort_by_key(|(slot, _)| *slot);
        let mut starts = vec![0_u32; words + stems + 1];
        for (slot, _) in &called {
            starts[slot + 1] += 1;
        }
        for slot in 0..words + stems {
            starts[slot + 1] += starts[slot];
        }
        Engine {
            vocabulary,
            patterns: self.patterns,
            starts,
            postings: called.into_iter().map(|(_, posting)| posting).collect(),
            stem_base: words,
            rows: self.rows,
        }
    }
}

/// The words with which a piece can begin, each with the one that follows it if that is always the same.
fn beginnings(groups: &[Box<[Row]>], rows: &[Word]) -> Vec<(Word, Word)> {
    let mut found = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let next: Option<Word> = match groups.get(at + 1).map(|group| &group[..]) {
            Some([row]) => row.of(rows).first().copied(),
            _ => None,
        };
        for row in group {
            match *row.of(rows) {
                [] => {}
                [first] => found.push((first, next.unwrap_or(0))),
                [first, second, ..] => found.push((first, second)),
            }
        }
        if !group.iter().any(|row| row.is_empty()) {
            break;
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The alternatives of the group that `rest` begins with, groups inside written out: `(a|b (c|d))`.
fn options<'p>(rest: &mut &'p str) -> Result<Vec<Cow<'p, str>>, String> {
    let mut all = Vec::new();
    loop {
        // Past the `(` or the `|`.
        *rest = &rest[1..];
        let from = all.len();
        all.push(Cow::Borrowed(""));
        loop {
            let plain = rest.find(['(', '|', ')']).ok_or("`(` without `)`")?;
            for head in &mut all[from..] {
                *head += &rest[..plain];
            }
            *rest = &rest[plain..];
            if !rest.starts_with('(') {
                break;
            }
            let inner = options(rest)?;
            let heads = all.split_off(from);
            all.extend(heads.iter().flat_map(|head| {
                let whole = move |option: &Cow<'_, str>| Cow::Owned(format!("{head}{option}"));
                inner.iter().map(whole)
            }));
        }
        if let Some(after) = rest.strip_prefix(')') {
            *rest = after;
            return Ok(all);
        }
    }
}
