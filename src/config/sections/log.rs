//! `log.*`: what the daemon writes to stderr. Imports nothing of ours beside the section.

use crate::config::section::section;
use crate::domain::Invalid;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

section! {
    /// What the daemon writes to stderr.
    pub struct Log {
        /// The least severe lines that are written: `error`, `warn`, `info`, `debug` or `trace`, and by module where that helps
        /// (`info,kubebyon::proxy=debug`).
        level: String = "info".into(),
        /// `text` for people, `json` for machines.
        format: LogFormat = LogFormat::Text,
    }
}

impl Log {
    /// Refuses a level that means nothing.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        if tracing_subscriber::EnvFilter::builder().parse(&self.level).is_err() || !names_levels(&self.level) {
            let message = format!("{:?} is no level; use error, warn, info, debug or trace, or info,kubebyon::proxy=debug", self.level);
            problems.push(Invalid::new("log.level", message));
        }
    }
}

/// Whether each part is a level or `module=level`: the filter itself takes any word for a module.
fn names_levels(text: &str) -> bool {
    text.split(',').map(str::trim).all(|part| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        matches!(level.to_ascii_lowercase().as_str(), "off" | "error" | "warn" | "info" | "debug" | "trace")
    })
}
