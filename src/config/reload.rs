//! What a reload (SIGHUP) changes, and what waits for a restart. May import: nothing of ours.

use serde_json::Value as Json;

use super::{Config, keys};

/// Keys that take effect on a reload.
pub const RELOADABLE: [&str; 4] = ["log.level", "public_access_mode", "control_plane_host", "kubernetes_version"];

/// What differs between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReloadDiff {
    /// Keys that changed and take effect at once.
    pub applied: Vec<&'static str>,
    /// Keys that changed and take effect with the next start.
    pub needs_restart: Vec<&'static str>,
}

impl Config {
    /// Which keys differ in `new`, in the order of the reference.
    pub fn reload_diff(&self, new: &Self) -> ReloadDiff {
        let plain = |config: &Self| serde_json::to_value(config).expect("a configuration is plain JSON");
        let (old_json, new_json) = (plain(self), plain(new));
        let at = |root: &Json, path: &str| path.split('.').try_fold(root, |node, name| node.get(name)).cloned();
        let changed = |path: &str| match path {
            // Passwords are hidden in JSON, so that a change of one would not show.
            "database.dsn" => self.database.dsn != new.database.dsn,
            "rabbitmq.url" => self.rabbitmq.url != new.rabbitmq.url,
            _ => at(&old_json, path) != at(&new_json, path),
        };
        let mut diff = ReloadDiff::default();
        for key in keys::ALL.iter().filter(|key| !key.is_section && changed(&key.path)) {
            let list = if RELOADABLE.contains(&key.path.as_str()) { &mut diff.applied } else { &mut diff.needs_restart };
            list.push(key.path.as_str());
        }
        diff
    }

    /// This configuration with the reloadable keys of `new`: what is in effect after a reload.
    #[must_use]
    pub fn with_reloadable(&self, new: &Self) -> Self {
        Self {
            log: super::Log { level: new.log.level.clone(), format: self.log.format },
            public_access_mode: new.public_access_mode,
            control_plane_host: new.control_plane_host.clone(),
            kubernetes_version: new.kubernetes_version,
            ..self.clone()
        }
    }
}
