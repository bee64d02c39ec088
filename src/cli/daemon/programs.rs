//! The programs of control planes out of the assets, for the local engine.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use async_trait::async_trait;

use crate::assets::{AssetError, Assets, BuildMode, Mode, Want, progress};
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
        let fetched = self.0.ensure(&Want::control_plane(version, self.0.arch())?, &mode, &progress::Logged).await;
        fetched.map_err(|cause| anyhow!(unavailable(version, &cause)))?;
        self.installed(version, name).await
    }
}

/// What the operator reads of programs that are not there and could not be fetched.
fn unavailable(version: KubernetesVersion, cause: &AssetError) -> String {
    format!(
        "the programs of Kubernetes {version} are not here and could not be fetched: {cause}; run `kubebyon assets fetch \
         --kubernetes {version}` on the platform's host (it builds them from source where Go is there), seed them with --from DIR, \
         or set assets.mirror"
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_cannot_be_had_come_with_the_cause_and_the_remedy() {
        let cause = AssetError::Unreachable { url: "https://dl.k8s.io/x".into(), reason: "no route to host".into() };
        let text = unavailable(KubernetesVersion::new(1, 35, 4), &cause);
        assert!(text.contains("https://dl.k8s.io/x is out of reach: no route to host; run `kubebyon assets fetch --kubernetes 1.35.4`"));
        assert!(text.ends_with("or set assets.mirror"), "{text}");
    }
}
