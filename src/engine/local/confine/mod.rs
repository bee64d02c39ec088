//! Confinement: what keeps a cluster's processes to their own address, files and share of the host.
//!
//! Each part is idempotent and reversible, and each says what it could not do. Without root there is a development mode: the
//! programs run as the daemon's own user, and what is not confined is listed in the condition `Confined`.
//! May import: `domain`, and the ports of the common plan.

pub mod cgroup;
pub mod claims;
mod free;
pub mod mounts;
pub mod nftables;

use std::collections::BTreeSet;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ipnet::Ipv4Net;
use sha2::{Digest, Sha256};

use crate::domain::cluster::LocalAllotment;
use crate::domain::{ClusterId, KubernetesVersion};
use cgroup::{CgroupLimits, Cgroups};
use claims::Claims;

/// Where the daemon of a host keeps what must not outlive a restart of the host.
pub const RUN_DIR: &str = "/run/kubebyon";
/// The most that the tmpfs may hold: a cluster's keys and configurations take some 100 KiB.
const TMPFS_BYTES: u64 = 256 << 20;
/// The longest path of a run folder, so that `controlplane.sock` below a cluster's stays under 100 bytes (`unix(7)` ends at 108).
const LONGEST_RUN_DIR: usize = 100 - 1 - 36 - 1 - "controlplane.sock".len();

/// What a host does to confine clusters.
pub struct Confinement {
    data_dir: PathBuf,
    run_dir: PathBuf,
    installation: String,
    claims: Claims,
    /// Absent in development mode.
    cgroups: Option<Cgroups>,
}

/// A cluster's place on the host, ready for its programs.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder of keys and sockets, as its programs see it.
    pub run_dir: PathBuf,
    /// The folder that lasts, as its programs see it.
    pub data_dir: PathBuf,
    /// The cgroups its programs join.
    pub cgroups: Vec<PathBuf>,
    /// What is not confined, for people.
    pub missing: Vec<String>,
}

impl Confinement {
    /// Looks at the host and makes what all clusters share. `run_dir`: another place than the usual one.
    pub fn open(data_dir: &Path, run_dir: Option<PathBuf>, installation: &str) -> anyhow::Result<Self> {
        let root = nix::unistd::geteuid().is_root();
        let run_dir = match run_dir {
            Some(run_dir) => run_dir,
            None if root => RUN_DIR.into(),
            None => user_run_dir(data_dir),
        };
        if run_dir.as_os_str().len() > LONGEST_RUN_DIR {
            bail!(
                "the folder {} makes socket paths that are too long: set XDG_RUNTIME_DIR to a folder with a shorter path, such as /run/user/{}",
                run_dir.display(),
                nix::unistd::geteuid()
            );
        }
        let claims = if root {
            // Claims are the host's, wherever this daemon keeps its keys.
            mounts::ensure_tmpfs(Path::new(RUN_DIR), TMPFS_BYTES)?;
            mounts::ensure_tmpfs(&run_dir, TMPFS_BYTES)?;
            Path::new(RUN_DIR).join("claims")
        } else {
            folder(&run_dir, 0o700)?;
            run_dir.join("claims")
        };
        folder(&data_dir.join("clusters"), 0o700)?;
        let cgroups = if root { Some(Cgroups::of_host()?) } else { None };
        Ok(Self {
            data_dir: data_dir.into(),
            run_dir,
            installation: installation.to_owned(),
            claims: Claims::open(claims, installation)?,
            cgroups,
        })
    }

    /// Whether clusters get a uid of their own.
    pub fn root(&self) -> bool {
        self.cgroups.is_some()
    }

    /// Chooses address and uid for a new cluster and claims them.
    pub fn allot(&self, cluster: ClusterId, addresses: Ipv4Net, uids: std::ops::RangeInclusive<u32>) -> anyhow::Result<LocalAllotment> {
        self.claims.choose(cluster, addresses, self.root().then_some(uids), &free::OnThisHost::read())
    }

    /// Claims what a cluster's row says, and lets go of anything else that was claimed for it.
    pub fn hold(&self, cluster: ClusterId, allotment: &LocalAllotment) -> anyhow::Result<()> {
        match (self.root(), allotment.uid) {
            (true, None) => bail!(
                "this cluster was made by a daemon without root, and would now run as root: start the daemon as its former user again, or delete the cluster"
            ),
            (false, Some(uid)) => bail!("this cluster runs as uid {uid}, which needs root: start the daemon as root"),
            _ => {}
        }
        self.claims.hold(cluster, allotment)?;
        self.claims.release_but(cluster, Some(allotment))
    }

    /// The clusters that hold anything on this host for this installation.
    pub fn holders(&self) -> anyhow::Result<BTreeSet<ClusterId>> {
        self.claims.clusters()
    }

    /// The uid that a cluster's processes have.
    pub fn uid_of(&self, allotment: Option<&LocalAllotment>) -> u32 {
        allotment.and_then(|a| a.uid).unwrap_or_else(|| nix::unistd::geteuid().as_raw())
    }

    /// The folder of what lasts of a cluster, as the daemon sees it.
    pub fn cluster_dir(&self, cluster: ClusterId) -> PathBuf {
        self.data_dir.join("clusters").join(cluster.to_string())
    }

    /// The folder of a cluster's data (`etcd/`, `audit/`), as the daemon sees it.
    pub fn data_dir(&self, cluster: ClusterId) -> PathBuf {
        self.cluster_dir(cluster).join("data")
    }

    /// The folder of a cluster's logs.
    pub fn log_dir(&self, cluster: ClusterId) -> PathBuf {
        self.cluster_dir(cluster).join("logs")
    }

    /// The folder of a cluster's keys and sockets.
    pub fn cluster_run_dir(&self, cluster: ClusterId) -> PathBuf {
        self.run_dir.join(cluster.to_string())
    }

    /// Makes a cluster's folders, mounts, rules and groups.
    pub async fn prepare(&self, cluster: ClusterId, allotment: &LocalAllotment, limits: &CgroupLimits) -> anyhow::Result<Place> {
        let (run_dir, data_dir) = (self.cluster_run_dir(cluster), self.data_dir(cluster));
        folder(&self.cluster_dir(cluster), 0o700)?;
        folder(&self.log_dir(cluster), 0o700)?;
        let (Some(uid), Some(cgroups)) = (allotment.uid, &self.cgroups) else {
            for at in [&run_dir, &run_dir.join("pki"), &data_dir, &data_dir.join("audit")] {
                folder(at, 0o700)?;
            }
            let user = nix::unistd::geteuid();
            let missing = vec![
                format!("its programs run as the daemon's own user (uid {user})"),
                "its programs may open connections to anything that this host reaches (no nftables)".to_owned(),
                "its memory, processes and CPU are not limited (no cgroup)".to_owned(),
                "keys and data are protected from nobody who runs as that user".to_owned(),
            ];
            return Ok(Place { run_dir, data_dir, cgroups: Vec::new(), missing });
        };
        for at in [&run_dir, &run_dir.join("pki")] {
            folder(at, 0o750)?;
            chown(at, Some(0), Some(uid)).with_context(|| format!("cannot give {} to gid {uid}", at.display()))?;
        }
        for at in [&data_dir, &data_dir.join("audit")] {
            folder(at, 0o700)?;
            chown(at, Some(uid), Some(uid)).with_context(|| format!("cannot give {} to uid {uid}", at.display()))?;
        }
        let seen = run_dir.join("data");
        mounts::ensure_bind(&data_dir, &seen, false)?;
        let rules = nftables::ruleset(cluster, uid, allotment.address, nix::unistd::geteuid().as_raw());
        nftables::apply(&rules).await?;
        let joined = cgroups.ensure(cluster, limits);
        Ok(Place { run_dir, data_dir: seen, cgroups: joined.folders, missing: joined.missing })
    }

    fn programs_dir(&self) -> PathBuf {
        let installation = hex::encode(&Sha256::digest(self.installation.as_bytes())[..4]);
        self.run_dir.join("programs").join(installation)
    }

    /// Where a program can be executed by any cluster's uid.
    pub fn expose(&self, version: KubernetesVersion, name: &str, file: &Path) -> anyhow::Result<PathBuf> {
        if !self.root() {
            return Ok(file.to_owned());
        }
        let at = self.programs_dir().join(version.to_string());
        for at in [&self.run_dir.join("programs"), &self.programs_dir(), &at] {
            folder(at, 0o711)?;
        }
        let at = at.join(name);
        mounts::ensure_bind(file, &at, true)?;
        Ok(at)
    }

    /// Hides the programs of versions that no cluster runs.
    pub fn hide_programs_but(&self, versions: &BTreeSet<KubernetesVersion>) -> Vec<anyhow::Error> {
        let Ok(entries) = std::fs::read_dir(self.programs_dir()) else { return Vec::new() };
        let mut errors = Vec::new();
        for entry in entries.flatten() {
            let kept = entry.file_name().to_str().and_then(|n| n.parse().ok()).is_some_and(|v| versions.contains(&v));
            if !kept {
                errors.extend(mounts::unmount_below(&entry.path()));
                errors.extend(remove_all(&entry.path()).err());
            }
        }
        // Empty ones go as well; those that are not stay.
        let _ = std::fs::remove_dir(self.programs_dir());
        let _ = std::fs::remove_dir(self.run_dir.join("programs"));
        errors
    }

    /// Removes a cluster's rules, groups, mounts and run folder, and with `data` its data and logs; then its claims, when all else is gone. Its
    /// processes must have ended. Goes on past failures and gives them all.
    pub async fn remove(&self, cluster: ClusterId, data: bool) -> Vec<anyhow::Error> {
        let mut errors = Vec::new();
        if let Some(cgroups) = &self.cgroups {
            errors.extend(nftables::remove(cluster).await.err());
            errors.extend(cgroups.remove(cluster).await);
        }
        let run_dir = self.cluster_run_dir(cluster);
        let unmounted = if self.root() { mounts::unmount_below(&run_dir) } else { Vec::new() };
        if unmounted.is_empty() {
            // Not while the data is still mounted there: it would go through the mount.
            errors.extend(remove_all(&run_dir).err());
            if data {
                errors.extend(remove_all(&self.cluster_dir(cluster)).err());
            }
        }
        errors.extend(unmounted);
        if errors.is_empty() {
            errors.extend(self.claims.release(cluster).err());
        }
        errors
    }
}

/// The run folder of a daemon without root.
fn user_run_dir(data_dir: &Path) -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(at) if Path::new(&at).is_absolute() => Path::new(&at).join("kubebyon"),
        _ => data_dir.join("run"),
    }
}

/// Makes a folder with exactly that mode, and those above it where they are absent.
fn folder(at: &Path, mode: u32) -> anyhow::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(at)
        .and_then(|()| std::fs::set_permissions(at, PermissionsExt::from_mode(mode)))
        .with_context(|| format!("cannot make the folder {}", at.display()))
}

fn remove_all(at: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).with_context(|| format!("cannot remove {}", at.display())),
        _ => Ok(()),
    }
}
