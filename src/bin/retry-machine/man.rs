//! `retry-machine man`: the manual, made from the same descriptions as `--help`.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_mangen::Man as Page;

use crate::{Outcome, exit};

/// Print the manual, all commands on one page: for `man -l -`, or to be installed.
#[derive(Args)]
#[command(after_help = "Examples:
  $ retry-machine man | man -l -
  $ retry-machine man > retry-machine.1")]
pub struct Man {}

impl Man {
    pub fn run(self) -> Outcome {
        let mut program = crate::Cli::command();
        program.build();
        let mut manual = Vec::new();
        let page = Page::new(program.clone());
        page.render_title(&mut manual)?;
        page.render_name_section(&mut manual)?;
        page.render_synopsis_section(&mut manual)?;
        page.render_options_section(&mut manual)?;
        let commands = program.get_subcommands();
        for command in commands.filter(|command| command.get_name() != "help") {
            let name = command.get_display_name().unwrap_or(command.get_name());
            writeln!(manual, ".SH {}", name.to_uppercase().replace('-', r"\-"))?;
            manual.write_all(&part(command.clone())?)?;
        }
        page.render_version_section(&mut manual)?;
        io::stdout().lock().write_all(&manual)?;
        Ok(exit::DONE)
    }
}

/// What a command's own page says, with its sections one level lower.
fn part(command: clap::Command) -> io::Result<Vec<u8>> {
    let page = Page::new(command);
    let mut part = Vec::new();
    page.render_description_section(&mut part)?;
    page.render_synopsis_section(&mut part)?;
    page.render_options_section(&mut part)?;
    page.render_extra_section(&mut part)?;
    let lower = String::from_utf8_lossy(&part).replace("\n.SH ", "\n.SS ");
    Ok(lower.replacen(".SH DESCRIPTION\n", "", 1).into_bytes())
}
