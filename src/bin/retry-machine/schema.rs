//! `retry-machine schema`: what settings, rule files and lines look like, as JSON Schema.

use std::io::{self, Write};

use clap::{Args, ValueEnum};

use crate::{Outcome, exit};

/// Print the JSON Schema of a settings file, of a rule file or of the lines of `rpc`.
#[derive(Args)]
#[command(after_help = "Example:
  $ retry-machine schema settings > retry.schema.json")]
pub struct Schema {
    /// Of what.
    of: Of,
}

#[derive(Clone, Copy, ValueEnum)]
enum Of {
    /// A settings file with the group `retry`.
    Settings,
    /// A file of rules (TOML) for --rules.
    Rules,
    /// The lines that `rpc` reads and writes.
    Rpc,
}

impl Schema {
    pub fn run(self) -> Outcome {
        let schema = match self.of {
            Of::Settings => retry_machine::schema::settings(),
            Of::Rules => retry_machine::schema::rules(),
            Of::Rpc => retry_machine::schema::rpc(),
        };
        writeln!(io::stdout().lock(), "{schema:#}")?;
        Ok(exit::DONE)
    }
}
