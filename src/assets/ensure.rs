//! Bringing items into the store: one process at a time, one way after another, each item whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::build::{self, BuildMode};
use super::catalogue::{Download, Payload, Want};
use super::disk::{self, Lock, Staging};
use super::fetch::{self, Fetcher};
use super::manifest::{FileRecord, Manifest, Source};
use super::mirror::{Mirror, Place};
use super::progress::{ProgressSink, human, human_time};
use super::{AssetError, Assets, State, pack, seed};

/// By which ways items may come.
#[derive(Debug, Clone, Default)]
pub struct Mode {
    /// A pre-seeded folder (a store's layout, or a mirror's), instead of the mirror.
    pub seed: Option<PathBuf>,
    /// Whether they may be built.
    pub build: BuildMode,
}

/// What became of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It stood there, whole and right.
    Present,
    /// It was brought in this way.
    Installed(Source),
}

/// Upstream hosts that did not answer in this run: each is tried once.
type Dead = BTreeSet<String>;

impl Assets {
    /// Brings what is missing or damaged of `wants` into the store, in their order.
    ///
    /// # Errors
    /// With the first item that cannot be had; those before it stay. Cut at any moment, the store is as it was, and what was
    /// downloaded is used by the next run.
    pub async fn ensure(&self, wants: &[Want], mode: &Mode, sink: &dyn ProgressSink) -> Result<Vec<Outcome>, AssetError> {
        let missing = |want: &Want| self.state(want, false).0 != State::Ready;
        if !wants.iter().any(missing) {
            return Ok(vec![Outcome::Present; wants.len()]);
        }
        disk::make_dir(&self.root)?;
        let _lock = Lock::take(&self.root, sink).await?;
        let mut dead = Dead::new();
        let mut outcomes = Vec::with_capacity(wants.len());
        for want in wants {
            // Asked again under the lock: another process may have brought it.
            outcomes.push(if missing(want) { self.bring(want, mode, &mut dead, sink).await? } else { Outcome::Present });
        }
        Ok(outcomes)
    }

    /// Brings one item; the caller holds the lock.
    async fn bring(&self, want: &Want, mode: &Mode, dead: &mut Dead, sink: &dyn ProgressSink) -> Result<Outcome, AssetError> {
        if let State::Damaged(reason) = self.state(want, false).0 {
            sink.step(&format!("{want} is damaged ({reason}); it is replaced"));
        }
        let began = Instant::now();
        let staging = Staging::begin(&self.root, want)?;
        let made = self.make(want, mode, &staging, dead, sink).await;
        if matches!(made, Err(AssetError::Checksum { .. } | AssetError::DiskFull { .. })) {
            staging.discard();
        }
        let (mut manifest, source) = made?;
        staging.commit(&mut manifest)?;
        let (size, time) = (human(manifest.bytes()), human_time(began.elapsed()));
        sink.step(&format!("{want}: {}, {size}, {time}", source.name()));
        Ok(Outcome::Installed(source))
    }

    async fn make(
        &self,
        want: &Want,
        mode: &Mode,
        staging: &Staging,
        dead: &mut Dead,
        sink: &dyn ProgressSink,
    ) -> Result<(Manifest, Source), AssetError> {
        let published = !want.downloads().is_empty();
        if mode.build == BuildMode::Always || (!published && mode.build == BuildMode::Auto && mode.seed.is_none()) {
            return Ok((build::build(want, staging, sink).await?, Source::Built));
        }
        if let Some(from) = &mode.seed {
            let manifest = if seed::has(from, want) || !published {
                seed::copy(from, want, staging)?
            } else {
                self.fetch(want, &Mirror::Folder(from.clone()), Source::Seeded, staging, dead, sink).await?
            };
            return Ok((manifest, Source::Seeded));
        }
        if !published {
            return Err(AssetError::Unknown(format!("{want} is published nowhere as files: leave --build=never out, and it is built")));
        }
        match self.fetch(want, &self.mirror, Source::Fetched, staging, dead, sink).await {
            Ok(manifest) => Ok((manifest, Source::Fetched)),
            Err(error) if error.is_absence() && mode.build == BuildMode::Auto => {
                sink.step(&format!("{want}: {error}; building it from its Go modules"));
                match build::build(want, staging, sink).await {
                    Ok(manifest) => Ok((manifest, Source::Built)),
                    Err(build) => Err(AssetError::NoWay { fetch: Box::new(error), build: Box::new(build) }),
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn fetch(
        &self,
        want: &Want,
        mirror: &Mirror,
        source: Source,
        staging: &Staging,
        dead: &mut Dead,
        sink: &dyn ProgressSink,
    ) -> Result<Manifest, AssetError> {
        let mut files = BTreeMap::new();
        for download in want.downloads() {
            let host = if *mirror == Mirror::Upstream { download.host().to_owned() } else { String::new() };
            if dead.contains(&host) {
                let reason = "it did not answer a moment ago".to_owned();
                return Err(AssetError::Unreachable { url: mirror.locate(&download.path).describe(), reason });
            }
            let one = self.fetch_one(&download, mirror, source, staging, sink).await;
            if matches!(one, Err(AssetError::Unreachable { .. })) {
                dead.insert(host);
            }
            files.extend(one?);
        }
        Ok(Manifest::new(want, files))
    }

    /// Fetches one published file and unpacks it into the staging tree.
    async fn fetch_one(
        &self,
        download: &Download,
        mirror: &Mirror,
        source: Source,
        staging: &Staging,
        sink: &dyn ProgressSink,
    ) -> Result<BTreeMap<String, FileRecord>, AssetError> {
        let place = mirror.locate(&download.path);
        let sums = mirror.locate(&download.checksums);
        let no_sum = || AssetError::Malformed {
            file: sums.describe(),
            reason: format!("it has no SHA-256 of {}; nothing is used without one", download.file_name()),
        };
        match (&place, &sums) {
            (Place::Url(url), Place::Url(sums)) => {
                let fetcher = Fetcher::new(self.pace.clone())?;
                let expected = fetch::published(&fetcher.text(sums).await?, download.file_name()).ok_or_else(no_sum)?;
                let partial = staging.partial(download.file_name());
                fetcher.file(url, &partial, &expected, sink).await?;
                let records = unpack(&partial, download, source, place.describe(), staging, self.pace.max_bytes).await?;
                disk_remove(&partial)?;
                Ok(records)
            }
            (Place::File(file), Place::File(sums)) => {
                let list = read(sums).map_err(|e| absent(sums, e))?;
                let expected = fetch::published(&list, download.file_name()).ok_or_else(no_sum)?;
                let (found, _) = disk::hash_file(file).map_err(|e| absent(file, e))?;
                if found != expected {
                    return Err(AssetError::Checksum { url: file.display().to_string(), expected, found });
                }
                unpack(file, download, source, place.describe(), staging, self.pace.max_bytes).await
            }
            _ => unreachable!("a mirror has all of its files in one kind of place"),
        }
    }
}

/// Puts the programs of a published file into the staging tree, off the threads that must not block.
async fn unpack(
    file: &Path,
    download: &Download,
    source: Source,
    origin: String,
    staging: &Staging,
    max_bytes: u64,
) -> Result<BTreeMap<String, FileRecord>, AssetError> {
    let (file, payload, tree) = (file.to_owned(), download.payload.clone(), staging.tree());
    let work = move || match payload {
        Payload::Archive(members) => pack::take(&file, &members, &tree, source, &origin, max_bytes),
        Payload::Program(name) => {
            let mut reader = File::open(&file).map_err(|e| AssetError::io(&file, e))?;
            let (sha256, size) = disk::write_program(&tree.join(name), &mut reader)?;
            let record = FileRecord { sha256, size, source, origin, link: None, stamp: None };
            Ok(BTreeMap::from([(name.to_owned(), record)]))
        }
    };
    tokio::task::spawn_blocking(work).await.expect("unpacking does not panic")
}

fn read(path: &Path) -> std::io::Result<String> {
    let bytes = disk::read_bounded(path, 256 * 1024)?;
    String::from_utf8(bytes).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e))
}

fn absent(path: &Path, error: std::io::Error) -> AssetError {
    if error.kind() == std::io::ErrorKind::NotFound {
        AssetError::NotFound { url: path.display().to_string(), reason: "no such file".to_owned() }
    } else {
        AssetError::io(path, error)
    }
}

fn disk_remove(path: &Path) -> Result<(), AssetError> {
    std::fs::remove_file(path).map_err(|e| AssetError::io(path, e))
}
