//! Rules of the user's own, from TOML files: add to the built-in ones, override them, forbid retries.
//!
//! A file is checked as a whole when it is loaded: patterns, classes, the samples of its rules, and that it
//! does not take over what a built-in rule decides without naming that rule.

use core::fmt;
use std::ops::Range;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;

use super::pattern::{Compiler, Found, Owner};
use super::rules::{RULES, WORDS};
use super::signals::Origin;
use super::{Classifier, ErrorClass, ErrorFacts, Name, Reading, RuleId, Verdict};
use crate::time::UnixMillis;

/// The most a compiled regular expression may take, in bytes.
const REGEX_SIZE: usize = 1 << 20;

/// A file of rules, read; [`Classifier::with_rules`] checks it against the built-in ones.
///
/// ```
/// # #[cfg(feature = "rules")] {
/// use retry_machine::{Classifier, ErrorClass, ErrorFacts, RuleFile, UnixMillis};
/// let file = RuleFile::parse("rules.toml", r#"
///     [[rule]]
///     id = "gateway-asleep"
///     class = "server_error"
///     match.text = "gateway (is )?asleep"
///     samples.match = ["the gateway is asleep, come back later"]
///     samples.miss = ["the user is asleep"]
/// "#).unwrap();
/// let classifier = Classifier::with_rules(&[file]).unwrap();
/// let verdict = classifier.classify("Gateway asleep.", &ErrorFacts::new(), UnixMillis(0));
/// assert_eq!((verdict.class, verdict.rule.as_str()), (ErrorClass::ServerError, "gateway-asleep"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RuleFile {
    name: String,
    text: String,
    rules: Vec<WrittenRule>,
}

/// A file of rules for the classifier of retry-machine.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenFile {
    /// The rules; the first that holds decides, before every built-in rule.
    #[serde(default, rename = "rule")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<WrittenRule>"))]
    rules: Vec<WrittenRule>,
}

/// One rule.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    /// Its name, unlike that of any other rule.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    id: Spanned<String>,
    /// What an error is for which it holds: `overloaded`, `rate_limit`, `server_error` and `network` are
    /// retried, `usage_limit` switches the credential, `overflow` compacts, the others forbid a retry.
    #[cfg_attr(feature = "schema", schemars(with = "ErrorClass"))]
    class: Spanned<String>,
    /// What must hold, all of it.
    #[serde(rename = "match")]
    condition: Condition,
    /// Texts that it must decide, and texts that it must not decide.
    samples: Samples,
    /// The built-in rules whose samples it may take over.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    overrides: Vec<Spanned<String>>,
}

/// What must hold, all of what is given.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Condition {
    /// A regular expression, in any case, on the text.
    text: Option<String>,
    /// Phrases in the form of the built-in rules, one of which stands outside of what is only echoed.
    #[serde(default)]
    phrase: Vec<String>,
    /// One of these statuses.
    #[serde(default)]
    status: Vec<u16>,
    /// One of these codes, compared without case and separators.
    #[serde(default)]
    code: Vec<String>,
    /// One of these words in the provider's name, in any case.
    #[serde(default)]
    provider: Vec<String>,
}

/// Texts with what is known beside them.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Samples {
    /// At least one error that the rule decides.
    #[serde(rename = "match")]
    matching: Vec<Sample>,
    /// Errors that the rule does not decide.
    #[serde(default, rename = "miss")]
    missing: Vec<Sample>,
}

/// A text, or a text with what is known beside it.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum Sample {
    /// A text alone.
    Text(String),
    /// A text with facts.
    Facts {
        /// The text.
        text: String,
        /// The HTTP status.
        status: Option<u16>,
        /// The provider's code.
        code: Option<String>,
        /// Who was called.
        provider: Option<String>,
    },
}

impl Sample {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Facts { text, .. } => text,
        }
    }

    fn facts(&self) -> ErrorFacts<'_> {
        let mut facts = ErrorFacts::new();
        if let Self::Facts {
            status,
            code,
            provider,
            ..
        } = self
        {
            if let Some(status) = status {
                facts = facts.status(*status);
            }
            if let Some(code) = code {
                facts = facts.code(code.as_str());
            }
            if let Some(provider) = provider {
                facts = facts.provider(provider.as_str());
            }
        }
        facts
    }
}

/// A file of rules was refused: the text names the file, the line, the rule and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesError {
    kind: RulesErrorKind,
    text: String,
}

/// Why a file of rules was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RulesErrorKind {
    /// It is not TOML, or a key is missing or unknown.
    Form,
    /// A regular expression or a phrase cannot be compiled.
    Pattern,
    /// There is no such class.
    Class,
    /// A name is given twice, or names nothing.
    Name,
    /// A rule does not decide a sample that it must, or decides one that it must not.
    Sample,
    /// A rule takes over a sample of a built-in rule that it does not name.
    Swallows,
}

impl RulesError {
    /// Why it was refused.
    #[must_use]
    pub const fn kind(&self) -> RulesErrorKind {
        self.kind
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for RulesError {}

impl RuleFile {
    /// Reads a file's text; `name` is what errors call it.
    ///
    /// # Errors
    /// It is not TOML, or a key is missing or unknown: the text says where.
    pub fn parse(name: &str, text: &str) -> Result<Self, RulesError> {
        let file: WrittenFile = toml::from_str(text).map_err(|error| RulesError {
            kind: RulesErrorKind::Form,
            text: format!(
                "{name}:{}: {}",
                line_of(text, error.span().unwrap_or_default()),
                error.message()
            ),
        })?;
        Ok(Self {
            name: name.to_owned(),
            text: text.to_owned(),
            rules: file.rules,
        })
    }

    fn refuse(&self, at: Range<usize>, kind: RulesErrorKind, why: impl fmt::Display) -> RulesError {
        RulesError {
            kind,
            text: format!("{}:{}: {why}", self.name, line_of(&self.text, at)),
        }
    }
}

fn line_of(text: &str, at: Range<usize>) -> usize {
    1 + text
        .bytes()
        .take(at.start)
        .filter(|byte| *byte == b'\n')
        .count()
}

/// A rule of the user's own, ready to judge.
#[derive(Debug)]
pub(super) struct LoadedRule {
    id: RuleId,
    class: ErrorClass,
    text: Option<Regex>,
    /// Its place among the loaded rules, if it has phrases.
    phrases: Option<usize>,
    status: Vec<u16>,
    codes: Vec<String>,
    providers: Vec<String>,
}

impl LoadedRule {
    /// The verdict, if everything holds.
    pub(super) fn judge(&self, reading: &Reading<'_>) -> Option<Verdict> {
        let mut span = None;
        if !self.status.is_empty()
            && !reading
                .status
                .is_some_and(|status| self.status.contains(&status))
        {
            return None;
        }
        if !self.providers.is_empty() {
            let provider = reading.facts.provider.as_deref()?.to_lowercase();
            if !self.providers.iter().any(|name| provider.contains(name)) {
                return None;
            }
        }
        if !self.codes.is_empty() && !reading.codes().any(|code| self.codes.contains(&code)) {
            return None;
        }
        if let Some(at) = self.phrases {
            span = reading.span(reading.findings.loaded(at)?);
        }
        if let Some(regex) = &self.text {
            let (head, tail, tail_start) = reading.signals.parts();
            let found = regex.find(head).map(|found| found.range()).or_else(|| {
                let found = regex.find(tail)?;
                Some(found.start() + tail_start..found.end() + tail_start)
            })?;
            span = Some(super::Span {
                start: found.start,
                end: found.end,
            });
        }
        Some(Verdict {
            class: self.class,
            rule: self.id.clone(),
            span,
            hint: reading.hint,
        })
    }

    pub(super) fn id(&self) -> &RuleId {
        &self.id
    }

    pub(super) fn class(&self) -> ErrorClass {
        self.class
    }
}

impl Reading<'_> {
    /// The codes that the host gave or the text has, without case and separators.
    fn codes(&self) -> impl Iterator<Item = String> {
        let given = self.facts.code.as_deref().map(|code| bare(code.as_bytes()));
        let fields = self
            .signals
            .tokens()
            .chunk_by(|one, next| one.field == next.field);
        let mut first = 0;
        let read = fields.filter_map(move |field| {
            let place = Found {
                first: first as u16,
                last: (first + field.len() - 1) as u16,
            };
            first += field.len();
            let span = self
                .span(place)
                .filter(|_| field[0].origin == Origin::Code)?;
            Some(bare(&self.source.as_bytes()[span.start..span.end]))
        });
        given.into_iter().chain(read)
    }
}

fn bare(code: &[u8]) -> String {
    code.iter()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect()
}

impl Classifier {
    /// The built-in rules with those of `files` before them; of these, the first that holds decides.
    ///
    /// # Errors
    /// The first thing that is wrong in a file: a pattern, a class, a name, a sample, or a sample of a built-in
    /// rule that a rule takes over without naming it in `overrides`.
    pub fn with_rules(files: &[RuleFile]) -> Result<Self, RulesError> {
        let mut compiler = Compiler::default();
        let mut loaded = Vec::new();
        for file in files {
            for written in &file.rules {
                loaded.push(compile(file, written, loaded.len(), &mut compiler)?);
            }
        }
        check_names(files)?;
        // The built-in table compiles, and is short enough: a test builds it.
        let classifier = Self::assemble(compiler, loaded).map_err(|why| RulesError {
            kind: RulesErrorKind::Pattern,
            text: why,
        })?;
        for file in files {
            for written in &file.rules {
                check_samples(&classifier, file, written)?;
            }
        }
        check_built_in_samples(&classifier, files)?;
        Ok(classifier)
    }

    fn rule_for(&self, text: &str, facts: &ErrorFacts<'_>) -> RuleId {
        self.classify(text, facts, UnixMillis(0)).rule
    }
}

fn compile(
    file: &RuleFile,
    written: &WrittenRule,
    place: usize,
    compiler: &mut Compiler,
) -> Result<LoadedRule, RulesError> {
    let id = written.id.get_ref();
    let at = written.id.span();
    let Condition {
        text,
        phrase,
        status,
        code,
        provider,
    } = &written.condition;
    if text.is_none()
        && phrase.is_empty()
        && status.is_empty()
        && code.is_empty()
        && provider.is_empty()
    {
        let why =
            format!("rule `{id}`: `match` is empty; give text, phrase, status, code or provider");
        return Err(file.refuse(at, RulesErrorKind::Form, why));
    }
    if written.samples.matching.is_empty() {
        let why =
            format!("rule `{id}`: `samples.match` is empty; give an error that the rule decides");
        return Err(file.refuse(at, RulesErrorKind::Form, why));
    }
    let name = written.class.get_ref();
    let Some(class) = ErrorClass::ALL
        .into_iter()
        .find(|class| class.name() == name)
    else {
        let names: Vec<_> = ErrorClass::ALL
            .iter()
            .map(|class| format!("`{class}`"))
            .collect();
        let why = format!(
            "rule `{id}`: unknown class `{name}`; expected one of {}",
            names.join(", ")
        );
        return Err(file.refuse(written.class.span(), RulesErrorKind::Class, why));
    };
    let text = text
        .as_deref()
        .map(|pattern| {
            RegexBuilder::new(pattern)
                .case_insensitive(true)
                .size_limit(REGEX_SIZE)
                .build()
        })
        .transpose()
        .map_err(|error| {
            let why = format!("rule `{id}`: match.text: {error}");
            file.refuse(at.clone(), RulesErrorKind::Pattern, why)
        })?;
    for phrase in phrase {
        compiler
            .add(phrase, Owner::Loaded(place), WORDS)
            .map_err(|why| {
                let why = format!("rule `{id}`: match.phrase: {why}");
                file.refuse(at.clone(), RulesErrorKind::Pattern, why)
            })?;
    }
    Ok(LoadedRule {
        id: RuleId(Name::Loaded(Arc::new(id.as_str().into()))),
        class,
        text,
        phrases: (!phrase.is_empty()).then_some(place),
        status: status.clone(),
        codes: code.iter().map(|code| bare(code.as_bytes())).collect(),
        providers: provider.iter().map(|name| name.to_lowercase()).collect(),
    })
}

fn check_names(files: &[RuleFile]) -> Result<(), RulesError> {
    let mut seen: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    let built_in = seen.clone();
    for file in files {
        for written in &file.rules {
            let id = written.id.get_ref().as_str();
            if seen.contains(&id) {
                let why =
                    format!("rule `{id}`: there is a rule of that name already; choose another");
                return Err(file.refuse(written.id.span(), RulesErrorKind::Name, why));
            }
            seen.push(id);
            for overridden in &written.overrides {
                let name = overridden.get_ref().as_str();
                if !built_in.contains(&name) {
                    let hint = crate::settings::nearest(name, built_in.iter().copied())
                        .map_or(String::new(), |close| format!("; did you mean `{close}`?"));
                    let why =
                        format!("rule `{id}`: overrides `{name}`, which is no built-in rule{hint}");
                    return Err(file.refuse(overridden.span(), RulesErrorKind::Name, why));
                }
            }
        }
    }
    Ok(())
}

fn check_samples(
    classifier: &Classifier,
    file: &RuleFile,
    written: &WrittenRule,
) -> Result<(), RulesError> {
    let id = written.id.get_ref().as_str();
    let refuse = |why: String| {
        let why = format!("rule `{id}`: {why}");
        Err(file.refuse(written.id.span(), RulesErrorKind::Sample, why))
    };
    for sample in &written.samples.matching {
        let rule = classifier.rule_for(sample.text(), &sample.facts());
        if rule.as_str() != id {
            return refuse(format!(
                "does not decide its sample {:?}; `{rule}` does",
                sample.text()
            ));
        }
    }
    for sample in &written.samples.missing {
        if classifier.rule_for(sample.text(), &sample.facts()).as_str() == id {
            return refuse(format!("decides {:?}, which it must not", sample.text()));
        }
    }
    Ok(())
}

fn check_built_in_samples(classifier: &Classifier, files: &[RuleFile]) -> Result<(), RulesError> {
    for built_in in RULES {
        for sample in built_in.matches {
            let rule = classifier.rule_for(sample, &ErrorFacts::new());
            let taker = files.iter().find_map(|file| {
                let written = file
                    .rules
                    .iter()
                    .find(|written| written.id.get_ref() == rule.as_str())?;
                Some((file, written))
            });
            let Some((file, written)) = taker else {
                continue;
            };
            if !written
                .overrides
                .iter()
                .any(|name| name.get_ref() == built_in.id)
            {
                let why = format!(
                    "rule `{rule}`: takes over {sample:?}, which the built-in rule `{id}` decides; \
                     narrow it, or add overrides = [\"{id}\"]",
                    id = built_in.id
                );
                return Err(file.refuse(written.id.span(), RulesErrorKind::Swallows, why));
            }
        }
    }
    Ok(())
}
