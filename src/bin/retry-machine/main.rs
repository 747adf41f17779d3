//! The command line: what an agent's errors are, what the machine does about them, and why a run stopped.

mod lines;
mod step;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Retries for LLM agents: classify provider errors, replay recorded runs, drive the machine from any
/// language.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Step(step::Step),
}

/// The exit codes, which `--help` of each command names.
mod exit {
    /// Done.
    pub const DONE: u8 = 0;
    /// Usage, settings or rules were refused. Also what clap exits with.
    pub const USAGE: u8 = 2;
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Step(command) => command.run(),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        // Whoever read our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(exit::DONE),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(exit::USAGE)
        }
    }
}
