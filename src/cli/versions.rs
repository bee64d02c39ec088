//! The Kubernetes versions that the platform has; `kubebyon cluster versions` and the default of `cluster upgrade`.

use super::output::Columns;
use super::session::Session;
use crate::api::v1::versions::Version;

/// Every version that clusters may have, oldest first.
pub async fn available(session: &Session) -> anyhow::Result<Vec<Version>> {
    session.client.list("/api/v1/versions", &[]).await
}

impl Columns for Version {
    fn titles(_wide: bool) -> Vec<&'static str> {
        vec!["VERSION", "PROGRAMS", "DEFAULT"]
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        let programs = if self.installed { "on this machine" } else { "not fetched" };
        vec![self.version.to_string(), programs.to_owned(), if self.default { "yes".to_owned() } else { String::new() }]
    }

    fn name(&self) -> String {
        self.version.to_string()
    }
}
