//! Real child processes.

use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Starts it with a pipe for each of its streams.
pub fn piped(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Runs it on an input to its end. Whether all of that was read is its own affair, and told beside.
pub fn fed(command: &mut Command, input: Vec<u8>) -> (Output, io::Result<()>) {
    let mut child = piped(command);
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("it ends");
    (output, writer.join().expect("the writer ends"))
}

/// Sends it a signal by name; how long it took to end, and how it ended.
pub fn signal(child: &mut Child, name: &str) -> (Duration, ExitStatus) {
    let before = Instant::now();
    let pid = child.id().to_string();
    let killed = Command::new("kill").args([name, &pid]).status();
    assert!(killed.expect("kill runs").success());
    let status = child.wait().expect("it ends");
    (before.elapsed(), status)
}
