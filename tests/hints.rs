//! HI1 and HI2: the grammar of delay hints, form by form.

use jiff::Timestamp;
use proptest::prelude::*;
use retry_machine::backoff::MAX_DELAY_MS;
use retry_machine::{Classifier, DelayHint, ErrorFacts, HintSource, HintValue, UnixMillis};

/// A form: what arrives, and what it says.
struct Row {
    text: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    provider: Option<&'static str>,
    zone: Option<&'static str>,
    now: &'static str,
    expected: Option<HintValue>,
    source: Option<HintSource>,
}

/// When the errors arrive, unless a row says otherwise.
const NOW: &str = "2026-06-24T08:00:00Z";

fn row(text: &'static str, expected: Option<HintValue>) -> Row {
    Row {
        text,
        headers: Vec::new(),
        provider: None,
        zone: None,
        now: NOW,
        expected,
        source: None,
    }
}

/// A form without a hint.
fn none(text: &'static str) -> Row {
    row(text, None)
}

/// A form that tells a span.
fn span(text: &'static str, ms: u64) -> Row {
    row(text, Some(HintValue::Span(ms)))
}

/// A form that tells an instant.
fn at(text: &'static str, instant: &str) -> Row {
    row(text, Some(HintValue::Instant(millis(instant))))
}

/// A header alone, beside a text that says nothing.
fn header(name: &'static str, value: &'static str, expected: Option<u64>) -> Row {
    row("429 Too Many Requests", expected.map(HintValue::Span))
        .header(name, value)
        .from(HintSource::Header)
}

/// A header alone that tells an instant.
fn header_at(name: &'static str, value: &'static str, instant: &str) -> Row {
    at("429 Too Many Requests", instant)
        .header(name, value)
        .from(HintSource::Header)
}

fn millis(instant: &str) -> UnixMillis {
    let instant: Timestamp = instant.parse().expect("an instant of the table");
    UnixMillis(u64::try_from(instant.as_millisecond()).expect("after 1970"))
}

impl Row {
    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn now(mut self, now: &'static str) -> Self {
        self.now = now;
        self
    }

    fn zone(mut self, zone: &'static str) -> Self {
        self.zone = Some(zone);
        self
    }

    fn provider(mut self, provider: &'static str) -> Self {
        self.provider = Some(provider);
        self
    }

    fn from(mut self, source: HintSource) -> Self {
        self.source = self.expected.map(|_| source);
        self
    }

    fn facts(&self) -> ErrorFacts<'static> {
        let mut facts = ErrorFacts::new();
        for (name, value) in &self.headers {
            facts = facts.header(*name, *value);
        }
        if let Some(provider) = self.provider {
            facts = facts.provider(provider);
        }
        if let Some(zone) = self.zone {
            facts = facts.time_zone(zone);
        }
        facts
    }

    /// What is wrong, if anything.
    fn fault(&self) -> Option<String> {
        let found = hint(self.text, &self.facts(), millis(self.now));
        let value = found.map(|hint| match (hint.span(), hint.instant()) {
            (Some(ms), None) => HintValue::Span(ms),
            (None, Some(at)) => HintValue::Instant(at),
            told => panic!("{hint:?} told as {told:?}"),
        });
        let source = found.map(|hint| hint.source);
        let is_right = value == self.expected && (self.source.is_none() || source == self.source);
        (!is_right).then(|| {
            format!(
                "{:?}{}{}{}\n    expected {} from {:?}\n    found    {} from {source:?}",
                self.text,
                shown(" headers", &self.headers),
                shown(" zone", &self.zone),
                shown(" provider", &self.provider),
                told(self.expected),
                self.source,
                told(value),
            )
        })
    }
}

fn shown(name: &str, value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    if matches!(text.as_str(), "[]" | "None") {
        String::new()
    } else {
        format!("{name} {text}")
    }
}

fn told(value: Option<HintValue>) -> String {
    match value {
        Some(HintValue::Instant(at)) => i64::try_from(at.0)
            .ok()
            .and_then(|ms| Timestamp::from_millisecond(ms).ok())
            .map_or_else(|| format!("instant {}", at.0), |at| at.to_string()),
        value => format!("{value:?}"),
    }
}

fn hint(text: &str, facts: &ErrorFacts<'_>, now: UnixMillis) -> Option<DelayHint> {
    Classifier::shared().classify(text, facts, now).hint
}

/// Every row of a group holds.
fn check(rows: &[Row]) {
    let faults: Vec<_> = rows.iter().filter_map(Row::fault).collect();
    assert!(
        faults.is_empty(),
        "{} of {} forms\n{}",
        faults.len(),
        rows.len(),
        faults.join("\n")
    );
}

/// The groups of the table: each a function with its rows and a test that checks them.
macro_rules! groups {
    ($($name:ident: $rows:expr;)*) => {
        $(
            #[test]
            fn $name() {
                check(&$rows);
            }
        )*

        #[test]
        fn hi2_the_table_has_at_least_160_forms() {
            let forms = [$($rows.len()),*].iter().sum::<usize>();
            assert!(forms >= 160, "{forms} forms");
        }
    };
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

groups! {
    hi1_retry_after_ms_header: [
        header("retry-after-ms", "1500", Some(1500)),
        header("Retry-After-Ms", " 250 ", Some(250)),
        header("retry-after-ms", "0", Some(0)),
        header("retry-after-ms", "1500.2", Some(1501)),
        header("retry-after-ms", "-1", None),
        header("retry-after-ms", "1s", Some(SECOND)),
        header("retry-after-ms", "soon", None),
        header("retry-after-ms", "", None),
        header("x-ms-retry-after-ms", "700", Some(700)),
        header("x-amz-retry-after", "900", Some(900)),
    ];
    hi1_retry_after_header_in_seconds: [
        header("Retry-After", "5", Some(5 * SECOND)),
        header("retry-after", "30", Some(30 * SECOND)),
        header("RETRY-AFTER", "0", Some(0)),
        header("Retry-After", "1.5", Some(1500)),
        header("Retry-After", "0.0001", Some(1)),
        header("Retry-After", "0.539477544", Some(540)),
        header("Retry-After", "\"30\"", Some(30 * SECOND)),
        header("Retry-After", "30s", Some(30 * SECOND)),
        header("Retry-After", "120 seconds", Some(2 * MINUTE)),
        header("Retry-After", "PT1M30S", Some(90 * SECOND)),
        header("Retry-After", "P1D", Some(24 * HOUR)),
        header("Retry-After", "PT2H", Some(2 * HOUR)),
        header("Retry-After", "P1D2", None),
        header("Retry-After", "P1W", Some(7 * 24 * HOUR)),
    ];
    hi2_retry_after_header_that_is_broken: [
        header("Retry-After", "", None),
        header("Retry-After", "   ", None),
        header("Retry-After", "NaN", None),
        header("Retry-After", "Infinity", None),
        header("Retry-After", "null", None),
        header("Retry-After", "undefined", None),
        header("Retry-After", "-5", None),
        header("Retry-After", "-0.5", None),
        header("Retry-After", "\u{2212}5", None),
        header("Retry-After", "12abc", None),
        header("Retry-After", "0x10", None),
        header("Retry-After", "1e3", None),
        header("Retry-After", "5%", None),
        header("Retry-After", "5 attempts", None),
        header("Retry-After", "10:30", None),
        header("Retry-After", "3am", None),
        header("Retry-After", "Wed, 41 Oct 2026 07:28:00 GMT", None),
        header("Retry-After", "Wed, 21 Oct 2026 27:28:00 GMT", None),
    ];
    hi2_retry_after_header_that_is_huge: [
        // Above 2^31 ms, where timers of hosts wrap.
        header("Retry-After", "2147484", Some(2_147_484_000)),
        header("Retry-After", "86400000", Some(86_400_000_000)),
        header("retry-after-ms", "9007199254740991", Some(MAX_DELAY_MS)),
        header("retry-after-ms", "9007199254740992", Some(MAX_DELAY_MS)),
        header("Retry-After", "9007199254740993", Some(MAX_DELAY_MS)),
        header("Retry-After", "18446744073709551616", Some(MAX_DELAY_MS)),
        header("Retry-After", "99999999999999999999999999999999999999999999999999", Some(MAX_DELAY_MS)),
    ];
    hi2_http_dates: [
        header_at("Retry-After", "Wed, 24 Jun 2026 08:01:30 GMT", "2026-06-24T08:01:30Z"),
        header_at("Retry-After", "Wednesday, 24-Jun-26 08:01:30 GMT", "2026-06-24T08:01:30Z"),
        header_at("Retry-After", "Wed Jun 24 08:01:30 2026", "2026-06-24T08:01:30Z"),
        header_at("Retry-After", "Wed Jul  1 08:01:30 2026", "2026-07-01T08:01:30Z"),
        header_at("Retry-After", "24 Jun 2026 08:01:30 GMT", "2026-06-24T08:01:30Z"),
        header_at("Retry-After", "2026-06-24T08:01:30Z", "2026-06-24T08:01:30Z"),
        header_at("Retry-After", "Thu, 31 Dec 2026 23:59:60 GMT", "2027-01-01T00:00:00Z"),
        // An asctime date is in GMT, whatever the user's zone.
        header_at("Retry-After", "Wed Jun 24 08:01:30 2026", "2026-06-24T08:01:30Z").zone("Asia/Tokyo"),
        // Past: counts as 0 when it is measured.
        header_at("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT", "1999-12-31T23:59:59Z"),
        header_at("Retry-After", "Sunday, 06-Nov-94 08:49:37 GMT", "1994-11-06T08:49:37Z"),
        header_at("Retry-After", "Wednesday, 21-Oct-26 07:28:00 GMT", "2026-10-21T07:28:00Z"),
    ];
    hi2_http_dates_beside_a_date_header: [
        header("Retry-After", "Wed, 24 Jun 2026 08:01:30 GMT", Some(90 * SECOND))
            .header("Date", "Wed, 24 Jun 2026 08:00:00 GMT"),
        // The client's clock is an hour late, then an hour early.
        header("Retry-After", "Wed, 24 Jun 2026 09:01:30 GMT", Some(90 * SECOND))
            .header("Date", "Wed, 24 Jun 2026 09:00:00 GMT"),
        header("Retry-After", "Wed, 24 Jun 2026 07:01:30 GMT", Some(90 * SECOND))
            .header("date", "Wed, 24 Jun 2026 07:00:00 GMT"),
        header("Retry-After", "Wednesday, 24-Jun-26 09:01:30 GMT", Some(90 * SECOND))
            .header("Date", "Wed Jun 24 09:00:00 2026"),
        header("Retry-After", "Wed, 24 Jun 2026 07:59:00 GMT", Some(0))
            .header("Date", "Wed, 24 Jun 2026 08:00:00 GMT"),
        header_at("Retry-After", "Wed, 24 Jun 2026 08:01:30 GMT", "2026-06-24T08:01:30Z")
            .header("Date", "just now"),
        // A span needs no clock.
        header("Retry-After", "90", Some(90 * SECOND)).header("Date", "Wed, 24 Jun 2026 09:00:00 GMT"),
        header("x-ratelimit-reset", "1782291690", Some(90 * SECOND))
            .header("Date", "Wed, 24 Jun 2026 09:00:00 GMT"),
        header("anthropic-ratelimit-tokens-reset", "2026-06-24T09:01:30Z", Some(90 * SECOND))
            .header("Date", "Wed, 24 Jun 2026 09:00:00 GMT"),
        // What the text says is by the server's clock too.
        at("429 {\"error\":{\"resets_at\":1782291690}}", "2026-06-24T08:01:30Z")
            .header("Date", "Wed, 24 Jun 2026 09:00:00 GMT"),
        at("Limit resets at 06:30 UTC", "2026-06-24T07:30:00Z").header("Date", "Wed, 24 Jun 2026 06:00:00 GMT").now("2026-06-24T07:00:00Z"),
    ];
    hi1_x_ratelimit_reset: [
        header("x-ratelimit-reset", "60", Some(MINUTE)),
        header("X-RateLimit-Reset", "1.5", Some(1500)),
        header("x-ratelimit-reset", "0", Some(0)),
        header("x-ratelimit-reset", "1m30s", Some(90 * SECOND)),
        header("x-ratelimit-reset", "6ms", Some(6)),
        header("x-ratelimit-reset", "1000000000", Some(1_000_000_000_000)),
        header_at("x-ratelimit-reset", "1782288090", "2026-06-24T08:01:30Z"),
        header_at("x-ratelimit-reset", "1782288090.25", "2026-06-24T08:01:30.250Z"),
        header_at("x-ratelimit-reset", "1782288090000", "2026-06-24T08:01:30Z"),
        header_at("x-ratelimit-reset", "2026-06-24T08:01:30Z", "2026-06-24T08:01:30Z"),
        header_at("x-ratelimit-reset", "2026-06-24T10:01:30.0004+02:00", "2026-06-24T08:01:30.001Z"),
        header_at("x-ratelimit-reset", "Wed, 24 Jun 2026 08:01:30 GMT", "2026-06-24T08:01:30Z"),
        header("x-ratelimit-reset-ms", "1500", Some(1500)),
        header("x-ratelimit-reset-ms", "1000000000000", Some(1_000_000_000_000)),
        header_at("x-ratelimit-reset-ms", "1782288090123", "2026-06-24T08:01:30.123Z"),
        header("x-ratelimit-reset-after", "2.5", Some(2500)),
        header("RateLimit-Reset", "50", Some(50 * SECOND)),
        header("x-ratelimit-reset", "-1", None),
        header("x-ratelimit-reset", "never", None),
    ];
    hi2_exhausted_buckets_alone_count: [
        // OpenAI and its likes.
        header("x-ratelimit-reset-requests", "6m0s", Some(6 * MINUTE))
            .header("x-ratelimit-remaining-requests", "0")
            .header("x-ratelimit-reset-tokens", "1h0m0s")
            .header("x-ratelimit-remaining-tokens", "149984"),
        header("x-ratelimit-reset-requests", "8.64s", Some(59_560))
            .header("x-ratelimit-remaining-requests", "14370")
            .header("x-ratelimit-reset-tokens", "59.56s")
            .header("x-ratelimit-remaining-tokens", "0"),
        header("x-ratelimit-reset-tokens", "2m59.56s", Some(179_560)),
        header("x-ratelimit-reset-requests", "12ms", None).header("x-ratelimit-remaining-requests", "9999"),
        // Cerebras.
        header("x-ratelimit-reset-requests-day", "33011.382867", None)
            .header("x-ratelimit-remaining-requests-day", "1370"),
        header("x-ratelimit-reset-tokens-minute", "11.382867", Some(11_383))
            .header("x-ratelimit-remaining-tokens-minute", "0"),
        // Anthropic.
        header_at("anthropic-ratelimit-requests-reset", "2026-06-24T08:00:40Z", "2026-06-24T08:00:40Z")
            .header("anthropic-ratelimit-requests-remaining", "0")
            .header("anthropic-ratelimit-input-tokens-reset", "2026-06-24T08:30:00Z")
            .header("anthropic-ratelimit-input-tokens-remaining", "20000"),
        header_at("anthropic-ratelimit-unified-5h-reset", "1782291600", "2026-06-24T09:00:00Z")
            .header("anthropic-ratelimit-unified-5h-status", "rejected")
            .header("anthropic-ratelimit-unified-7d-reset", "1782806400")
            .header("anthropic-ratelimit-unified-7d-status", "allowed_warning"),
        // Codex.
        header("x-codex-primary-reset-after-seconds", "13873", Some(13_873_000))
            .header("x-codex-primary-used-percent", "100")
            .header("x-codex-secondary-reset-after-seconds", "316700")
            .header("x-codex-secondary-used-percent", "80"),
        // The bucket without a name, and the unit in the name of its reset.
        header("x-ratelimit-reset", "3600", None).header("X-RateLimit-Remaining", "17"),
        header("x-ratelimit-reset-after", "3600", None).header("x-ratelimit-remaining", "1"),
        header("x-ratelimit-reset", "60", Some(MINUTE)).header("x-ratelimit-remaining", "0.00"),
        header("x-ratelimit-reset", "60", Some(MINUTE)).header("x-ratelimit-remaining", "-1"),
        header("x-ratelimit-reset", "60", None).header("x-ratelimit-remaining", "0.05"),
        // The same in a dump of the headers.
        span(
            "429 {'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '6m0s', \
             'x-ratelimit-remaining-tokens': '149984', 'x-ratelimit-reset-tokens': '1h0m0s'}",
            6 * MINUTE,
        ),
        span(
            "HTTP/1.1 429 Too Many Requests\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 20s\n\
             x-ratelimit-remaining-tokens: 5\nx-ratelimit-reset-tokens: 5m\n",
            20 * SECOND,
        ),
    ];
    hi2_structured_ratelimit_field: [
        header("RateLimit", "\"default\";r=0;t=50", Some(50 * SECOND)),
        header("RateLimit", "\"default\";r=12;t=50", None),
        header("RateLimit", "\"burst\";r=0;t=5, \"daily\";r=300;t=86400", Some(5 * SECOND)),
        header("RateLimit", "\"burst\";r=3;t=5, \"daily\";r=0;t=86400", Some(DAY)),
        header("RateLimit", "limit=100, remaining=0, reset=50", Some(50 * SECOND)),
        header("RateLimit", "limit=100, remaining=50, reset=50", None),
        header("RateLimit", "default", None),
        header("RateLimit-Policy", "\"default\";q=100;w=60", None),
    ];
    hi1_names_in_the_text: [
        span("usage limit reached retry-after-ms=5000", 5000).from(HintSource::Words),
        span("429 rate limited, retry-after-ms: 5000", 5000),
        span("Retry-After-Ms : 250", 250),
        span("429 retry-after: 30", 30 * SECOND),
        span("429 Retry-After=1.5", 1500),
        span("RETRY-AFTER: 7", 7 * SECOND),
        span("retry_after=12", 12 * SECOND),
        span("RetryAfter: 12", 12 * SECOND),
        span("429 x-ratelimit-reset: 60", MINUTE),
        at("429 x-ratelimit-reset: 1782288090", "2026-06-24T08:01:30Z"),
        at("429 x-ratelimit-reset-ms=1782288090123", "2026-06-24T08:01:30.123Z"),
        span("429 x-ratelimit-reset-ms=1500", 1500),
        at("anthropic-ratelimit-tokens-reset: 2026-06-24T08:01:30Z", "2026-06-24T08:01:30Z"),
        at(
            "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nretry-after: Wed, 24 Jun 2026 08:01:30 GMT\r\n",
            "2026-06-24T08:01:30Z",
        ),
        span("level=error msg=limited retry_after=\"30\" status=429", 30 * SECOND),
        none("retry-after: -30"),
        none("retry-after: NaN"),
        span("retry-after-ms: 5 minutes", 5 * MINUTE),
        none("see the Retry-After header"),
    ];
    hi2_keys_in_json: [
        span("429 {\"error\":{\"retry_after\":30}}", 30 * SECOND).from(HintSource::Key),
        span("429 {\"error\":{\"metadata\":{\"retry_after_seconds\":7.25}}}", 7250),
        span("{\"retryAfter\": \"12\"}", 12 * SECOND),
        span("{\"retry_after_ms\": 1234}", 1234),
        span("{\"error\":\"Model is currently loading\",\"estimated_time\":176.7188568}", 176_719),
        span("{\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"34.07s\"}]}", 34_070),
        span("{\"retryDelay\": \"0.5s\"}", 500),
        span("{\"metadata\":{\"quotaResetDelay\":\"562.476752ms\"}}", 563),
        span("{\"metadata\":{\"quotaResetDelay\":\"3h6m38.5s\"}}", 11_198_500),
        at("{\"metadata\":{\"quotaResetTimeStamp\":\"2026-06-24T08:01:30Z\"}}", "2026-06-24T08:01:30Z"),
        span("{\"type\":\"usage_limit_reached\",\"resets_in_seconds\":13872}", 13_872_000),
        at("{\"type\":\"usage_limit_reached\",\"resets_at\":1782288090}", "2026-06-24T08:01:30Z"),
        span("{\"reset_ms\":1500}", 1500),
        // Two that disagree: the longer one. Two that agree: the one that is easier to trust.
        span("429, try again in 5 s", 5 * SECOND).header("Retry-After", "5").from(HintSource::Header),
        span("{\"resets_at\":1782288090,\"resets_in_seconds\":100}", 100 * SECOND),
        at("{\"resetsAt\":\"2026-06-24T08:01:30.000Z\"}", "2026-06-24T08:01:30Z"),
        at("{\"reset_time\":\"2026-06-24T10:01:30+0200\"}", "2026-06-24T08:01:30Z"),
        // Written for machines, so not in the user's zone.
        at("{\"reset_at\":\"2026-06-24T08:01:30\"}", "2026-06-24T08:01:30Z").zone("Asia/Tokyo"),
        span("{\"retry_after\":null,\"retry_after_seconds\":3}", 3 * SECOND),
        none("{\"retry_after\":null,\"at\":\"10:30 UTC\"}"),
        none("{\"retry_after\":\"\",\"day\":\"2026-07-01\"}"),
        none("{\"retry_after\":-1}"),
        none("{\"retry_after\":[],\"limit\":30}"),
        none("{\"retry_after\":true}"),
        // A client's own setting has the name that Google's field has.
        none("{\"config\":{\"retryDelay\":100,\"retry\":3}}"),
        none("$metadata: {\"httpStatusCode\":429,\"attempts\":3,\"totalRetryDelay\":274}"),
    ];
    hi2_keys_in_other_notations: [
        // JSON in JSON.
        span("{\"error\":\"{\\\"error\\\":{\\\"retry_after\\\":30}}\"}", 30 * SECOND),
        span("{\"message\":\"429 {\\\"retryDelay\\\":\\\"34s\\\"}\"}", 34 * SECOND),
        span("\"{\\\"error\\\":\\\"{\\\\\\\"retry_after\\\\\\\":\\\\\\\"9\\\\\\\"}\\\"}\"", 9 * SECOND),
        // Python, JavaScript, Ruby, Go, Rust.
        span("Error code: 429 - {'error': {'retry_after': 4.5}}", 4500),
        span("Error code: 429 - {'retryDelay': '27s'}", 27 * SECOND),
        span("{ code: 429, retryAfter: 20 }", 20 * SECOND),
        span("{ retryDelay: { seconds: '34', nanos: 74824224 } }", 34_075),
        span("{\"retry-after\"=>\"30\"}", 30 * SECOND),
        span("map[Content-Length:[0] Retry-After:[30]]", 30 * SECOND),
        span("HeaderMap { \"retry-after\": \"30\", \"server\": \"x\" }", 30 * SECOND),
        span("RateLimited { retry_after: Some(34.07s) }", 34_070),
        // Protocol buffers as text.
        span("429 You exceeded your current quota. [violations {\n}\n, retry_delay {\n  seconds: 36\n}\n]", 36 * SECOND),
        span("{'message': 'quota [retry_delay {\\n  seconds: 36\\n  nanos: 500000000\\n}\\n]'}", 36_500),
    ];
    hi2_try_again: [
        span("Please try again in 2.5s.", 2500).from(HintSource::Words),
        span("Please try again in 644ms.", 644),
        span("Please try again in 12,500 ms.", 12_500),
        none("Please try again in ,500 s."),
        span("Please try again in 2m 1h", 2 * MINUTE),
        span("Please try again in 5m 5m", 5 * MINUTE),
        // Never earlier than asked, by however little.
        span("Please try again in 1.0000000001s", 1001),
        span("Please try again in 1.0000000000s", 1000),
        span("Please try again in 1h 2m.", 62 * MINUTE),
        span("Please try again in 7m12s. Visit https://example.test/limits", 432_000),
        span("try again in 6m0s", 6 * MINUTE),
        span("Try again in ~158 min.", 158 * MINUTE),
        span("Try again in 4 days 20 hours 9 minutes.", 418_140_000),
        span("or try again in 5 days 22 hours 11\nminutes.", 511_860_000),
        span("try again in 1 day, 2 hours and 3 minutes", 93_780_000),
        span("try again in an hour", HOUR),
        span("Try again in a minute.", MINUTE),
        span("try again in half an hour", 30 * MINUTE),
        span("Please try again in 58 hours.", 58 * HOUR),
        span("please try again after 1 seconds", SECOND),
        span("please try again in about 5 minutes", 5 * MINUTE),
        span("Try again in at least 5 minutes", 5 * MINUTE),
        span("Try again in 5-10 minutes", 10 * MINUTE),
        span("try again in 30 seconds to 2 minutes", 2 * MINUTE),
        span("Try again later (in 3 minutes)", 3 * MINUTE),
        span("Try again 3 minutes from now", 3 * MINUTE),
        span("try again in 1,500 ms", 1500),
        span("Try again in 02:15:30", 8_130_000),
        span("Try again in 00:59:59", 3_599_000),
        none("Try again in 02:60:30"),
        none("Try again in 02:15:60"),
        span("{\"message\":\"Please try again in\\n 20s.\"}", 20 * SECOND),
        span("{\"message\":\"Please try again in\\u00a020\\u00a0seconds.\"}", 20 * SECOND),
        none("Please try again later."),
        none("Please try again later. 10 minutes is the window."),
        span("TRY AGAIN IN APPROX. 10 MINUTES", 10 * MINUTE),
        none("try again in a moment"),
        none("try again in a few minutes"),
        none("Please try again"),
        none("Please try again. 5 seconds ago it worked."),
        none("try again with a different prompt"),
        none("Please reduce your message size and try again. Limit 6000 / 60s"),
        none("try again in -5 seconds"),
        none("try again in 5"),
    ];
    hi2_other_wordings: [
        span("Please retry in 36.519783465s.", 36_520),
        span("* Quota exceeded, limit: 20\nPlease retry in 12.1s.", 12_100),
        span("Please retry after 86400 seconds.", DAY),
        span("Please retry after 60.", MINUTE),
        span("retry after 500ms", 500),
        span("Please wait 25 seconds before retrying.", 25 * SECOND),
        span("Please wait for another 30s", 30 * SECOND),
        span("Wait 30 more seconds", 30 * SECOND),
        span("you must wait at least 10 minutes", 10 * MINUTE),
        span("Rate limit will reset in 30 seconds", 30 * SECOND),
        span("Your limit will reset in 13 minutes", 13 * MINUTE),
        span("Resets in 6hr 29min.", 23_340_000),
        span("Resets in 2hr 15min (GoUsageLimitError)", 8_100_000),
        span("The limit resets in 7d, please try again later.", 7 * DAY),
        span("resets in 6h30", 390 * MINUTE),
        span("Your quota will reset after 19h14m47s.", 69_287_000),
        span("Your quota will reset after 0s.", 0),
        span("Your quota will reset after 10m.", 10 * MINUTE),
        span("available again in 2 hours", 2 * HOUR),
        span("You can send messages again in 3 hours", 3 * HOUR),
        span("This model will be available in 20s", 20 * SECOND),
        span("quota refreshes in 12 hours", 12 * HOUR),
        span("cooldown: 45s", 45 * SECOND),
        span("Slow down for 5 seconds", 5 * SECOND),
        span("come back in 2 weeks", 14 * DAY),
        span("Please retry in 1 minute(s)", MINUTE),
        span("Limit resets in: 5h 12m", 312 * MINUTE),
        span("Request was throttled. Expected available in 42 seconds.", 42 * SECOND),
        span("Server overloaded, expected back in 10 min", 10 * MINUTE),
        span("Rate limit will be lifted in ten minutes", 10 * MINUTE),
        span("Time until reset: 2h 3m", 123 * MINUTE),
        span("resets in less than a minute", MINUTE),
        span("resets in <1 minute", MINUTE),
        span("Estimated wait time: 5 minutes", 5 * MINUTE),
        // The longest of several.
        span("Try again in 5s. Your quota will reset after 10m.", 10 * MINUTE),
        span("Your quota will reset after 0s. {\"retryDelay\":\"0.539477544s\"}", 540),
    ];
    hi2_dates_in_words: [
        at("You will regain access on 2026-07-01 at 00:00 UTC.", "2026-07-01T00:00:00Z"),
        at("{\"message\":\"You\\n    will regain access on 2026-07-01 at\\n    00:00 UTC.\"}", "2026-07-01T00:00:00Z"),
        at("Limit resets at 2026-06-24 17:41:17 UTC", "2026-06-24T17:41:17Z"),
        at("resets at 2026-06-24T17:41:17Z", "2026-06-24T17:41:17Z"),
        at("resets at 2026-06-24T17:41:17.000001Z", "2026-06-24T17:41:17.001Z"),
        at("resets at 2026-06-24T17:41:17+0530", "2026-06-24T12:11:17Z"),
        at("reset time is 2026-06-24 17:41:17 GMT+8", "2026-06-24T09:41:17Z"),
        at("resets at 17:41 (UTC+08:00)", "2026-06-24T09:41:00Z"),
        at("Your limit resets at 1782288090", "2026-06-24T08:01:30Z"),
        at("Claude AI usage limit reached|1782288090", "2026-06-24T08:01:30Z"),
        at("limit: 100, remaining: 0, reset: 1782288090", "2026-06-24T08:01:30Z"),
        at("Down for maintenance until 2026-06-24 12:00 UTC", "2026-06-24T12:00:00Z"),
        at("resets at 5:00 p.m. UTC", "2026-06-24T17:00:00Z"),
        at("resets (23:59 UTC+1)", "2026-06-24T22:59:00Z"),
        at("try again on Wednesday, June 24, 2026 at 7:05 PM UTC", "2026-06-24T19:05:00Z"),
        at("try again at May 3rd, 2027 5:10 PM", "2027-05-03T17:10:00Z"),
        at("try again at 10 de jul. de 2026, 11:52.", "2026-07-10T11:52:00Z"),
        at("Rate limited until 2026-06-24T09:00:00Z", "2026-06-24T09:00:00Z"),
        at("not before 2026-06-24T09:00:00Z", "2026-06-24T09:00:00Z"),
        at("Available again at Wed Jun 24 2026 17:41:17 GMT+0000 (Coordinated Universal Time)", "2026-06-24T17:41:17Z"),
        at("Resets at 10:00 UTC. Top up for unlimited access.", "2026-06-24T10:00:00Z"),
        at("Resets at 24:00 UTC", "2026-06-25T00:00:00Z"),
        at("resets daily at midnight UTC", "2026-06-25T00:00:00Z"),
        at("resets tomorrow at 9am UTC", "2026-06-25T09:00:00Z"),
        at("resets Monday at 9am UTC", "2026-06-29T09:00:00Z"),
        at("resets Wednesday 7am UTC", "2026-07-01T07:00:00Z"),
        at("Monthly quota resets on the 1st at 00:00 UTC", "2026-07-01T00:00:00Z"),
        at("Your limit resets on July 1", "2026-07-01T00:00:00Z"),
        at("resets at 3am EST", "2026-06-25T08:00:00Z").now("2026-06-24T09:00:00Z"),
        at("try again after 24.06.2026 17:41", "2026-06-24T17:41:00Z"),
        at("resets on 24/06/2026 17:41 UTC", "2026-06-24T17:41:00Z"),
        // Past instants are told as they are; measured, they count as 0.
        at("You will regain access on 2025-07-01 at 00:00 UTC.", "2025-07-01T00:00:00Z"),
        none("resets on 10/07/2026 11:52 UTC"),
        none("resets at 2026-13-45 10:00 UTC"),
        none("resets at 25:00 UTC"),
        none("resets on Feb 30"),
        // Of several readings of a day without a year, the first that is not long past.
        at("resets Jan 2, 10:00 UTC", "2027-01-02T10:00:00Z").now("2026-12-31T23:00:00Z"),
        at("resets Dec 31 at 23:00 UTC", "2026-12-31T23:00:00Z").now("2027-01-01T00:30:00Z"),
    ];
    hi2_clock_times_need_a_zone: [
        none("5-hour limit reached ∙ resets 2am"),
        none("You've hit your session limit · resets 10:30pm"),
        none("resets 3am (Nowhere/Atlantis)"),
        none("resets today at 17:41"),
        at("5-hour limit reached ∙ resets 2pm", "2026-06-24T14:00:00Z").zone("UTC"),
        at("resets 7am", "2026-06-25T07:00:00Z").zone("UTC"),
        none("resets 2pm").zone("Nowhere/Atlantis"),
    ];
    hi2_chinese: [
        at("[1308][已达到 5 小时的使用上限。您的限额将在 2026-06-24 17:41:17 重置。]", "2026-06-24T09:41:17Z"),
        at(
            "{\"message\":\"\\u60a8\\u7684\\u9650\\u989d\\u5c06\\u5728 2026-06-24 17:41:17 \\u91cd\\u7f6e\\u3002\"}",
            "2026-06-24T09:41:17Z",
        ),
        at("限额将于2026年6月24日17时41分重置", "2026-06-24T09:41:00Z"),
        at("重置时间：2026-06-24 17:41:17", "2026-06-24T09:41:17Z"),
        at("额度 2026-06-24 17:41 重置", "2026-06-24T09:41:00Z"),
        at("将在明天 08:00 重置", "2026-06-25T00:00:00Z"),
        at("将在明天下午 3:30 重置", "2026-06-25T07:30:00Z"),
        at("将在明天上午9:05重置", "2026-06-25T01:05:00Z"),
        at("将在明天下午 15:30 重置", "2026-06-25T07:30:00Z"),
        span("请求过多,请在 30 秒后重试", 30 * SECOND),
        span("60秒后重试", MINUTE),
        span("请5分钟后再试", 5 * MINUTE),
        span("1小时30分钟后重试", 90 * MINUTE),
        span("请在1小时30分钟后重试", 90 * MINUTE),
        span("额度将在 2 天后恢复", 2 * DAY),
        span("请在30s后重试", 30 * SECOND),
        span("{\"msg\":\"\\u8bf7\\u572830\\u79d2\\u540e\\u91cd\\u8bd5\"}", 30 * SECOND),
        span("請於 30 秒後重試", 30 * SECOND),
        span("请等待10-20秒后重试", 20 * SECOND),
        none("请稍后重试"),
        none("请求在 60 秒后超时"),
        // A provider in China, in English.
        at("Your limit will reset at 2026-06-24 17:41:17", "2026-06-24T09:41:17Z").provider("zai"),
        at("Your limit will reset at 2026-06-24 17:41:17", "2026-06-24T17:41:17Z"),
        at("Your limit will reset at 2026-06-24 17:41:17 UTC", "2026-06-24T17:41:17Z").provider("zhipu"),
    ];
    hi2_other_languages: [
        span("30秒後に再試行してください", 30 * SECOND),
        span("約5分後にもう一度お試しください。", 5 * MINUTE),
        span("1時間後に再度お試しください", HOUR),
        span("30秒待ってから再試行してください", 30 * SECOND),
        at("制限は2026年6月24日 17:41にリセットされます", "2026-06-24T17:41:00Z"),
        none("60秒後にタイムアウトしました"),
        at("한도는 2026년 6월 24일 17:41에 초기화됩니다", "2026-06-24T17:41:00Z"),
        at("한도는 2026년 6월 24일 17시 41분에 초기화됩니다", "2026-06-24T17:41:00Z"),
        span("30초 후에 다시 시도하세요", 30 * SECOND),
        span("5분 후 다시 시도해 주세요", 5 * MINUTE),
        span("1시간 30분 뒤에 다시 시도", 90 * MINUTE),
        span("Inténtalo de nuevo en 30 segundos.", 30 * SECOND),
        span("Vuelve a intentarlo dentro de 2 horas", 2 * HOUR),
        span("Por favor, espere 20 segundos", 20 * SECOND),
        at("El límite se restablece el 10 de julio de 2026 a las 11:52", "2026-07-10T11:52:00Z"),
        span("Tente novamente em 45 segundos.", 45 * SECOND),
        span("Aguarde 2 minutos e tente de novo", 2 * MINUTE),
        at("Tente novamente em 10 de jul. de 2026, 11:52", "2026-07-10T11:52:00Z"),
        span("Bitte versuchen Sie es in 30 Sekunden erneut.", 30 * SECOND),
        span("Bitte warten Sie 2,5 Sekunden.", 2500),
        span("Ihr Limit wird in 3 Stunden zurückgesetzt", 3 * HOUR),
        at("Verfügbar ab 24. Juni 2026 um 17:41 Uhr", "2026-06-24T17:41:00Z"),
        span("Veuillez réessayer dans 5 minutes.", 5 * MINUTE),
        span("Réessayez dans une heure", HOUR),
        at("Réessayez à 19h30 UTC", "2026-06-24T19:30:00Z"),
        span("Riprova tra 30 secondi", 30 * SECOND),
        span("Повторите попытку через 30 секунд", 30 * SECOND),
        none("Tente novamente mais tarde."),
    ];
    hi2_headers_and_text_together: [
        // The header of the same name replaces the text's.
        span("429 retry-after: 60", 5 * SECOND).header("Retry-After", "5").from(HintSource::Header),
        span("429 {'headers': {'retry-after': '60'}}", 5 * SECOND).header("retry-after", "5").from(HintSource::Header),
        none("429 retry-after: 60").header("Retry-After", "NaN"),
        none("{\"x-ratelimit-reset-tokens\":\"60s\"}")
            .header("x-ratelimit-reset-tokens", "60s")
            .header("x-ratelimit-remaining-tokens", "12"),
        // What the body says in its own words stands beside it: the longest counts.
        span("Please retry after 60 seconds", MINUTE).header("Retry-After", "5").from(HintSource::Words),
        span("Please try again in 2s", 5 * SECOND).header("Retry-After", "5").from(HintSource::Header),
        span("{\"retry_after\": 60}", MINUTE).header("Retry-After", "5").from(HintSource::Key),
        span("429 {\"retryDelay\":\"34s\"}", 34 * SECOND).header("Retry-After", "5"),
        // Another header, whose name stands close by, replaces nothing.
        span("429 {'date': 'x', 'server': 'y', 'retry-after': '60'}", MINUTE).header("server", "y").from(HintSource::Key),
        header("retry-after-ms", "1500", Some(2 * SECOND)).header("retry-after", "2"),
        header("retry-after-ms", "NaN", Some(2 * SECOND)).header("retry-after", "2"),
        header("Retry-After", "2", Some(30 * SECOND)).header("x-ratelimit-reset", "30").header("x-ratelimit-remaining", "0"),
    ];
    hi2_a_clients_own_schedule_is_no_hint: [
        none("API Error (Connection error.) · Retrying in 4 seconds… (attempt 4/10)"),
        none("API Error (504) · Retrying in 4 seconds… attempt 4/10"),
        none("Too Many Requests [retrying in 1s attempt #1]"),
        none("Waiting 2.7s (attempt 2/3)"),
        none("Rate limited. Wait 2.7s (attempt 2/3)"),
        none("Unable to connect to API (ConnectionRefused) · Retrying in 11s · attempt 8/10"),
        none("stream error: error sending request; retrying 1/5 in 182ms…"),
        none("Retrying langchain_google_genai._achat_with_retry in 2.0 seconds as it raised ResourceExhausted"),
        none("429; will retry in 30s"),
        none("503. Will try again in 8 seconds"),
        none("overloaded, trying again in 8 seconds"),
        none("Retry in 5s (attempt 1 of 3)"),
        none("Will wait 30s and retry"),
        none("Next retry in 5 seconds"),
        none("Backing off for 3s"),
        none("retried 5 times (total retry wait time: 5.849579995864053 seconds)"),
        // But the server's word beside it is.
        span("Please try again in 20s. · Retrying in 4 seconds… (attempt 4/10)", 20 * SECOND),
        span("Please try again in 20s. Attempt 3 failed.", 20 * SECOND),
    ];
    hi2_echoed_places_are_no_hint: [
        none("400 {\"error\":{\"message\":\"bad\"},\"request\":{\"retry_after\":30}}"),
        none("400 {\"error\":\"bad\",\"input\":\"please try again in 5 seconds\"}"),
        none("400 {\"messages\":[{\"content\":\"retry-after: 30\"}],\"error\":\"bad\"}"),
        none("400 {\"tools\":[{\"name\":\"x\",\"resets_in_seconds\":30}]}"),
        none("The model that was asked for, called \"try again in 5 seconds\", was not found"),
        none("404 `retry-after: 30` is no model"),
        none("404 GET https://example.test/?retry-after=30&reset=in+5m failed"),
        none("404 model reset-in-5m not found"),
        none("Please try again in `5m`"),
        none("wait for \"30 seconds\" is not a valid prompt"),
        none("Error: bad\n    at wait (file:///app/retry-after.js:30:5)"),
        // A value is not looked for beyond its own field.
        none("{\"message\":\"Please try again\",\"window\":\"30 seconds\"}"),
        none("{\"detail\":\"see retry-after\",\"limit\":30}"),
    ];
    hi2_numbers_that_are_no_delays: [
        none("reset your password in settings"),
        none("wait for 3 tokens"),
        none("gave up after 5 attempts"),
        none("Please retry after 5 attempts"),
        none("retry after 3 failed calls"),
        none("wait for 5m tokens"),
        none("the limit resets after 5M tokens"),
        none("Rate limit of 15 per 60s exceeded"),
        none("or wait for limits to reset (every 5h and every week.)"),
        none("connection reset after 30s"),
        none("disconnect/reset before headers. reset reason: 30s"),
        none("read: connection reset by peer"),
        none("timed out after 30 seconds"),
        none("The certificate was valid until 2026-12-31"),
        none("the counter was reset 5 minutes ago"),
        none("last reset at 2026-06-24T10:00:00Z"),
        none("available in 3 regions"),
        none("Request failed after 3 attempts. Please try again later."),
        none("reset-password in 5 minutes"),
        none("retry after $5"),
        none("retry-after 30%"),
        none("limit reached|12"),
        none("your password reset in 5 days"),
        none("Token expires in 3600 seconds"),
        none("Please try again\n2026-06-24T10:00:00Z ERROR request failed"),
    ];
    hi2_named_zones: named_zones();
}

/// Without zone data a named zone gives no hint.
#[cfg(not(feature = "tz-bundled"))]
fn named_zones() -> Vec<Row> {
    vec![
        none("resets 3am (Europe/London)"),
        none("resets Apr 10 at 7am (America/Chicago)"),
        none("resets at midnight Pacific Time"),
        none("resets 2pm").zone("Europe/Berlin"),
    ]
}

#[cfg(feature = "tz-bundled")]
fn named_zones() -> Vec<Row> {
    vec![
        at("resets 3am (Europe/London)", "2026-06-25T02:00:00Z"),
        at(
            "You've hit your session limit · resets 10:30pm (Europe/Berlin)\n/login to switch",
            "2026-06-24T20:30:00Z",
        ),
        at("resets 11:50pm (Asia/Riyadh)", "2026-06-24T20:50:00Z"),
        at("resets 8pm (America/New_York)", "2026-06-25T00:00:00Z"),
        at(
            "resets Apr 10 at 7am (America/Chicago)",
            "2026-04-10T12:00:00Z",
        )
        .now("2026-04-09T12:00:00Z"),
        at(
            "resets 7am (America/Chicago) on Apr 10",
            "2026-04-10T12:00:00Z",
        )
        .now("2026-04-09T12:00:00Z"),
        at(
            "{\"m\":\"resets 3am (Europe\\/London)\",\"message\":\"resets 3am (Europe\\/London)\"}",
            "2026-06-25T02:00:00Z",
        ),
        at(
            "resets 10:30\u{202f}PM (Europe/Berlin)",
            "2026-06-24T20:30:00Z",
        ),
        // Behind time and zone another sentence begins, unless a small word joins it.
        at(
            "resets 7am (Europe/London) on Jul 10",
            "2026-07-10T06:00:00Z",
        ),
        at("resets 7am UTC on the 10 of July", "2026-07-10T07:00:00Z"),
        at(
            "resets 7am UTC Jul 10 saw another fault",
            "2026-06-25T07:00:00Z",
        ),
        at("resets 7:41 UTC on Jul 10 2027", "2027-07-10T07:41:00Z"),
        at(
            "resets 7am UTC the next time Jul 10",
            "2026-07-10T07:00:00Z",
        ),
        at(
            "resets 7am UTC the next time at Jul 10",
            "2026-06-25T07:00:00Z",
        ),
        // This very instant is past.
        at("resets 8am UTC", "2026-06-25T08:00:00Z"),
        at("resets on the 24th at 8am UTC", "2026-07-24T08:00:00Z"),
        at("resets Jul 10 at 7am", "2026-07-09T22:00:00Z").zone("Asia/Tokyo"),
        // What stands behind a date and is no year.
        at("resets Jul 10, 2500 requests a day", "2026-07-10T00:00:00Z"),
        at("resets Jul 10 1200", "2026-07-10T00:00:00Z"),
        at("resets Jul 10 2027-5", "2026-07-10T00:00:00Z"),
        at("resets Jul 10 2027:5", "2026-07-10T00:00:00Z"),
        at("resets Jul 10 2027x", "2026-07-10T00:00:00Z"),
        at("resets Jul 10 2027", "2027-07-10T00:00:00Z"),
        at("resets Jul 10 2027 2028", "2027-07-10T00:00:00Z"),
        none("resets at 2026-06-301"),
        none("resets Jul 10:30"),
        none("resets Jul 10 requests"),
        none("resets Jul 10x"),
        at("resets 05.07.2026", "2026-07-05T00:00:00Z"),
        at("resets 07/24/2026", "2026-07-24T00:00:00Z"),
        at("resets 24/07/2026", "2026-07-24T00:00:00Z"),
        none("resets 12/11/2026"),
        // Offsets: two digits at least behind a time, and no more than there are.
        at("resets 2026-07-10 15:00 +05", "2026-07-10T10:00:00Z"),
        at("resets 2026-07-10 15:00 -07:00", "2026-07-10T22:00:00Z"),
        at("resets 2026-07-10 15:00 +15:59", "2026-07-09T23:01:00Z"),
        at("resets 2026-07-10 15:00 +5", "2026-07-10T15:00:00Z"),
        at("resets 2026-07-10 15:00 +16:00", "2026-07-10T15:00:00Z"),
        at("resets 2026-07-10 15:00 +05:60", "2026-07-10T15:00:00Z"),
        at("resets 2026-07-10 15:00 +05:00x", "2026-07-10T15:00:00Z"),
        none("resets Jul 105"),
        // Two dates: the first.
        at("resets Jul 10 2026-07-11 7am UTC", "2026-07-10T00:00:00Z"),
        none("resets on Friday"),
        none("resets Friday UTC"),
        none("resets on the 11th 2026-07-12"),
        none("resets July, 5pm UTC"),
        at("resets 12am (Europe/London)", "2026-06-24T23:00:00Z"),
        at("resets 12pm (Europe/London)", "2026-06-24T11:00:00Z"),
        at("resets at midnight Pacific Time", "2026-06-25T07:00:00Z"),
        at("resets at 12:00 AM PT", "2026-06-25T07:00:00Z"),
        at("resets 2pm", "2026-06-24T12:00:00Z").zone("Europe/Berlin"),
        at(
            "try again at 10 de jul. de 2026, 11:52.",
            "2026-07-10T14:52:00Z",
        )
        .zone("America/Sao_Paulo"),
        // The zone in the text wins over the host's.
        at("resets 2pm (Europe/London)", "2026-06-24T13:00:00Z").zone("Asia/Tokyo"),
        // Half hours and quarters.
        at("resets 3pm (Asia/Kolkata)", "2026-06-24T09:30:00Z"),
        at("resets 3pm (Asia/Kathmandu)", "2026-06-24T09:15:00Z"),
        at("resets 7am (Australia/Lord_Howe)", "2026-06-24T20:30:00Z"),
        at("resets 9am (Australia/Lord_Howe)", "2026-12-24T22:00:00Z").now("2026-12-24T08:00:00Z"),
        // The next day, in the zone's own days.
        at("resets 3am (Europe/London)", "2026-06-25T02:00:00Z").now("2026-06-24T02:00:01Z"),
        at("resets 3am (Europe/London)", "2026-06-24T02:00:00Z").now("2026-06-24T01:59:59Z"),
        at("resets 1am (Pacific/Auckland)", "2026-06-24T13:00:00Z"),
        at("resets 1am (Pacific/Kiritimati)", "2026-06-24T11:00:00Z"),
        // The next year.
        at("resets 3am (Europe/Berlin)", "2027-01-01T02:00:00Z").now("2026-12-31T22:30:00Z"),
        at(
            "resets Jan 1 at 3am (Europe/Berlin)",
            "2027-01-01T02:00:00Z",
        )
        .now("2026-12-31T22:30:00Z"),
        at(
            "resets Feb 29 at 3am (Europe/Berlin)",
            "2028-02-29T02:00:00Z",
        )
        .now("2028-02-01T00:00:00Z"),
        // Spring: London skips 1:00 to 2:00 on 2026-03-29, New York 2:00 to 3:00 on 2026-03-08.
        at("resets 1:30am (Europe/London)", "2026-03-29T01:30:00Z").now("2026-03-28T20:00:00Z"),
        at("resets 2:30am (America/New_York)", "2026-03-08T07:30:00Z").now("2026-03-08T03:00:00Z"),
        at("resets 3am (Europe/London)", "2026-03-29T02:00:00Z").now("2026-03-28T20:00:00Z"),
        // Autumn: London repeats 1:00 to 2:00 on 2026-10-25, New York on 2026-11-01. The second counts.
        at("resets 1:30am (Europe/London)", "2026-10-25T01:30:00Z").now("2026-10-24T20:00:00Z"),
        at("resets 1:30am (Europe/London)", "2026-10-25T01:30:00Z").now("2026-10-25T00:45:00Z"),
        at("resets 1:30am (America/New_York)", "2026-11-01T06:30:00Z").now("2026-11-01T02:00:00Z"),
        at("resets 1:30am (Europe/London)", "2026-10-26T01:30:00Z").now("2026-10-25T01:31:00Z"),
        // A wait across a change: an hour shorter or longer than the clocks say.
        at("resets 8am (Europe/London)", "2026-03-29T07:00:00Z").now("2026-03-28T20:00:00Z"),
        at("resets 8am (Europe/London)", "2026-10-25T08:00:00Z").now("2026-10-24T20:00:00Z"),
        at("resets Monday 9am (Europe/London)", "2026-03-30T08:00:00Z").now("2026-03-27T20:00:00Z"),
        // Lord Howe's change is of half an hour.
        at(
            "resets 2:15am (Australia/Lord_Howe)",
            "2026-10-03T15:45:00Z",
        )
        .now("2026-10-03T08:00:00Z"),
    ]
}

/// HI2: a zone's letters, in the season in which it has them, mean what the zone data says.
#[cfg(feature = "tz-bundled")]
#[test]
fn hi2_letters_of_zones() {
    const WINTER: &str = "2027-01-10";
    const SUMMER: &str = "2027-07-10";
    for (letters, zone, day) in [
        ("WET", "Europe/Lisbon", WINTER),
        ("WEST", "Europe/Lisbon", SUMMER),
        ("BST", "Europe/London", SUMMER),
        ("CET", "Europe/Madrid", WINTER),
        ("CEST", "Europe/Madrid", SUMMER),
        ("MEZ", "Europe/Berlin", WINTER),
        ("MESZ", "Europe/Berlin", SUMMER),
        ("EET", "Europe/Athens", WINTER),
        ("EEST", "Europe/Athens", SUMMER),
        ("MSK", "Europe/Moscow", WINTER),
        ("SAST", "Africa/Johannesburg", WINTER),
        ("IST", "Asia/Kolkata", WINTER),
        ("ICT", "Asia/Bangkok", WINTER),
        ("WIB", "Asia/Jakarta", WINTER),
        ("SGT", "Asia/Singapore", WINTER),
        ("HKT", "Asia/Hong_Kong", WINTER),
        ("PHT", "Asia/Manila", WINTER),
        ("AWST", "Australia/Perth", WINTER),
        ("JST", "Asia/Tokyo", WINTER),
        ("KST", "Asia/Seoul", WINTER),
        ("日本時間", "Asia/Tokyo", WINTER),
        ("한국시간", "Asia/Seoul", WINTER),
        ("北京时间", "Asia/Shanghai", WINTER),
        ("Beijing Time", "Asia/Shanghai", WINTER),
        ("ACST", "Australia/Darwin", WINTER),
        ("AEST", "Australia/Brisbane", WINTER),
        ("ACDT", "Australia/Adelaide", WINTER),
        ("AEDT", "Australia/Sydney", WINTER),
        ("NZDT", "Pacific/Auckland", WINTER),
        ("NZST", "Pacific/Auckland", SUMMER),
        ("NDT", "America/St_Johns", SUMMER),
        ("ADT", "America/Halifax", SUMMER),
        ("BRT", "America/Sao_Paulo", WINTER),
        ("ART", "America/Argentina/Buenos_Aires", WINTER),
        ("EST", "America/New_York", WINTER),
        ("EDT", "America/New_York", SUMMER),
        ("ET", "America/New_York", SUMMER),
        ("Eastern Time", "America/New_York", WINTER),
        ("CST", "America/Chicago", WINTER),
        ("CDT", "America/Chicago", SUMMER),
        ("CT", "America/Chicago", WINTER),
        ("MST", "America/Denver", WINTER),
        ("MDT", "America/Denver", SUMMER),
        ("Mountain Standard Time", "America/Denver", WINTER),
        ("PST", "America/Los_Angeles", WINTER),
        ("PDT", "America/Los_Angeles", SUMMER),
        ("Pacific daylight time", "America/Los_Angeles", SUMMER),
        ("AKST", "America/Anchorage", WINTER),
        ("AKDT", "America/Anchorage", SUMMER),
        ("HST", "Pacific/Honolulu", WINTER),
    ] {
        let resets = |zone: &str| {
            let text = format!("resets {day} 15:00 {zone}");
            hint(&text, &ErrorFacts::new(), millis(NOW))
        };
        let by_data = resets(&format!("({zone})"));
        assert!(by_data.is_some(), "{zone}");
        assert_eq!(resets(letters), by_data, "{letters} of {zone}");
    }
}

/// HI2: an instant in the past counts as 0.
#[test]
fn hi2_past_instants_count_as_zero() {
    let facts = ErrorFacts::new().header("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT");
    let found = hint("503", &facts, millis(NOW)).expect("a hint");
    assert_eq!(found.delay_ms(millis(NOW)), 0);
}

/// A text whose delay is labelled says that delay, and a text that is labelled to say none says no span.
#[test]
fn hi2_labelled_texts() {
    let Some(file) = crate::support::shared("corpus/dev.jsonl") else {
        return;
    };
    let lines = std::fs::read_to_string(file).expect("a readable file");
    let mut faults = Vec::new();
    let mut labelled = 0;
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a JSON line");
        let text = line["message"].as_str().expect("a message");
        let provider = line["provider"].as_str().expect("a provider");
        let id = line["id"].as_str().expect("an id");
        let expected = line["retry_after_ms"].as_f64();
        labelled += usize::from(expected.is_some());
        let found = hint(text, &ErrorFacts::new().provider(provider), millis(NOW));
        let found = found.and_then(|hint| match hint.value {
            HintValue::Span(ms) => Some(ms),
            HintValue::Instant(_) => None,
        });
        // Labels are in milliseconds with a fraction, which is rounded up here.
        let expected = expected.map(|ms| ms.ceil() as u64);
        let expected = match id {
            // Two delays are told, and the longest counts.
            "google-gemini-usage-limit-003" => Some(69_287_000),
            // The relay's own "(reset after 30s)" counts, whether or not waiting helps.
            "deepseek-invalid-request-005" => Some(30_000),
            _ => expected,
        };
        if found != expected {
            faults.push(format!(
                "{id}: expected {expected:?}, found {found:?}: {text}"
            ));
        }
    }
    assert!(labelled > 20, "{labelled} labelled delays");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Pieces of which texts are made that look like hints.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec![
            "try again in ", "retry-after: ", "retry-after-ms=", "resets ", "reset at ", "until ", "wait ",
            "x-ratelimit-reset: ", "\"retryDelay\":\"", "{\"resets_at\":", "请在", "秒后", "将在", "重置", "분 후",
            "retry_delay {", "seconds: ", "nanos: ", "(Europe/London)", "UTC+", " PT", "GMT", "\\u79d2", "\\n",
            "\\\\\\\"", "attempt 1/", "at ", "in ", "de ", "Mon ", "Feb ", "29th", "T", "Z", "am", "pm", "P", "PT",
            "RateLimit", "reset", "-", ":", ".", ",", "+", "/", "h", "m", "s", "ms", "d", "天", "時間", "年", "月",
            "日", "a ", "half an ", "\"", "'", "}", "{", "[", " ", "\n", "\u{a0}", "é",
        ]).prop_map(str::to_owned),
        2 => any::<u64>().prop_map(|number| number.to_string()),
        1 => (0..100_u32).prop_map(|number| format!("{number:02}")),
        1 => any::<String>(),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::collection::vec(piece(), 0..12).prop_map(|pieces| pieces.concat()),
        1 => any::<String>(),
        1 => prop::collection::vec(any::<u8>(), 0..200)
            .prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    ]
}

fn header_name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec![
            "retry-after", "retry-after-ms", "date", "x-ratelimit-reset", "x-ratelimit-remaining",
            "x-ratelimit-reset-ms", "x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens", "ratelimit",
            "anthropic-ratelimit-unified-reset", "anthropic-ratelimit-unified-status",
            "x-codex-primary-reset-at", "x-codex-primary-used-percent",
        ]).prop_map(str::to_owned),
        1 => text(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    /// Total on any input, the same each time, and never beyond 2^53−1.
    #[test]
    fn hi2_any_text_and_headers(
        body in text(),
        headers in prop::collection::vec((header_name(), text()), 0..6),
        provider in prop::option::of(prop::sample::select(vec!["zai", "openai"])),
        zone in prop::option::of(prop_oneof![
            Just("UTC".to_owned()),
            Just("Europe/London".to_owned()),
            any::<String>(),
        ]),
        now in prop_oneof![3 => 0..300_000_000_000_000_u64, 1 => any::<u64>()],
    ) {
        let mut facts = ErrorFacts::new();
        for (name, value) in &headers {
            facts = facts.header(name.as_str(), value.as_str());
        }
        if let Some(provider) = provider {
            facts = facts.provider(provider);
        }
        if let Some(zone) = &zone {
            facts = facts.time_zone(zone.as_str());
        }
        let now = UnixMillis(now);
        let found = hint(&body, &facts, now);
        prop_assert_eq!(found, hint(&body, &facts, now));
        if let Some(found) = found {
            if let HintValue::Span(ms) = found.value {
                prop_assert!(ms <= MAX_DELAY_MS);
            }
            prop_assert!(found.delay_ms(now) <= MAX_DELAY_MS);
            if headers.is_empty() {
                prop_assert!(found.source != HintSource::Header);
            }
        }
    }

    /// A span is read as it is written, whatever stands around.
    #[test]
    fn hi2_spans_are_read_as_written(hours in 0..100_u64, minutes in 0..60_u64, millis in 0..60_000_u64) {
        let seconds = format!("{}.{:03}", millis / 1000, millis % 1000);
        let expected = hours * HOUR + minutes * MINUTE + millis;
        for text in [
            format!("429 Please try again in {hours}h{minutes}m{seconds}s."),
            format!("{{\"error\":{{\"details\":[{{\"retryDelay\":\"{hours}h{minutes}m{seconds}s\"}}]}}}}"),
            format!("Your quota will reset after {hours} hours, {minutes} minutes and {seconds} seconds. Sorry."),
        ] {
            let found = hint(&text, &ErrorFacts::new(), UnixMillis(0));
            prop_assert_eq!(found.map(|hint| hint.value), Some(HintValue::Span(expected)), "{}", text);
        }
    }

    /// An instant is read as it is written, in each of the forms for machines.
    #[test]
    fn hi2_instants_are_read_as_written(seconds in 1_000_000_001..4_000_000_000_i64) {
        let instant = Timestamp::from_second(seconds).expect("in range");
        let expected = UnixMillis(u64::try_from(seconds * 1000).expect("after 1970"));
        for value in [
            instant.to_string(),
            seconds.to_string(),
            instant.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
            instant.strftime("%a %b %e %H:%M:%S %Y").to_string(),
        ] {
            let facts = ErrorFacts::new().header("x-ratelimit-reset", value.as_str());
            let found = hint("", &facts, UnixMillis(0)).map(|hint| hint.value);
            prop_assert_eq!(found, Some(HintValue::Instant(expected)), "{}", value);
        }
    }
}
