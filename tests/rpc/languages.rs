//! The document about `rpc`: its conversation, and its hosts in other languages, as they stand there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{Link, Virtual, binary};

/// The document: a part of the README.
fn document() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("README.md")).expect("README.md")
}

/// The fenced blocks of a language below a heading.
fn blocks(heading: &str, language: &str) -> Vec<String> {
    let document = document();
    let (_, below) = document
        .split_once(&format!("\n### {heading}\n"))
        .expect("the heading");
    let section = below.split("\n### ").next().unwrap_or_default();
    let fence = format!("```{language}\n");
    section
        .split(&fence)
        .skip(1)
        .map(|block| block.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

/// A command that is there, or nothing, said plainly.
fn tool(name: &str) -> Option<Command> {
    let there = Command::new(name)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if there {
        let mut command = Command::new(name);
        command.env("RETRY_MACHINE", binary());
        Some(command)
    } else {
        eprintln!("SKIPPED: {name} is not there");
        None
    }
}

/// A file in a directory of this test's own.
fn file(name: &str, text: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rpc");
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

#[track_caller]
fn said(output: &Output) -> String {
    let diagnostics = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && diagnostics.is_empty(),
        "{}: {diagnostics}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The conversation is a real one.
#[test]
fn rpc_documented_conversation() {
    let document = document();
    let (_, table) = document
        .split_once("| | you write | you read |\n")
        .expect("the table");
    let code = |cell: &str| -> Vec<String> {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let mut link = Virtual::default();
    let mut rows = 0;
    for row in table.lines().skip(1).take_while(|row| row.starts_with('|')) {
        let [_, what, written, read, _] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let caused = match &code(written)[..] {
            [line] => link.ask(line),
            [] => vec![link.next(None).expect("a timer")],
            _ => panic!("{row}"),
        };
        assert_eq!(caused, code(read), "{what}");
        rows += 1;
    }
    assert!(rows > 20, "{rows}");
}

#[test]
fn rpc_python_example() {
    let Some(mut python) = tool("python3") else {
        return;
    };
    let [example] = &blocks("Python", "python")[..] else {
        panic!()
    };
    let [expected] = &blocks("Python", "text")[..] else {
        panic!()
    };
    // Isolated: the standard library and nothing else.
    python
        .arg("-I")
        .arg(file("example.py", example))
        .args(["--base-delay-ms", "20"]);
    let output = python.output().expect("it runs");
    assert_eq!(said(&output), expected.replace("2000 ms", "20 ms"));
}

#[test]
fn rpc_typescript_example() {
    let Some(mut node) = tool("node") else { return };
    let example = blocks("TypeScript", "js")[0].clone();
    let host = r#"
const lines = [];
let resume;
const retry = startRetry((line) => { lines.push(line); if (line.effect === "continueAgent") resume(); }, ["--base-delay-ms", "20"]);
await retry.promptStarted();
const continued = new Promise((resolve) => { resume = resolve; });
await retry.message({ role: "assistant", stopReason: "error", errorMessage: "overloaded" }, 200000, "a");
console.log(JSON.stringify(await retry.getState("a").then((state) => state.isRetrying)));
await continued;
await retry.message({ role: "assistant", stopReason: "stop" }, 200000, "a");
await retry.setAutoRetry(false);
await retry.abortRetry();
console.log((await retry.getState()).autoRetryEnabled, (await retry.getState("a")).autoRetryEnabled);
await retry.setAutoRetry("no").catch((error) => console.log(error.message));
await retry.stop();
console.log(lines.map((line) => line.effect ?? line.type).join(" "));
"#;
    let output = node
        .arg(file("example.mjs", &(example + host)))
        .output()
        .expect("it runs");
    let expected = "true\nfalse true\ninvalid type: string \"no\", expected a boolean at column 39\n\
        auto_retry_start dropFailedMessage continueAgent auto_retry_end checkCompaction\n";
    assert_eq!(said(&output), expected);
}

/// pi's published client, given the launcher of the document.
///
/// Its file is `dist/modes/rpc/rpc-client.js` of the npm package `@earendil-works/pi-coding-agent`: where the
/// environment variable `PI_RPC_CLIENT` says, else below `node_modules` beside Cargo.toml.
#[test]
fn rp3_published_client_of_pi() {
    let installed = "node_modules/@earendil-works/pi-coding-agent/dist/modes/rpc/rpc-client.js";
    let client = std::env::var_os("PI_RPC_CLIENT").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join(installed),
        PathBuf::from,
    );
    if !client.exists() {
        eprintln!("SKIPPED: {} is not there (PI_RPC_CLIENT)", client.display());
        return;
    }
    let Some(mut node) = tool("node") else { return };
    let launcher = file("launcher.mjs", &blocks("TypeScript", "js")[1]);
    let script = r#"
const [clientPath, launcher] = process.argv.slice(2);
const { RpcClient } = await import(clientPath);
const client = new RpcClient({ cliPath: launcher, provider: "anthropic", model: "any", args: ["--no-session", "--max-retries", "5"] });
const events = [];
client.onEvent((event) => events.push(event.effect ?? event.type));
await client.start();
const show = async () => console.log(JSON.stringify(await client.getState()));
await show();
await client.setAutoRetry(false);
await show();
await client.setAutoRetry(true);
await client.abortRetry();
await client.send({ input: "assistantMessage", message: { role: "assistant", stopReason: "error", errorMessage: "overloaded \u2028" } });
console.log((await client.getState()).isRetrying);
await client.abortRetry();
console.log((await client.getState()).isRetrying, events.join(" "));
await client.getMessages().catch((error) => console.log(error.message));
const before = Date.now();
await client.stop();
console.log(Date.now() - before < 1000 ? "stopped" : "killed");
process.exit(0);
"#;
    let output = node
        .arg(file("pi.mjs", script))
        .arg(&client)
        .arg(launcher)
        .output()
        .expect("it runs");
    let expected = "\
        {\"autoRetryEnabled\":true,\"isRetrying\":false,\"retryAttempt\":0,\"maxRetries\":5,\"baseDelayMs\":2000}\n\
        {\"autoRetryEnabled\":false,\"isRetrying\":false,\"retryAttempt\":0,\"maxRetries\":5,\"baseDelayMs\":2000}\n\
        true\n\
        false auto_retry_start dropFailedMessage auto_retry_end\n\
        Unknown command: get_messages\n\
        stopped\n";
    assert_eq!(said(&output), expected);
}
