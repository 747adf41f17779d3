//! Delays and bounds: a table for each setting, the stories of users, and what no sequence of inputs can break.

use proptest::prelude::*;
use retry_machine::backoff::{MAX_DELAY_MS, lengthened_ms, shortened_ms};
use retry_machine::{
    Ambient, AssistantMessage, DelayHint, Effect, ErrorClass, HintValue, Input, MonotonicMillis,
    Outcome, Phase, RetryEvent, RetryMachine, RetrySettings, ServerDelay, SettingsBuilder, Turn,
    UnixMillis, Verdict,
};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn built(builder: SettingsBuilder) -> RetrySettings {
    builder.build().expect("in range")
}

/// Defaults, but the server's delay counts.
fn honouring() -> SettingsBuilder {
    RetrySettings::builder().set("delay.serverDelay", ServerDelay::Honour)
}

/// Ours, without the spread.
fn recommended() -> RetrySettings {
    let mut settings = RetrySettings::recommended();
    settings.apply(
        &retry_machine::SettingsPatch::builder()
            .set("delay.jitter", false)
            .patch()
            .expect("in range"),
    );
    settings
}

/// A failure of a class, with what the server asked for.
fn failed(class: ErrorClass, hint_ms: Option<u64>) -> Turn<'static> {
    let verdict = Verdict::new(class);
    let verdict = match hint_ms {
        Some(ms) => verdict.with_hint(DelayHint::span_ms(ms)),
        None => verdict,
    };
    Turn::failure("no").verdict(verdict)
}

/// A machine in virtual time that tells what happens.
struct Story {
    machine: RetryMachine,
    now: u64,
    entropy: u64,
    told: Vec<String>,
}

impl Story {
    fn new(settings: RetrySettings) -> Self {
        Self {
            machine: RetryMachine::new(settings),
            now: 0,
            entropy: 0,
            told: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<'_>) -> &mut Self {
        let ambient = Ambient::at(self.now).with_entropy(self.entropy);
        for effect in self.machine.handle(input, ambient) {
            match effect {
                Effect::Emit { event } => {
                    let wire = serde_json::to_string(&event).expect("written");
                    self.told.push(format!("{:>9} {wire}", self.now));
                }
                Effect::SwitchCredential { retry_after_ms, .. } => {
                    self.told.push(format!(
                        "{:>9} switch credential, {retry_after_ms:?}",
                        self.now
                    ));
                }
                Effect::ContinueAgent { .. } => self.told.push(format!("{:>9} continue", self.now)),
                Effect::CheckCompaction { cause } => self
                    .told
                    .push(format!("{:>9} check compaction: {cause:?}", self.now)),
                Effect::DropFailedMessage
                | Effect::Sleep { .. }
                | Effect::CancelSleep { .. }
                | Effect::AbortAgent => {}
            }
        }
        self
    }

    fn fail(&mut self, text: &str) -> &mut Self {
        let message = AssistantMessage::error(text);
        self.input(Input::message(&message))
    }

    fn succeed(&mut self) -> &mut Self {
        self.input(Input::message(&AssistantMessage::success()))
    }

    fn prompt(&mut self) -> &mut Self {
        self.input(Input::PromptStarted)
    }

    fn answer(&mut self, switched: bool) -> &mut Self {
        // The only request that is open is the latest one.
        let request = (1..10_000)
            .map(retry_machine::RequestId::from_u64)
            .find(|request| {
                let mut probe = self.machine.clone();
                let answer = Input::CredentialSwitched {
                    request: *request,
                    switched,
                };
                !probe.handle(answer, Ambient::at(self.now)).is_empty()
            })
            .expect("a request is open");
        self.input(Input::CredentialSwitched { request, switched })
    }

    fn wake(&mut self) -> &mut Self {
        let Phase::Waiting { timer, due, .. } = self.machine.phase() else {
            panic!("nothing is armed:\n{}", self.told.join("\n"));
        };
        self.now = self.now.max(due.0);
        self.input(Input::TimerFired(timer))
    }

    fn pass(&mut self, ms: u64) -> &mut Self {
        self.now += ms;
        self
    }

    fn told(&self) -> String {
        self.told.join("\n")
    }
}

/// The wait before the first retry of a class, or the text of the end.
fn first(
    settings: RetrySettings,
    class: ErrorClass,
    hint_ms: Option<u64>,
    entropy: u64,
) -> Result<u64, String> {
    let mut machine = RetryMachine::new(settings);
    let ambient = Ambient::at(0).with_entropy(entropy);
    let effects = machine
        .handle(failed(class, hint_ms).into(), ambient)
        .into_owned();
    for effect in effects {
        match effect {
            Effect::Emit {
                event: RetryEvent::Start(start),
            } => return Ok(start.delay_ms),
            Effect::Emit {
                event: RetryEvent::End(end),
            } => match end.outcome {
                Outcome::Failure {
                    final_error,
                    reason,
                } => return Err(format!("{}: {final_error}", reason.name())),
                Outcome::Success => unreachable!("a failure"),
            },
            _ => {}
        }
    }
    panic!("neither a start nor an end");
}

/// The ladder under its settings: cap, base and cap of a class, the shortest wait of the network.
#[test]
fn ladder_settings() {
    use ErrorClass::{Network, Overloaded, RateLimit, ServerError};
    let ladder = |settings: RetrySettings, class: ErrorClass| {
        let mut machine = RetryMachine::new(settings);
        let mut delays = Vec::new();
        let mut now = 0;
        while let Some(start) = machine
            .handle(failed(class, None).into(), Ambient::at(now))
            .into_owned()
            .into_iter()
            .find_map(|effect| match effect {
                Effect::Emit {
                    event: RetryEvent::Start(start),
                } => Some(start),
                _ => None,
            })
        {
            delays.push(start.delay_ms);
            now += start.delay_ms;
            let Phase::Waiting { timer, .. } = machine.phase() else {
                panic!()
            };
            let _ = machine.handle(Input::TimerFired(timer), Ambient::at(now));
        }
        delays
    };
    let set = RetrySettings::builder;
    for (name, settings, class, delays) in [
        (
            "documented",
            RetrySettings::default(),
            RateLimit,
            vec![2000, 4000, 8000],
        ),
        (
            "recommended",
            recommended(),
            RateLimit,
            vec![1000, 2000, 4000, 8000, 16_000, 30_000],
        ),
        (
            "recommended",
            recommended(),
            Overloaded,
            vec![1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000],
        ),
        (
            "recommended",
            recommended(),
            ServerError,
            vec![1000, 2000, 4000],
        ),
        (
            "cap",
            built(set().max_retries(5).set("delay.maxBackoffMs", 5000_u64)),
            RateLimit,
            vec![2000, 4000, 5000, 5000, 5000],
        ),
        (
            "cap of 0",
            built(set().set("delay.maxBackoffMs", 0_u64)),
            RateLimit,
            vec![0, 0, 0],
        ),
        (
            "own of a class",
            built(
                set()
                    .set("classes.network.baseDelayMs", 10_u64)
                    .set("classes.network.maxBackoffMs", 15_u64),
            ),
            Network,
            vec![10, 15, 15],
        ),
        (
            "own of another class",
            built(set().set("classes.network.baseDelayMs", 10_u64)),
            RateLimit,
            vec![2000, 4000, 8000],
        ),
        (
            "shortest of the network",
            built(
                set()
                    .base_delay_ms(1)
                    .set("delay.minTransportDelayMs", 3_u64),
            ),
            Network,
            vec![3, 3, 4],
        ),
        (
            "only of the network",
            built(
                set()
                    .base_delay_ms(1)
                    .set("delay.minTransportDelayMs", 3_u64),
            ),
            ServerError,
            vec![1, 2, 4],
        ),
        (
            "the cap is above it",
            built(
                set()
                    .base_delay_ms(1)
                    .set("delay.minTransportDelayMs", 9_u64)
                    .set("delay.maxBackoffMs", 2_u64),
            ),
            Network,
            vec![2, 2, 2],
        ),
        ("none", built(set().max_retries(0)), RateLimit, vec![]),
    ] {
        assert_eq!(ladder(settings, class), delays, "{name}, {class}");
    }
}

/// The server's delay: ignored, honoured, too long, waited out; huge, zero, past.
#[test]
fn server_delay_settings() {
    use ErrorClass::RateLimit;
    let too_long = |asked: u64, max: u64| {
        Err(format!(
            "serverDelayTooLong: The server asks to wait {asked} ms, more than retry.delay.maxServerDelayMs ({max} ms): no"
        ))
    };
    let capped = || honouring().set("delay.maxServerDelayMs", 300_000_u64);
    let waiting = || {
        capped()
            .set("delay.waitForReset", true)
            .set("delay.maxResetWaitMs", 6 * HOUR)
    };
    for (name, settings, hint, wait) in [
        ("ignored", RetrySettings::default(), Some(60_000), Ok(2000)),
        ("honoured", built(honouring()), Some(60_000), Ok(60_000)),
        (
            "shorter than the ladder",
            built(honouring()),
            Some(5),
            Ok(2000),
        ),
        ("zero", built(honouring()), Some(0), Ok(2000)),
        ("none", built(honouring()), None, Ok(2000)),
        ("above 2^31", built(honouring()), Some(1 << 40), Ok(1 << 40)),
        (
            "the largest",
            built(honouring()),
            Some(MAX_DELAY_MS),
            Ok(MAX_DELAY_MS),
        ),
        (
            "at the maximum",
            built(capped()),
            Some(300_000),
            Ok(300_000),
        ),
        (
            "above the maximum",
            built(capped()),
            Some(300_001),
            too_long(300_001, 300_000),
        ),
        (
            "a week",
            built(capped()),
            Some(7 * DAY),
            too_long(7 * DAY, 300_000),
        ),
        (
            "above it, but ignored",
            built(RetrySettings::builder().set("delay.maxServerDelayMs", 1_u64)),
            Some(9),
            Ok(2000),
        ),
        (
            "waited out with a margin",
            built(waiting()),
            Some(5 * HOUR),
            Ok(5 * HOUR + 5000),
        ),
        (
            "another margin",
            built(waiting().set("delay.resetMarginMs", 1_u64)),
            Some(5 * HOUR),
            Ok(5 * HOUR + 1),
        ),
        (
            "no margin below the maximum",
            built(waiting()),
            Some(100_000),
            Ok(100_000),
        ),
        (
            "longer than the longest wait",
            built(waiting()),
            Some(7 * HOUR),
            too_long(7 * HOUR, 300_000),
        ),
    ] {
        assert_eq!(first(settings, RateLimit, hint, 0), wait, "{name}");
    }
    // An instant that has passed counts as 0.
    let past = Verdict::new(RateLimit).with_hint(DelayHint::at(UnixMillis(5)));
    let mut machine = RetryMachine::new(built(honouring()));
    let ambient = Ambient::new(UnixMillis(99), MonotonicMillis(0));
    let effects = machine.handle(Turn::failure("no").verdict(past).into(), ambient);
    assert_eq!(effects.to_string(), "S(1,2000) drop sleep 2000");
}

/// Jitter: the own ladder 75–100 %, a server's delay 100–120 %, from the step's entropy.
#[test]
fn jitter() {
    use ErrorClass::RateLimit;
    let on = || RetrySettings::builder().set("delay.jitter", true);
    let both = || honouring().set("delay.jitter", true);
    for (settings, hint, entropy, wait) in [
        (built(on()), None, 0, 2000),
        (built(on()), None, u64::MAX, 1501),
        (built(on()), None, 1 << 63, 1750),
        (RetrySettings::default(), None, u64::MAX, 2000),
        (built(both()), Some(60_000), 0, 60_000),
        (built(both()), Some(60_000), u64::MAX, 71_999),
        (built(both()), Some(100), u64::MAX, 1501),
        (built(both()), Some(MAX_DELAY_MS), u64::MAX, MAX_DELAY_MS),
    ] {
        assert_eq!(
            first(settings, RateLimit, hint, entropy),
            Ok(wait),
            "hint {hint:?}, entropy {entropy}"
        );
    }
}

/// A wait that ends at a bound is made; one that ends later is not, and the bound that it would pass is named.
#[test]
fn bounds_on_elapsed_time() {
    for (key, max_ms, bound) in [
        ("maxElapsedMs.chain", 2000_u64, None),
        ("maxElapsedMs.chain", 1999, Some("chain (1999 ms)")),
        ("maxElapsedMs.prompt", 2000, None),
        ("maxElapsedMs.prompt", 1999, Some("prompt (1999 ms)")),
    ] {
        let settings = built(RetrySettings::builder().set(key, max_ms));
        let waits = match bound {
            None => Ok(2000),
            Some(bound) => Err(format!(
                "deadline: Waiting 2000 ms would pass retry.maxElapsedMs.{bound}: no"
            )),
        };
        let told = first(settings, ErrorClass::Overloaded, None, 0);
        assert_eq!(told, waits, "{key} of {max_ms} ms");
    }
}

/// Twelve stories of users of other agents; the sequences of events in the extended form.
#[test]
fn stories() {
    let mut settings = recommended();
    settings.apply(
        &retry_machine::SettingsPatch::builder()
            .set("events", retry_machine::EventForm::Extended)
            .patch()
            .expect("in range"),
    );
    let ours = || Story::new(settings.clone());
    let mut told = Vec::new();
    let mut tell = |name: &str, story: &Story| told.push(format!("## {name}\n{}", story.told()));

    let mut story = ours();
    story
        .prompt()
        .fail("usage limit reached, try again in 5 hours")
        .answer(false);
    tell("B1: a five-hour limit, no other credential", &story);

    let mut story = ours();
    story
        .prompt()
        .fail("usage limit reached, try again in 5 hours")
        .answer(true)
        .wake()
        .succeed();
    tell(
        "C4: a five-hour limit, another credential takes over",
        &story,
    );

    let mut waiting = settings.clone();
    waiting.apply(
        &retry_machine::SettingsPatch::builder()
            .set("delay.waitForReset", true)
            .set("maxElapsedMs.chain", None::<u64>)
            .set("maxElapsedMs.prompt", None::<u64>)
            .patch()
            .expect("in range"),
    );
    let mut story = Story::new(waiting);
    story
        .prompt()
        .fail("usage limit reached, try again in 5 hours")
        .answer(false)
        .wake()
        .succeed();
    tell("J1: a five-hour limit, waited out on request", &story);

    let mut story = ours();
    story
        .prompt()
        .fail("429 Too Many Requests, Retry-After: 0")
        .wake()
        .succeed();
    tell("C5: a Retry-After of 0", &story);

    let mut story = ours();
    story
        .prompt()
        .fail("429 Too Many Requests, Retry-After: 0.4")
        .wake()
        .succeed();
    tell("C5: a Retry-After of 0.4", &story);

    let mut story = ours();
    story
        .prompt()
        .fail("429 Too Many Requests, Retry-After: 604800");
    tell("C6: a Retry-After of a week", &story);

    let mut story = ours();
    story
        .pass(2_000_000_000_000)
        .prompt()
        .fail("429 Too Many Requests, Retry-After: Wed, 21 Oct 2015 07:28:00 GMT")
        .wake()
        .succeed();
    tell("C5: a Retry-After in the past", &story);

    let mut story = ours();
    story.prompt();
    while story.now < 60_000 {
        story.fail("429 Too Many Requests");
        if !story.machine.is_retrying() {
            break;
        }
        story.wake();
    }
    story.succeed();
    tell("B025: a throttle of 60 s against the ladder", &story);

    let mut story = ours();
    story
        .prompt()
        .fail("503 overloaded")
        .wake()
        .fail("503 overloaded")
        .prompt()
        .fail("503 overloaded")
        .wake()
        .succeed();
    tell("F5: the counter does not leak into the next prompt", &story);

    let mut story = ours();
    story.prompt();
    for _ in 0..25 {
        story.fail("503 overloaded");
        if !story.machine.is_retrying() {
            break;
        }
        story.wake().input(Input::message(&AssistantMessage::new(
            retry_machine::StopReason::ToolUse,
        )));
    }
    story.prompt().fail("503 overloaded").wake().succeed();
    tell(
        "A1: successes between do not renew the total of a prompt",
        &story,
    );

    let mut story = ours();
    story.prompt();
    for _ in 0..4 {
        story.fail("usage limit reached").answer(true).wake();
    }
    story
        .fail("usage limit reached")
        .answer(false)
        .wake()
        .fail("usage limit reached")
        .answer(true)
        .wake()
        .fail("usage limit reached");
    tell(
        "A5: switching credentials does not renew the budget",
        &story,
    );

    let mut story = ours();
    story
        .prompt()
        .fail("429 slow down, try again in 4 minutes")
        .wake()
        .fail("429 slow down, try again in 4 minutes")
        .wake();
    story.fail("429 slow down, try again in 4 minutes");
    tell("G6: a wait past the deadline is refused up front", &story);

    assert_eq!(told.len(), 12);
    insta::assert_snapshot!(told.join("\n\n"));
}

/// NU3 and the laws of the spread, for any numbers.
#[test]
fn spread_laws() {
    proptest!(ProptestConfig { cases: 2000, ..ProptestConfig::default() }, |(delay in 0..=MAX_DELAY_MS, entropy: u64)| {
        let short = shortened_ms(delay, entropy);
        prop_assert!(short <= delay && u128::from(short) * 4 >= u128::from(delay) * 3);
        let long = lengthened_ms(delay, entropy);
        prop_assert!(long >= delay && u128::from(long) * 5 <= u128::from(delay) * 6 && long <= MAX_DELAY_MS);
    });
}

/// What random settings may be.
fn any_settings() -> impl Strategy<Value = RetrySettings> {
    let small = |max: u64| prop::option::of(0..max);
    (
        (
            0..6_u32,
            0..5000_u64,
            prop::option::of(0..12_u32),
            small(60_000),
            small(90_000),
        ),
        (
            small(6000),
            any::<bool>(),
            any::<bool>(),
            small(9000),
            any::<bool>(),
            0..40_000_u64,
            0..3000_u64,
        ),
        (prop::option::of(0..9_u32), small(3000), small(2000)),
    )
        .prop_map(
            |(
                (retries, base, total, chain, prompt),
                (cap, jitter, honour, max, wait, longest, floor),
                (own, own_base, own_cap),
            )| {
                built(
                    RetrySettings::builder()
                        .max_retries(retries)
                        .base_delay_ms(base)
                        .set("maxTotalRetries", total)
                        .set("maxElapsedMs.chain", chain)
                        .set("maxElapsedMs.prompt", prompt)
                        .set("delay.maxBackoffMs", cap)
                        .set("delay.jitter", jitter)
                        .set(
                            "delay.serverDelay",
                            if honour {
                                ServerDelay::Honour
                            } else {
                                ServerDelay::Ignore
                            },
                        )
                        .set("delay.maxServerDelayMs", max)
                        .set("delay.waitForReset", wait)
                        .set("delay.maxResetWaitMs", longest)
                        .set("delay.minTransportDelayMs", floor)
                        .set("classes.overloaded.maxRetries", own)
                        .set("classes.overloaded.baseDelayMs", own_base)
                        .set("classes.overloaded.maxBackoffMs", own_cap),
                )
            },
        )
}

/// What happens next to a machine.
#[derive(Clone, Copy, Debug)]
enum Move {
    Fail(ErrorClass, Option<u64>),
    Succeed,
    Answer(bool),
    Wake,
    Prompt,
    Abort,
    Pass(u64),
}

fn any_move() -> impl Strategy<Value = Move> {
    let class = prop::sample::select(vec![
        ErrorClass::Overloaded,
        ErrorClass::RateLimit,
        ErrorClass::ServerError,
        ErrorClass::Network,
        ErrorClass::UsageLimit,
        ErrorClass::Auth,
    ]);
    prop_oneof![
        8 => (class, prop::option::of(0..30_000_u64)).prop_map(|(class, hint)| Move::Fail(class, hint)),
        1 => Just(Move::Succeed),
        3 => any::<bool>().prop_map(Move::Answer),
        8 => Just(Move::Wake),
        1 => Just(Move::Prompt),
        1 => Just(Move::Abort),
        2 => (0..20_000_u64).prop_map(Move::Pass),
    ]
}

/// No sequence of inputs exceeds a bound; a wait is never below the server's for the credential still in use
/// when honoured, and never above the cap of the own ladder otherwise.
#[test]
fn no_sequence_exceeds_a_bound() {
    let moves = prop::collection::vec((any_move(), any::<u64>()), 1..80);
    proptest!(ProptestConfig { cases: 1500, ..ProptestConfig::default() }, |(settings in any_settings(), moves in moves)| {
        let mut machine = RetryMachine::new(settings.clone());
        let (mut now, mut total, mut chain_start, mut prompt_start) = (0, 0_u32, 0, None);
        let mut last: Option<(ErrorClass, Option<u64>)> = None;
        let mut request = None;
        for (what, entropy) in moves {
            let ambient = Ambient::at(now).with_entropy(entropy);
            let switched = matches!(what, Move::Answer(true));
            let was_open = machine.is_retrying();
            let input = match what {
                Move::Fail(class, hint) => {
                    last = Some((class, hint));
                    prompt_start.get_or_insert(now);
                    if !was_open {
                        chain_start = now;
                    }
                    failed(class, hint).into()
                }
                Move::Succeed => {
                    prompt_start.get_or_insert(now);
                    Input::message(Box::leak(Box::new(AssistantMessage::success())))
                }
                Move::Answer(switched) => match request.take() {
                    Some(request) => Input::CredentialSwitched { request, switched },
                    None => continue,
                },
                Move::Wake => match machine.phase() {
                    Phase::Waiting { timer, due, .. } => {
                        now = now.max(due.0);
                        Input::TimerFired(timer)
                    }
                    _ => continue,
                },
                Move::Prompt => {
                    (total, prompt_start) = (0, Some(now));
                    Input::PromptStarted
                }
                Move::Abort => Input::AbortRetry,
                Move::Pass(ms) => {
                    now += ms;
                    continue;
                }
            };
            let ambient = Ambient::at(now).with_entropy(ambient.entropy);
            for effect in machine.handle(input, ambient) {
                match effect {
                    Effect::SwitchCredential { request: asked, .. } => request = Some(asked),
                    Effect::Emit { event: RetryEvent::Start(start) } => {
                        let (class, hint) = last.expect("a failure");
                        total += 1;
                        prop_assert_eq!(start.total_retries, total);
                        prop_assert!(start.attempt <= settings.max_retries_for(class));
                        prop_assert!(settings.max_total_retries().is_none_or(|max| total <= max));
                        let at = now + start.delay_ms;
                        prop_assert!(settings.max_chain_elapsed_ms().is_none_or(|max| at - chain_start <= max));
                        let since = prompt_start.expect("a prompt");
                        prop_assert!(settings.max_prompt_elapsed_ms().is_none_or(|max| at - since <= max));
                        let honoured = hint.filter(|_| settings.server_delay() == ServerDelay::Honour && !switched);
                        match honoured {
                            Some(hint) => {
                                prop_assert!(start.delay_ms >= hint);
                                if let Some(max) = settings.max_server_delay_ms().filter(|max| hint > *max) {
                                    let longest = settings.longest_reset_wait_ms();
                                    prop_assert!(longest.is_some_and(|longest| hint <= longest), "{} above {}", hint, max);
                                }
                            }
                            None => {
                                let cap = settings.max_backoff_ms_for(class);
                                prop_assert!(cap.is_none_or(|cap| start.delay_ms <= cap));
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    });
}

/// Nothing changed for the documented policy: with the server's delay honoured the ladder is `max(local, hint)`.
#[test]
fn honoured_is_the_longer_of_both() {
    for hint in [
        None,
        Some(0),
        Some(1),
        Some(1999),
        Some(2000),
        Some(2001),
        Some(70_000),
    ] {
        let wait = first(built(honouring()), ErrorClass::ServerError, hint, 0);
        assert_eq!(wait, Ok(hint.unwrap_or(0).max(2000)), "{hint:?}");
        assert_eq!(
            first(RetrySettings::default(), ErrorClass::ServerError, hint, 0),
            Ok(2000)
        );
    }
    assert!(matches!(DelayHint::span_ms(5).value, HintValue::Span(5)));
}
