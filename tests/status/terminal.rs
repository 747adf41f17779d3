//! A real process at a real pseudo-terminal: the countdown, its keys, and the terminal's mode on every way out.
//!
//! The process is this test binary again, with [`agent`] as its only test.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use retry_machine::driver::{PromptOutcome, RunEnd, SessionEvent};
use retry_machine::shell::Run;
use retry_machine::shell::blocking::{Host, Session};
use retry_machine::status::{Options, Screen, Terminal};
use retry_machine::{AssistantMessage, RetryEvent, RetrySettings, Turn};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OutputModes, Termios, Winsize, tcgetattr, tcsetwinsize};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Says what the process is to do.
const SCENE: &str = "RETRY_MACHINE_STATUS_SCENE";

const LOADER: &str = "Retrying (1/3) in 60s… (esc to cancel)";
const CANCELLED: &str = "Retry failed after 1 attempt: Retry cancelled";

/// A pseudo-terminal with a process at it.
struct Pty {
    keyboard: File,
    terminal: OwnedFd,
    child: Child,
    before: Termios,
    shown: Arc<(Mutex<Vec<u8>>, Condvar)>,
}

impl Pty {
    fn start(scene: &str, adapt: impl FnOnce(&mut Command)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let terminal = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
        let keyboard = File::from(master);
        let before = tcgetattr(&terminal).unwrap();
        let mut command = command(scene);
        command
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal.try_clone().unwrap());
        adapt(&mut command);
        resize(&terminal, 80);
        let child = command.spawn().unwrap();
        let shown = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let (screen, mut reader) = (Arc::clone(&shown), keyboard.try_clone().unwrap());
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut piece) {
                screen.0.lock().unwrap().extend(&piece[..length]);
                screen.1.notify_all();
            }
        });
        Self {
            keyboard,
            terminal,
            child,
            before,
            shown,
        }
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&self.shown.0.lock().unwrap()).into_owned()
    }

    /// Waits until this has been written.
    fn see(&self, text: &str) {
        let seen = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains(text);
        let bytes = self.shown.0.lock().unwrap();
        let (bytes, _) = self
            .shown
            .1
            .wait_timeout_while(bytes, PATIENCE, |bytes| !seen(bytes))
            .unwrap();
        let all = String::from_utf8_lossy(&bytes);
        assert!(seen(&bytes), "no {text:?} in {all:?}");
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Single keys and no echo; line breaks as others write them.
    fn is_raw(&self) -> bool {
        let mode = tcgetattr(&self.terminal).unwrap();
        let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        let raw = !mode.local_modes.intersects(cooked);
        assert!(mode.output_modes.contains(OutputModes::OPOST));
        raw
    }

    fn assert_restored(&self) {
        let mode = tcgetattr(&self.terminal).unwrap();
        assert_eq!(format!("{mode:?}"), format!("{:?}", self.before));
    }

    /// The exit code, and what is left on the screen.
    fn end(mut self) -> (ExitStatus, String) {
        let status = ended(&mut self.child);
        self.assert_restored();
        // What has been written last comes last.
        File::from(self.terminal.try_clone().unwrap())
            .write_all(b"the end")
            .unwrap();
        self.see("the end");
        let mut screen = vt100::Parser::new(50, 80, 0);
        screen.process(self.output().as_bytes());
        (status, screen.screen().contents())
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: &OwnedFd, columns: u16) {
    let size = Winsize {
        ws_row: 50,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

fn command(scene: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "status::terminal::agent", "--ignored"])
        .args(["--nocapture", "--quiet", "--test-threads=1"])
        .env(SCENE, scene)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    command
}

fn ended(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None if Instant::now() > end => panic!("it does not end"),
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// The agent of the process: its first runs fail as the scene says, the last one answers.
struct Agent {
    screen: Screen,
    failures: Vec<&'static str>,
    hangs: bool,
}

impl Host for Agent {
    type Prompt = ();

    fn run(&mut self, run: Run<()>) -> RunEnd {
        self.screen.continue_agent();
        if self.hangs {
            self.screen.print("in a call\n").unwrap();
            assert!(run.abort_signal().wait(PATIENCE), "nobody aborts");
            return AssistantMessage::aborted().into();
        }
        match self.failures.pop() {
            Some(failure) => {
                self.screen.print("half an answ").unwrap();
                RunEnd::failure(failure)
            }
            None => {
                self.screen.print("a whole answer\n").unwrap();
                AssistantMessage::success().into()
            }
        }
    }
}

/// What the process does. Exits as `ask` does.
#[test]
#[ignore = "what the other tests start as a process of its own"]
fn agent() {
    let Ok(scene) = std::env::var(SCENE) else {
        return;
    };
    // With a terminal, it is ours from now on.
    rustix::process::setsid().unwrap();
    let _ = rustix::process::ioctl_tiocsctty(rustix::stdio::stdin());
    let delay_ms = match scene.as_str() {
        "short" | "exhausted" => 1,
        _ => 60_000,
    };
    let settings = RetrySettings::builder()
        .base_delay_ms(delay_ms)
        .max_retries(if scene == "exhausted" { 1 } else { 3 });
    let agent = Agent {
        screen: Screen::default(),
        failures: match scene.as_str() {
            "exhausted" => vec!["503 \x1b[2J overloaded", "503"],
            _ => vec!["503 Service Unavailable"],
        },
        hangs: scene == "call",
    };
    let mut session = Session::new(agent, settings.build().unwrap());
    let handle = session.handle();
    let options = Options::default().lines(scene == "lines");
    let terminal = Terminal::start(handle.clone(), options).unwrap();
    let screen = terminal.screen();
    session.host_mut().screen = screen.clone();
    let (started, starts) = mpsc::channel();
    let writer = screen.clone();
    let again = (scene == "again").then(|| handle.clone());
    let writes = scene == "others";
    handle.hook(move |event| {
        if let SessionEvent::Retry(RetryEvent::Start(start)) = event {
            let _ = started.send(());
            if let Some(handle) = again.as_ref().filter(|_| start.attempt == 1) {
                // A failed run of the host's own during the wait (ST8).
                handle.message_ended(Turn::failure("503"));
            }
            if writes {
                writer.print("some ").unwrap();
                writer.print("words\n").unwrap();
                writer.suspend(|| eprintln!("a log line"));
            }
        }
    });
    if scene == "panic" {
        // The terminal goes along, so that nothing but the panic can restore it.
        thread::spawn(move || {
            let terminal = terminal;
            session.prompt(());
            drop(terminal);
        });
        starts.recv().unwrap();
        panic!("at the disco");
    }
    let settled = session.prompt(());
    terminal.finish();
    // A terminal of its own for each session.
    let next = Terminal::start(session.handle(), options).unwrap();
    next.finish();
    std::process::exit(match settled.outcome {
        PromptOutcome::Answered => 0,
        PromptOutcome::Failed(_) => 3,
        PromptOutcome::Cancelled => 130,
    });
}

/// Without the harness's own words.
fn lines(output: &str) -> Vec<&str> {
    let words = ["running 1 test", "the end"];
    let lines = output.lines().map(str::trim_end);
    lines
        .filter(|line| !line.is_empty() && !words.contains(line))
        .collect()
}

#[test]
fn tu1_tu3_esc_and_ctrl_c_end_a_minute() {
    for (keys, scene) in [
        ("\x1b", "wait"),
        ("\x03", "wait"),
        ("\x1b\x1b", "wait"),
        ("\x1b", "lines"),
    ] {
        let mut pty = Pty::start(scene, |_| {});
        pty.see(LOADER);
        assert!(pty.is_raw());
        pty.press(keys);
        let (status, screen) = pty.end();
        let expected = match scene {
            "lines" => vec!["half an answ", LOADER, CANCELLED],
            _ => vec!["half an answ", CANCELLED],
        };
        assert_eq!(lines(&screen), expected, "{keys:?}");
        assert_eq!(status.code(), Some(130), "{keys:?}");
    }
}

#[test]
fn tu2_tu4_counts_down_within_the_width_and_no_other_key_counts() {
    let mut pty = Pty::start("wait", |command| {
        command.env("NO_COLOR", "1");
    });
    // Typed before the wait: not for it.
    pty.press("\x1b");
    pty.see(LOADER);
    pty.press("x\x1b[A\x1bOP\x1bx\r\x1b[200~");
    resize(&pty.terminal, 20);
    pty.see("Retrying (1/3) in …");
    resize(&pty.terminal, 80);
    pty.see("in 59s… (esc to cancel)");
    assert!(pty.is_raw());
    assert!(!pty.output().contains("\x1b[3"), "colours");
    pty.press("\x03");
    let (status, screen) = pty.end();
    assert_eq!(lines(&screen).last(), Some(&CANCELLED));
    assert_eq!(status.code(), Some(130));
}

#[test]
fn tu5_the_former_mode_returns() {
    let pty = Pty::start("short", |_| {});
    let (status, screen) = pty.end();
    assert_eq!(lines(&screen), ["half an answ", "a whole answer"]);
    assert_eq!(status.code(), Some(0));

    // A start while the countdown shows.
    let mut pty = Pty::start("again", |_| {});
    pty.see("Retrying (2/3) in 120s… (esc to cancel)");
    assert!(pty.is_raw());
    pty.press("\x1b");
    let (status, screen) = pty.end();
    let last = "Retry failed after 2 attempts: Retry cancelled";
    assert_eq!(lines(&screen).last(), Some(&last));
    assert_eq!(status.code(), Some(130));
}

#[test]
fn others_write_meanwhile() {
    let mut pty = Pty::start("others", |_| {});
    pty.see("a log line");
    // Drawn again below it.
    let after = || {
        let output = pty.output();
        output.rsplit("a log line").next().unwrap().contains(LOADER)
    };
    let end = Instant::now() + PATIENCE;
    while !after() && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(pty.is_raw());
    pty.press("\x1b");
    let (_, screen) = pty.end();
    let expected = ["half an answ", "some", "words", "a log line", CANCELLED];
    assert_eq!(lines(&screen), expected);
}

#[test]
fn a_panic_and_signals_restore_the_terminal() {
    let pty = Pty::start("panic", |_| {});
    let (status, screen) = pty.end();
    assert_eq!(status.code(), Some(101));
    assert!(screen.contains("at the disco"), "{screen}");
    assert!(!screen.contains("Retrying"), "{screen}");

    for signal in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        let pty = Pty::start("wait", |_| {});
        pty.see(LOADER);
        assert!(pty.is_raw());
        pty.signal(signal);
        let (status, screen) = pty.end();
        assert_eq!(status.signal(), Some(signal.as_raw()));
        assert_eq!(lines(&screen), ["half an answ"]);
    }

    // During a call Ctrl-C is a signal, and an abort as well.
    let mut pty = Pty::start("call", |_| {});
    pty.see("in a call");
    assert!(!pty.is_raw());
    pty.press("\x03");
    let (status, _) = pty.end();
    assert_eq!(status.code(), Some(130));
}

#[test]
fn without_a_terminal_the_output_is_plain_lines() {
    let mut child = command("exhausted")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(ended(&mut child).code(), Some(3));
    let mut output = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut output).unwrap();
    let expected =
        "Retrying (1/1) in 0s…\nRetry failed after 1 attempt: 503 \\u{1b}[2J overloaded\n";
    assert_eq!(output, expected);

    // No keyboard: a countdown, and SIGINT.
    let pty = Pty::start("wait", |command| {
        command.stdin(Stdio::null());
    });
    pty.see("Retrying (1/3) in 60s…");
    assert!(!pty.is_raw());
    pty.signal(Signal::INT);
    let (status, screen) = pty.end();
    assert_eq!(lines(&screen), ["half an answ", CANCELLED]);
    assert!(!screen.contains("esc"));
    assert_eq!(status.code(), Some(130));
}
