//! ST2, ST7, ST10, AB4 and NU1 to NU5 on random inputs in any order.

use proptest::prelude::*;
use retry_machine::{
    Ambient, AssistantMessage, Effect, Input, Outcome, Phase, RequestId, RetryEvent, RetryMachine,
    RunId, SettingsPatch, StopReason, TimerId, Turn, Usage, backoff,
};

use crate::support::{F, O, R, U, WINDOW};

/// An input with ids that are fresh, stale or never given out.
#[derive(Clone, Debug)]
enum Op {
    Message(StopReason, &'static str, bool),
    Timer(u64),
    Switched(u64, bool),
    ContinueFailed(u64),
    AbortRetry,
    Abort,
    PromptStarted,
    Enabled(bool),
    MaxRetries(u32),
    BaseDelay(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let id = 0..40_u64;
    let text = prop_oneof![Just(R), Just(U), Just(F), Just(O), Just("")];
    let stop = prop_oneof![
        1 => Just(StopReason::Stop),
        1 => Just(StopReason::Length),
        1 => Just(StopReason::ToolUse),
        6 => Just(StopReason::Error),
        1 => Just(StopReason::Aborted),
    ];
    prop_oneof![
        8 => (stop, text, prop::bool::weighted(0.1)).prop_map(|(stop, text, full)| Op::Message(stop, text, full)),
        6 => id.clone().prop_map(Op::Timer),
        4 => (id.clone(), any::<bool>()).prop_map(|(id, switched)| Op::Switched(id, switched)),
        2 => id.prop_map(Op::ContinueFailed),
        1 => Just(Op::AbortRetry),
        1 => Just(Op::Abort),
        1 => Just(Op::PromptStarted),
        1 => any::<bool>().prop_map(Op::Enabled),
        1 => (0..6_u32).prop_map(Op::MaxRetries),
        1 => (0..5000_u64).prop_map(Op::BaseDelay),
    ]
}

/// What an observer may conclude from the inputs and effects alone.
#[derive(Default)]
struct Observer {
    open: bool,
    /// Retries announced since the chain opened: start events carry consecutive numbers from here.
    attempt: u32,
    /// After an abort in flight: the run that may bring nothing any more.
    silenced: bool,
    last_id: u64,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn st2_st7_st10_ab4_nu1_to_nu5(ops in prop::collection::vec((op(), 0..20_000_u64), 1..60)) {
        let mut machine = RetryMachine::default();
        let mut seen = Observer::default();
        let mut now = 0;
        for (op, passed) in ops {
            now += passed;
            let before = machine.clone();
            let message = match &op {
                Op::Message(stop, text, full) => {
                    let mut message = AssistantMessage::new(*stop);
                    message.error_message = Some((*text).to_owned());
                    if *full {
                        message.usage = Some(Usage::of_input(WINDOW, 1));
                    }
                    Some(message)
                }
                _ => None,
            };
            let patch = match &op {
                Op::Enabled(enabled) => Some(SettingsPatch::enabled(*enabled)),
                Op::MaxRetries(max) => SettingsPatch::builder().max_retries(*max).patch().ok(),
                Op::BaseDelay(ms) => SettingsPatch::builder().base_delay_ms(*ms).patch().ok(),
                _ => None,
            };
            let input = match (&op, &message) {
                (_, Some(message)) => Turn::message(message).context_window(WINDOW).into(),
                (Op::Timer(id), _) => Input::TimerFired(TimerId::from_u64(*id)),
                (Op::Switched(id, switched), _) => Input::CredentialSwitched {
                    request: RequestId::from_u64(*id),
                    switched: *switched,
                },
                (Op::ContinueFailed(id), _) => Input::ContinueFailed {
                    run: RunId::from_u64(*id),
                    error: "gone".into(),
                },
                (Op::AbortRetry, _) => Input::AbortRetry,
                (Op::Abort, _) => Input::Abort,
                (Op::PromptStarted, _) => Input::PromptStarted,
                _ => Input::SettingsChanged(patch.expect("in range")),
            };
            let settings = machine.settings().clone();
            let phase_before = machine.phase();
            let effects = machine.handle(input, Ambient::at(now)).into_owned();
            let phase = machine.phase();

            // ST2: open, retrying and attempt are one.
            let open = matches!(phase, Phase::Switching { .. } | Phase::Waiting { .. } | Phase::InFlight { .. });
            prop_assert_eq!(machine.is_retrying(), open);
            prop_assert_eq!(machine.attempt() > 0, open);
            prop_assert_eq!(machine.deadline().is_some(), matches!(phase, Phase::Waiting { .. }));

            let mut ended = false;
            let mut delay = None;
            for effect in effects.iter() {
                match effect {
                    Effect::Emit { event: RetryEvent::Start(start) } => {
                        prop_assert!(!ended, "ST7: nothing of a chain after its end");
                        // NU1: counted from 1, one by one.
                        prop_assert_eq!(start.attempt, phase.attempt());
                        prop_assert!(start.attempt <= start.max_attempts);
                        seen.open = true;
                        seen.attempt = start.attempt;
                        delay = Some(start.delay_ms);
                        if !matches!(op, Op::Switched(..)) {
                            // NU3 and NU5: by the settings of this failure.
                            prop_assert_eq!(start.max_attempts, settings.max_retries());
                            prop_assert_eq!(start.delay_ms, backoff::exponential_ms(settings.base_delay_ms(), start.attempt));
                            prop_assert!(settings.enabled());
                        }
                    }
                    Effect::Emit { event: RetryEvent::End(end) } => {
                        prop_assert!(!ended, "ST7: one end");
                        ended = true;
                        match &end.outcome {
                            Outcome::Success => prop_assert_eq!(end.attempt, phase_before.attempt()),
                            Outcome::Failure { final_error, .. } => {
                                // NU2: the last retry really made.
                                prop_assert_eq!(end.attempt, phase_before.attempt());
                                prop_assert!(!final_error.is_empty());
                            }
                        }
                        seen.open = false;
                    }
                    Effect::Sleep { timer, delay_ms } => {
                        prop_assert!(!seen.silenced, "AB4: no sleep from an aborted run");
                        prop_assert!(timer.as_u64() > seen.last_id, "ids are never reused");
                        seen.last_id = timer.as_u64();
                        if let Some(delay) = delay {
                            prop_assert_eq!(*delay_ms, delay);
                        }
                    }
                    Effect::ContinueAgent { run } => {
                        prop_assert!(!seen.silenced, "AB4: no continue from an aborted run");
                        prop_assert!(run.as_u64() > seen.last_id);
                        seen.last_id = run.as_u64();
                    }
                    Effect::SwitchCredential { request, .. } => {
                        prop_assert!(request.as_u64() > seen.last_id);
                        seen.last_id = request.as_u64();
                    }
                    Effect::CancelSleep { timer } => {
                        let armed = matches!(phase_before, Phase::Waiting { timer: armed, .. } if armed == *timer);
                        prop_assert!(armed, "only an armed timer is cancelled");
                    }
                    Effect::DropFailedMessage | Effect::AbortAgent | Effect::CheckCompaction { .. } => {}
                }
            }
            // ST7: a chain that was open and is not any more had its end, and NU4.
            if phase_before.attempt() > 0 && phase.attempt() == 0 {
                prop_assert!(ended);
            }
            if phase.attempt() > 0 && phase_before.attempt() > 0 {
                prop_assert!(!ended);
            }
            // An armed timer that is left is cancelled.
            if let Phase::Waiting { timer, .. } = phase_before
                && !matches!(phase, Phase::Waiting { timer: same, .. } if same == timer)
                && !matches!(op, Op::Timer(_))
            {
                let cancelled = effects.iter().any(|effect| matches!(effect, Effect::CancelSleep { .. }));
                prop_assert!(cancelled);
            }
            // ST10: an answer whose id is not awaited changes nothing.
            let awaited = match (&op, phase_before) {
                (Op::Timer(id), Phase::Waiting { timer, .. }) => timer.as_u64() == *id,
                (Op::Switched(..) | Op::ContinueFailed(_), _) => !effects.is_empty() || phase != phase_before,
                (Op::Timer(_), _) => false,
                _ => true,
            };
            if !awaited {
                prop_assert!(effects.is_empty());
                prop_assert_eq!(format!("{:?}", machine), format!("{:?}", before));
            }
            // AB4 again: who may speak after an abort.
            match &op {
                Op::Abort => seen.silenced = true,
                Op::AbortRetry if matches!(phase, Phase::Draining) => seen.silenced = true,
                _ if !matches!(phase, Phase::Draining) => seen.silenced = false,
                _ => {}
            }
            if let Op::PromptStarted = op {
                prop_assert_eq!(phase, Phase::Idle);
            }
        }
    }
}
