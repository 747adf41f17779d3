//! What the feature `tracing` says: a span per chain, an event per attempt, names of OpenTelemetry.

use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

use retry_machine::driver::RunEnd;
use retry_machine::shell::{Host, Run, tokio::Session};
use retry_machine::{ErrorClass, RetrySettings, Turn, Verdict};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::{Log, answer};

/// Writes down what it is told on one thread. It is the global subscriber all the same: what a scoped one hears depends
/// on what other tests do at that time.
struct Recorder {
    thread: ThreadId,
    log: Log,
    last: AtomicU64,
    entered: Mutex<Vec<u64>>,
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Recorder {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        std::thread::current().id() == self.thread
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        let mut fields = Fields(String::new());
        span.record(&mut fields);
        self.log
            .add(format!("span {id} {}:{}", span.metadata().name(), fields.0));
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        self.log.add(format!("{}:{}", span.into_u64(), fields.0));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let span = event
            .parent()
            .map(Id::into_u64)
            .or_else(|| self.entered.lock().unwrap().last().copied());
        self.log.add(format!("event in {span:?}:{}", fields.0));
    }

    fn enter(&self, span: &Id) {
        self.entered.lock().unwrap().push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.entered.lock().unwrap().pop();
    }
}

/// An agent that traces its calls.
struct Traced(Vec<RunEnd>);

impl Host for Traced {
    type Prompt = ();

    async fn run(&mut self, _: Run<()>) -> RunEnd {
        tracing::info!("call");
        tokio::task::yield_now().await;
        tracing::info!("called");
        self.0.remove(0)
    }
}

#[test]
fn a_span_per_chain_and_an_event_per_attempt() {
    let log = Log::default();
    let recorder = Recorder {
        thread: std::thread::current().id(),
        log: log.clone(),
        last: AtomicU64::new(0),
        entered: Mutex::default(),
    };
    tracing::subscriber::set_global_default(recorder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let fails = |class| RunEnd::from(Turn::failure("asleep").verdict(Verdict::new(class)));
        let ends = vec![
            fails(ErrorClass::Overloaded),
            answer(),
            fails(ErrorClass::Network),
            fails(ErrorClass::Auth),
        ];
        let mut session = Session::new(Traced(ends), RetrySettings::default());
        session.prompt(()).await;
        session.prompt(()).await;
    });
    insta::assert_snapshot!(log.lines().join("\n"));
}
