//! Taking an item from a pre-seeded folder that is laid out like a store.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::catalogue::Want;
use super::disk::{self, Staging};
use super::manifest::{Manifest, Source};
use super::{AssetError, State};

/// Whether `from` has `want` in a store's layout.
pub(super) fn has(from: &Path, want: &Want) -> bool {
    want.dir(from).join(super::manifest::FILE).exists()
}

/// Copies `want` out of the store `from` into `staging`, checking each file against that store's manifest.
pub(super) fn copy(from: &Path, want: &Want, staging: &Staging) -> Result<Manifest, AssetError> {
    let dir = want.dir(from);
    let damaged = |reason: String| AssetError::Malformed { file: dir.display().to_string(), reason };
    let manifest = Manifest::read(&dir)?.ok_or_else(|| damaged("it has no manifest.json".to_owned()))?;
    if !manifest.fits(want) {
        let state = State::Damaged("its manifest is of something else, or lacks programs".to_owned());
        return Err(damaged(state.to_string()));
    }
    let mut files = BTreeMap::new();
    for (name, mut record) in manifest.files.clone() {
        let (source, place) = (dir.join(&name), staging.tree().join(&name));
        if let Some(link) = &record.link {
            if manifest.files.get(link).is_none_or(|target| target.link.is_some()) {
                return Err(damaged(format!("{name} leads to {link}, which is no program of it")));
            }
            symlink(link, &place).map_err(|e| AssetError::io(&place, e))?;
        } else {
            let mut file = File::open(&source).map_err(|e| AssetError::io(&source, e))?;
            let (found, _) = disk::write_program(&place, &mut file)?;
            if found != record.sha256 {
                return Err(AssetError::Checksum { url: source.display().to_string(), expected: record.sha256, found });
            }
        }
        record.origin = format!("{} ({}: {})", source.display(), record.source.name(), record.origin);
        record.source = Source::Seeded;
        files.insert(name, record);
    }
    Ok(Manifest::new(want, files))
}
