//! An air-gapped bundle: a tar, packed by gzip or not, of files at the paths that the platform serves them at (`assets/…`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::journal::explain;

/// The most entries that are looked at.
const MAX_ENTRIES: usize = 100_000;

/// Extracts the files that are wanted, each from its path in the bundle to a path here. What they hold is for the caller to check.
///
/// # Errors
/// The bundle cannot be read, or lacks one of them.
pub fn extract(bundle: &Path, wanted: &BTreeMap<String, PathBuf>) -> anyhow::Result<()> {
    let context = || format!("cannot read the bundle {}", bundle.display());
    let mut file = File::open(bundle).with_context(context)?;
    let mut magic = [0; 2];
    let read = file.read(&mut magic).with_context(context)?;
    file.seek(SeekFrom::Start(0)).with_context(context)?;
    let reader: Box<dyn Read> = if read == 2 && magic == [0x1f, 0x8b] {
        Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file)))
    } else {
        Box::new(BufReader::new(file))
    };
    let mut missing: BTreeMap<&str, &PathBuf> = wanted.iter().map(|(path, target)| (path.as_str(), target)).collect();
    let mut archive = tar::Archive::new(reader);
    for (number, entry) in archive.entries().with_context(context)?.enumerate() {
        if missing.is_empty() {
            break;
        }
        if number >= MAX_ENTRIES {
            bail!("the bundle {} has more than {MAX_ENTRIES} files: it is none of ours", bundle.display());
        }
        let mut entry = entry.with_context(context)?;
        let path = entry.path().with_context(context)?.to_string_lossy().into_owned();
        let Some(target) = missing.get(path.trim_start_matches("./").trim_start_matches('/')) else { continue };
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let mut out = File::create(target).map_err(explain).with_context(|| format!("cannot write {}", target.display()))?;
        std::io::copy(&mut entry, &mut out).map_err(explain).with_context(|| format!("cannot extract {path}"))?;
        out.sync_all().map_err(explain).with_context(|| format!("cannot write {}", target.display()))?;
        missing.remove(path.trim_start_matches("./").trim_start_matches('/'));
    }
    if let Some(first) = missing.keys().next() {
        bail!(
            "the bundle {} lacks {} of the files that this node needs, such as {first}: pack one from the platform of that version",
            bundle.display(),
            missing.len()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn tar(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn gives_what_is_wanted_and_names_what_it_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let plain = tar(&[("./assets/runc/1/amd64/runc", "runc"), ("assets/other", "x")]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&plain).unwrap();
        for (name, bytes) in [("a.tar", plain.clone()), ("a.tar.gz", packed.finish().unwrap())] {
            let bundle = dir.path().join(name);
            std::fs::write(&bundle, bytes).unwrap();
            let target = dir.path().join("out");
            let wanted = |path: &str| [(path.to_owned(), target.clone())].into();
            extract(&bundle, &wanted("assets/runc/1/amd64/runc")).unwrap();
            assert_eq!(std::fs::read_to_string(&target).unwrap(), "runc");
            let said = extract(&bundle, &wanted("assets/absent")).unwrap_err().to_string();
            assert!(said.contains("assets/absent"), "{said}");
        }
        std::fs::write(dir.path().join("garbage"), b"\x1f\x8bgarbage").unwrap();
        assert!(extract(&dir.path().join("garbage"), &[("a".to_owned(), dir.path().join("b"))].into()).is_err());
    }
}
