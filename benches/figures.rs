//! What the benches share: criterion's clock, of which the table reads as well, and the table.

#![allow(clippy::disallowed_methods, reason = "a bench has a clock")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each bench is a binary of its own and uses a part"
)]

use std::fmt::Display;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;

/// Shorter samples say more of the clock than of what is measured.
const SHORTEST: Duration = Duration::from_micros(20);

/// Whether this is `cargo bench`; `cargo test --benches` only runs everything once.
pub fn measuring() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

/// Criterion, and the fastest sample of each thing that it measures: on a machine that others use as well, the
/// fastest is the one that was disturbed least, and ratios of the fastest stay the same from run to run.
pub struct Bench(Criterion);

impl Bench {
    /// Samples of together `measure_ms` for each thing.
    pub fn new(measure_ms: u64) -> Self {
        let criterion = Criterion::default()
            .without_plots()
            .sample_size(20)
            .warm_up_time(Duration::from_millis(measure_ms / 4))
            .measurement_time(Duration::from_millis(measure_ms))
            .configure_from_args();
        Self(criterion)
    }

    /// Nanoseconds of a call of `routine`; None if the command line has filtered it out.
    pub fn time<T>(
        &mut self,
        id: impl Into<String>,
        mut routine: impl FnMut() -> T,
    ) -> Option<f64> {
        let mut fastest = f64::INFINITY;
        self.0.bench_function(&id.into(), |bencher| {
            bencher.iter_custom(|calls| {
                let start = Instant::now();
                for _ in 0..calls {
                    black_box(routine());
                }
                let took = start.elapsed();
                if took >= SHORTEST {
                    fastest = fastest.min(took.as_nanos() as f64 / calls as f64);
                }
                took
            });
        });
        fastest.is_finite().then_some(fastest)
    }
}

/// Nanoseconds of a call of `routine` on each of the inputs, taken in turn, so that what disturbs one disturbs all: for
/// figures that compare a thing with itself. Again the fastest sample of each.
pub fn in_turn<I, T, const N: usize>(
    inputs: &[I; N],
    mut routine: impl FnMut(&I) -> T,
) -> [f64; N] {
    const ROUNDS: usize = 60;
    const SAMPLE: Duration = Duration::from_micros(300);
    let mut fastest = [f64::INFINITY; N];
    for _ in 0..ROUNDS {
        for (fastest, input) in fastest.iter_mut().zip(inputs) {
            let mut calls = 0;
            let start = Instant::now();
            let took = loop {
                black_box(routine(input));
                calls += 1;
                let took = start.elapsed();
                if took >= SAMPLE {
                    break took;
                }
            };
            *fastest = fastest.min(took.as_nanos() as f64 / f64::from(calls));
        }
    }
    fastest
}

/// What a figure should be.
#[derive(Clone, Copy)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// It is there to compare.
    None,
}

/// The table with which each bench ends.
pub struct Table {
    rows: Vec<[String; 4]>,
}

impl Table {
    pub fn new(title: &str) -> Self {
        let head = [title, "measured", "target", ""].map(str::to_owned);
        Self { rows: vec![head] }
    }

    /// A figure with its unit, unless it was not measured.
    pub fn figure(&mut self, name: impl Display, value: Option<f64>, unit: &str, target: Target) {
        let Some(value) = value else {
            return;
        };
        let (sign, bound, reached) = match target {
            Target::AtMost(bound) => ("≤ ", Some(bound), value <= bound),
            Target::AtLeast(bound) => ("≥ ", Some(bound), value >= bound),
            Target::None => ("", None, true),
        };
        let verdict = match (bound, reached) {
            (None, _) => "",
            (Some(_), true) => "ok",
            (Some(_), false) => "NOT REACHED",
        };
        self.rows.push([
            name.to_string(),
            format!("{}{unit}", short(value)),
            bound.map_or(String::new(), |bound| {
                format!("{sign}{}{unit}", short(bound))
            }),
            verdict.to_owned(),
        ]);
    }

    /// How many times as long `this` takes as `that`.
    pub fn ratio(
        &mut self,
        name: impl Display,
        this: Option<f64>,
        that: Option<f64>,
        target: Target,
    ) {
        let ratio = this.zip(that).map(|(this, that)| this / that);
        self.figure(name, ratio, "×", target);
    }

    /// Prints it, if there was something to measure.
    pub fn print(&self) {
        if self.rows.len() < 2 {
            return;
        }
        let width = |column: usize| {
            let widths = self.rows.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let [name, value, target] = [0, 1, 2].map(width);
        println!();
        for row in &self.rows {
            let line = format!(
                "{:name$}  {:>value$}  {:>target$}  {}",
                row[0], row[1], row[2], row[3]
            );
            println!("{}", line.trim_end());
        }
        println!();
    }
}

/// Three digits, and thousands apart.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        ..0.1 => 4,
        ..1.0 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if decimals > 0 {
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return text.to_owned();
    }
    let mut grouped = String::new();
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && (text.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
