//! `kubebyon config`.

use clap::Subcommand;

use super::output::{self, Format};
use crate::config::{Config, LoadOptions};

/// The configuration.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check file, environment and flags whole, as the daemon would at its start
    Check,
    /// Print what is in force, with every default; secrets are left out
    Print,
}

/// Runs it.
pub fn run(command: &Command, load: &LoadOptions, format: Format) -> anyhow::Result<()> {
    let loaded = Config::load(load)?;
    match (command, format) {
        (Command::Check, Format::Json | Format::Yaml) => output::value(format, &serde_json::json!({ "valid": true, "file": loaded.file })),
        (Command::Check, _) => {
            let file =
                loaded.file.as_ref().map_or_else(|| "no file; defaults, environment and flags".to_owned(), |f| f.display().to_string());
            output::line(&format!("the configuration is right ({file})"));
            Ok(())
        }
        (Command::Print, Format::Json) => {
            let tree: serde_json::Value = serde_saphyr::from_str(&loaded.config.to_yaml())?;
            output::value(format, &tree)
        }
        (Command::Print, _) => {
            output::line(loaded.config.to_yaml().trim_end());
            Ok(())
        }
    }
}
