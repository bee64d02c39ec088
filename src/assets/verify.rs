//! Comparing an item with its manifest: by looks where these are as recorded, else by content.

use std::fmt;
use std::fs;
use std::path::Path;

use super::catalogue::{Arch, Want};
use super::disk::{self, Lock};
use super::manifest::{FileRecord, Manifest, Stamp};
use super::{AssetError, Assets};

/// How an item stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Whole and right.
    Ready,
    /// Not there.
    Missing,
    /// There, but not usable; the reason.
    Damaged(String),
}

impl State {
    /// `ready`, `missing` or `damaged`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Missing => "missing",
            Self::Damaged(_) => "damaged",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(reason) => write!(f, "damaged ({reason})"),
            other => f.write_str(other.name()),
        }
    }
}

/// An item of the catalogue and how it stands.
#[derive(Debug, Clone)]
pub struct AssetStatus {
    /// Which.
    pub want: Want,
    /// How it stands.
    pub state: State,
    /// What it contains, where its manifest can be read.
    pub manifest: Option<Manifest>,
}

/// A file that this process hashed: its stamp then, and its SHA-256.
pub(super) type Known = (Stamp, String);

impl Assets {
    /// Every item of the catalogue for this architecture, and items in the store for others; files are compared by looks.
    pub fn list(&self) -> Vec<AssetStatus> {
        self.verify_all(false)
    }

    /// The same; `deep` hashes every file (about 2 s for a Kubernetes version that was fetched).
    pub fn verify_all(&self, deep: bool) -> Vec<AssetStatus> {
        let other = if self.arch == Arch::Amd64 { Arch::Arm64 } else { Arch::Amd64 };
        let others = Want::all(other).into_iter().filter(|w| w.dir(&self.root).exists());
        let wants = Want::all(self.arch).into_iter().chain(others);
        wants
            .map(|want| {
                let (state, manifest) = self.state(&want, deep);
                AssetStatus { want, state, manifest }
            })
            .collect()
    }

    /// How an item stands, and its manifest where that can be read.
    pub(super) fn state(&self, want: &Want, deep: bool) -> (State, Option<Manifest>) {
        let dir = want.dir(&self.root);
        let manifest = match Manifest::read(&dir) {
            Ok(Some(manifest)) => manifest,
            Ok(None) if dir.exists() => return (State::Damaged(format!("{} has no manifest.json", dir.display())), None),
            Ok(None) => return (State::Missing, None),
            Err(error) => return (State::Damaged(error.to_string()), None),
        };
        if !manifest.fits(want) {
            return (State::Damaged("its manifest is of something else, or lacks programs".to_owned()), Some(manifest));
        }
        let mut seen = manifest.clone();
        let verdict = seen.files.iter_mut().try_for_each(|(name, record)| {
            let path = dir.join(name);
            let checked = match &record.link {
                Some(link) => check_link(&path, link, &manifest),
                None => self.check(&path, record, deep),
            };
            checked.map_err(|reason| format!("{name}: {reason}"))
        });
        if let Err(reason) = verdict {
            return (State::Damaged(reason), Some(manifest));
        }
        if seen != manifest {
            self.remember(&dir, &manifest, &seen);
        }
        (State::Ready, Some(seen))
    }

    /// Compares one file with its record, and brings the record's stamp up to date.
    fn check(&self, path: &Path, record: &mut FileRecord, deep: bool) -> Result<(), String> {
        let meta = fs::symlink_metadata(path).map_err(|e| e.to_string())?;
        if !meta.is_file() {
            return Err("it is no file".to_owned());
        }
        if meta.len() != record.size {
            return Err(format!("it has {} bytes instead of {}", meta.len(), record.size));
        }
        let stamp = Stamp::of(&meta);
        if !deep && (record.stamp == Some(stamp) || self.knows(path, stamp, &record.sha256)) {
            return Ok(());
        }
        let (found, _) = disk::hash_file(path).map_err(|e| e.to_string())?;
        if found != record.sha256 {
            return Err(format!("its SHA-256 is {found} instead of {}", record.sha256));
        }
        if let Ok(mut known) = self.known.lock() {
            known.insert(path.to_owned(), (stamp, found));
        }
        record.stamp = Some(stamp);
        Ok(())
    }

    fn knows(&self, path: &Path, stamp: Stamp, sha256: &str) -> bool {
        self.known.lock().is_ok_and(|known| known.get(path).is_some_and(|(s, h)| *s == stamp && h == sha256))
    }

    /// Records new stamps, so that the next start need not hash; what cannot be written is only remembered by this process.
    fn remember(&self, dir: &Path, old: &Manifest, new: &Manifest) {
        let write = || -> Result<(), AssetError> {
            // Whoever holds the lock may be putting another folder in this place.
            let Some(_lock) = Lock::try_take(&self.root)? else { return Ok(()) };
            if Manifest::read(dir)?.as_ref() == Some(old) { new.write(dir) } else { Ok(()) }
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "verified programs could not be recorded; the next start hashes them again");
        }
    }
}

/// A link is right when it leads to a file of the same manifest.
fn check_link(path: &Path, link: &str, manifest: &Manifest) -> Result<(), String> {
    let leads = fs::read_link(path).map_err(|_| "it is no link any more".to_owned())?;
    let whole = manifest.files.get(link).is_some_and(|target| target.link.is_none());
    if leads == Path::new(link) && whole { Ok(()) } else { Err(format!("it does not lead to {link}")) }
}
