//! The flag for rules of the user's own, shared by the commands that classify.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use retry_machine::{Classifier, RuleFile};

use crate::Failure;

/// Rules of the user's own.
#[derive(Args)]
pub struct RulesArgs {
    /// A TOML file with rules that come before the built-in ones; may be given again.
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
}

impl RulesArgs {
    /// The classifier with these rules.
    pub fn classifier(&self) -> Result<Arc<Classifier>, Failure> {
        if self.rules.is_empty() {
            return Ok(Classifier::shared());
        }
        let mut files = Vec::new();
        for path in &self.rules {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
            files.push(RuleFile::parse(&name, &text).map_err(Failure::usage)?);
        }
        Ok(Arc::new(
            Classifier::with_rules(&files).map_err(Failure::usage)?,
        ))
    }
}
