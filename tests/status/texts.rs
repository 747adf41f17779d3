//! The texts, as pure code: what is shown, how wide, and when it changes.

use retry_machine::status::{Status, Style, text};
use retry_machine::{
    Ambient, AssistantMessage, Effect, Input, MonotonicMillis, Phase, RetryEvent, RetryMachine,
    RetrySettings,
};
use unicode_width::UnicodeWidthStr;

const NOW: MonotonicMillis = MonotonicMillis(1000);

/// A machine, and a status that is fed with what it says.
struct Fed {
    machine: RetryMachine,
    status: Status,
    now: MonotonicMillis,
}

impl Fed {
    fn new(max_retries: u32, base_delay_ms: u64) -> Self {
        let settings = RetrySettings::builder()
            .max_retries(max_retries)
            .base_delay_ms(base_delay_ms);
        Self {
            machine: RetryMachine::new(settings.build().unwrap()),
            status: Status::new(),
            now: NOW,
        }
    }

    fn input(&mut self, input: Input<'_>) {
        let ambient = Ambient::at(self.now.0);
        for effect in self.machine.handle(input, ambient) {
            match effect {
                Effect::Emit { event } => self.status.event(&event, self.now),
                Effect::ContinueAgent { .. } => self.status.continue_agent(),
                _ => {}
            }
        }
    }

    fn fail(&mut self, text: &str) {
        self.input(Input::message(&AssistantMessage::error(text)));
    }

    fn wake(&mut self) {
        let Phase::Waiting { timer, due, .. } = self.machine.phase() else {
            panic!("no wait");
        };
        self.now = due;
        self.input(Input::TimerFired(timer));
    }

    fn line(&self, columns: usize) -> Option<String> {
        self.status.line(self.now, columns, Style::plain())
    }
}

/// What a failure with this text shows, after one attempt.
fn failed(text: &str) -> Fed {
    let mut fed = Fed::new(1, 0);
    fed.fail("overloaded");
    fed.wake();
    fed.fail(text);
    fed
}

#[test]
fn tu1_tu3_tu5_a_chain() {
    let mut fed = Fed::new(2, 2000);
    assert_eq!(fed.line(80), None);
    fed.fail("overloaded");
    assert_eq!(
        fed.line(80).unwrap(),
        "Retrying (1/2) in 2s… (esc to cancel)"
    );
    assert!(fed.status.is_waiting());
    // A start while it shows.
    fed.fail("overloaded");
    assert_eq!(
        fed.line(80).unwrap(),
        "Retrying (2/2) in 4s… (esc to cancel)"
    );
    fed.wake();
    assert_eq!((fed.line(80), fed.status.is_waiting()), (None, false));
    fed.fail("overloaded");
    let line = "Retry failed after 2 attempts: overloaded";
    assert_eq!(fed.line(80).as_deref(), Some(line));
    // Nothing but the next start takes it away.
    fed.status.continue_agent();
    assert_eq!(fed.line(80).as_deref(), Some(line));
    fed.input(Input::PromptStarted);
    fed.fail("overloaded");
    assert!(fed.status.is_waiting());
    fed.input(Input::AbortRetry);
    assert_eq!(
        fed.line(80).unwrap(),
        "Retry failed after 1 attempt: Retry cancelled"
    );
    fed.fail("overloaded");
    fed.input(Input::message(&AssistantMessage::success()));
    assert_eq!((fed.line(80), fed.status.is_waiting()), (None, false));
}

#[test]
fn tu2_seconds_are_rounded_half_up_of_what_remains() {
    let cases = [
        (0, 0),
        (499, 0),
        (500, 1),
        (1499, 1),
        (1500, 2),
        (2500, 3),
        (86_400_000, 86_400),
    ];
    for (delay_ms, seconds) in cases {
        let mut fed = Fed::new(3, delay_ms);
        fed.fail("overloaded");
        let line = format!("Retrying (1/3) in {seconds}s… (esc to cancel)");
        assert_eq!(fed.line(80).unwrap(), line, "{delay_ms}");
    }
}

/// A shell that sleeps until the next change shows every text, and each in its time.
#[test]
fn tu2_the_countdown_changes_when_it_says() {
    for delay_ms in [0, 1, 499, 500, 2000, 2499, 2500, 3777] {
        let mut fed = Fed::new(3, delay_ms);
        fed.fail("overloaded");
        let due = NOW.after(delay_ms);
        assert_eq!(fed.status.due(), Some(due));
        let line = |now| fed.status.line(now, 80, Style::plain());
        let mut now = NOW;
        while now < due {
            let next = fed.status.next_change(now).unwrap();
            assert!(now < next && next <= due, "{delay_ms}: {now:?} {next:?}");
            assert_eq!(line(now), line(MonotonicMillis(next.0 - 1)), "{delay_ms}");
            if next < due {
                assert_ne!(line(now), line(next), "{delay_ms}");
            }
            now = next;
        }
        // Late is still right.
        assert!(line(due.after(5000)).unwrap().contains(" in 0s"));
        assert_eq!(fed.status.next_change(due), Some(due));
    }
    assert_eq!(failed("no").status.next_change(NOW), None);
}

#[test]
fn tu4_numbers_of_attempts() {
    for attempts in [0, 1, 2, 1000] {
        let mut fed = Fed::new(attempts, 0);
        for _ in 0..attempts {
            fed.fail("overloaded");
            fed.wake();
        }
        fed.fail("overloaded");
        let words = match attempts {
            0 => String::new(),
            1 => " after 1 attempt".to_owned(),
            _ => format!(" after {attempts} attempts"),
        };
        assert_eq!(
            fed.line(80).unwrap(),
            format!("Retry failed{words}: overloaded")
        );
    }
    // The longest wait that there is.
    let mut fed = Fed::new(1000, 86_400_000);
    for _ in 0..60 {
        fed.fail("overloaded");
    }
    let line = fed.line(80).unwrap();
    assert!(
        line.starts_with("Retrying (60/1000) in 9007199254741s…"),
        "{line}"
    );
}

/// Every width × style × text: it fits, it stands on one line, and says as much as has room.
#[test]
fn tu4_fits_every_width() {
    let pile = format!("a{}", "\u{301}".repeat(100_000));
    let long = "overloaded ".repeat(100_000);
    let texts = [
        "overloaded",
        "模型过载，请稍后再试",
        "👩‍👩‍👧‍👧 👍🏽 🇩🇪 ❤️ e\u{301}e\u{301}e\u{301}",
        "العربية שלום",
        "\u{202e}desrever\u{202c} \x1b[2J\x1b]0;title\x07 \r\n\t\0\u{9b}31m",
        "",
        &pile,
        &long,
    ];
    let mut waiting = Fed::new(3, 2000);
    waiting.fail("overloaded");
    for fed in texts.map(failed).iter().chain([&waiting]) {
        for columns in (0..90).chain([500, 5000]) {
            let plain = fed.line(columns).unwrap();
            assert!(plain.width() <= columns, "{columns}: {plain:?}");
            assert!(
                plain.len() <= 32 * columns + 3,
                "{columns}: {}",
                plain.len()
            );
            assert!(
                !plain
                    .chars()
                    .any(|c| c.is_control() || "\u{202e}\u{feff}".contains(c))
            );
            let colored = fed.status.line(fed.now, columns, Style::colored()).unwrap();
            assert!(colored.starts_with("\x1b[") && colored.ends_with("\x1b[0m"));
            assert!(colored.contains(&plain), "{columns}");
            let mut screen = vt100::Parser::new(2, 100, 0);
            if columns < 90 {
                screen.process(colored.as_bytes());
                assert_eq!(
                    screen.screen().cursor_position().0,
                    0,
                    "{columns}: {plain:?}"
                );
            }
        }
    }
    for (columns, line) in [
        (37, "Retrying (1/3) in 2s… (esc to cancel)"),
        (36, "Retrying (1/3) in 2s… (esc to cance…"),
        (9, "Retrying…"),
        (1, "…"),
        (0, ""),
    ] {
        assert_eq!(waiting.line(columns).unwrap(), line);
    }
    let hintless = Style::plain().without_esc_hint();
    let line = waiting.status.line(NOW, 80, hintless).unwrap();
    assert_eq!(line, "Retrying (1/3) in 2s…");
}

/// What a reader takes for one character is shown whole or not at all.
#[test]
fn tu4_cuts_between_characters() {
    let cases = [
        ("过载了", 6, "过载了"),
        ("过载了", 5, "过载…"),
        ("过载了", 4, "过…"),
        ("过载了", 2, "…"),
        ("e\u{301}e\u{301}e\u{301}", 3, "e\u{301}e\u{301}e\u{301}"),
        ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
        ("🇩🇪🇫🇷", 3, "🇩🇪…"),
        ("🇩🇪🇫🇷", 2, "…"),
        ("\u{301}", 0, ""),
        ("각각", 3, "각…"),
    ];
    for (whole, columns, shown) in cases {
        assert_eq!(text::cut(whole, columns), shown, "{whole} {columns}");
    }
}

#[test]
fn hostile_texts_are_escaped_and_secrets_masked() {
    let cases = [
        ("a\nb\tc\x1b[2J\x07", r"a\nb\tc\u{1b}[2J\u{7}"),
        (
            "\u{202e}abc\u{2066}\u{200b}\u{e0041}",
            r"\u{202e}abc\u{2066}\u{200b}\u{e0041}",
        ),
        ("key sk-ant-REDACTED-aaaa, bad", "key sk…, bad"),
        ("key:\nsk-ant-REDACTED-aaaa", r"key:\nsk…"),
        (
            r#"{"a":"key:\nsk-ant-REDACTED-aaaa"}"#,
            r#"{"a":"key:\nsk…"}"#,
        ),
        ("\x1b[31msk-ant-REDACTED-aaaa", r"\u{1b}[31msk…"),
        (
            "Authorization: Bearer abcdefghijkl.mno",
            "Authorization: Bearer …",
        ),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "eyJ…"),
        ("密钥sk-ant-REDACTED-aaaa无效", "密钥sk…无效"),
        ("write to jane.doe@example.com now", "write to … now"),
        (
            "rate_limit_error: 429 Too Many Requests",
            "rate_limit_error: 429 Too Many Requests",
        ),
    ];
    for (from, shown) in cases {
        assert_eq!(text::one_line(from, 200), shown);
        assert_eq!(
            failed(from).line(200).unwrap(),
            format!("Retry failed after 1 attempt: {shown}")
        );
    }
    // A secret at the edge is masked before it is cut.
    let from = format!("{} sk-ant-{}", "x".repeat(30), "s3cret".repeat(100_000));
    for columns in [0, 31, 34, 38, 60, 5000] {
        assert!(!text::one_line(&from, columns).contains("sk-"), "{columns}");
    }
}

/// The same events in any order: never a panic, never a wait without an end.
#[test]
fn any_order_of_events() {
    let mut events: Vec<RetryEvent<'static>> = Vec::new();
    let mut machine = RetryMachine::default();
    for message in [
        AssistantMessage::error("overloaded"),
        AssistantMessage::success(),
    ] {
        let effects = machine.handle(Input::message(&message), Ambient::at(0));
        events.extend(
            effects
                .into_owned()
                .into_iter()
                .filter_map(|effect| match effect {
                    Effect::Emit { event } => Some(event),
                    _ => None,
                }),
        );
    }
    assert_eq!(events.len(), 2);
    for order in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let mut status = Status::new();
        for at in order {
            status.event(&events[at], MonotonicMillis(u64::MAX));
        }
        assert_eq!(status.is_waiting(), order[1] == 0);
        assert_eq!(status.due().is_some(), status.is_waiting());
        assert_eq!(
            status.next_change(MonotonicMillis(0)).is_some(),
            status.is_waiting()
        );
    }
}
