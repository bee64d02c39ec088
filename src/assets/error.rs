//! Why programs could not be had; each message ends with what to do.

use std::path::{Path, PathBuf};

use super::catalogue::Want;
use super::verify::State;

/// Why programs could not be had.
#[derive(Debug, thiserror::Error)]
pub enum AssetError {
    /// Not in the catalogue.
    #[error("{0}")]
    Unknown(String),
    /// Not in the store, or not whole.
    #[error("{want} is {state}: run `{remedy}`")]
    Missing {
        /// What was asked for.
        want: Want,
        /// How it stands.
        state: State,
        /// The command that brings it.
        remedy: String,
    },
    /// The mirror did not answer, or broke off too often.
    #[error("{url} is out of reach: {reason}")]
    Unreachable {
        /// The address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The mirror answers, but has not got the file.
    #[error("{url} is not there ({reason}): check the mirror, whose paths are upstream's")]
    NotFound {
        /// The address.
        url: String,
        /// The answer.
        reason: String,
    },
    /// What came is not what the publisher made.
    #[error(
        "{url} has SHA-256 {found}, but {expected} is published: nothing was installed. \
         Try again; if it stays so, the mirror or something on the way changes files"
    )]
    Checksum {
        /// The address.
        url: String,
        /// The published digest.
        expected: String,
        /// The digest of what came.
        found: String,
    },
    /// A file that cannot be understood or is too large.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No room.
    #[error("no room is left for {}: nothing was installed. Free some (a Kubernetes version takes up to 500 MB) and run the command again", .path.display())]
    DiskFull {
        /// The file that could not be written.
        path: PathBuf,
    },
    /// The folder of programs cannot be written to.
    #[error("{} cannot be written to ({reason}): seed it from where it is writable, or set assets.dir to another folder", .dir.display())]
    ReadOnly {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A build cannot be started or failed.
    #[error("{0}")]
    Build(String),
    /// Neither the mirror nor Go had it.
    #[error("{fetch}; and building instead is not possible: {build}")]
    NoWay {
        /// Why it could not be fetched.
        fetch: Box<AssetError>,
        /// Why it could not be built.
        build: Box<AssetError>,
    },
    /// The system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl AssetError {
    /// An error of the system about `path`, sorted by what the operator can do.
    pub(super) fn io(path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        match source.kind() {
            K::StorageFull | K::QuotaExceeded => Self::DiskFull { path: path.to_owned() },
            K::ReadOnlyFilesystem | K::PermissionDenied => {
                Self::ReadOnly { dir: path.parent().unwrap_or(path).to_owned(), reason: source.to_string() }
            }
            _ => Self::Io { path: path.to_owned(), source },
        }
    }

    /// Whether another way (a build) may be tried: the mirror has not got it or is out of reach. A wrong checksum is never passed over.
    pub(super) const fn is_absence(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotFound { .. })
    }
}
