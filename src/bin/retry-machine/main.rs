//! The command line: what an agent's errors are, what the machine does about them, and why a run stopped.

#![allow(unreachable_pub, reason = "a binary has no outside")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "JSON values and enums that may grow have variants that say nothing here"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the binary is a shell: it has the clock"
)]

mod ask;
mod classify;
mod completions;
mod corpus;
mod demo;
mod lines;
mod man;
mod policy;
mod replay;
mod rows;
mod rpc;
mod rules;
mod schema;
mod settings;
mod show;
mod step;

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Retries for LLM agents: tell what provider errors are, replay recorded runs, drive the machine.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Ask(Box<ask::Ask>),
    Replay(replay::Replay),
    Classify(classify::Classify),
    Step(step::Step),
    Policy(policy::Policy),
    Rpc(rpc::Rpc),
    Schema(schema::Schema),
    Completions(completions::Completions),
    Man(man::Man),
}

/// The exit codes, which `--help` of each command names.
mod exit {
    /// Done.
    pub const DONE: u8 = 0;
    /// Done, but something was skipped or empty.
    pub const SKIPPED: u8 = 1;
    /// Usage, settings or rules were refused. Also what clap exits with.
    pub const USAGE: u8 = 2;
    /// `replay --fail-on-difference` found one.
    pub const DIFFERENCE: u8 = 3;
    /// `ask` was refused, or failed in a way that repeating cannot cure.
    pub const FATAL: u8 = 1;
    /// `ask` still failed after the last retry.
    pub const EXHAUSTED: u8 = 3;
    /// `ask`: the context does not fit.
    pub const OVERFLOW: u8 = 4;
    /// `ask`: a usage limit is reached, or the account cannot pay.
    pub const LIMIT: u8 = 5;
    /// The user has cancelled.
    pub const CANCELLED: u8 = 130;
}

/// Why a command could not go on.
enum Failure {
    /// Usage, settings or rules were refused: the text says what would be right.
    Usage(String),
    /// Reading standard input or writing failed.
    Io(io::Error),
}

impl Failure {
    fn usage(text: impl Display) -> Self {
        Self::Usage(text.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What a command returns: its exit code.
type Outcome = Result<u8, Failure>;

fn main() -> ExitCode {
    let outcome = match Cli::parse_from(rpc::without_foreign(std::env::args_os())).command {
        Command::Demo(command) => command.run(),
        Command::Ask(command) => command.run(),
        Command::Replay(command) => command.run(),
        Command::Classify(command) => command.run(),
        Command::Step(command) => command.run(),
        Command::Policy(command) => command.run(),
        Command::Rpc(command) => command.run(),
        Command::Schema(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
    };
    ExitCode::from(match outcome {
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(Failure::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => exit::DONE,
        Err(Failure::Io(error)) => {
            eprintln!("error: {error}");
            exit::USAGE
        }
        Err(Failure::Usage(text)) => {
            eprintln!("error: {text}");
            exit::USAGE
        }
    })
}
