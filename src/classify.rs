//! What an error is: text and facts → [`Verdict`].
//!
//! Three steps, each in a file: the text and what the host knows become *signals*, the *rules* (data)
//! look for phrases, codes and statuses in them, and the first rule that holds decides. The *hint*, when
//! the server said how long to wait, is read beside.
//!
//! Deliberately absent: attempts, settings, delays. The classifier does not know that anybody retries.

mod explain;
mod hint;
#[cfg(feature = "rules")]
pub(crate) mod loaded;
mod pattern;
mod rules;
mod signals;
mod words;

use core::fmt;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::time::UnixMillis;
pub use explain::{
    Details, Explanation, LimitWindow, LostRule, OverflowDetail, OverflowUnit, Signal,
};

pub use hint::{DelayHint, HintSource, HintValue};
#[cfg(feature = "rules")]
pub use loaded::{RuleFile, RulesError, RulesErrorKind};
use pattern::{Compiler, Engine, Findings, Found, Owner, RuleSet};
use rules::{RULES, Rule, WORDS};
pub use signals::Origin;
use signals::{Signals, WINDOW, Window};
use words::Token;

/// What kind of error it is (CL7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorClass {
    /// The model or the service has more work than it can do.
    Overloaded,
    /// Requests come too fast; seconds or minutes help.
    RateLimit,
    /// The server or a gateway failed.
    ServerError,
    /// The connection failed, or the stream was cut.
    Network,
    /// A plan's or an account's limit is used up until it resets.
    UsageLimit,
    /// The request does not fit into the model's context.
    Overflow,
    /// Who asks is not known or not allowed.
    Auth,
    /// The account lacks money, credit or the right plan.
    Billing,
    /// The request itself is wrong.
    InvalidRequest,
    /// The provider refuses the content.
    ContentFilter,
    /// Somebody aborted the call.
    Aborted,
    /// Recognised, none of the others, and repeating cannot help.
    OtherFatal,
    /// Not recognised.
    Unknown,
}

impl ErrorClass {
    /// Every class, in order of declaration.
    pub const ALL: [Self; 13] = [
        Self::Overloaded,
        Self::RateLimit,
        Self::ServerError,
        Self::Network,
        Self::UsageLimit,
        Self::Overflow,
        Self::Auth,
        Self::Billing,
        Self::InvalidRequest,
        Self::ContentFilter,
        Self::Aborted,
        Self::OtherFatal,
        Self::Unknown,
    ];

    /// What to do about it (CL7).
    #[must_use]
    pub const fn action(self) -> Action {
        match self {
            Self::Overloaded | Self::RateLimit | Self::ServerError | Self::Network => Action::Retry,
            Self::UsageLimit => Action::Switch,
            Self::Overflow => Action::Compact,
            Self::Auth
            | Self::Billing
            | Self::InvalidRequest
            | Self::ContentFilter
            | Self::Aborted
            | Self::OtherFatal
            | Self::Unknown => Action::Stop,
        }
    }

    /// Its name on the wire: `rate_limit`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::RateLimit => "rate_limit",
            Self::ServerError => "server_error",
            Self::Network => "network",
            Self::UsageLimit => "usage_limit",
            Self::Overflow => "overflow",
            Self::Auth => "auth",
            Self::Billing => "billing",
            Self::InvalidRequest => "invalid_request",
            Self::ContentFilter => "content_filter",
            Self::Aborted => "aborted",
            Self::OtherFatal => "other_fatal",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What to do about an error (CL7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
// Exhaustive: CL7 names exactly these four.
pub enum Action {
    /// Repeat after a delay.
    Retry,
    /// Use another credential; retry after a delay if there is none.
    Switch,
    /// Let compaction shrink the context.
    Compact,
    /// Repeating cannot help.
    Stop,
}

impl Action {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Switch => "switch",
            Self::Compact => "compact",
            Self::Stop => "stop",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name of the rule that decided.
#[derive(Clone, Debug)]
pub struct RuleId(Name);

/// Two thin pointers, so that a verdict and what waits for a credential stay small.
#[derive(Clone, Debug)]
enum Name {
    BuiltIn(&'static &'static str),
    #[cfg(feature = "rules")]
    Loaded(Arc<Box<str>>),
}

impl RuleId {
    pub(crate) const fn built_in(name: &'static &'static str) -> Self {
        Self(Name::BuiltIn(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::BuiltIn(name) => name,
            #[cfg(feature = "rules")]
            Name::Loaded(name) => name,
        }
    }
}

impl PartialEq for RuleId {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RuleId {}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A piece of the error's text: half open, in bytes of UTF-8, on character boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// What an error is, and why (CL7).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Verdict {
    /// What it is.
    pub class: ErrorClass,
    /// Which rule decided.
    pub rule: RuleId,
    /// The piece of the text that decided; None if no text did.
    pub span: Option<Span>,
    /// How long the server said to wait.
    pub hint: Option<DelayHint>,
}

impl Verdict {
    /// A verdict of the host's own.
    #[must_use]
    pub const fn new(class: ErrorClass) -> Self {
        Self::of_rule(class, &"host")
    }

    pub(crate) const fn of_rule(class: ErrorClass, rule: &'static &'static str) -> Self {
        Self {
            class,
            rule: RuleId::built_in(rule),
            span: None,
            hint: None,
        }
    }

    /// The same with the delay that the server asked for.
    #[must_use]
    pub const fn with_hint(mut self, hint: DelayHint) -> Self {
        self.hint = Some(hint);
        self
    }

    /// What to do about it.
    #[must_use]
    pub const fn action(&self) -> Action {
        self.class.action()
    }
}

/// What the host's SDK knows of an error beside its text. Each fact given replaces the same fact read from
/// the text.
///
/// ```
/// use retry_machine::{Classifier, ErrorClass, ErrorFacts, UnixMillis};
/// let facts = ErrorFacts::new().status(503).header("Retry-After", "5");
/// let verdict = Classifier::shared().classify("upstream said no", &facts, UnixMillis(0));
/// assert_eq!(verdict.class, ErrorClass::ServerError);
/// assert_eq!(verdict.hint.unwrap().delay_ms(UnixMillis(0)), 5000);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFacts<'a> {
    status: Option<u16>,
    code: Option<Cow<'a, str>>,
    provider: Option<Cow<'a, str>>,
    time_zone: Option<Cow<'a, str>>,
    headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> ErrorFacts<'a> {
    /// Nothing known.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            status: None,
            code: None,
            provider: None,
            time_zone: None,
            headers: Vec::new(),
        }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The provider's error code or type: `rate_limit_exceeded`.
    #[must_use]
    pub fn code(mut self, code: impl Into<Cow<'a, str>>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Who was called, in the host's words.
    #[must_use]
    pub fn provider(mut self, provider: impl Into<Cow<'a, str>>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// The IANA zone in which clock times without a zone are meant ("resets 3am"), usually the user's.
    /// Needs the feature `tz-bundled`, except for `UTC`.
    #[must_use]
    pub fn time_zone(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.time_zone = Some(name.into());
        self
    }

    /// One header of the response; names are compared without case.
    #[must_use]
    pub fn header(mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with its texts copied, for a turn that outlives the response.
    #[must_use]
    pub fn into_owned(self) -> ErrorFacts<'static> {
        let owned = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        ErrorFacts {
            status: self.status,
            code: self.code.map(owned),
            provider: self.provider.map(owned),
            time_zone: self.time_zone.map(owned),
            headers: self
                .headers
                .into_iter()
                .map(|(name, value)| (owned(name), owned(value)))
                .collect(),
        }
    }

    /// Status and headers as the crate `http` has them. What is no text in a header is left out.
    ///
    /// ```
    /// use http::{HeaderMap, StatusCode, header};
    /// use retry_machine::{Classifier, ErrorFacts, UnixMillis};
    /// let mut headers = HeaderMap::new();
    /// headers.insert(header::RETRY_AFTER, "5".parse().unwrap());
    /// let facts = ErrorFacts::new().response(StatusCode::TOO_MANY_REQUESTS, &headers);
    /// let verdict = Classifier::shared().classify("slow down", &facts, UnixMillis(0));
    /// assert_eq!(verdict.hint.unwrap().delay_ms(UnixMillis(0)), 5000);
    /// ```
    #[cfg(feature = "http")]
    #[must_use]
    pub fn response(mut self, status: http::StatusCode, headers: &'a http::HeaderMap) -> Self {
        self.headers.extend(
            headers.iter().filter_map(|(name, value)| {
                Some((name.as_str().into(), value.to_str().ok()?.into()))
            }),
        );
        self.status(status.as_u16())
    }
}

/// Tells what errors are. One is enough for a process: it is immutable and shared.
///
/// ```
/// use retry_machine::{Action, Classifier, ErrorClass, ErrorFacts, UnixMillis};
/// let classifier = Classifier::shared();
/// let classify = |text| classifier.classify(text, &ErrorFacts::new(), UnixMillis(0));
///
/// let verdict = classify("429 Too Many Requests");
/// assert_eq!((verdict.class, verdict.action()), (ErrorClass::RateLimit, Action::Retry));
///
/// // A status counts only where a status stands (CL6):
/// let verdict = classify("404 model acme-500 not found");
/// assert_eq!(verdict.class, ErrorClass::InvalidRequest);
/// ```
pub struct Classifier {
    engine: Engine,
    #[cfg(feature = "rules")]
    loaded: Vec<loaded::LoadedRule>,
    rules: &'static [Rule],
    /// The rules that the status alone decides.
    by_status: RuleSet,
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier")
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}

impl Classifier {
    /// The built-in classifier, built once and shared by the whole process.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Classifier>> = OnceLock::new();
        SHARED.get_or_init(|| Arc::new(Self::built_in())).clone()
    }

    /// Builds the built-in classifier anew.
    #[must_use]
    pub fn built_in() -> Self {
        let compiler = Compiler::default();
        #[cfg(feature = "rules")]
        let assembled = Self::assemble(compiler, Vec::new());
        #[cfg(not(feature = "rules"))]
        let assembled = Self::assemble(compiler);
        match assembled {
            Ok(classifier) => classifier,
            // The table is part of this crate, and every test compiles it.
            Err(why) => unreachable!("built-in rules: {why}"),
        }
    }

    fn assemble(
        mut compiler: Compiler,
        #[cfg(feature = "rules")] loaded: Vec<loaded::LoadedRule>,
    ) -> Result<Self, String> {
        let mut by_status = RuleSet::default();
        for (at, rule) in RULES.iter().enumerate() {
            let mut add = |patterns: &[&str], owner, origins| {
                patterns
                    .iter()
                    .try_for_each(|pattern| compiler.add(pattern, owner, origins))
                    .map_err(|why| format!("rule `{}`: {why}", rule.id))
            };
            add(rule.any, Owner::Any(at), rule.origins)?;
            add(rule.with, Owner::With(at), WORDS)?;
            add(rule.unless, Owner::Unless(at), WORDS)?;
            if rule.any.is_empty() {
                by_status.insert(at);
            }
        }
        for (phrase, kind) in hint::PHRASES {
            compiler.add(phrase, Owner::Hint(*kind), WORDS)?;
        }
        Ok(Self {
            engine: compiler.finish(),
            #[cfg(feature = "rules")]
            loaded,
            rules: RULES,
            by_status,
        })
    }

    /// The literals that the rules look for: what a benchmark compares a verdict with.
    #[doc(hidden)]
    #[must_use]
    pub fn literals(&self) -> &[String] {
        self.engine.vocabulary.words()
    }

    /// What the built-in rules look for, as the table says it, rule by rule: the same for other methods.
    #[doc(hidden)]
    pub fn patterns() -> impl Iterator<Item = &'static [&'static str]> {
        RULES.iter().map(|rule| rule.any)
    }

    /// Tells what the error with this `text` is. `now` is what instants in hints are measured against.
    ///
    /// At most a bounded head and tail of the text are read; the time is linear in what is read.
    #[must_use]
    pub fn classify(&self, text: &str, facts: &ErrorFacts<'_>, now: UnixMillis) -> Verdict {
        self.read(text, facts, now, |reading| {
            #[cfg(feature = "rules")]
            if let Some(verdict) = self.loaded.iter().find_map(|rule| rule.judge(reading)) {
                return verdict;
            }
            reading
                .candidates()
                .find_map(|(at, rule)| reading.judge(at, rule).ok())
                .unwrap_or_else(|| reading.unknown())
        })
    }

    /// The same with everything that led to it: signals, the rules that lost and why, details.
    #[must_use]
    pub fn explain(&self, text: &str, facts: &ErrorFacts<'_>, now: UnixMillis) -> Explanation {
        self.read(text, facts, now, explain::explain)
    }

    fn read<T>(
        &self,
        source: &str,
        facts: &ErrorFacts<'_>,
        now: UnixMillis,
        then: impl FnOnce(&Reading<'_>) -> T,
    ) -> T {
        let window = Window::of(source);
        let code = facts.code.as_deref();
        let code = code.map(|code| &code[..code.floor_char_boundary(LONGEST_CODE)]);
        let room = window.len() + code.map_or(0, str::len);
        let read = |tokens: &mut [Token]| {
            let signals = Signals::read(window, code, &self.engine.vocabulary, tokens);
            let findings = self.engine.find(signals.tokens());
            let hint = hint::find(source, &signals, findings.hints(), facts, now);
            then(&Reading {
                classifier: self,
                source,
                facts,
                status: facts.status.or(signals.status.map(|found| found.status)),
                hint_ms: hint.map(|hint| hint.delay_ms(now)),
                soon_ms: hint.and_then(DelayHint::span),
                signals,
                findings,
                hint,
            })
        };
        // A word takes two bytes at least: room on the stack for what is common.
        match room {
            0..=160 => read(&mut [Token::NONE; 80]),
            161..=640 => read(&mut [Token::NONE; 320]),
            641..=ROOM => read(&mut [Token::NONE; ROOM / 2]),
            _ => read(&mut vec![Token::NONE; (WINDOW + LONGEST_CODE) / 2]),
        }
    }
}

/// The most bytes of a code that are read.
const LONGEST_CODE: usize = 256;
/// A text of 4 kB with any code is read without an allocation.
const ROOM: usize = 4096 + LONGEST_CODE;

/// One error, read: what the rules judge.
struct Reading<'r> {
    classifier: &'r Classifier,
    source: &'r str,
    facts: &'r ErrorFacts<'r>,
    signals: Signals<'r, 'r>,
    findings: Findings,
    status: Option<u16>,
    hint: Option<DelayHint>,
    hint_ms: Option<u64>,
    /// The delay, if the server told it as a span: an instant that has passed says nothing of a class.
    soon_ms: Option<u64>,
}

/// Why a rule that found its phrase does not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It wants another status.
    Status,
    /// The server named no delay, or a longer one.
    Hint,
    /// Something else that it wants is not there.
    Without,
    /// Something that it yields to is there.
    Unless(Found),
}

impl Reading<'_> {
    /// The rules that can hold, in the order in which they decide.
    fn candidates(&self) -> impl Iterator<Item = (usize, &'static Rule)> {
        let candidates = self.findings.any.or(self.classifier.by_status);
        let rules = self.classifier.rules;
        candidates.iter().map(move |at| (at, &rules[at]))
    }

    /// The verdict of the rule at this place of the table, or why it has none.
    fn judge(&self, at: usize, rule: &'static Rule) -> Result<Verdict, Refusal> {
        if !rule.status.holds(self.status) {
            return Err(Refusal::Status);
        }
        if let Some(max) = rule.max_hint_ms
            && self.soon_ms.is_none_or(|span| span > max)
        {
            return Err(Refusal::Hint);
        }
        if !rule.with.is_empty() && !self.findings.with.contains(at) {
            return Err(Refusal::Without);
        }
        if let Some(found) = self.findings.unless(at) {
            return Err(Refusal::Unless(found));
        }
        let span = match self.findings.any(at) {
            Some(found) => self.span(found),
            None => self.status_span(),
        };
        Ok(Verdict {
            class: rule.class,
            rule: RuleId::built_in(&rule.id),
            span,
            hint: self.hint,
        })
    }

    fn unknown(&self) -> Verdict {
        Verdict {
            hint: self.hint,
            ..Verdict::of_rule(ErrorClass::Unknown, &"none")
        }
    }

    /// The piece of the source; None if it stands in a code that the host gave.
    fn span(&self, found: Found) -> Option<Span> {
        let (start, end) = self
            .signals
            .source_span(found.first.into(), found.last.into())?;
        Some(Span {
            start: self.source.floor_char_boundary(start),
            end: self.source.ceil_char_boundary(end),
        })
    }

    /// Where the status stands; None if the host gave it.
    fn status_span(&self) -> Option<Span> {
        let found = self
            .signals
            .status
            .filter(|_| self.facts.status.is_none())?;
        Some(Span {
            start: found.start,
            end: found.start + 3,
        })
    }
}
