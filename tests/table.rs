//! The whole transition table of SPEC section 4, made by the real machine.

use std::fmt::Write;

use retry_machine::{Phase, RetrySettings};

use crate::support::Do::{self, *};
use crate::support::{F, O, R, U, World, disable, set_max, settings, shared};

/// Attempts and delays of the open chain: it is at retry 2 of at most 5, base 1000.
const N: u32 = 2;

/// The rows of the specification, each with the inputs that show it.
fn rows() -> Vec<(&'static str, Vec<Do>)> {
    vec![
        ("success, ends the run", vec![Ok]),
        ("success, `toolUse`", vec![OkToolUse]),
        ("retryable, within", vec![E(R)]),
        ("usage limit, within", vec![E(U)]),
        ("retryable or usage limit, over", vec![set_max(0), E(R)]),
        (
            "retryable or usage limit, off; fatal",
            vec![disable(), E(R)],
        ),
        ("overflow", vec![E(O)]),
        ("aborted message", vec![Aborted]),
        ("awaited answer or timer", vec![Wake]),
        ("awaited continue failed", vec![ContinueFailed("why")]),
        (
            "any other answer, timer or continue failed",
            vec![WakeAgain, SwitchedFirst(true)],
        ),
        ("abort retry", vec![AbortRetry]),
        ("abort", vec![Abort]),
        ("prompt started", vec![PromptStarted]),
        ("settings changed", vec![set_max(4)]),
    ]
}

const STATES: [&str; 5] = [
    "idle",
    "switching(n)",
    "waiting(n)",
    "in flight(n)",
    "draining",
];

/// A machine in the state of that column, with an old timer, request and run known.
fn in_state(column: usize) -> World {
    let mut world = World::new(settings(5, 1000));
    // An earlier chain leaves stale ids behind.
    world.play(&[E(U), Switched(false), Wake, Ok, PromptStarted]);
    match column {
        0 => {}
        1 => drop(world.play(&[E(R), Wake, E(U)])),
        2 => drop(world.play(&[E(R), Wake, E(R)])),
        3 => drop(world.play(&[E(R), Wake, E(R), Wake])),
        _ => drop(world.play(&[E(R), Wake, E(R), Wake, AbortRetry])),
    }
    world
}

fn state(phase: Phase) -> String {
    let symbol = |attempt: u32| match attempt {
        N => "n".to_owned(),
        3 => "n+1".to_owned(),
        other => other.to_string(),
    };
    match phase {
        Phase::Idle => "idle".to_owned(),
        Phase::Switching { attempt } => format!("switching({})", symbol(attempt)),
        Phase::Waiting { attempt, .. } => format!("waiting({})", symbol(attempt)),
        Phase::InFlight { attempt } => format!("in flight({})", symbol(attempt)),
        Phase::Draining => "draining".to_owned(),
    }
}

/// Effects with the specification's symbols in place of numbers and texts.
fn symbols(effects: &str) -> String {
    let mut text = effects.to_owned();
    for (from, to) in [
        ("S(1,1000) drop sleep 1000", "S(1,d1) drop sleep"),
        ("S(3,4000) drop sleep 4000", "S(n+1,d) drop sleep"),
        ("S(2,2000) drop sleep 2000", "S(n,d) drop sleep(d)"),
        ("S(2,0) drop sleep 0", "S(n,0) drop sleep(0)"),
        ("X(true,2)", "X(true,n)"),
        ("X(false,2,", "X(false,n,"),
        ("\"why\"", "why"),
        ("cancel ", "cancel, "),
        ("cont", "continue"),
        (" abort agent", ", abort agent"),
    ] {
        text = text.replace(from, to);
    }
    for failing in [R, U, F, O] {
        text = text.replace(&format!("{failing:?}"), "text");
    }
    text
}

/// One cell: effects → next state.
fn cell(column: usize, row: &str, inputs: &[Do]) -> String {
    let mut world = in_state(column);
    let before = world.machine.phase();
    if row.starts_with("awaited answer") {
        return match before {
            Phase::Switching { .. } => {
                let mut yes = in_state(column);
                let yes = symbols(&yes.step(&Switched(true)));
                let no = symbols(&world.step(&Switched(false)));
                format!("yes: {yes}; no: {no} → {}", state(world.machine.phase()))
            }
            Phase::Waiting { .. } => {
                let effects = symbols(&world.step(&Wake));
                format!("{effects} → {}", state(world.machine.phase()))
            }
            Phase::Idle | Phase::InFlight { .. } | Phase::Draining => "–".to_owned(),
        };
    }
    if row.starts_with("awaited continue")
        && !matches!(before, Phase::InFlight { .. } | Phase::Draining)
    {
        return "–".to_owned();
    }
    let effects: Vec<_> = inputs
        .iter()
        .map(|input| world.step(input))
        .filter(|effects| effects != "–")
        .collect();
    let after = world.machine.phase();
    if row.starts_with("settings") {
        let stored = world.machine.settings().max_retries() == 4;
        return if stored && before == after {
            "stored"
        } else {
            "lost"
        }
        .to_owned();
    }
    let quiet = effects.is_empty() && before == after;
    let told = matches!(row, "any other answer, timer or continue failed") || row == "abort retry";
    if quiet && told {
        return "nothing".to_owned();
    }
    let effects = symbols(&effects.join(" "));
    let next = state(after);
    if effects.is_empty() {
        format!("→ {next}")
    } else {
        format!("{effects} → {next}")
    }
}

fn table() -> Vec<Vec<String>> {
    rows()
        .iter()
        .map(|(row, inputs)| {
            let mut cells = vec![(*row).to_owned()];
            cells.extend((0..STATES.len()).map(|column| cell(column, row, inputs)));
            cells
        })
        .collect()
}

#[test]
fn st_table() {
    let mut text = format!("| input | {} |\n", STATES.join(" | "));
    for cells in table() {
        writeln!(text, "| {} |", cells.join(" | ")).expect("a string takes everything");
    }
    insta::assert_snapshot!(text);
}

/// The rows that stand for several inputs behave alike for each of them.
#[test]
fn st_table_rows_that_stand_for_several_inputs() {
    let alike: [(&[Do], &[Do]); 4] = [
        (&[set_max(0), E(R)], &[set_max(0), E(U)]),
        (&[disable(), E(R)], &[disable(), E(U)]),
        (&[disable(), E(R)], &[E(R)]),
        (&[Ok], &[OkLength]),
    ];
    for (column, state) in STATES.iter().enumerate() {
        for (one, other) in &alike[..2] {
            let shown = |inputs: &[Do]| {
                let mut world = in_state(column);
                let effects = symbols(&world.play(inputs));
                (effects, world.machine.phase().name())
            };
            assert_eq!(shown(one), shown(other), "{one:?} and {other:?} in {state}");
        }
        let fatal = symbols(&in_state(column).play(&[E(F)]));
        let off = symbols(&in_state(column).play(&[disable(), E(R)]));
        assert_eq!(format!("– · {fatal}"), off, "fatal in {state}");
        let stop = in_state(column).play(&[Ok]);
        let length = in_state(column).play(&[OkLength]);
        assert_eq!(stop, length);
    }
}

/// Cell by cell against the specification itself.
#[test]
fn st_table_is_the_specification() {
    let Some(path) = shared("spec/SPEC.md") else {
        return;
    };
    let spec = std::fs::read_to_string(path).expect("the specification");
    let start = spec.find("| input | idle |").expect("the table");
    let normal = |cell: &str| {
        cell.trim()
            .replace("X(…)", "X(false,n,\"Retry cancelled\")")
            .replace([',', ' '], "")
            .replace("sleep(d)", "sleep")
    };
    let specified: Vec<Vec<String>> = spec[start..]
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(normal).collect())
        .collect();
    let made: Vec<Vec<String>> = table()
        .iter()
        .map(|cells| cells.iter().map(|cell| normal(cell)).collect())
        .collect();
    assert_eq!(specified.len(), made.len());
    for (specified, made) in specified.iter().zip(&made) {
        assert_eq!(specified, made);
    }
}

#[test]
fn defaults_are_the_documented_ones() {
    let settings = RetrySettings::default();
    assert_eq!(
        (
            settings.enabled(),
            settings.max_retries(),
            settings.base_delay_ms()
        ),
        (true, 3, 2000)
    );
}
