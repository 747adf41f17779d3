//! The real program at a real pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use super::provider::{Provider, Step, Trouble};
use super::{Api, command};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

struct Pty {
    keyboard: File,
    terminal: OwnedFd,
    child: Child,
    output: Receiver<Vec<u8>>,
    /// All that was shown, and how far it has been looked at.
    shown: String,
    seen: usize,
}

impl Pty {
    /// None, said plainly, where no program is at hand that gives a process its own terminal.
    fn start(program: &Command) -> Option<Self> {
        if Command::new("setsid").arg("--version").output().is_err() {
            eprintln!("SKIPPED: no setsid");
            return None;
        }
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(program.get_program())
            .args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let path = name.to_str().expect("UTF-8").to_owned();
        let open = File::options().read(true).write(true).open(path);
        let terminal = OwnedFd::from(open.expect("opened"));
        let end = || terminal.try_clone().expect("another end");
        let child = command
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("it starts");
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().expect("another end");
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Some(Self {
            keyboard,
            terminal,
            child,
            output,
            shown: String::new(),
            seen: 0,
        })
    }

    /// Waits until this is shown, after what was waited for before.
    fn see(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            match self.output.recv_timeout(end - Instant::now().min(end)) {
                Ok(piece) => self.shown.push_str(&String::from_utf8_lossy(&piece)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("no {text:?} after {:?}", &self.shown[self.seen..]);
                }
            }
        }
    }

    fn press(&mut self, key: &str) {
        self.keyboard.write_all(key.as_bytes()).expect("pressed");
    }

    /// The exit code; lines are edited and echoed again.
    fn end(mut self) -> Option<i32> {
        let status = self.child.wait().expect("it ends");
        let mode = tcgetattr(&self.terminal).expect("a mode").local_modes;
        assert!(mode.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        status.code()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ESC: &str = "\u{1b}";
const CTRL_C: &str = "\u{3}";

/// Esc ends the wait at hand and the tour goes on; Ctrl-C ends the tour.
#[test]
fn tour() {
    let mut command = command();
    command.args(["demo", "--base-delay-ms", "60000", "--word-delay-ms", "0"]);
    let settings = super::own_file("settings.json");
    let still = r#"{"retry":{"delay":{"jitter":false,"maxBackoffMs":60000}}}"#;
    std::fs::write(&settings, still).expect("a file");
    command.arg("--settings").arg(&settings);
    let Some(mut pty) = Pty::start(&command) else {
        return;
    };
    pty.see("1/8 overloaded");
    pty.see("Retrying (1/8) in 60s… (esc to cancel)");
    // A live countdown.
    pty.see("in 59s… (esc to cancel)");
    pty.press(ESC);
    pty.see("Retry failed after 1 attempt: Retry cancelled");
    pty.see("Cancelled: 1 request, 0 retries.");
    pty.see("2/8 rate-limit");
    pty.see("Retrying (1/6) in 60s… (esc to cancel)");
    pty.press(CTRL_C);
    pty.see("Cancelled: 1 request, 0 retries.");
    pty.see("The tour ends here.");
    assert_eq!(pty.end(), Some(130));
    let _ = std::fs::remove_file(settings);
}

/// On a terminal an answer is shown as it comes: a half one is told to be one, and the retry's begins on a new line.
#[test]
fn half_an_answer() {
    let provider = Provider::start(
        Api::Anthropic,
        &[
            Step::Cut,
            Step::Refused(529, "", Trouble::Overloaded),
            Step::Answer,
        ],
    );
    let mut command = command();
    command
        .args(["ask", "--base-delay-ms", "1", "--base-url"])
        .arg(format!("http://{}", provider.address))
        .arg("hi");
    let Some(mut pty) = Pty::start(&command) else {
        return;
    };
    pty.see("Hello, \r\n(the answer was cut off here)\r\n");
    pty.see("Hello, world.\r\n");
    assert_eq!(pty.shown.matches("cut off").count(), 1, "{:?}", pty.shown);
    assert_eq!(pty.end(), Some(0));
}
