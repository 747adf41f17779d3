//! `retry-machine man`: the manual, made from the same descriptions as `--help`.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_mangen::Man as Page;

use crate::{Outcome, exit};

/// Print the manual, for `man -l -` or to be installed: all commands on one page.
#[derive(Args)]
#[command(after_help = "Examples:
  $ retry-machine man | man -l -
  $ retry-machine man > retry-machine.1")]
pub struct Man {}

impl Man {
    pub fn run(self) -> Outcome {
        let mut program = crate::Cli::command();
        program.build();
        let mut page = Vec::new();
        Page::new(program.clone()).render(&mut page)?;
        for command in program.get_subcommands().filter(|c| c.get_name() != "help") {
            let part = Page::new(command.clone());
            writeln!(page, ".SH \"{}\"", command.get_name().to_uppercase())?;
            part.render_description_section(&mut page)?;
            part.render_synopsis_section(&mut page)?;
            part.render_options_section(&mut page)?;
            part.render_extra_section(&mut page)?;
        }
        io::stdout().lock().write_all(&page)?;
        Ok(exit::DONE)
    }
}
