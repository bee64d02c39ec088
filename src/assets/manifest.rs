//! `manifest.json`: what an item's folder must contain. Written last; a folder without it is no item.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::catalogue::{Arch, Kind, Want};
use super::{AssetError, disk};

/// The manifest's name in an item's folder.
pub(super) const FILE: &str = "manifest.json";
/// The form of the manifest that this build writes and reads.
const FORMAT: u32 = 1;
/// No manifest is larger.
const MAX_BYTES: u64 = 1 << 20;

/// Where a file came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// From a mirror, with its published checksum.
    Fetched,
    /// Built here from Go modules.
    Built,
    /// From a pre-seeded folder.
    Seeded,
}

impl Source {
    /// `fetched`, `built` or `seeded`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fetched => "fetched",
            Self::Built => "built",
            Self::Seeded => "seeded",
        }
    }
}

/// What a file looked like when its content was last found right. A file that still looks so has not been changed: writing it
/// moves `ctime`, which no program can set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    dev: u64,
    ino: u64,
    size: u64,
    mtime_ns: i128,
    ctime_ns: i128,
}

impl Stamp {
    /// The stamp of a file as it is.
    pub(super) fn of(meta: &std::fs::Metadata) -> Self {
        let ns = |secs: i64, nanos: i64| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        Self {
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            mtime_ns: ns(meta.mtime(), meta.mtime_nsec()),
            ctime_ns: ns(meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// One file of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// SHA-256 of the content, in hex; of the target for a link.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    /// Where it came from.
    pub source: Source,
    /// The address, path or module it came from.
    pub origin: String,
    /// For a symbolic link, the file of the same folder that it leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// What it looked like when it was last found right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
}

/// What an item's folder must contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// The kind.
    pub kind: Kind,
    /// The version.
    pub version: String,
    /// The architecture.
    pub arch: Arch,
    /// The files by name.
    pub files: BTreeMap<String, FileRecord>,
}

impl Manifest {
    /// The manifest of an item with these files.
    pub(super) fn new(want: &Want, files: BTreeMap<String, FileRecord>) -> Self {
        Self { format: FORMAT, kind: want.kind, version: want.version.clone(), arch: want.arch, files }
    }

    /// Reads the manifest in `dir`; `None` when there is none.
    pub(super) fn read(dir: &Path) -> Result<Option<Self>, AssetError> {
        let path = dir.join(FILE);
        let malformed = |reason: String| AssetError::Malformed { file: path.display().to_string(), reason };
        let bytes = match disk::read_bounded(&path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(AssetError::io(&path, e)),
        };
        let manifest: Self = serde_json::from_slice(&bytes).map_err(|e| malformed(format!("it is cut short or changed ({e})")))?;
        if manifest.format != FORMAT {
            return Err(malformed(format!("format {} is not {FORMAT}, which this build reads", manifest.format)));
        }
        if let Some(name) = manifest.files.keys().find(|n| n.is_empty() || n.starts_with('.') || n.contains('/')) {
            return Err(malformed(format!("{name:?} is no name of a program")));
        }
        Ok(Some(manifest))
    }

    /// Writes the manifest into `dir`, whole or not at all.
    pub(super) fn write(&self, dir: &Path) -> Result<(), AssetError> {
        let json = serde_json::to_vec_pretty(self).expect("a manifest is plain data");
        disk::write_atomically(&dir.join(FILE), &json)
    }

    /// Whether it is the manifest of `want`, with each of its programs.
    pub(super) fn fits(&self, want: &Want) -> bool {
        self.kind == want.kind
            && self.version == want.version
            && self.arch == want.arch
            && want.kind.programs().iter().all(|p| self.files.contains_key(*p))
    }

    /// The bytes it has on disk.
    pub fn bytes(&self) -> u64 {
        self.files.values().filter(|f| f.link.is_none()).map(|f| f.size).sum()
    }
}
