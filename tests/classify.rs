//! The classifier: the ratchet on composed texts, echoed places, given facts, hostile input.

use std::collections::BTreeMap;

use retry_machine::{
    Action, Classifier, ErrorClass, ErrorFacts, LimitWindow, OverflowUnit, UnixMillis, Verdict,
};
use serde_json::Value;

const NOW: UnixMillis = UnixMillis(1_790_000_000_000);

fn classify(text: &str) -> Verdict {
    Classifier::shared().classify(text, &ErrorFacts::new(), NOW)
}

/// The composed texts in `tests/data/errors.jsonl`.
fn composed() -> Vec<Value> {
    include_str!("data/errors.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect()
}

fn facts(row: &Value) -> ErrorFacts<'_> {
    let mut facts = ErrorFacts::new();
    if let Some(status) = row["status"].as_u64() {
        facts = facts.status(u16::try_from(status).expect("a status"));
    }
    if let Some(code) = row["code"].as_str() {
        facts = facts.code(code);
    }
    if let Some(provider) = row["provider"].as_str() {
        facts = facts.provider(provider);
    }
    for (name, value) in row["headers"].as_object().into_iter().flatten() {
        facts = facts.header(name.as_str(), value.as_str().expect("a text"));
    }
    facts
}

/// A ratchet that needs nothing outside of the project: 100 % by action and class.
#[test]
fn composed_texts() {
    let rows = composed();
    let mut by_class: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in &rows {
        let message = row["message"].as_str().expect("a message");
        let verdict = Classifier::shared().classify(message, &facts(row), NOW);
        let label = row["class"].as_str().expect("a class");
        *by_class.entry(label.to_owned()).or_default() += 1;
        let mut labels = vec![label];
        labels.extend(
            row["also"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str),
        );
        let folded = if verdict.class == ErrorClass::Unknown {
            "other_fatal"
        } else {
            verdict.class.name()
        };
        let right = labels
            .iter()
            .any(|label| *label == folded || (*label == "unknown" && folded == "other_fatal"));
        if !right {
            wrong.push(format!(
                "{}: {labels:?}, not {} ({})",
                row["id"], verdict.class, verdict.rule
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows.len() >= 200, "{} texts", rows.len());
    assert_eq!(by_class.len(), 13, "every class: {by_class:?}");
}

/// CL6: statuses count in status position only.
#[test]
fn cl6_status_positions() {
    let with = [
        "503",
        "503 upstream",
        "[503] upstream",
        "<503> upstream",
        "HTTP 503",
        "HTTP/1.1 503",
        "HTTP/2 503: x",
        "status: 503",
        "status=503",
        "Status Code: 503",
        "statusCode 503",
        "error 503",
        "Error: 503 x",
        "x API error (503): y",
        "API returned 503: x",
        "{\"code\":503}",
        "{'status': 503}",
        "{\"code\":\"503\"}",
        "Request failed with status code 503",
        "upstream said 503 Service Unavailable",
        "((HTTP/2 503) x",
        "500 503 {\"x\":1}",
        "<html><title>api.example | 503: x</title></html>",
        "Failed: 503 x",
        "got status: 503.",
        "{\"error\":{\"message\":\"503 x\"}}",
        "{\\\"code\\\":503}",
        "unexpected status code: 503, body: x",
    ];
    for text in with {
        assert_eq!(classify(text).action(), Action::Retry, "{text}");
    }
    let without = [
        "model acme-503 failed",
        "req_503 failed",
        "id 503abc",
        "wrote 503 tokens",
        "took 503 ms",
        "costs $503",
        "v5.503 of the client",
        "/srv/503/app.js",
        "1503x503",
        "503x503 pixels",
        "50342",
        "line 12, column 503",
        "limit 503",
        "503% of the budget",
        "port 503 ",
        "step 503 of 900",
        "0.503",
        "2026-503-1",
        "sk-503***",
        "price 503 credits",
        "file 503.jsonl",
        "error 503 tokens were cut",
        "{\"id\":503}",
        "{\"line\":503}",
    ];
    for text in without {
        let verdict = classify(text);
        assert_ne!(verdict.action(), Action::Retry, "{text}: {verdict:?}");
    }
}

/// CL2: the documented set, as it is written.
#[test]
fn cl2_documented_set() {
    for (text, class) in [
        ("overloaded_error", ErrorClass::Overloaded),
        ("Overloaded", ErrorClass::Overloaded),
        ("rate limit exceeded", ErrorClass::RateLimit),
        ("rate_limit", ErrorClass::RateLimit),
        ("usage limit", ErrorClass::UsageLimit),
        ("usage_limit_reached", ErrorClass::UsageLimit),
        ("too many requests", ErrorClass::RateLimit),
        ("429", ErrorClass::RateLimit),
        ("500", ErrorClass::ServerError),
        ("502", ErrorClass::ServerError),
        ("503", ErrorClass::ServerError),
        ("504", ErrorClass::ServerError),
        ("service unavailable", ErrorClass::ServerError),
        ("server error", ErrorClass::ServerError),
        ("SERVER_ERROR", ErrorClass::ServerError),
        ("internal error", ErrorClass::ServerError),
        ("connection error", ErrorClass::Network),
        ("fetch failed", ErrorClass::Network),
        ("retry delay", ErrorClass::ServerError),
        ("quota exceeded", ErrorClass::UsageLimit),
        ("quota exceeded retry-after-ms=4", ErrorClass::UsageLimit),
        ("limit_reached", ErrorClass::UsageLimit),
        (
            "quota exceeded: 10 requests per minute",
            ErrorClass::RateLimit,
        ),
        ("rate_limit_reached", ErrorClass::RateLimit),
        ("busy (this is not your usage limit)", ErrorClass::RateLimit),
    ] {
        assert_eq!(classify(text).class, class, "{text}");
    }
}

/// CL3: the phrases of the reference, each with what stands around it on the wire.
#[test]
fn cl3_overflow_phrases() {
    for text in [
        "prompt is too long",
        "input is too long for requested model",
        "Your input exceeds the context window of this model",
        "input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
        "This model's maximum prompt length is 131072",
        "Please reduce the length of the messages",
        "maximum context length is 131072 tokens",
        "prompt token count of 93854 exceeds the limit of 90000",
        "the request exceeds the available context size",
        "requested tokens (5000) exceed context window of 4096",
        "context window exceeded",
        "context length overflow",
        "context size too small",
        "prompt too large for n_ctx",
        "requested tokens greater than n_ctx",
        "greater than the context length",
        "invalid params, context window exceeds limit",
        "Your request exceeded model token limit: 262144",
        "context length exceeded",
        "context_length_exceeded",
        "too many tokens",
        "token limit exceeded",
        "400 status code (no body)",
        "413 (no body)",
    ] {
        let verdict = classify(text);
        assert_eq!(
            verdict.class,
            ErrorClass::Overflow,
            "{text}: {}",
            verdict.rule
        );
    }
    for text in [
        "the request exceeds the limit of 20 images",
        "Too many tokens, please wait before trying again.",
        "too many tokens per day",
        "429 status code (no body)",
    ] {
        assert_ne!(classify(text).class, ErrorClass::Overflow, "{text}");
    }
}

/// A given status or code replaces the same fact read from the text, and headers are read.
#[test]
fn given_facts_replace_what_the_text_says() {
    let classifier = Classifier::shared();
    let class = |text: &str, facts: ErrorFacts<'_>| classifier.classify(text, &facts, NOW);
    assert_eq!(
        class("HTTP 503", ErrorFacts::new().status(401)).class,
        ErrorClass::Auth
    );
    assert_eq!(class("HTTP 503", ErrorFacts::new().status(401)).span, None);
    let text = r#"{"error":{"code":"rate_limit_exceeded","message":"no"}}"#;
    assert_eq!(class(text, ErrorFacts::new()).class, ErrorClass::RateLimit);
    let given = class(text, ErrorFacts::new().code("context_length_exceeded"));
    assert_eq!((given.class, given.span), (ErrorClass::Overflow, None));
    let hint = class(
        "x",
        ErrorFacts::new().status(429).header("Retry-After", "7"),
    )
    .hint;
    assert_eq!(hint.map(|hint| hint.delay_ms(NOW)), Some(7000));
    // A code of any length is read as far as codes go.
    let long = "context_length_exceeded ".repeat(100_000);
    assert_eq!(
        class("x", ErrorFacts::new().code(long)).class,
        ErrorClass::Overflow
    );
}

/// Spans are of the source: escapes, wrapped lines, other alphabets.
#[test]
fn spans() {
    for (text, words) in [
        ("prompt is too long: 5 > 4", "prompt is too long"),
        (
            "ça alors : prompt\n   is too long",
            "prompt\n   is too long",
        ),
        (
            r#"{"message":"prompt\nis too\tlong"}"#,
            r"prompt\nis too\tlong",
        ),
        ("模型上游负载已饱和，请稍后再试", "负载已饱和"),
        ("it is 503 Service Unavailable", "Service Unavailable"),
        ("HTTP 418", "418"),
    ] {
        let span = classify(text)
            .span
            .unwrap_or_else(|| panic!("no span in {text}"));
        assert_eq!(&text[span.start..span.end], words);
    }
    let huge = format!("{}overloaded", "x ".repeat(1 << 20));
    let span = classify(&huge).span.expect("in the tail");
    assert_eq!(&huge[span.start..span.end], "overloaded");
}

/// Limits and overflows in numbers.
#[test]
fn details() {
    let details = |text: &str| {
        Classifier::shared()
            .explain(text, &ErrorFacts::new(), NOW)
            .details
    };
    for (text, unit, limit, actual) in [
        (
            "prompt is too long: 213462 tokens > 200000 maximum",
            OverflowUnit::Tokens,
            200_000,
            213_462,
        ),
        (
            "maximum context length is 8192 tokens. However, your messages resulted in 8202 tokens.",
            OverflowUnit::Tokens,
            8192,
            8202,
        ),
        (
            "prompt token count of 93854 exceeds the limit of 90000",
            OverflowUnit::Tokens,
            90_000,
            93_854,
        ),
        (
            "Request too large for x on tokens per min (TPM): Limit 30000, Requested 342389.",
            OverflowUnit::TokensPerMinute,
            30_000,
            342_389,
        ),
        (
            "the input (265,330 tokens) is longer than the model's context length (131,072 tokens)",
            OverflowUnit::Tokens,
            131_072,
            265_330,
        ),
        (
            "image exceeds 5 MB maximum: 6500712 bytes > 5242880 bytes",
            OverflowUnit::Media,
            5_242_880,
            6_500_712,
        ),
        (
            "max_tokens: 50000 > 32000, which is the maximum allowed number of output tokens",
            OverflowUnit::OutputCap,
            32_000,
            50_000,
        ),
    ] {
        let found = details(text)
            .overflow
            .unwrap_or_else(|| panic!("no overflow in {text}"));
        assert_eq!(
            (found.unit, found.limit, found.actual),
            (unit, Some(limit), Some(actual)),
            "{text}"
        );
        assert_eq!(found.deficit, Some(actual - limit));
    }
    for (text, window) in [
        ("429 limit of 15 requests per minute", LimitWindow::Minute),
        ("429 limit of 200 requests per day (RPD)", LimitWindow::Day),
        ("5-hour limit reached, resets 2am", LimitWindow::Session),
        ("weekly usage limit reached", LimitWindow::Week),
        ("monthly spend limit reached", LimitWindow::Month),
        (
            "429 too many concurrent requests, limit 4",
            LimitWindow::Concurrency,
        ),
    ] {
        assert_eq!(details(text).window, Some(window), "{text}");
    }
}

/// What a rule lost to, and why.
#[test]
fn explanations() {
    let text = r#"429 {"error":{"message":"insufficient balance, rate limit","code":"rate_limit_exceeded"},"param":"overloaded"}"#;
    let explanation = Classifier::shared().explain(text, &ErrorFacts::new(), NOW);
    assert_eq!(explanation.verdict, classify(text));
    let lost = |rule: &str| {
        explanation
            .lost
            .iter()
            .find(|lost| lost.rule.as_str() == rule)
    };
    assert_eq!(
        lost("rate-limit").map(|lost| lost.why.as_str()),
        Some("comes after `billing`")
    );
    assert!(
        lost("overloaded").is_none(),
        "what is echoed is not seen at all"
    );
    let kinds: Vec<_> = explanation
        .signals
        .iter()
        .map(|signal| signal.kind)
        .collect();
    assert!(
        kinds.contains(&"status") && kinds.contains(&"message") && kinds.contains(&"code"),
        "{kinds:?}"
    );
}

/// A small generator, so that a run is the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).expect("small")
    }

    fn pick<'t, T: ?Sized>(&mut self, from: &[&'t T]) -> &'t T {
        from[self.next(from.len())]
    }
}

/// Words of other classes, statuses, sizes, markup and other languages.
const HOSTILE: &[&str] = &[
    "500",
    "429 Too Many Requests",
    "HTTP 503",
    "overloaded_error",
    "context_length_exceeded",
    "prompt is too long",
    "insufficient_quota",
    "invalid api key",
    "rate limit exceeded",
    "usage limit reached",
    "content_filter",
    "connection reset by peer",
    "ECONNRESET",
    "status: 401",
    "402 Payment Required",
    "model not found",
    "retry-after: 5",
    "try again in 3 hours",
    "resets at 2031-01-01 00:00:00 UTC",
    "<title>502 Bad Gateway</title>",
    "余额不足",
    "上下文长度超出",
    "請求過於頻繁",
    "контекстного окна",
    "über das Kontextfenster",
    "1504x1504",
    "maximum context length is 4096 tokens",
    "request was aborted",
    "self signed certificate",
    "500 Internal Server Error",
    "too many tokens",
    "Image exceeds 5 MB maximum",
    "{}",
    "[1308]",
    "please reduce the length of the messages",
    "529",
];

/// A name as it stands in an error: letters, digits and joints.
fn name(random: &mut Random) -> String {
    let parts = [
        "acme",
        "overloaded",
        "rate-limit",
        "500",
        "429",
        "context-length",
        "quota",
        "timeout",
        "v2",
        "503",
    ];
    let len = 2 + random.next(3);
    let mut name = "m1".to_owned();
    for _ in 0..len {
        name.push('-');
        name.push_str(random.pick(&parts));
    }
    name
}

/// Echoed places: keys that hold ids, parameters and what the user sent, perhaps with half of a quote or a bracket.
fn echoed_member(text: &str, random: &mut Random) -> String {
    let strays = [
        "", "", "", "'", "\"", "“", "”", "’", "`", "{\"", "[", "}", "]", "\\", "\n",
    ];
    let (before, after) = (random.pick(&strays), random.pick(&strays));
    let hostile = format!("{before}{}{after}", random.pick(HOSTILE));
    let hostile = serde_json::to_string(&hostile).expect("a string");
    // As Python writes what it quotes, and templates do not; those that are cut have no end to tell one from the other.
    let hostile = match text.contains("'{") && !text.contains("}'") {
        true => hostile.replace('\'', "\\'"),
        false => hostile,
    };
    let id =
        serde_json::to_string(&format!("req_{}429503", random.next(1 << 20))).expect("a string");
    match random.next(8) {
        0 => format!("\"param\":{hostile},"),
        1 => format!("\"request_id\":{id},"),
        2 => format!("\"model\":{hostile},"),
        3 => format!("\"input\":[{{\"role\":\"user\",\"text\":{hostile}}}],"),
        4 => format!("\"user_id\":{hostile},"),
        5 => format!("\"failed_generation\":{hostile},"),
        6 => format!("\"messages\":[{{\"content\":{hostile},\"code\":{hostile}}}],"),
        _ => format!("\"prompt\":{{\"message\":{hostile},\"status\":500}},"),
    }
}

/// The same error with something more echoed in it.
fn mutate(text: &str, random: &mut Random) -> String {
    let hostile = random.pick(HOSTILE);
    let objects: Vec<_> = text.match_indices("{\"").map(|(at, _)| at + 1).collect();
    match random.next(7) {
        0 | 1 if !objects.is_empty() => {
            let at = objects[random.next(objects.len())];
            format!(
                "{}{}{}",
                &text[..at],
                echoed_member(text, random),
                &text[at..]
            )
        }
        2 => format!(
            "{text}\n    at {} (/srv/{}.js:500:429)",
            name(random),
            name(random)
        ),
        3 => format!("{text} (request id: {}503)", random.next(1 << 30)),
        4 => format!(
            "{text} https://acme.example/{}/500?q={}",
            name(random),
            hostile.replace([' ', '<', '>'], "+")
        ),
        5 => format!(
            "{text}\n  File \"/app/{}.py\", line 500, in {}",
            name(random),
            name(random)
        ),
        _ => format!("{text} [{}]", name(random)),
    }
}

/// Echoed text can never decide: class, rule and hint stay, whatever stands in echoed places.
#[test]
fn echoed_text_never_decides() {
    const MUTATIONS: usize = 100_000;
    let rows = composed();
    let classifier = Classifier::shared();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let originals: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = row["message"].as_str().expect("a message");
            (
                text,
                facts(row),
                classifier.classify(text, &facts(row), NOW),
            )
        })
        .collect();
    let mut flips = Vec::new();
    for round in 0..MUTATIONS {
        let (text, facts, before) = &originals[round % originals.len()];
        let mutated = mutate(text, &mut random);
        let after = classifier.classify(&mutated, facts, NOW);
        if (after.class, &after.rule, after.hint) != (before.class, &before.rule, before.hint) {
            flips.push(format!(
                "{} ({}) became {} ({}): {mutated:?}",
                before.class, before.rule, after.class, after.rule
            ));
        }
    }
    assert!(
        flips.is_empty(),
        "{} flips\n{}",
        flips.len(),
        flips[..flips.len().min(12)].join("\n")
    );
}
