//! One table of scenarios; tokio in paused time, smol and a thread tell the same of each.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use retry_machine::driver::{Compaction, RunCause, RunEnd, SessionEvent};
use retry_machine::shell::{Handle, Host, Run, Session, Timer, blocking, tokio::TokioTimer};
use retry_machine::{
    AssistantMessage, CompactionCause, RetryEvent, RetrySettings, SettingsPatch, StopReason, Turn,
    Usage,
};

use super::{Log, SmolTimer};
use crate::driver::Observer;
use crate::support::{F, O, R, U, WINDOW, settings};

/// What the agent's n-th run does.
#[derive(Clone, Copy)]
enum Act {
    /// Ends with an error of this text.
    Fails(&'static str),
    /// Ends with `stop`; with usage above the window.
    Answers,
    AnswersFull,
    /// Ends the turn with `toolUse`.
    Tools,
    /// Hands in a `toolUse` message and goes on to this end.
    ToolsThen(&'static Self),
    /// Hands in a `toolUse` message and ends.
    Reported,
    /// Ends with `aborted`.
    Aborts,
    /// Cannot start.
    Refuses(&'static str),
    /// Ends without a message.
    Silent,
    /// Goes on until the user aborts.
    Hangs,
}

use Act::*;

/// When the user does something.
#[derive(Clone, Copy)]
enum When {
    /// In a hook, at the first event that begins so.
    Told(&'static str),
    /// From within the agent's n-th run, from 1.
    InRun(usize),
    /// From within the request for a credential.
    Switching,
    /// From within compaction.
    Compacting,
    /// From another task or thread, while this retry is waited for.
    Waiting(u32),
}

use When::*;

#[derive(Clone, Copy)]
enum Does {
    AbortRetry,
    Abort,
    Disable,
    BaseDelay(u64),
    /// Runs the agent without the session, and hands in how that ended.
    OwnRun(Act),
    Panic,
}

use Does::*;

#[derive(Clone)]
struct Scenario {
    name: &'static str,
    settings: RetrySettings,
    runs: &'static [Act],
    /// The answers of the credential store and of compaction; "no" and "done" after them.
    switches: &'static [bool],
    compactions: &'static [Compaction],
    user: &'static [(When, Does)],
    prompts: usize,
}

/// Waits of a millisecond, where they really pass.
fn scenario(name: &'static str, runs: &'static [Act]) -> Scenario {
    Scenario {
        name,
        settings: settings(3, 1),
        runs,
        switches: &[],
        compactions: &[],
        user: &[],
        prompts: 1,
    }
}

impl Scenario {
    fn on(self, settings: RetrySettings) -> Self {
        Self { settings, ..self }
    }

    /// With waits of a day, which nothing but a command ends.
    fn slow(self) -> Self {
        self.on(settings(3, 86_400_000))
    }

    fn user(self, user: &'static [(When, Does)]) -> Self {
        Self { user, ..self }
    }

    fn prompts(self, prompts: usize) -> Self {
        Self { prompts, ..self }
    }

    fn switches(self, switches: &'static [bool]) -> Self {
        Self { switches, ..self }
    }

    fn compactions(self, compactions: &'static [Compaction]) -> Self {
        Self {
            compactions,
            ..self
        }
    }
}

fn scenarios() -> Vec<Scenario> {
    use Compaction::{Done, RunAgain};
    let scenario = scenario;
    vec![
        scenario("answered at once", &[Answers]),
        scenario("recovers", &[Fails(R), Fails(R), Answers]),
        scenario("exhausted", &[Fails(R), Fails(R), Fails(R), Fails(R)]),
        scenario("no budget", &[Fails(R)]).on(settings(0, 1)),
        scenario("fatal at once", &[Fails(F)]),
        scenario("fatal in a chain", &[Fails(R), Fails(F)]),
        scenario("disabled", &[Fails(R)]).user(&[(InRun(1), Disable)]),
        scenario("no text", &[Fails("")]),
        scenario("overflow, compaction does nothing", &[Fails(O)]),
        scenario("overflow, cured", &[Fails(O), Answers]).compactions(&[RunAgain]),
        scenario(
            "overflow in a chain, cured",
            &[Fails(R), Fails(O), Fails(R), Answers],
        )
        .compactions(&[RunAgain]),
        scenario(
            "overflow, not cured: no second compaction",
            &[Fails(O), Fails(O)],
        )
        .compactions(&[RunAgain, RunAgain]),
        scenario("an answer above the window", &[Fails(R), AnswersFull]).compactions(&[Done]),
        scenario("compaction asks again and again", &[Answers, Answers])
            .compactions(&[RunAgain, RunAgain]),
        scenario("compaction aborted", &[Fails(O)])
            .compactions(&[RunAgain])
            .user(&[(Compacting, Abort)]),
        scenario("usage limit, another credential", &[Fails(U), Answers])
            .slow()
            .switches(&[true]),
        scenario("usage limit, no other", &[Fails(U), Answers]).switches(&[false]),
        scenario("abort retry while switching", &[Fails(U)])
            .slow()
            .switches(&[true])
            .user(&[(Switching, AbortRetry)]),
        scenario("abort while switching", &[Fails(U)])
            .slow()
            .switches(&[true])
            .user(&[(Switching, Abort)]),
        scenario("abort retry while waiting", &[Fails(R)])
            .slow()
            .user(&[(Waiting(1), AbortRetry)]),
        scenario("abort while waiting", &[Fails(R)])
            .slow()
            .user(&[(Waiting(1), Abort)]),
        scenario("abort retry in flight", &[Fails(R), Answers]).user(&[(InRun(2), AbortRetry)]),
        scenario("abort retry in flight, which fails", &[Fails(R), Fails(R)])
            .user(&[(InRun(2), AbortRetry)]),
        scenario(
            "abort retry in flight, tools go on",
            &[Fails(R), Tools, Fails(R)],
        )
        .user(&[(InRun(2), AbortRetry)]),
        scenario("abort in flight", &[Fails(R), Hangs]).user(&[(InRun(2), Abort)]),
        scenario("abort in the first run", &[Hangs]).user(&[(InRun(1), Abort)]),
        scenario("abort between two turns", &[Tools]).user(&[(InRun(1), Abort)]),
        scenario("a listener aborts between two turns", &[Fails(R), Tools])
            .user(&[(Told("X(true"), Abort)]),
        scenario("abort retry in the first run", &[Fails(R), Answers])
            .user(&[(InRun(1), AbortRetry)]),
        scenario("a listener aborts the retry at its start", &[Fails(R)])
            .slow()
            .user(&[(Told("S(1,"), AbortRetry)]),
        scenario("a listener aborts at the start", &[Fails(R)])
            .slow()
            .user(&[(Told("S(1,"), Abort)]),
        scenario("a listener aborts the retry at the run's end", &[Fails(R)])
            .slow()
            .user(&[(Told("run ended"), AbortRetry)]),
        scenario("a listener aborts at the run's end", &[Fails(R)])
            .slow()
            .user(&[(Told("run ended"), Abort)]),
        scenario("a listener forbids the retry at the run's end", &[Fails(R)])
            .user(&[(Told("run ended"), Disable)]),
        scenario("a listener aborts at the chain's end", &[Fails(R), Answers])
            .user(&[(Told("X(true"), Abort)]),
        scenario(
            "a listener aborts when all is settled",
            &[Answers, Fails(R), Answers],
        )
        .user(&[(Told("settled"), Abort)])
        .prompts(2),
        scenario("settings change in a wait", &[Fails(R), Fails(R), Answers])
            .user(&[(Told("S(1,"), BaseDelay(3))]),
        scenario("turned off in a wait", &[Fails(R), Fails(R)]).user(&[(Told("S(1,"), Disable)]),
        scenario("own run in a wait, answered", &[Fails(R)])
            .slow()
            .user(&[(Waiting(1), OwnRun(Answers))]),
        scenario("own run in a wait, fails", &[Fails(U), Answers])
            .slow()
            .switches(&[false, true])
            .user(&[(Waiting(1), OwnRun(Fails(U)))]),
        scenario("own run in a wait, cannot be cured", &[Fails(R)])
            .slow()
            .user(&[(Waiting(1), OwnRun(Fails(F)))]),
        scenario("continue fails", &[Fails(R), Refuses("the agent is busy")]),
        scenario("the retry brings no message", &[Fails(R), Silent]),
        scenario("the first run brings no message", &[Silent]),
        scenario("the first run cannot start", &[Refuses("no model")]),
        scenario(
            "tools, turn by turn",
            &[Fails(R), Tools, Tools, Fails(R), Answers],
        ),
        scenario(
            "tools, within a run",
            &[Fails(R), ToolsThen(&Fails(R)), ToolsThen(&Answers)],
        ),
        scenario("all reported within the run", &[Fails(R), Reported]),
        scenario("the agent says it was aborted", &[Fails(R), Aborts]),
        scenario(
            "a prompt after a cancelled one",
            &[Fails(R), Fails(R), Fails(R), Answers],
        )
        .on(settings(2, 2))
        .user(&[(Told("S(2,"), AbortRetry)])
        .prompts(2),
        scenario("a hook panics", &[Fails(R), Answers]).user(&[(Told("S(1,"), Panic)]),
    ]
}

/// The agent of a scenario; it and the hooks write the same log.
#[derive(Clone)]
struct Agent {
    scenario: Scenario,
    log: Log,
    runs: usize,
    switches: usize,
    compactions: usize,
}

fn message(act: Act) -> AssistantMessage {
    match act {
        Fails(text) => AssistantMessage::error(text),
        Answers => AssistantMessage::success(),
        AnswersFull => AssistantMessage::success().with_usage(Usage::of_input(WINDOW, 1)),
        Tools => AssistantMessage::new(StopReason::ToolUse),
        Aborts | Hangs => AssistantMessage::aborted(),
        ToolsThen(_) | Reported | Refuses(_) | Silent => panic!("no message"),
    }
}

fn act(handle: &Handle, does: Does) {
    match does {
        AbortRetry => handle.abort_retry(),
        Abort => handle.abort(),
        Disable => handle.set_auto_retry_enabled(false),
        BaseDelay(ms) => {
            handle.update_settings(SettingsPatch::builder().base_delay_ms(ms).patch().unwrap());
        }
        OwnRun(end) => handle.message_ended(message(end)),
        Panic => panic!("a hook of the test panics"),
    }
}

impl Agent {
    fn new(scenario: &Scenario) -> Self {
        Self {
            scenario: scenario.clone(),
            log: Log::default(),
            runs: 0,
            switches: 0,
            compactions: 0,
        }
    }

    fn user(&self, handle: &Handle, is_now: impl Fn(When) -> bool) {
        for (when, does) in self.scenario.user {
            if is_now(*when) {
                act(handle, *does);
            }
        }
    }

    /// The next run; None if it hangs.
    fn run(&mut self, run: &Run<&'static str>) -> Option<RunEnd> {
        self.log.add(match run.cause {
            RunCause::Prompt => format!("run({})", run.prompt.unwrap()),
            RunCause::Continue { attempt } => format!("run(continue {attempt})"),
            RunCause::NextTurn => "run(next turn)".to_owned(),
            RunCause::RunAgain => "run(again)".to_owned(),
        });
        self.runs += 1;
        self.user(
            run.handle(),
            |when| matches!(when, InRun(n) if n == self.runs),
        );
        let mut now = *self.scenario.runs.get(self.runs - 1).unwrap_or_else(|| {
            panic!(
                "{}: one run too many: {:?}",
                self.scenario.name,
                self.log.lines()
            )
        });
        if let ToolsThen(end) = now {
            run.message_ended(message(Tools));
            now = *end;
        }
        Some(match now {
            Hangs => return None,
            Refuses(why) => RunEnd::NoMessage(why.to_owned()),
            Silent => RunEnd::Reported,
            Reported => {
                run.message_ended(message(Tools));
                // Not this one: a failure is for the run's end (EF1).
                run.message_ended(AssistantMessage::error(R));
                RunEnd::Reported
            }
            Fails(_) | Answers | AnswersFull | Tools | ToolsThen(_) | Aborts => {
                Turn::from(message(now)).context_window(WINDOW).into()
            }
        })
    }

    fn drop_failed(&self) {
        self.log.add("drop");
    }

    fn switch(&mut self, handle: &Handle, retry_after_ms: Option<u64>) -> bool {
        self.log.add(format!("switch({retry_after_ms:?})"));
        self.user(handle, |when| matches!(when, Switching));
        self.switches += 1;
        self.scenario.switches.get(self.switches - 1) == Some(&true)
    }

    fn compact(&mut self, handle: &Handle, cause: CompactionCause) -> Compaction {
        self.log.add(format!("compact({cause:?})"));
        self.user(handle, |when| matches!(when, Compacting));
        self.compactions += 1;
        self.scenario
            .compactions
            .get(self.compactions - 1)
            .copied()
            .unwrap_or_default()
    }

    /// The hooks: first one that misbehaves, then the one that writes it all down, then one that commands.
    fn listen(&self, handle: &Handle, observer: &Arc<Mutex<Observer>>) {
        let (first, last): (Vec<_>, Vec<_>) = self
            .scenario
            .user
            .iter()
            .partition(|(_, does)| matches!(does, Panic));
        self.command_once(handle, first);
        let log = self.log.clone();
        let observer = Arc::clone(observer);
        handle.hook(move |event| {
            log.add(event);
            observer.lock().unwrap().see(event);
        });
        self.command_once(handle, last);
    }

    fn command_once(&self, handle: &Handle, commands: Vec<&(When, Does)>) {
        for (when, does) in commands.into_iter().copied() {
            let Told(beginning) = when else { continue };
            let mut done = false;
            let commander = handle.clone();
            handle.hook(move |event| {
                if !done && event.to_string().starts_with(beginning) {
                    done = true;
                    act(&commander, does);
                }
            });
        }
    }

    /// What the user does now that this has been told and the session has gone to sleep.
    fn user_sees(&self, handle: &Handle, event: &SessionEvent) {
        if let SessionEvent::Retry(RetryEvent::Start(start)) = event {
            self.user(
                handle,
                |when| matches!(when, Waiting(n) if n == start.attempt),
            );
        }
    }
}

/// The agent, as a session has it.
struct Hosted {
    agent: Agent,
    handle: Option<Handle>,
}

impl Hosted {
    fn handle(&self) -> Handle {
        self.handle.clone().expect("set before the first prompt")
    }
}

impl Host for Hosted {
    type Prompt = &'static str;

    async fn run(&mut self, run: Run<&'static str>) -> RunEnd {
        match self.agent.run(&run) {
            Some(end) => end,
            None => pending().await,
        }
    }

    fn drop_failed_message(&mut self) {
        self.agent.drop_failed();
    }

    async fn switch_credential(&mut self, retry_after_ms: Option<u64>) -> bool {
        let handle = self.handle();
        self.agent.switch(&handle, retry_after_ms)
    }

    async fn compact(&mut self, cause: CompactionCause) -> Compaction {
        let handle = self.handle();
        self.agent.compact(&handle, cause)
    }
}

impl blocking::Host for Hosted {
    type Prompt = &'static str;

    fn run(&mut self, run: Run<&'static str>) -> RunEnd {
        self.agent.run(&run).unwrap_or_else(|| {
            assert!(
                run.abort_signal().wait(Duration::from_secs(10)),
                "nobody aborts"
            );
            AssistantMessage::aborted().into()
        })
    }

    fn drop_failed_message(&mut self) {
        self.agent.drop_failed();
    }

    fn switch_credential(&mut self, retry_after_ms: Option<u64>) -> bool {
        let handle = self.handle();
        self.agent.switch(&handle, retry_after_ms)
    }

    fn compact(
        &mut self,
        cause: CompactionCause,
        _: &retry_machine::shell::AbortSignal,
    ) -> Compaction {
        let handle = self.handle();
        self.agent.compact(&handle, cause)
    }
}

async fn play<T: Timer>(scenario: &Scenario, timer: T) -> Vec<String> {
    let agent = Agent::new(scenario);
    let observer = Arc::default();
    let hosted = Hosted {
        agent: agent.clone(),
        handle: None,
    };
    let mut session = Session::with_timer(hosted, scenario.settings.clone(), timer);
    let handle = session.handle();
    session.host_mut().handle = Some(handle.clone());
    agent.listen(&handle, &observer);
    let prompts = async {
        for _ in 0..scenario.prompts {
            let settled = session.prompt("hi").await;
            agent
                .log
                .add(format!("= {settled}, {} retries", settled.retries));
        }
    };
    // Polled after the session has gone to sleep.
    let mut events = handle.subscribe(100);
    let user = async {
        while let Some(event) = events.next().await {
            agent.user_sees(&handle, &event.expect("room for all"));
        }
    };
    futures_lite::future::or(prompts, user).await;
    observer.lock().unwrap().check(scenario.prompts);
    agent.log.lines()
}

fn under_tokio(scenario: &Scenario) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { play(scenario, TokioTimer::default()).await })
}

fn under_smol(scenario: &Scenario) -> Vec<String> {
    async_io::block_on(play(scenario, SmolTimer::default()))
}

fn on_a_thread(scenario: &Scenario) -> Vec<String> {
    let agent = Agent::new(scenario);
    let observer = Arc::default();
    let hosted = Hosted {
        agent: agent.clone(),
        handle: None,
    };
    let mut session = blocking::Session::new(hosted, scenario.settings.clone());
    let handle = session.handle();
    session.host_mut().handle = Some(handle.clone());
    agent.listen(&handle, &observer);
    let mut events = handle.subscribe(100);
    let prompts = scenario.prompts;
    let log = agent.log.clone();
    let thread = std::thread::spawn(move || {
        for _ in 0..prompts {
            let settled = session.prompt("hi");
            log.add(format!("= {settled}, {} retries", settled.retries));
        }
    });
    while let Some(event) = events.wait_next(Duration::from_secs(10)) {
        // Time for the session to go to sleep; if it does not, the command waits its turn.
        handle.block_until_settled(Duration::from_millis(1));
        agent.user_sees(&handle, &event.expect("room for all"));
    }
    thread.join().unwrap();
    observer.lock().unwrap().check(scenario.prompts);
    agent.log.lines()
}

/// EF1, EF2, PR1 to PR3, AB1 to AB4, ST7, ST8, US1 to US3: the same under every shell.
#[test]
fn the_same_under_every_shell() {
    let mut told = String::new();
    for scenario in scenarios() {
        let lines = under_tokio(&scenario);
        let name = scenario.name;
        assert_eq!(under_smol(&scenario), lines, "{name}: smol and tokio");
        assert_eq!(on_a_thread(&scenario), lines, "{name}: a thread and tokio");
        told += &format!("{name}: {}\n", lines.join(" · "));
    }
    insta::assert_snapshot!(told);
}
