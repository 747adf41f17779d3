//! Trace vectors (SPEC section 15), departures (section 13) and what else sections 4 to 9 say.

use retry_machine::{
    Ambient, AssistantMessage, Effect, EndReason, ErrorClass, ErrorFacts, Input, MonotonicMillis,
    Outcome, Phase, RetryEvent, RetryMachine, RetrySettings, Turn, UnixMillis, Usage, Verdict,
};

use crate::support::Do::*;
use crate::support::{Do, F, O, R, U, World, disable, set_base, set_max, settings};

#[track_caller]
fn plays_on(settings: RetrySettings, script: &[Do], effects: &str) {
    assert_eq!(World::new(settings).play(script), effects);
}

#[track_caller]
fn plays(script: &[Do], effects: &str) {
    plays_on(RetrySettings::default(), script, effects);
}

/// A trace vector by its name in the specification.
macro_rules! vectors {
    ($($name:ident: [$($script:expr),*] $(on $settings:expr)? => $effects:expr;)*) => {$(
        #[test]
        fn $name() {
            let settings = RetrySettings::default();
            $(let settings = { let _ = settings; $settings };)?
            plays_on(settings, &[$($script),*], $effects);
        }
    )*};
}

vectors! {
    tv1: [E("overloaded_error"), Wake, Ok]
        => "S(1,2000) drop sleep 2000 · cont · X(true,1) cmp";
    tv2: [E("429 Too Many Requests"), Wake, E("429 Too Many Requests"), Wake, E("429 Too Many Requests"), Wake, E("429 Too Many Requests")]
        => "S(1,2000) drop sleep 2000 · cont · S(2,4000) drop sleep 4000 · cont · S(3,8000) drop sleep 8000 · cont · X(false,3,\"429 Too Many Requests\") cmp";
    tv3: [E("503 Service Unavailable")] on settings(0, 2000)
        => "X(false,0,\"503 Service Unavailable\") cmp";
    tv4: [E("Connection error."), AbortRetry]
        => "S(1,2000) drop sleep 2000 · cancel X(false,1,\"Retry cancelled\")";
    tv5: [disable(), E("overloaded")]
        => "– · cmp";
    tv6: [E("usage limit reached retry-after-ms=5000"), Switched(true)]
        => "switch(5000) · S(1,0) drop sleep 0";
    tv7: [E("usage limit reached retry-after-ms=5000"), Switched(false)]
        => "switch(5000) · S(1,2000) drop sleep 2000";
    tv8: [E("prompt is too long: 213462 tokens > 200000 maximum")]
        => "cmp(overflow)";
    tv9: [EFull("503 Service Unavailable")]
        => "cmp(overflow)";
    tv10: [E("")]
        => "cmp";
    tv11: [E(R), Wake, OkToolUse, E(R)]
        => "S(1,2000) drop sleep 2000 · cont · X(true,1) · S(1,2000) drop sleep 2000";
    tv12: [E(R), Wake, E("invalid api key")]
        => "S(1,2000) drop sleep 2000 · cont · X(false,1,\"invalid api key\") cmp";
    tv13: [E(R), Wake, Aborted, PromptStarted, E(R)]
        => "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Retry cancelled\") · – · S(1,2000) drop sleep 2000";
    tv14: [E(R), set_base(100), Wake, E(R)]
        => "S(1,2000) drop sleep 2000 · – · cont · S(2,200) drop sleep 200";
    tv15: [E(R), Wake, E(R), set_max(1), Wake, E(R)]
        => "S(1,2000) drop sleep 2000 · cont · S(2,4000) drop sleep 4000 · – · cont · X(false,2,\"503 Service Unavailable\") cmp";
    tv16: [E(R), Wake, WakeAgain]
        => "S(1,2000) drop sleep 2000 · cont · –";
    tv17: [E(R), Wake, AbortRetry, Ok]
        => "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Retry cancelled\") · –";
    tv18: [E(R), Wake, Abort, Aborted]
        => "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Retry cancelled\") abort agent · –";
    tv19: [Abort, E("Connection error."), PromptStarted, E(R)]
        => "abort agent · – · – · S(1,2000) drop sleep 2000";
    tv20: [E(R), Wake, Abort, OkToolUse, E(R)]
        => "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Retry cancelled\") abort agent · – · –";
    tv21: [E(R), Wake, AbortRetry, ContinueFailed("busy"), E(R)]
        => "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Retry cancelled\") · – · S(1,2000) drop sleep 2000";
    tv22: [E(R), Wake, ContinueFailed("busy")]
        => "S(1,2000) drop sleep 2000 · cont · X(false,1,\"busy\")";
    tv23: [E(U), AbortRetry, Switched(true)]
        => "switch · X(false,1,\"Retry cancelled\") · –";
    tv24: [E(U), AbortRetry, PromptStarted, E(U), SwitchedFirst(true), Switched(false)]
        => "switch · X(false,1,\"Retry cancelled\") · – · switch · – · S(1,2000) drop sleep 2000";
    tv25: [E(R), Ok]
        => "S(1,2000) drop sleep 2000 · cancel X(true,1) cmp";
    tv26: [E(R), Wake, E(O)]
        => "S(1,2000) drop sleep 2000 · cont · X(false,1,\"prompt is too long: 213462 tokens > 200000 maximum\") cmp(overflow)";
    tv27: [E(R), disable(), Wake, E("503 upstream is resting")]
        => "S(1,2000) drop sleep 2000 · – · cont · X(false,1,\"503 upstream is resting\") cmp";
    tv28: [E(R), PromptStarted]
        => "S(1,2000) drop sleep 2000 · cancel X(false,1,\"Retry cancelled\")";
    tv29: [E(U), Switched(true), Wake, E(U), Switched(true), Wake, E(U), Switched(true), Wake, E(U)]
        => "switch · S(1,0) drop sleep 0 · cont · switch · S(2,0) drop sleep 0 · cont · switch · S(3,0) drop sleep 0 · cont · X(false,3,\"You have hit your usage limit.\") cmp";
    tv30: [E(U), disable(), Switched(false)]
        => "switch · – · S(1,2000) drop sleep 2000";
    tv31: [E(R), Wake, OkFull]
        => "S(1,2000) drop sleep 2000 · cont · X(true,1) cmp(overflow)";
}

/// SPEC section 13, row by row.
mod departures {
    use super::*;

    #[test]
    fn error_that_is_not_retried_inside_a_chain() {
        plays(
            &[E(R), Wake, E(F), Ok, E(R)],
            "S(1,2000) drop sleep 2000 · cont · X(false,1,\"401 invalid api key\") cmp · cmp · S(1,2000) drop sleep 2000",
        );
    }

    #[test]
    fn aborted_message_inside_a_chain() {
        plays(
            &[E(R), Wake, Aborted, Ok],
            "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Retry cancelled\") · cmp",
        );
    }

    #[test]
    fn overflow_inside_a_chain() {
        plays(
            &[E(R), Wake, EFull("cut"), Ok],
            "S(1,2000) drop sleep 2000 · cont · X(false,1,\"cut\") cmp(overflow) · cmp",
        );
    }

    #[test]
    fn retry_disabled_inside_a_chain() {
        plays(
            &[E(R), disable(), Wake, E(R), Ok],
            "S(1,2000) drop sleep 2000 · – · cont · X(false,1,\"503 Service Unavailable\") cmp · cmp",
        );
    }

    #[test]
    fn agent_cannot_continue_or_its_run_brings_no_message() {
        plays(
            &[E(R), Wake, ContinueFailed(""), E(R)],
            "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Unknown error\") · S(1,2000) drop sleep 2000",
        );
    }

    #[test]
    fn credential_store_fails() {
        plays(
            &[E(U), Switched(false)],
            "switch · S(1,2000) drop sleep 2000",
        );
    }

    /// Between wake and continue, during the start event, and racing an error.
    #[test]
    fn abort_between_wake_and_continue() {
        plays(
            &[E(R), Wake, Abort, ContinueFailed("aborted"), E(R)],
            "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Retry cancelled\") abort agent · – · S(1,2000) drop sleep 2000",
        );
        plays(
            &[E(R), AbortRetry, E(R)],
            "S(1,2000) drop sleep 2000 · cancel X(false,1,\"Retry cancelled\") · S(1,2000) drop sleep 2000",
        );
        plays(
            &[Abort, E(R), E(R)],
            "abort agent · – · S(1,2000) drop sleep 2000",
        );
    }

    #[test]
    fn abort_retry_in_flight() {
        plays(
            &[E(R), Wake, AbortRetry, OkToolUse, Ok, Ok],
            "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Retry cancelled\") · – · – · cmp",
        );
    }

    #[test]
    fn cancellation_has_no_compaction_check() {
        plays(
            &[E(R), AbortRetry, AbortRetry],
            "S(1,2000) drop sleep 2000 · cancel X(false,1,\"Retry cancelled\") · –",
        );
    }

    #[test]
    fn host_runs_the_agent_during_a_wait() {
        plays(
            &[E(R), E(R), Wake, Ok],
            "S(1,2000) drop sleep 2000 · cancel S(2,4000) drop sleep 4000 · cont · X(true,2) cmp",
        );
        plays(
            &[E(U), E(R), Switched(true), Wake, Ok],
            "switch · S(2,4000) drop sleep 4000 · – · cont · X(true,2) cmp",
        );
    }

    #[test]
    fn new_prompt_while_a_chain_is_open() {
        plays(
            &[E(R), Wake, E(R), Wake, PromptStarted, E(R), Wake, Ok],
            "S(1,2000) drop sleep 2000 · cont · S(2,4000) drop sleep 4000 · cont · X(false,2,\"Retry cancelled\") · S(1,2000) drop sleep 2000 · cont · X(true,1) cmp",
        );
    }

    #[test]
    fn digits_anywhere_count_as_a_status() {
        plays(&[E("model acme-large-500 not found")], "cmp");
        plays(
            &[E("request req_429503 was refused: unknown parameter")],
            "cmp",
        );
    }

    #[test]
    fn server_error_529_econnreset_timed_out() {
        for text in [
            "server_error",
            "529",
            "read ECONNRESET",
            "Request timed out.",
        ] {
            plays(&[E(text)], "S(1,2000) drop sleep 2000");
        }
    }

    #[test]
    fn billing_or_auth_beside_a_documented_text() {
        plays(&[E("429 Too Many Requests: insufficient balance")], "cmp");
        plays(&[E("500 internal error: invalid api key")], "cmp");
    }

    #[test]
    fn http_dates_in_a_hint() {
        plays(
            &[E(
                "usage limit reached, Retry-After: Thu, 01 Jan 1970 00:01:30 GMT",
            )],
            "switch(90000)",
        );
    }
}

/// ST4: a timer handed in early is answered by a sleep for the rest, under a new id.
#[test]
fn st4_early_timer() {
    plays(
        &[E(R), WakeEarly(500), WakeAgain, Wake],
        "S(1,2000) drop sleep 2000 · sleep 500 · – · cont",
    );
}

/// ST5: `stop`, `length` and `toolUse` close a chain; only what ends the run is checked for compaction.
#[test]
fn st5_successes() {
    for (success, effects) in [
        (Ok, "X(true,1) cmp"),
        (OkLength, "X(true,1) cmp"),
        (OkToolUse, "X(true,1)"),
    ] {
        plays(
            &[E(R), Wake, success],
            &format!("S(1,2000) drop sleep 2000 · cont · {effects}"),
        );
    }
    plays(
        &[OkToolUse, OkFull, OkLength, Aborted],
        "– · cmp(overflow) · cmp · –",
    );
}

/// ST3: retryable, but without a text: as an error that is not retried.
#[test]
fn cl1_text_missing() {
    let mut machine = RetryMachine::default();
    let turn = Turn::failure("").verdict(Verdict::new(ErrorClass::Overloaded));
    assert_eq!(
        machine.handle(turn.into(), Ambient::at(0)).to_string(),
        "cmp"
    );
    plays(
        &[E(R), Wake, E("")],
        "S(1,2000) drop sleep 2000 · cont · X(false,1,\"Unknown error\") cmp",
    );
}

/// CL4: the sum decides, at the window it fits, and an unknown window decides nothing.
#[test]
fn cl4_usage_against_the_window() {
    for (input, cache_read, window, effects) in [
        (200_000, 1, 200_000, "cmp(overflow)"),
        (200_000, 0, 200_000, "S(1,2000) drop sleep 2000"),
        (0, 300_000, 0, "S(1,2000) drop sleep 2000"),
        (u64::MAX, u64::MAX, u64::MAX, "S(1,2000) drop sleep 2000"),
    ] {
        let message = AssistantMessage::error(R).with_usage(Usage::of_input(input, cache_read));
        let turn = Turn::message(&message).context_window(window);
        let given = turn.clone().verdict(Verdict::new(ErrorClass::Overloaded));
        for turn in [turn, given] {
            let effects_now = RetryMachine::default()
                .handle(turn.into(), Ambient::at(0))
                .to_string();
            assert_eq!(effects_now, effects, "{input} + {cache_read} of {window}");
        }
    }
}

/// ST10: a run that is not the current one cannot fail to start, in flight or while the current one drains.
#[test]
fn st10_continue_failed_of_an_earlier_run() {
    let mut world = World::new(RetrySettings::default());
    world.play(&[E(R), Wake]);
    let first = world.run.expect("a run");
    world.play(&[E(R), Wake]);
    let second = world.run.expect("a run");
    let mut machine = world.machine;
    let fails = |machine: &mut RetryMachine, run| {
        let error = "late".into();
        let effects = machine.handle(Input::ContinueFailed { run, error }, Ambient::at(9000));
        effects.to_string()
    };
    assert_eq!(fails(&mut machine, first), "–");
    let mut draining = machine.clone();
    assert_eq!(fails(&mut machine, second), "X(false,2,\"late\")");
    assert_eq!(machine.phase(), Phase::Idle);

    let _ = draining.handle(Input::AbortRetry, Ambient::at(9000));
    assert_eq!(fails(&mut draining, first), "–");
    assert_eq!(draining.phase(), Phase::Draining);
    assert_eq!(fails(&mut draining, second), "–");
    assert_eq!(draining.phase(), Phase::Idle);
}

/// EF1: what a run's end announces is what the message then leads to, and to ask changes nothing.
#[test]
fn ef1_would_retry() {
    let full = AssistantMessage::error(R).with_usage(Usage::of_input(9, 0));
    for (turn, retried) in [
        (Turn::failure("overloaded"), true),
        (Turn::failure(U), true),
        (Turn::failure("what?"), false),
        (Turn::failure(""), false),
        (
            Turn::failure("what?").facts(ErrorFacts::new().status(503)),
            true,
        ),
        (
            Turn::failure("what?").verdict(Verdict::new(ErrorClass::Network)),
            true,
        ),
        (
            Turn::failure(R).verdict(Verdict::new(ErrorClass::Auth)),
            false,
        ),
        (Turn::from(full).context_window(8), false),
        (AssistantMessage::success().into(), false),
        (AssistantMessage::aborted().into(), false),
    ] {
        let mut machine = RetryMachine::default();
        assert_eq!(
            machine.would_retry(&turn, Ambient::at(0)),
            retried,
            "{turn:?}"
        );
        assert_eq!(machine.phase(), Phase::Idle);
        let effects = machine.handle(turn.clone().into(), Ambient::at(0));
        let follows = effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::Sleep { .. } | Effect::SwitchCredential { .. }
            )
        });
        assert_eq!(follows, retried, "{turn:?}: {effects}");
    }
}

/// NU2 and NU4: a budget of 0 reports a failure that never was retried, each time anew.
#[test]
fn nu2_no_budget() {
    plays_on(
        settings(0, 2000),
        &[E(R), E(U)],
        "X(false,0,\"503 Service Unavailable\") cmp · X(false,0,\"You have hit your usage limit.\") cmp",
    );
}

/// NU3: the ladder doubles, and saturates where every JSON reader still keeps the number.
#[test]
fn nu3_ladder() {
    let delay = retry_machine::backoff::exponential_ms;
    let max = retry_machine::backoff::MAX_DELAY_MS;
    for (base, attempt, ms) in [
        (2000, 1, 2000),
        (2000, 3, 8000),
        (2000, 0, 2000),
        (0, 1000, 0),
        (1, 54, max),
        (1, 53, 1 << 52),
        (86_400_000, 28, max),
        (86_400_000, 27, 86_400_000 << 26),
        (1, u32::MAX, max),
        (u64::MAX, 1, max),
    ] {
        assert_eq!(
            delay(base, attempt),
            ms.min(max),
            "{base} ms, attempt {attempt}"
        );
    }
}

/// US3: what was read when the failure was handled counts, whatever is set while the answer is awaited.
#[test]
fn us3_settings_change_while_switching() {
    plays(
        &[E(U), set_base(7), set_max(9), Switched(false)],
        "switch · – · – · S(1,2000) drop sleep 2000",
    );
    let mut world = World::new(RetrySettings::default());
    world.play(&[E(U), set_max(9)]);
    let request = world.requests[0];
    let answer = Input::CredentialSwitched {
        request,
        switched: true,
    };
    let effects = world.machine.handle(answer, Ambient::at(0));
    let Some(Effect::Emit {
        event: RetryEvent::Start(start),
    }) = effects.iter().next()
    else {
        panic!("{effects}");
    };
    assert_eq!(
        (
            start.attempt,
            start.max_attempts,
            start.error_message.as_ref()
        ),
        (1, 3, U)
    );
}

/// The reason codes of ends, which the documented wire form does not show.
#[test]
fn end_reasons() {
    let cases: [(&[Do], EndReason); 7] = [
        (&[E(R), Wake, E(F)], EndReason::Fatal),
        (&[E(R), Wake, E(O)], EndReason::Overflow),
        (&[E(R), Wake, E(R)], EndReason::Exhausted),
        (&[E(R), disable(), Wake, E(R)], EndReason::Disabled),
        (
            &[E(R), Wake, ContinueFailed("gone")],
            EndReason::ContinueFailed,
        ),
        (&[E(R), Wake, Aborted], EndReason::Cancelled),
        (&[E(R), PromptStarted], EndReason::Cancelled),
    ];
    for (script, expected) in cases {
        let mut world = World::new(settings(1, 10));
        let (last, before) = script.split_last().expect("a script");
        world.play(before);
        let text = match last {
            E(text) => *text,
            _ => "",
        };
        let message = AssistantMessage::error(text);
        let aborted = AssistantMessage::aborted();
        let input = match last {
            E(_) => Input::message(&message),
            Aborted => Input::message(&aborted),
            PromptStarted => Input::PromptStarted,
            ContinueFailed(why) => Input::ContinueFailed {
                run: world.run.expect("a run"),
                error: (*why).into(),
            },
            _ => unreachable!(),
        };
        let ambient = world.ambient();
        let effects = world.machine.handle(input, ambient);
        let reason = effects.iter().find_map(|effect| match effect {
            Effect::Emit {
                event: RetryEvent::End(end),
            } => match &end.outcome {
                Outcome::Failure { reason, .. } => Some(*reason),
                Outcome::Success => None,
            },
            _ => None,
        });
        assert_eq!(reason, Some(expected), "{script:?}");
    }
}

/// The getters show the state after the step; the two clocks are told apart.
#[test]
fn getters_and_clocks() {
    let mut machine = RetryMachine::default();
    assert_eq!(
        (machine.phase(), machine.attempt(), machine.deadline()),
        (Phase::Idle, 0, None)
    );
    let failed =
        AssistantMessage::error(U.to_owned() + " Retry-After: Thu, 01 Jan 2026 00:00:10 GMT");
    let new_year_2026 = UnixMillis(1_767_225_600_000);
    let ambient = Ambient::new(new_year_2026, MonotonicMillis(77));
    let effects = machine
        .handle(Input::message(&failed), ambient)
        .into_owned();
    assert_eq!(
        effects.to_string(),
        "switch(10000)",
        "the hint by the wall clock"
    );
    assert_eq!(machine.phase(), Phase::Switching { attempt: 1 });
    let Some(&Effect::SwitchCredential { request, .. }) = effects.iter().next() else {
        panic!();
    };
    let answer = Input::CredentialSwitched {
        request,
        switched: false,
    };
    let effects = machine.handle(answer, ambient);
    assert_eq!(effects.len(), 3);
    assert_eq!(
        machine.deadline(),
        Some(MonotonicMillis(2077)),
        "the timer by the monotonic clock"
    );
    assert!(machine.is_retrying());
    assert_eq!(machine.settings(), &RetrySettings::default());
}

/// A machine is small beside what all machines share.
#[test]
fn a_machine_is_at_most_128_bytes() {
    let size = size_of::<RetryMachine>();
    assert!(size <= 128, "{size} bytes");
}
