//! `database.*`: where the platform keeps its rows. Imports `config::value`.

use crate::config::section::section;
use crate::config::value::SecretUrl;
use crate::domain::Invalid;

section! {
    /// Where the platform keeps its rows.
    pub struct Database {
        /// `postgresql://user:password@host:5432/database`; empty: SQLite in `data_dir`.
        dsn: SecretUrl = SecretUrl::default(),
    }
}

impl Database {
    /// Refuses what is no URL of PostgreSQL.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        let url = self.dsn.expose();
        if !self.dsn.is_empty() && !url.starts_with("postgresql://") && !url.starts_with("postgres://") {
            problems.push(Invalid::new(
                "database.dsn",
                "this is no URL of a PostgreSQL database; it looks like postgresql://kubebyon:password@host:5432/kubebyon",
            ));
        }
    }
}
