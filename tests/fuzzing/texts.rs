//! What enters from outside as text: errors, hints, settings, history lines, rule files.

#[cfg(feature = "rules")]
use retry_machine::RuleFile;
use retry_machine::wire::{AgentLine, AgentMessage};
use retry_machine::{
    Ambient, AssistantMessage, Classifier, DelayHint, ErrorFacts, Explanation, Input, RetryMachine,
    RetrySettings, SettingsPatch, Span, UnixMillis, Verdict, backoff::MAX_DELAY_MS,
};

const NOW: UnixMillis = UnixMillis(1_790_000_000_000);

/// Text and facts from bytes: parts between unit separators are the text, then `name:value` each. `status`,
/// `code`, `provider` and `zone` are those facts, any other name is a header's.
struct Error {
    text: String,
    facts: Vec<(String, String)>,
}

impl Error {
    fn read(bytes: &[u8]) -> Self {
        let whole = String::from_utf8_lossy(bytes);
        let mut parts = whole.split('\u{1f}');
        let text = parts.next().unwrap_or_default().to_owned();
        let facts = parts
            .filter_map(|part| part.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self { text, facts }
    }

    fn facts(&self) -> ErrorFacts<'_> {
        let mut facts = ErrorFacts::new();
        for (name, value) in &self.facts {
            facts = match name.as_str() {
                "status" => match value.parse() {
                    Ok(status) => facts.status(status),
                    Err(_) => facts,
                },
                "code" => facts.code(value),
                "provider" => facts.provider(value),
                "zone" => facts.time_zone(value),
                name => facts.header(name, value),
            };
        }
        facts
    }

    fn verdict(&self) -> Verdict {
        Classifier::shared().classify(&self.text, &self.facts(), NOW)
    }

    fn explanation(&self) -> Explanation {
        Classifier::shared().explain(&self.text, &self.facts(), NOW)
    }

    fn piece(&self, span: Span) -> &str {
        let piece = self.text.get(span.start..span.end);
        piece.unwrap_or_else(|| panic!("{span:?} is no piece of {:?}", self.text))
    }
}

fn bounded(hint: DelayHint) {
    assert!(hint.delay_ms(NOW) <= MAX_DELAY_MS, "{hint:?}");
}

/// Any text and any facts have one verdict, with a piece of the text and a credible hint.
pub fn classifier(bytes: &[u8]) {
    let error = Error::read(bytes);
    let verdict = error.verdict();
    assert_eq!(error.verdict(), verdict, "told twice");
    if let Some(span) = verdict.span {
        assert!(!error.piece(span).is_empty(), "{verdict:?}");
    }
    if let Some(hint) = verdict.hint {
        bounded(hint);
    }
    echo(&error.text);
}

/// What a provider only echoes decides nothing.
fn echo(text: &str) {
    let text = &text[..text.floor_char_boundary(1000)];
    let echoed = serde_json::to_string(text).unwrap_or_default();
    for (kind, message) in [
        ("overloaded_error", "Overloaded"),
        ("invalid_request_error", "tools.0: unknown field"),
        ("rate_limit_error", "Too fast, retry after 7 seconds"),
        ("api_error", "the cat sleeps"),
        ("not_found_error", "no 'cat, no \u{201c}dog, no `mouse"),
    ] {
        let body = |echoed: &str| {
            let body = format!(
                r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}","param":{echoed},"input":[{echoed}]}}}}"#
            );
            let verdict = Classifier::shared().classify(&body, &ErrorFacts::new(), NOW);
            (verdict.class, verdict.rule, verdict.hint)
        };
        assert_eq!(body(&echoed), body("null"), "{echoed} beside {message:?}");
    }
}

/// The explanation is of the verdict, and shows what stands in the text.
pub fn signals(bytes: &[u8]) {
    let error = Error::read(bytes);
    let explanation = error.explanation();
    assert_eq!(explanation.verdict, error.verdict());
    for signal in &explanation.signals {
        let piece = signal.span.map(|span| error.piece(span));
        if signal.kind == "status" {
            assert!(piece.is_none_or(|piece| piece == signal.text), "{signal:?}");
        }
    }
    for lost in &explanation.lost {
        assert!(!lost.why.is_empty());
        assert_ne!(lost.rule, explanation.verdict.rule, "lost and won");
    }
}

/// A hint is bounded, told alike twice, and does not depend on the case of a header's name.
pub fn hints(bytes: &[u8]) {
    let mut error = Error::read(bytes);
    let hint = error.verdict().hint;
    if let Some(hint) = hint {
        bounded(hint);
    }
    for (name, _) in &mut error.facts {
        if !matches!(name.as_str(), "status" | "code" | "provider" | "zone") {
            let upper = name.to_ascii_uppercase();
            let known = matches!(
                upper.to_ascii_lowercase().as_str(),
                "status" | "code" | "provider" | "zone"
            );
            if !known {
                *name = upper;
            }
        }
    }
    assert_eq!(error.verdict().hint, hint, "{:?}", error.facts);
    // The same delay before its unit as alone: a span does not change with the clock.
    if let Some(span) = hint.and_then(DelayHint::span) {
        assert_eq!(hint.map(|hint| hint.delay_ms(UnixMillis(0))), Some(span));
    }
}

/// Settings that are accepted are written and read as the same, and are the defaults with the patch.
pub fn settings(bytes: &[u8]) {
    let settings = serde_json::from_slice::<RetrySettings>(bytes);
    let patch = match serde_json::from_slice::<SettingsPatch>(bytes) {
        Ok(patch) => patch,
        Err(error) => {
            assert!(settings.is_err() && !error.to_string().is_empty());
            return;
        }
    };
    let settings = settings.expect("accepted as a patch");
    let mut patched = RetrySettings::default();
    patched.apply(&patch);
    assert_eq!(patched, settings);
    let written = serde_json::to_string(&settings).expect("written");
    assert_eq!(
        serde_json::from_str::<RetrySettings>(&written).expect(&written),
        settings
    );
    // The patch does the same to any settings after having been written.
    let written = serde_json::to_string(&patch).expect("written");
    let read: SettingsPatch = serde_json::from_str(&written).expect(&written);
    let [mut one, mut other] = [RetrySettings::recommended(), RetrySettings::recommended()];
    one.apply(&patch);
    other.apply(&read);
    assert_eq!(one, other, "{written}");
}

/// Lines of histories are read or refused; a message read is written and read as the same, and taken by a machine.
pub fn history(bytes: &[u8]) {
    let mut machine = RetryMachine::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        match AgentLine::parse(line) {
            Ok(AgentLine::Message {
                message: AgentMessage::Assistant(message),
                ..
            }) => {
                let written = serde_json::to_string(&message).expect("written");
                let read: AssistantMessage = serde_json::from_str(&written).expect(&written);
                assert_eq!(read, *message, "{written}");
                let effects = machine.handle(Input::message(&message), Ambient::at(0));
                assert!(effects.len() <= 4);
            }
            Ok(_) => {}
            Err(why) => assert!(!why.is_empty() && !why.contains('\n'), "{why:?}"),
        }
    }
}

/// A rule file is refused with its name and the place, or its rules are what its samples say.
#[cfg(feature = "rules")]
pub fn rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let classifier = RuleFile::parse("rules.toml", &text)
        .and_then(|file| Classifier::with_rules(std::slice::from_ref(&file)));
    match classifier {
        Ok(classifier) => {
            let facts = ErrorFacts::new();
            let verdict = classifier.classify(&text, &facts, NOW);
            assert_eq!(classifier.explain(&text, &facts, NOW).verdict, verdict);
        }
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("rules.toml"), "{error}");
        }
    }
}
