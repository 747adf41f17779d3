//! 10,000 retries in the tokio shell with paused time, against a bare loop with the same sleeps.

#![allow(clippy::disallowed_methods, reason = "a bench has a clock")]
#![allow(missing_docs, reason = "a bench has no outside")]

mod figures;

use std::hint::black_box;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use figures::Target::{AtMost, None as Compare};
use figures::{Bench, Table};
use retry_machine::driver::RunEnd;
use retry_machine::shell::{Host, Run, tokio::Session};
use retry_machine::{AssistantMessage, ErrorClass, RetrySettings, Turn, Verdict};
use tokio::runtime::Runtime;

const RETRIES: u32 = 10_000;
/// A chain has at most 1,000 retries.
const CHAIN: u32 = 1_000;
const DELAY: Duration = Duration::from_millis(2000);
const TEXT: &str = "503 Service Unavailable";

/// Fails as often as it is told to, and then answers.
struct Agent {
    failures: u32,
    /// What it says of its failures itself; else the classifier is asked.
    verdict: Option<Verdict>,
}

impl Agent {
    fn new(verdict: Option<Verdict>) -> Self {
        Self {
            failures: 0,
            verdict,
        }
    }

    fn call(&mut self) -> Result<AssistantMessage, &'static str> {
        if self.failures == 0 {
            return Ok(AssistantMessage::success());
        }
        self.failures -= 1;
        Err(black_box(TEXT))
    }
}

impl Host for Agent {
    type Prompt = ();

    async fn run(&mut self, _: Run<()>) -> RunEnd {
        match self.call() {
            Ok(message) => message.into(),
            Err(text) => match &self.verdict {
                Some(verdict) => Turn::failure(text).verdict(verdict.clone()).into(),
                None => RunEnd::failure(text),
            },
        }
    }
}

/// A runtime whose clock stands still but for sleeps: they end at once.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

fn session(verdict: Option<Verdict>) -> u32 {
    let settings = RetrySettings::builder()
        .max_retries(CHAIN)
        .base_delay_ms(2000)
        .set("delay.maxBackoffMs", 2000_u64)
        .build()
        .expect("settings in range");
    runtime().block_on(async {
        let mut session = Session::new(Agent::new(verdict), settings);
        let mut retries = 0;
        while retries < RETRIES {
            session.host_mut().failures = CHAIN;
            retries += session.prompt(()).await.retries;
        }
        assert_eq!(retries, RETRIES);
        retries
    })
}

fn bare_loop() -> u32 {
    runtime().block_on(async {
        let mut agent = Agent::new(None);
        let mut retries = 0;
        while retries < RETRIES {
            agent.failures = CHAIN;
            while let Err(text) = agent.call() {
                black_box(text);
                retries += 1;
                tokio::time::sleep(DELAY).await;
            }
        }
        assert_eq!(retries, RETRIES);
        retries
    })
}

fn by_backon() -> u32 {
    runtime().block_on(async {
        let mut agent = Agent::new(None);
        let mut retries = 0;
        let delays = ConstantBuilder::default()
            .with_delay(DELAY)
            .with_max_times(CHAIN as usize);
        while retries < RETRIES {
            agent.failures = CHAIN;
            let called = (|| std::future::ready(agent.call()))
                .retry(delays)
                .sleep(tokio::time::sleep)
                .notify(|_, _| retries += 1)
                .await;
            assert!(called.is_ok());
        }
        retries
    })
}

fn main() {
    let mut bench = Bench::new(1500);
    let mut table = Table::new("10,000 retries, paused time");
    let bare = bench.time("bare loop with tokio::time::sleep", bare_loop);
    let whole = bench.time("tokio shell", || session(None));
    let judged = bench.time("tokio shell, verdict given", || {
        session(Some(Verdict::new(ErrorClass::Overloaded)))
    });
    let backon = bench.time("backon", by_backon);
    let each = |ns: Option<f64>| ns.map(|ns| ns / f64::from(RETRIES));
    table.figure("bare loop, a retry", each(bare), " ns", Compare);
    table.figure("tokio shell, a retry", each(whole), " ns", Compare);
    table.ratio("tokio shell / bare loop", whole, bare, AtMost(2.0));
    table.ratio("  the same without classification", judged, bare, Compare);
    table.ratio("backon / bare loop", backon, bare, Compare);
    table.print();
}
