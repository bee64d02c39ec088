//! `access_log.*`: one line a connection of the front door. Imports `config::value`.

use crate::config::section::section;
use crate::config::value::Span;

/// Which connections are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogMode {
    /// None.
    Off,
    /// One in a hundred, and each that was refused.
    Sampled,
    /// All.
    #[default]
    All,
}

section! {
    /// The front door's record of connections.
    pub struct AccessLog {
        /// `off`, `sampled` or `all`.
        mode: AccessLogMode = AccessLogMode::All,
        /// How long lines are kept.
        keep: Span = Span::days(7),
    }
}
