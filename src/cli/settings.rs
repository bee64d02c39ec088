//! `kubebyon settings`.

use anyhow::Context as _;
use clap::Subcommand;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::called;
use super::output::{self, Columns, Format};
use super::session::Session;
use crate::domain::settings::KNOWN;

/// What an administrator changes while the platform runs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show all settings, or one
    Get {
        /// The key
        key: Option<String>,
    },
    /// Set a value; an empty one goes back to the default
    #[command(after_help = known())]
    Set {
        /// KEY=VALUE
        assignment: String,
    },
}

/// The keys, and an example.
fn known() -> String {
    let width = KNOWN.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let keys: Vec<String> = KNOWN.iter().map(|(key, what)| format!("  {key:<width$}   {what}")).collect();
    format!("Keys:\n{}\n\nExample: kubebyon settings set public_access_mode=domain", keys.join("\n"))
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
            let setting = settings
                .into_iter()
                .next()
                .with_context(|| format!("there is no setting {key:?}; see `{}`", called::command("settings get")))?;
            output::one(session.format, &setting)
        }
        Command::Set { assignment } => {
            let (key, value) =
                assignment.split_once('=').with_context(|| format!("{assignment:?} is no assignment; it looks like KEY=VALUE"))?;
            let path = format!("/api/v1/settings/{key}");
            let setting: Setting = session.client.call(Method::PUT, &path, &json!({ "value": value })).await?;
            match session.format {
                Format::Json | Format::Yaml => output::value(session.format, &setting)?,
                Format::Name => output::line(&setting.key),
                Format::Table | Format::Wide => {
                    let (shown, back) =
                        (setting.value.as_deref().unwrap_or("(none)"), if value.is_empty() { "   (the default)" } else { "" });
                    output::line(&format!("{key}={shown}{back}"));
                }
            }
            Ok(())
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
