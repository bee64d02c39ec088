//! What there is: kinds, versions, architectures, and where upstream publishes each file. Pure.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::AssetError;
use crate::domain::KubernetesVersion;

/// A Kubernetes release that clusters can have, and what belongs to it.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    /// The Kubernetes version.
    pub kubernetes: KubernetesVersion,
    /// The version of etcd that its control planes run.
    pub etcd: &'static str,
}

/// The releases, newest first. The newest is the default: it is supported for the longest time, and a control plane never goes back.
pub const RELEASES: [Release; 3] = [
    Release { kubernetes: KubernetesVersion::new(1, 36, 3), etcd: "3.6.13" },
    Release { kubernetes: KubernetesVersion::new(1, 35, 4), etcd: "3.6.13" },
    Release { kubernetes: KubernetesVersion::new(1, 34, 4), etcd: "3.6.13" },
];
/// Versions of helm, newest first.
pub const HELM: &[&str] = &["4.3.1", "3.22.0"];
/// The version of containerd that nodes run.
pub const CONTAINERD: &str = "2.2.9";
/// The version of runc that nodes run.
pub const RUNC: &str = "1.5.3";
/// The version of the CNI plugins that nodes run.
pub const CNI_PLUGINS: &str = "1.10.0";

/// The version of the image that holds a pod's namespaces.
pub const PAUSE: &str = "3.10.1";
/// The version of CoreDNS that clusters run.
pub const COREDNS: &str = "1.13.1";

/// The reference of the image that holds a pod's namespaces.
pub fn pause_image() -> String {
    format!("registry.k8s.io/pause:{PAUSE}")
}

/// The reference of CoreDNS' image.
pub fn coredns_image() -> String {
    format!("registry.k8s.io/coredns/coredns:v{COREDNS}")
}

/// The version of clusters that name none, where the configuration names none either.
pub const fn default_version() -> KubernetesVersion {
    RELEASES[0].kubernetes
}

/// The release of a version.
///
/// # Errors
/// Names the versions that there are.
pub fn release(version: KubernetesVersion) -> Result<Release, AssetError> {
    RELEASES.into_iter().find(|r| r.kubernetes == version).ok_or_else(|| {
        let known: Vec<String> = RELEASES.iter().map(|r| r.kubernetes.to_string()).collect();
        AssetError::Unknown(format!("Kubernetes {version} is not among the versions of this build; there are {}", known.join(", ")))
    })
}

/// A processor architecture, by its name in Go and upstream's file names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// The architecture that this program was built for.
    pub const fn host() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 }
    }

    /// `amd64` or `arm64`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// A kind of item; one item is a folder of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The programs of Kubernetes.
    Kubernetes,
    /// etcd.
    Etcd,
    /// helm.
    Helm,
    /// The container runtime of nodes.
    Containerd,
    /// What starts containers, below containerd.
    Runc,
    /// The network plugins of nodes.
    CniPlugins,
    /// The images that every node needs, as archives: with them a node asks no registry. Nobody publishes them as files.
    Images,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 7] = [Self::Kubernetes, Self::Etcd, Self::Helm, Self::Containerd, Self::Runc, Self::CniPlugins, Self::Images];

    /// Its name, which is also its folder's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Etcd => "etcd",
            Self::Helm => "helm",
            Self::Containerd => "containerd",
            Self::Runc => "runc",
            Self::CniPlugins => "cni-plugins",
            Self::Images => "images",
        }
    }

    /// The programs that an item of this kind has; archives, for images.
    pub const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Kubernetes => &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"],
            Self::Etcd => &["etcd"],
            Self::Helm => &["helm"],
            Self::Containerd => &["containerd", "containerd-shim-runc-v2", "ctr"],
            Self::Runc => &["runc"],
            Self::CniPlugins => &["bridge", "host-local", "portmap", "loopback"],
            Self::Images => &["pause.tar", "coredns.tar"],
        }
    }
}

/// One item: a kind in a version for an architecture.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Want {
    /// What.
    pub kind: Kind,
    /// In which version, without a leading `v`.
    pub version: String,
    /// For which architecture.
    pub arch: Arch,
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.kind.name(), self.version, self.arch.name())
    }
}

impl Want {
    /// The programs of a Kubernetes version.
    pub fn kubernetes(version: KubernetesVersion, arch: Arch) -> Self {
        Self { kind: Kind::Kubernetes, version: version.to_string(), arch }
    }

    /// What a control plane of `version` needs: its programs and its etcd.
    ///
    /// # Errors
    /// For a version that is not in the catalogue.
    pub fn control_plane(version: KubernetesVersion, arch: Arch) -> Result<Vec<Self>, AssetError> {
        let etcd = Self { kind: Kind::Etcd, version: release(version)?.etcd.to_owned(), arch };
        Ok(vec![Self::kubernetes(version, arch), etcd])
    }

    /// What a node needs beside kubelet and kube-proxy.
    pub fn node_set(arch: Arch) -> Vec<Self> {
        let items = [(Kind::Containerd, CONTAINERD), (Kind::Runc, RUNC), (Kind::CniPlugins, CNI_PLUGINS)];
        items.map(|(kind, version)| Self { kind, version: version.to_owned(), arch }).into()
    }

    /// The images of nodes.
    pub fn images(arch: Arch) -> Self {
        Self { kind: Kind::Images, version: format!("pause-{PAUSE}+coredns-{COREDNS}"), arch }
    }

    /// helm, in the newest version.
    pub fn helm(arch: Arch) -> Self {
        Self { kind: Kind::Helm, version: HELM[0].to_owned(), arch }
    }

    /// Everything in the catalogue for an architecture.
    pub fn all(arch: Arch) -> Vec<Self> {
        let want = |kind, version: &str| Self { kind, version: version.to_owned(), arch };
        let mut all: Vec<Self> = RELEASES.iter().map(|r| Self::kubernetes(r.kubernetes, arch)).collect();
        all.extend(RELEASES.iter().map(|r| want(Kind::Etcd, r.etcd)));
        all.extend(HELM.iter().map(|v| want(Kind::Helm, v)));
        all.extend(Self::node_set(arch));
        all.push(Self::images(arch));
        all.sort();
        all.dedup();
        all
    }

    /// Its folder below a store's root. Images stand in one folder for all versions, beside archives that the operator put there.
    pub fn dir(&self, root: &Path) -> PathBuf {
        if self.kind == Kind::Images {
            return root.join(self.kind.name()).join(self.arch.name());
        }
        root.join(self.kind.name()).join(&self.version).join(self.arch.name())
    }

    /// The command that brings it.
    pub fn remedy(&self) -> String {
        let what = match self.kind {
            Kind::Kubernetes => format!(" --kubernetes {}", self.version),
            Kind::Etcd => String::new(),
            Kind::Helm => " --helm".to_owned(),
            Kind::Containerd | Kind::Runc | Kind::CniPlugins => " --nodes".to_owned(),
            Kind::Images => " --images".to_owned(),
        };
        let arch = if self.arch == Arch::host() { String::new() } else { format!(" --arch {}", self.arch.name()) };
        format!("kubebyon assets fetch{what}{arch}")
    }

    /// The files that upstream publishes for it; none for images, which registries have.
    pub fn downloads(&self) -> Vec<Download> {
        let (v, a) = (&self.version, self.arch.name());
        let github = |repo: &str, tag: &str| format!("github.com/{repo}/releases/download/{tag}");
        let archive = |base: String, file: String, sums: &str, prefix: &str| {
            let members = self.kind.programs().iter().map(|p| (format!("{prefix}{p}"), *p)).collect();
            let checksums = if sums.starts_with('.') { format!("{base}/{file}{sums}") } else { format!("{base}/{sums}") };
            vec![Download { path: format!("{base}/{file}"), checksums, payload: Payload::Archive(members) }]
        };
        match self.kind {
            Kind::Kubernetes => {
                let base = format!("dl.k8s.io/release/v{v}/bin/linux/{a}");
                let one = |p: &&'static str| Download {
                    path: format!("{base}/{p}"),
                    checksums: format!("{base}/{p}.sha256"),
                    payload: Payload::Program(p),
                };
                self.kind.programs().iter().map(one).collect()
            }
            Kind::Etcd => {
                let stem = format!("etcd-v{v}-linux-{a}");
                archive(github("etcd-io/etcd", &format!("v{v}")), format!("{stem}.tar.gz"), "SHA256SUMS", &format!("{stem}/"))
            }
            Kind::Helm => archive("get.helm.sh".to_owned(), format!("helm-v{v}-linux-{a}.tar.gz"), ".sha256sum", &format!("linux-{a}/")),
            Kind::Containerd => {
                let base = github("containerd/containerd", &format!("v{v}"));
                archive(base, format!("containerd-static-{v}-linux-{a}.tar.gz"), ".sha256sum", "bin/")
            }
            Kind::Runc => {
                let base = github("opencontainers/runc", &format!("v{v}"));
                let (path, checksums) = (format!("{base}/runc.{a}"), format!("{base}/runc.sha256sum"));
                vec![Download { path, checksums, payload: Payload::Program("runc") }]
            }
            Kind::CniPlugins => {
                let base = github("containernetworking/plugins", &format!("v{v}"));
                archive(base, format!("cni-plugins-linux-{a}-v{v}.tgz"), ".sha256", "")
            }
            Kind::Images => Vec::new(),
        }
    }
}

/// A file that upstream publishes. Paths begin with upstream's host name: with `https://` before them they are upstream's own
/// addresses, and a mirror has the same paths below its base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// The file.
    pub path: String,
    /// The file with its SHA-256.
    pub checksums: String,
    /// What the file is.
    pub payload: Payload,
}

impl Download {
    /// The last part of the path.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Upstream's host name.
    pub fn host(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }
}

/// What a published file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// The program itself, by its name.
    Program(&'static str),
    /// A gzipped tar archive: the members to take, and the program's name of each.
    Archive(Vec<(String, &'static str)>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_first_and_default_is_newest() {
        assert!(RELEASES.is_sorted_by(|a, b| a.kubernetes > b.kubernetes));
        assert_eq!(default_version(), KubernetesVersion::new(1, 36, 3));
        let refused = release(KubernetesVersion::new(1, 33, 0)).unwrap_err().to_string();
        assert!(refused.contains("1.36.3, 1.35.4, 1.34.4"), "{refused}");
    }

    #[test]
    fn upstream_paths() {
        let first = |kind, version: &str, arch| Want { kind, version: version.into(), arch }.downloads().remove(0);
        let k = first(Kind::Kubernetes, "1.34.4", Arch::Arm64);
        assert_eq!(k.path, "dl.k8s.io/release/v1.34.4/bin/linux/arm64/kube-apiserver");
        assert_eq!(k.checksums, "dl.k8s.io/release/v1.34.4/bin/linux/arm64/kube-apiserver.sha256");
        let etcd = first(Kind::Etcd, "3.6.13", Arch::Amd64);
        assert_eq!(etcd.path, "github.com/etcd-io/etcd/releases/download/v3.6.13/etcd-v3.6.13-linux-amd64.tar.gz");
        assert_eq!(etcd.checksums, "github.com/etcd-io/etcd/releases/download/v3.6.13/SHA256SUMS");
        let Payload::Archive(members) = etcd.payload else { panic!("etcd comes in an archive") };
        assert_eq!(members, [("etcd-v3.6.13-linux-amd64/etcd".to_owned(), "etcd")]);
        let helm = first(Kind::Helm, "4.3.1", Arch::Amd64);
        assert_eq!(helm.checksums, "get.helm.sh/helm-v4.3.1-linux-amd64.tar.gz.sha256sum");
        let cni = first(Kind::CniPlugins, "1.10.0", Arch::Amd64);
        assert_eq!(cni.file_name(), "cni-plugins-linux-amd64-v1.10.0.tgz");
        assert_eq!(cni.host(), "github.com");
    }

    #[test]
    fn all_has_each_item_once() {
        let all = Want::all(Arch::Amd64);
        assert_eq!(all.iter().filter(|w| w.kind == Kind::Kubernetes).count(), 3);
        assert_eq!(all.iter().filter(|w| w.kind == Kind::Etcd).count(), 1);
        assert_eq!(all.len(), 3 + 1 + 2 + 3 + 1);
    }
}
