//! `kubebyon settings`.

use anyhow::Context as _;
use clap::Subcommand;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::called;
use super::output::{self, Columns, Format};
use super::session::Session;

/// What an administrator changes while the platform runs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show all settings, or one
    Get {
        /// The key
        key: Option<String>,
    },
    /// Set a value; an empty one goes back to the default
    #[command(after_help = "Example: kubebyon settings set public_access_mode=domain")]
    Set {
        /// KEY=VALUE
        assignment: String,
    },
}

/// A setting as the API tells it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Setting {
    key: String,
    value: Option<String>,
    source: Value,
    description: String,
}

/// Runs it.
pub async fn run(command: Command, session: &Session) -> anyhow::Result<()> {
    match command {
        Command::Get { key } => {
            let mut settings: Vec<Setting> = session.client.list("/api/v1/settings", &[]).await?;
            let Some(key) = key else { return output::list(session.format, &settings, "no settings") };
            settings.retain(|setting| setting.key == key);
            let setting =
                settings.into_iter().next().with_context(|| format!("there is no setting {key:?}; see `{}`", called::command("settings get")))?;
            output::one(session.format, &setting)
        }
        Command::Set { assignment } => {
            let (key, value) =
                assignment.split_once('=').with_context(|| format!("{assignment:?} is no assignment; it looks like KEY=VALUE"))?;
            session.client.call::<Value>(Method::PUT, &format!("/api/v1/settings/{key}"), &json!({ "value": value })).await?;
            match session.format {
                Format::Json | Format::Yaml => output::value(session.format, &json!({ "key": key, "value": value })),
                _ => {
                    output::line(&format!("{key}={value}"));
                    Ok(())
                }
            }
        }
    }
}

impl Columns for Setting {
    fn titles(wide: bool) -> Vec<&'static str> {
        if wide { vec!["KEY", "VALUE", "SOURCE", "DESCRIPTION"] } else { vec!["KEY", "VALUE", "SOURCE"] }
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let source = self.source.as_str().map_or_else(|| self.source.to_string(), str::to_owned);
        let mut cells = vec![self.key.clone(), self.value.clone().unwrap_or_default(), source];
        cells.extend(wide.then(|| self.description.clone()));
        cells
    }

    fn name(&self) -> String {
        self.key.clone()
    }
}
