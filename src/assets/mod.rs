//! Programs by version and architecture: Kubernetes, etcd, helm, and what a node runs.
//!
//! They come from the upstream mirrors with their published checksums, from a pre-seeded folder, or out of the Go modules.
//! Each item stands in `<folder>/<kind>/<version>/<architecture>/` with a `manifest.json` that is written last; the whole
//! folder is put in place by one rename, so an item is either whole or not there. Files are compared with their manifest each
//! time they are asked for: by size, times and inode where these are as they were, else by SHA-256. One process at a time
//! changes the store. May import: `domain`.

pub mod build;
pub mod catalogue;
mod disk;
mod ensure;
mod error;
mod fetch;
mod manifest;
mod mirror;
mod pack;
pub mod progress;
mod seed;
mod verify;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::domain::KubernetesVersion;

pub use build::BuildMode;
pub use catalogue::{Arch, Kind, Want};
pub use ensure::{Mode, Outcome};
pub use error::AssetError;
pub use fetch::Pace;
pub use manifest::{FileRecord, Manifest, Source};
pub use mirror::Mirror;
pub use progress::ProgressSink;
pub use verify::{AssetStatus, State};

/// What the configuration says of programs (`assets.dir`, `assets.mirror`, `kubernetes_version`).
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder they are kept in.
    pub dir: PathBuf,
    /// Where they are fetched from.
    pub mirror: Mirror,
    /// The version of clusters that name none; the newest of the catalogue where this is `None`.
    pub kubernetes_version: Option<KubernetesVersion>,
}

/// The store of programs in one folder, for one architecture.
#[derive(Debug)]
pub struct Assets {
    root: PathBuf,
    arch: Arch,
    mirror: Mirror,
    pace: Pace,
    /// What was hashed and found right by this process, for folders that cannot be written to.
    known: Mutex<HashMap<PathBuf, verify::Known>>,
}

/// The programs of a control plane and its nodes, of one Kubernetes version, verified.
///
/// Programs of one version may be one file that acts by the name it is called by: start them by these paths, or bind-mount
/// [`ProgramSet::kubernetes_dir`] whole, so that the links in it stay right and all tenants share one text in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSet {
    version: KubernetesVersion,
    kubernetes: PathBuf,
    etcd: PathBuf,
}

impl Assets {
    /// The store in `dir`, for programs of `arch`, fetched from `mirror`. Touches nothing: the folder is made by the first fetch.
    pub fn open(dir: impl Into<PathBuf>, arch: Arch, mirror: Mirror) -> Self {
        Self { root: dir.into(), arch, mirror, pace: Pace::default(), known: Mutex::default() }
    }

    /// The same with other timeouts and bounds.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// The folder of the store.
    pub fn dir(&self) -> &Path {
        &self.root
    }

    /// The architecture whose programs [`Assets::programs`] gives.
    pub const fn arch(&self) -> Arch {
        self.arch
    }

    /// The programs of a Kubernetes version and its etcd.
    ///
    /// Costs a few `stat` calls; a file whose times or inode differ from the record is hashed (0.1 to 1 s), so call it where
    /// blocking is allowed.
    ///
    /// # Errors
    /// Names what is missing or damaged, and the command that brings it.
    pub fn programs(&self, version: KubernetesVersion) -> Result<ProgramSet, AssetError> {
        let release = catalogue::release(version)?;
        let kubernetes = self.installed(&Want::kubernetes(version, self.arch))?;
        let etcd = self.installed(&Want { kind: Kind::Etcd, version: release.etcd.to_owned(), arch: self.arch })?;
        Ok(ProgramSet { version, kubernetes, etcd })
    }

    /// The path of helm, in the newest version of the catalogue that is in the store.
    ///
    /// # Errors
    /// As [`Assets::programs`].
    pub fn helm(&self) -> Result<PathBuf, AssetError> {
        let mut last = None;
        for version in catalogue::HELM {
            match self.installed(&Want { kind: Kind::Helm, version: (*version).to_owned(), arch: self.arch }) {
                Ok(dir) => return Ok(dir.join("helm")),
                Err(error) => last = last.or(Some(error)),
            }
        }
        Err(last.expect("the catalogue has a version of helm"))
    }

    /// The folder of one item, verified as [`Assets::programs`] does.
    ///
    /// # Errors
    /// As [`Assets::programs`].
    pub fn installed(&self, want: &Want) -> Result<PathBuf, AssetError> {
        self.item(want).map(|(dir, _)| dir)
    }

    /// The folder of one item and what is in it, verified as [`Assets::programs`] does.
    ///
    /// # Errors
    /// As [`Assets::programs`].
    pub fn item(&self, want: &Want) -> Result<(PathBuf, Manifest), AssetError> {
        match self.state(want, false) {
            (State::Ready, Some(manifest)) => Ok((want.dir(&self.root), manifest)),
            (state, _) => Err(AssetError::Missing { want: want.clone(), state, remedy: want.remedy() }),
        }
    }
}

impl ProgramSet {
    /// The Kubernetes version.
    pub const fn version(&self) -> KubernetesVersion {
        self.version
    }

    /// The folder with kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy and kubectl.
    pub fn kubernetes_dir(&self) -> &Path {
        &self.kubernetes
    }

    /// The folder with etcd.
    pub fn etcd_dir(&self) -> &Path {
        &self.etcd
    }

    /// The path of a program by its name; `None` for a name that is none of the set's.
    pub fn path(&self, program: &str) -> Option<PathBuf> {
        let dir = [(Kind::Kubernetes, &self.kubernetes), (Kind::Etcd, &self.etcd)];
        dir.into_iter().find(|(kind, _)| kind.programs().contains(&program)).map(|(_, dir)| dir.join(program))
    }
}

#[cfg(test)]
mod tests;
