//! Taking programs out of gzipped tar archives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

use super::manifest::{FileRecord, Source};
use super::{AssetError, disk};

/// Takes `members` (path in the archive, program's name) into `tree`. Other members are passed over; nothing of the archive's paths, owners and links reaches the disk.
pub(super) fn take(
    archive: &Path,
    members: &[(String, &'static str)],
    tree: &Path,
    source: Source,
    origin: &str,
    max_bytes: u64,
) -> Result<BTreeMap<String, FileRecord>, AssetError> {
    let malformed = |reason: String| AssetError::Malformed { file: origin.to_owned(), reason };
    let broken = |e: std::io::Error| malformed(format!("it is no whole .tar.gz ({e})"));
    let file = File::open(archive).map_err(|e| AssetError::io(archive, e))?;
    // Four times the largest program bounds what a small archive can blow up to.
    let unpacked = GzDecoder::new(std::io::BufReader::new(file)).take(max_bytes.saturating_mul(4));
    let mut tar = tar::Archive::new(unpacked);
    let mut records = BTreeMap::new();
    for entry in tar.entries().map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        let path = path.strip_prefix("./").unwrap_or(&path);
        let Some((_, name)) = members.iter().find(|(member, _)| Path::new(member) == path) else { continue };
        if !entry.header().entry_type().is_file() || records.contains_key(*name) {
            return Err(malformed(format!("its member {} is no plain file", path.display())));
        }
        let length = entry.size();
        let (sha256, size) = disk::write_program(&tree.join(name), &mut entry.take(max_bytes))?;
        if size != length {
            return Err(malformed(format!("its member {} is cut short or larger than {max_bytes} bytes", path.display())));
        }
        records.insert((*name).to_owned(), FileRecord { sha256, size, source, origin: origin.to_owned(), link: None, stamp: None });
    }
    match members.iter().find(|(_, name)| !records.contains_key(*name)) {
        Some((member, _)) => Err(malformed(format!("it has no member {member}"))),
        None => Ok(records),
    }
}
