//! The files that machines fetch to become nodes: programs out of the assets, this very program, and archives that the operator put
//! beside them.
//!
//! Guarantees: what can be fetched is what a manifest names, or a plain file in one of two folders (`images/<arch>`,
//! `kubebyon/<version>/<arch>`); links are followed within a manifest alone. What has no manifest is hashed once, and again when it looks
//! another. The daemon's own program is opened when it starts: an upgrade underneath takes nothing away from those who fetch it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Context as _;
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use crate::api::state::{NodeFile, NodeFiles, NodeSet};
use crate::assets::{Arch, Assets, Kind, Want};
use crate::domain::KubernetesVersion;
use crate::domain::join::ProgramFile;

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The programs of Kubernetes that nodes have.
const KUBERNETES: [&str; 3] = ["kubelet", "kube-proxy", "kubectl"];
/// What the names of image archives end in.
const ARCHIVES: [&str; 3] = [".tar", ".tar.gz", ".tar.zst"];
/// So many image archives at most.
const MAX_IMAGES: usize = 64;

/// Files for nodes; cheap to clone.
#[derive(Clone)]
pub struct FilesForNodes(Arc<Inner>);

struct Inner {
    assets: Arc<Assets>,
    /// The program that runs, and its SHA-256 once it was asked for.
    own: File,
    own_sha256: OnceLock<String>,
    /// What was hashed, with how it looked.
    hashed: Mutex<HashMap<PathBuf, (Look, String)>>,
}

/// What tells one content of a file from the next.
type Look = (u64, u64, u64, i64, i64, i64, i64);

fn look(meta: &fs::Metadata) -> Look {
    (meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
}

impl FilesForNodes {
    /// Out of the assets; opens the program that runs.
    pub fn new(assets: Arc<Assets>) -> anyhow::Result<Self> {
        let own = File::open("/proc/self/exe").context("this program's own file cannot be opened for nodes")?;
        Ok(Self(Arc::new(Inner { assets, own, own_sha256: OnceLock::new(), hashed: Mutex::default() })))
    }

    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> T + Send + 'static) -> anyhow::Result<T> {
        let inner = Arc::clone(&self.0);
        Ok(tokio::task::spawn_blocking(move || work(&inner)).await?)
    }
}

#[async_trait]
impl NodeFiles for FilesForNodes {
    async fn set(&self, version: KubernetesVersion, architecture: &str) -> anyhow::Result<Result<NodeSet, String>> {
        let Some(arch) = arch_of(architecture) else { return Ok(Err(format!("there are no programs for {architecture} machines"))) };
        self.blocking(move |inner| inner.set(version, arch)).await?
    }

    async fn kubebyon(&self, architecture: &str) -> anyhow::Result<Result<ProgramFile, String>> {
        let Some(arch) = arch_of(architecture) else { return Ok(Err(format!("there is no kubebyon for {architecture} machines"))) };
        self.blocking(move |inner| inner.kubebyon(arch)).await?
    }

    async fn open(&self, path: &str) -> anyhow::Result<Option<NodeFile>> {
        let path = path.to_owned();
        self.blocking(move |inner| inner.open(&path)).await?
    }
}

impl Inner {
    /// Everything that a node fetches, or what is missing of it.
    fn set(&self, version: KubernetesVersion, arch: Arch) -> anyhow::Result<Result<NodeSet, String>> {
        let mut programs = Vec::new();
        for want in std::iter::once(Want::kubernetes(version, arch)).chain(Want::node_set(arch)) {
            match self.assets.item(&want) {
                Ok((_, manifest)) => programs.extend(for_nodes(want.kind).iter().filter_map(|name| {
                    let record = manifest.files.get(*name)?;
                    Some(program(&want, name, record.size, &record.sha256))
                })),
                Err(error) => return Ok(Err(missing(version, arch, &error.to_string()))),
            }
        }
        match self.kubebyon(arch)? {
            Ok(kubebyon) => programs.push(kubebyon),
            Err(missing) => return Ok(Err(missing)),
        }
        Ok(Ok(NodeSet { programs, images: self.images(arch)? }))
    }

    fn kubebyon(&self, arch: Arch) -> anyhow::Result<Result<ProgramFile, String>> {
        let (size, sha256) = if arch == Arch::host() {
            (self.own.metadata()?.len(), self.own_sha256()?.to_owned())
        } else {
            let path = self.other_kubebyon(arch);
            let Some(file) = self.plain(&path)? else {
                let (arch, path) = (arch.name(), path.display());
                return Ok(Err(format!(
                    "the platform has no kubebyon {VERSION} for {arch} machines: its operator puts the {arch} program at {path} on the \
                     platform's host"
                )));
            };
            (file.size, file.sha256)
        };
        let (version, arch) = (VERSION.to_owned(), arch.name());
        let path = format!("/assets/kubebyon/{version}/{arch}/kubebyon");
        Ok(Ok(ProgramFile { kind: "kubebyon".to_owned(), version, name: "kubebyon".to_owned(), path, size, sha256 }))
    }

    fn other_kubebyon(&self, arch: Arch) -> PathBuf {
        self.assets.dir().join("kubebyon").join(VERSION).join(arch.name()).join("kubebyon")
    }

    fn own_sha256(&self) -> anyhow::Result<&str> {
        if self.own_sha256.get().is_none() {
            let sha256 = sha256(&mut self.open_own()?).context("this program's own file cannot be read")?;
            let _ = self.own_sha256.set(sha256);
        }
        self.own_sha256.get().map(String::as_str).context("the hash was just set")
    }

    /// The program that runs, from its beginning. A handle that is merely duplicated would share its place with all others.
    fn open_own(&self) -> std::io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.own.as_raw_fd()))
    }

    fn images(&self, arch: Arch) -> anyhow::Result<Vec<ProgramFile>> {
        let folder = Want::images(arch).dir(self.assets.dir());
        let mut names: Vec<String> = match fs::read_dir(&folder) {
            Ok(entries) => {
                entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_archive(name)).collect()
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
        };
        names.sort();
        if names.len() > MAX_IMAGES {
            tracing::warn!(folder = %folder.display(), "there are more than {MAX_IMAGES} image archives; nodes get the first by name");
            names.truncate(MAX_IMAGES);
        }
        let mut images = Vec::new();
        for name in names {
            let Some(file) = self.plain(&folder.join(&name))? else { continue };
            let path = format!("/assets/images/{}/{name}", arch.name());
            images.push(ProgramFile {
                kind: "images".to_owned(),
                version: String::new(),
                name,
                path,
                size: file.size,
                sha256: file.sha256,
            });
        }
        Ok(images)
    }

    /// The file at a path below `/assets/`.
    fn open(&self, path: &str) -> anyhow::Result<Option<NodeFile>> {
        let parts: Vec<&str> = path.split('/').collect();
        if !parts.iter().all(|part| is_plain(part)) {
            return Ok(None);
        }
        match *parts.as_slice() {
            ["images", arch, name] => match arch_of(arch).filter(|_| is_archive(name)) {
                Some(arch) => self.plain(&Want::images(arch).dir(self.assets.dir()).join(name)),
                None => Ok(None),
            },
            ["kubebyon", VERSION, arch, "kubebyon"] => match arch_of(arch) {
                Some(arch) if arch == Arch::host() => {
                    let sha256 = self.own_sha256()?.to_owned();
                    let file = self.open_own().context("this program's own file cannot be opened")?;
                    Ok(Some(NodeFile { size: file.metadata()?.len(), file, sha256 }))
                }
                Some(arch) => self.plain(&self.other_kubebyon(arch)),
                None => Ok(None),
            },
            [kind, version, arch, name] => Ok(self.of_manifest(kind, version, arch, name)),
            _ => Ok(None),
        }
    }

    /// A file of an item, if it is one for nodes.
    fn of_manifest(&self, kind: &str, version: &str, arch: &str, name: &str) -> Option<NodeFile> {
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        if !for_nodes(kind).contains(&name) {
            return None;
        }
        if kind == Kind::Kubernetes {
            KubernetesVersion::from_str(version).ok()?;
        }
        let (dir, manifest) = self.assets.item(&Want { kind, version: version.to_owned(), arch: arch_of(arch)? }).ok()?;
        let record = manifest.files.get(name)?;
        let file = open_plain(&dir.join(record.link.as_deref().unwrap_or(name))).ok()?;
        // Verified a moment ago; another size means that it is being put in place anew.
        let is_it = file.metadata().is_ok_and(|meta| meta.len() == record.size);
        is_it.then(|| NodeFile { file, size: record.size, sha256: record.sha256.clone() })
    }

    /// A plain file without a manifest, with its hash; `None`: it is not there, is empty, or is no plain file.
    fn plain(&self, path: &Path) -> anyhow::Result<Option<NodeFile>> {
        let mut file = match open_plain(path) {
            Ok(file) => file,
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "a file for nodes cannot be opened");
                }
                return Ok(None);
            }
        };
        let meta = file.metadata()?;
        if !meta.is_file() || meta.len() == 0 {
            return Ok(None);
        }
        let look = look(&meta);
        let known =
            self.hashed.lock().unwrap_or_else(PoisonError::into_inner).get(path).filter(|(l, _)| *l == look).map(|(_, h)| h.clone());
        let sha256 = if let Some(sha256) = known {
            sha256
        } else {
            let sha256 = sha256(&mut file).with_context(|| format!("cannot read {}", path.display()))?;
            std::io::Seek::rewind(&mut file)?;
            self.hashed.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), (look, sha256.clone()));
            sha256
        };
        Ok(Some(NodeFile { file, size: meta.len(), sha256 }))
    }
}

/// The programs of a kind that nodes have.
const fn for_nodes(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Kubernetes => &KUBERNETES,
        Kind::Containerd | Kind::Runc | Kind::CniPlugins => kind.programs(),
        Kind::Etcd | Kind::Helm | Kind::Images => &[],
    }
}

fn program(want: &Want, name: &str, size: u64, sha256: &str) -> ProgramFile {
    let (kind, version) = (want.kind.name(), &want.version);
    ProgramFile {
        kind: kind.to_owned(),
        version: version.clone(),
        name: name.to_owned(),
        path: format!("/assets/{kind}/{version}/{}/{name}", want.arch.name()),
        size,
        sha256: sha256.to_owned(),
    }
}

/// What is told where programs for nodes are not here: one command brings all of them.
fn missing(version: KubernetesVersion, arch: Arch, cause: &str) -> String {
    let other = if arch == Arch::host() { String::new() } else { format!(" --arch {}", arch.name()) };
    format!(
        "the platform lacks programs for {} machines ({cause}): its operator runs `kubebyon assets fetch --nodes --kubernetes \
         {version}{other}` on the platform's host",
        arch.name()
    )
}

fn arch_of(name: &str) -> Option<Arch> {
    [Arch::Amd64, Arch::Arm64].into_iter().find(|arch| arch.name() == name)
}

/// Whether a part of a path is a name and leads nowhere else.
fn is_plain(part: &str) -> bool {
    !part.is_empty() && !part.starts_with('.') && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-+".contains(&b))
}

fn is_archive(name: &str) -> bool {
    is_plain(name) && ARCHIVES.iter().any(|end| name.ends_with(end))
}

/// Opens a file and no link; nor does a pipe keep anybody waiting.
fn open_plain(path: &Path) -> std::io::Result<File> {
    fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path)
}

fn sha256(file: &mut File) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match std::io::Read::read(file, &mut buffer)? {
            0 => return Ok(hex::encode(hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests;
