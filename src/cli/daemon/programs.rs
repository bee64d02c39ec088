//! The programs of control planes out of the assets, for the local engine.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;

use crate::assets::{Assets, BuildMode, Mode, Want, progress};
use crate::domain::KubernetesVersion;
use crate::engine::local::Programs;

/// Programs that are on the machine; what is missing is fetched when it is first asked for.
pub struct FromAssets(pub Arc<Assets>);

#[async_trait]
impl Programs for FromAssets {
    async fn program(&self, version: KubernetesVersion, name: &str) -> anyhow::Result<PathBuf> {
        if let Ok(path) = self.installed(version, name).await {
            return Ok(path);
        }
        let mode = Mode { seed: None, build: BuildMode::Never };
        self.0.ensure(&Want::control_plane(version, self.0.arch())?, &mode, &progress::Logged).await?;
        self.installed(version, name).await
    }
}

impl FromAssets {
    async fn installed(&self, version: KubernetesVersion, name: &str) -> anyhow::Result<PathBuf> {
        let (assets, name) = (Arc::clone(&self.0), name.to_owned());
        tokio::task::spawn_blocking(move || {
            assets.programs(version)?.path(&name).with_context(|| format!("{name} is no program of Kubernetes {version}"))
        })
        .await?
    }
}
