//! The flags that set the policy, shared by the commands that run it.

use std::path::{Path, PathBuf};

use clap::Args;
use retry_machine::SettingsPatch;
use serde::Deserialize;

use crate::Failure;

/// Where the settings come from: flags, else a file, else what each command says.
#[derive(Args)]
#[command(next_help_heading = "Settings")]
pub struct SettingsArgs {
    /// Retries per chain, 0 to 1000.
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// The first delay in milliseconds, 0 to 86400000; each further attempt doubles it.
    #[arg(long, value_name = "MS")]
    base_delay_ms: Option<u64>,
    /// Do not retry at all.
    #[arg(long)]
    no_retry: bool,
    /// Our recommended settings in place of the documented ones; --settings and flags go above them.
    #[arg(long)]
    recommended: bool,
    /// A JSON file with the settings in its group `retry`.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

impl SettingsArgs {
    /// What the file and, above it, the flags say.
    pub fn patches(&self) -> Result<Vec<SettingsPatch>, Failure> {
        let mut patches = Vec::new();
        if self.recommended {
            patches.push(SettingsPatch::recommended());
        }
        if let Some(path) = &self.settings {
            patches.push(read_file(path)?);
        }
        let mut flags = SettingsPatch::builder();
        if let Some(retries) = self.max_retries {
            flags = flags.max_retries(retries);
        }
        if let Some(delay_ms) = self.base_delay_ms {
            flags = flags.base_delay_ms(delay_ms);
        }
        if self.no_retry {
            flags = flags.enabled(false);
        }
        patches.push(flags.patch().map_err(Failure::usage)?);
        Ok(patches)
    }
}

/// The group `retry` of a settings file; other groups are somebody else's.
fn read_file(path: &Path) -> Result<SettingsPatch, Failure> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        retry: SettingsPatch,
    }
    let refuse = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let file: File = serde_json::from_slice(&text).map_err(|error| refuse(error.to_string()))?;
    Ok(file.retry)
}
