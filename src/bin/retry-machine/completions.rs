//! `retry-machine completions`: what a shell needs to complete our commands and flags.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{Outcome, exit};

/// Print the completions for a shell.
#[derive(Args)]
#[command(after_help = "Examples:
  $ source <(retry-machine completions bash)
  $ retry-machine completions zsh > ~/.zfunc/_retry-machine
  $ retry-machine completions fish > ~/.config/fish/completions/retry-machine.fish")]
pub struct Completions {
    /// For which.
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Outcome {
        // The generator panics where a pipe is closed.
        let mut script = Vec::new();
        let mut program = crate::Cli::command();
        let name = program.get_name().to_owned();
        clap_complete::generate(self.shell, &mut program, name, &mut script);
        io::stdout().lock().write_all(&script)?;
        Ok(exit::DONE)
    }
}
