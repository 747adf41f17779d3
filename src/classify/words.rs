//! Words: what a text is made of once its form is gone.
//!
//! Rules and texts are cut into words in the same way: lower case, `RateLimitError` and `rate_limit_error` are
//! three words each, `'s` and apostrophes are gone, marks are gone but for comparisons, each character of a
//! script without blanks is a word. Every word that a rule knows has a number; matching compares numbers.

use std::collections::BTreeMap;

use super::signals::Origin;

/// The number of a word.
pub(super) type Word = u16;

/// A word that no rule knows.
pub(super) const UNKNOWN: Word = 0;
/// In a pattern: any number. A number in a text has the flag [`Token::NUMBER`].
pub(super) const ANY_NUMBER: Word = 1;
/// Something echoed.
pub(super) const OPAQUE: Word = 2;
/// The first number of a word that stands for itself.
const FIRST_WORD: Word = OPAQUE + 1;
/// Numbers from here on are beginnings of words (`exceed*`).
pub(super) const STEMS: Word = 0x8000;

/// The longest word that a rule can know, in bytes.
pub(super) const LONGEST: usize = 32;

/// One word of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) word: Word,
    /// The known beginning that the word has, or [`UNKNOWN`].
    pub(super) stem: Word,
    /// Where it stands, in bytes of the window.
    pub(super) start: u16,
    pub(super) end: u16,
    /// In which field of the text.
    pub(super) field: u8,
    pub(super) origin: Origin,
    pub(super) flags: u8,
}

impl Token {
    /// It begins with a digit.
    pub(super) const NUMBER: u8 = 1;
    /// No word stands before it in its field.
    pub(super) const FIRST: u8 = 2;
    /// The text breaks off behind it.
    pub(super) const LAST: u8 = 4;

    pub(super) const NONE: Self = Self {
        word: UNKNOWN,
        stem: UNKNOWN,
        start: 0,
        end: 0,
        field: 0,
        origin: Origin::Prose,
        flags: 0,
    };

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// What the reader of texts itself must know of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sense {
    None,
    /// A status follows it: `HTTP 503`, `code: 503`.
    Status,
    /// `HTTP`: a version may stand between it and the status.
    Http,
    /// The same, and a quoted word behind it is a code.
    Code,
    /// The same, and what is quoted behind it is a value of the request's.
    Got,
    /// What is quoted behind it is a value of the request's.
    Value,
    /// What is quoted behind it are the provider's words.
    Words,
}

/// The words that have a sense.
const SENSES: &[(Sense, &[&str])] = &[
    (
        Sense::Status,
        &[
            "err",
            "exception",
            "returned",
            "responded",
            "response",
            "failed",
            "gateway",
            "statuscode",
            "msg",
            "httperror",
            "failure",
            "refused",
            "rejected",
            "errors",
        ],
    ),
    (Sense::Code, &["status", "code", "error", "type", "reason"]),
    (Sense::Got, &["got", "received"]),
    (Sense::Http, &["http"]),
    (
        Sense::Value,
        &[
            "value",
            "values",
            "input",
            "parameter",
            "field",
            "name",
            "property",
            "enum",
            "entry",
            "listed",
            "excerpt",
            "content",
            "text",
            "prompt",
            "query",
            "title",
            "question",
            "found",
            "snippet",
        ],
    ),
    (
        Sense::Words,
        &[
            "limit", "metric", "quota", "message", "because", "says", "said", "body", "with",
            "desc",
        ],
    ),
];

/// The known words, and how to find them.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// Open addressing: the hash of a word and its number; 0 is free.
    table: Box<[(u64, Word)]>,
    /// Beginnings of words by their first byte.
    stems: Box<[(Box<[u8]>, Word)]>,
    stems_by_first: [(u8, u8); 256],
    senses: Box<[Sense]>,
    words: Vec<String>,
}

impl Vocabulary {
    /// The number of a word in lower case, and that of the beginning that it has.
    pub(super) fn find(&self, word: &[u8]) -> (Word, Word) {
        let hash = hash(word);
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        let number = loop {
            let (found, number) = self.table[at];
            if found == hash {
                break number;
            }
            if number == UNKNOWN {
                break UNKNOWN;
            }
            at = (at + 1) & mask;
        };
        let first = word.first().copied().unwrap_or(0);
        let (from, to) = self.stems_by_first[usize::from(first)];
        let stem = self.stems[usize::from(from)..usize::from(to)]
            .iter()
            .find(|(stem, _)| word.starts_with(stem))
            .map_or(UNKNOWN, |(_, number)| *number);
        (number, stem)
    }

    pub(super) fn sense(&self, word: Word) -> Sense {
        self.senses
            .get(usize::from(word))
            .copied()
            .unwrap_or(Sense::None)
    }

    /// Every known word and beginning: what a benchmark looks for with another method.
    pub(super) fn words(&self) -> &[String] {
        &self.words
    }

    /// How many numbers there are, of words and of beginnings.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.senses.len(), self.stems.len())
    }
}

fn hash(word: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in word {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    // The low bits choose the place: fold the high ones in. 0 is a free place.
    (hash ^ (hash >> 29)).max(1)
}

/// Numbers words as they come.
#[derive(Debug)]
pub(super) struct Numbers {
    words: Numbered,
    stems: Numbered,
}

/// Words by their hash, and in the order of their numbers.
#[derive(Debug, Default)]
struct Numbered {
    by_hash: BTreeMap<u64, Word>,
    spelt: Vec<String>,
}

impl Numbered {
    /// The place of a word, which is the next one if it is new.
    fn place(&mut self, word: &str) -> Word {
        let next = self.spelt.len() as Word;
        *self
            .by_hash
            .entry(hash(word.as_bytes()))
            .or_insert_with(|| {
                self.spelt.push(word.to_owned());
                next
            })
    }
}

impl Default for Numbers {
    fn default() -> Self {
        let mut numbers = Self {
            words: Numbered::default(),
            stems: Numbered::default(),
        };
        for (_, words) in SENSES {
            for word in *words {
                numbers.word(word);
            }
        }
        numbers
    }
}

impl Numbers {
    pub(super) fn word(&mut self, word: &str) -> Word {
        FIRST_WORD + self.words.place(word)
    }

    pub(super) fn stem(&mut self, stem: &str) -> Word {
        STEMS + self.stems.place(stem)
    }

    pub(super) fn finish(mut self) -> Vocabulary {
        let mut senses = vec![Sense::None; usize::from(FIRST_WORD) + self.words.spelt.len()];
        for (sense, words) in SENSES {
            for word in *words {
                senses[usize::from(self.word(word))] = *sense;
            }
        }
        let size = (self.words.spelt.len() * 4).next_power_of_two().max(64);
        let mut table = vec![(0, UNKNOWN); size].into_boxed_slice();
        for (hash, place) in &self.words.by_hash {
            let mut at = *hash as usize & (size - 1);
            while table[at].1 != UNKNOWN {
                at = (at + 1) & (size - 1);
            }
            table[at] = (*hash, FIRST_WORD + *place);
        }
        // In order of the first byte, and of two that fit the longer one first.
        let mut stems: Vec<(Box<[u8]>, Word)> = self
            .stems
            .spelt
            .iter()
            .zip(STEMS..)
            .map(|(stem, number)| (stem.as_bytes().into(), number))
            .collect();
        stems.sort_by(|(a, _), (b, _)| (a[0], b.len()).cmp(&(b[0], a.len())));
        let mut stems_by_first = [(0, 0); 256];
        for (at, (stem, _)) in stems.iter().enumerate() {
            let range = &mut stems_by_first[usize::from(stem[0])];
            if range.1 == 0 {
                range.0 = at as u8;
            }
            range.1 = at as u8 + 1;
        }
        let mut words = self.words.spelt;
        words.extend(self.stems.spelt);
        Vocabulary {
            table,
            stems: stems.into_boxed_slice(),
            stems_by_first,
            senses: senses.into_boxed_slice(),
            words,
        }
    }
}

/// The words of a phrase that a rule is written with, in the same cut as texts.
pub(super) fn words_of(phrase: &str) -> impl Iterator<Item = String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut chars = phrase.chars().peekable();
    while let Some(c) = chars.next() {
        if is_letter(c) {
            word.extend(c.to_lowercase());
        } else if is_alone(c) {
            words.push(std::mem::take(&mut word));
            words.push(c.to_string());
        } else if matches!(c, '\'' | '’') && !word.is_empty() {
            // `model's` is `model`; `isn't` is `isnt`.
            let mut rest = chars.clone();
            if rest.next() == Some('s') && !rest.peek().is_some_and(|next| is_letter(*next)) {
                chars.next();
            }
        } else {
            words.push(std::mem::take(&mut word));
            if matches!(c, '<' | '>') {
                let or_equal = chars.next_if_eq(&'=').is_some();
                words.push(comparison(c as u8, or_equal).to_owned());
            }
        }
    }
    words.push(word);
    words.into_iter().filter(|word| !word.is_empty())
}

/// A comparison as a word.
pub(super) const fn comparison(mark: u8, or_equal: bool) -> &'static str {
    match (mark, or_equal) {
        (b'<', false) => "<",
        (b'<', true) => "<=",
        (_, false) => ">",
        (_, true) => ">=",
    }
}

/// Part of a word: letters and digits, and letters of alphabets with blanks between words.
pub(super) fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '\u{c0}'..='\u{7ff}')
}

/// A word of its own: Chinese, Japanese, Korean and others.
pub(super) fn is_alone(c: char) -> bool {
    matches!(c, '\u{800}'..='\u{1fff}' | '\u{3041}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}')
}
