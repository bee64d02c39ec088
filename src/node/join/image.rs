//! The image that verifies a node: this very program, packed as an archive that containerd imports. No registry is asked.
//!
//! A program that is linked dynamically, as builds for development are, takes its libraries along.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::journal::explain;
use super::programs::sha256;
use crate::image_archive::Image;

/// The image's name without its tag, which is the version.
pub const REPOSITORY: &str = "kubebyon.internal/verify";

/// Writes the archive for `program` into `folder`, and gives its path. One of the same program that is there is left as it is; those of
/// other programs go.
///
/// # Errors
/// The program cannot be read; the archive cannot be written.
pub fn write(program: &Path, version: &str, architecture: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let read = || format!("cannot read {}", program.display());
    let hash = sha256(program).with_context(read)?;
    let path = folder.join(format!("verify-{version}-{}.tar", &hash[..12]));
    if path.exists() {
        return Ok(path);
    }
    let image = Image {
        reference: format!("{REPOSITORY}:{version}"),
        architecture: architecture.to_owned(),
        entrypoint: vec!["/kubebyon".to_owned()],
        files: files(program)?,
    };
    image.write(&path).map_err(explain).with_context(|| format!("cannot write {}", path.display()))?;
    remove_others(folder, &path);
    Ok(path)
}

/// What goes into the image: the program, and where it is linked dynamically its loader and libraries at their own places.
fn files(program: &Path) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let mut files = vec![(PathBuf::from("kubebyon"), program.to_owned())];
    if let Some(loader) = interpreter(program)? {
        let mut linked = libraries();
        linked.insert(loader);
        files.extend(linked.into_iter().map(|file| (file.strip_prefix("/").unwrap_or(&file).to_owned(), file)));
    }
    Ok(files)
}

fn remove_others(folder: &Path, keep: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("verify-")) {
        if entry.path() != keep {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The loader that an ELF file names (`PT_INTERP`), as `elf(5)` has it; `None` for one that needs none.
fn interpreter(program: &Path) -> anyhow::Result<Option<PathBuf>> {
    use std::os::unix::fs::FileExt as _;
    const PT_INTERP: u32 = 3;
    let file = File::open(program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut head = [0; 64];
    if file.read_exact_at(&mut head, 0).is_err() || head[..5] != *b"\x7fELF\x02" {
        return Ok(None);
    }
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    let half = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (offset, size, count) = (word(&head, 32), half(&head, 54), half(&head, 56));
    for number in 0..u64::from(count.min(256)) {
        let mut entry = [0; 56];
        let at = offset.saturating_add(number * u64::from(size));
        file.read_exact_at(&mut entry, at).with_context(|| format!("{} is damaged", program.display()))?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) != PT_INTERP {
            continue;
        }
        let length = usize::try_from(word(&entry, 32)).unwrap_or(usize::MAX);
        if length > 4096 {
            bail!("{} is damaged: its loader's name has {length} bytes", program.display());
        }
        let mut name = vec![0; length];
        file.read_exact_at(&mut name, word(&entry, 8)).with_context(|| format!("{} is damaged", program.display()))?;
        return Ok(Some(PathBuf::from(String::from_utf8_lossy(&name).trim_end_matches('\0'))));
    }
    Ok(None)
}

/// The libraries that this process has in its memory.
fn libraries() -> BTreeSet<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")) && path.is_file())
        .collect()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::image_archive::tests::entries;

    #[test]
    fn the_archive_says_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, "#!static").unwrap();
        let path = write(&program, "1.2.3", "amd64", dir.path()).unwrap();
        assert_eq!(write(&program, "1.2.3", "amd64", dir.path()).unwrap(), path);
        let found = entries(&std::fs::read(&path).unwrap());
        let manifest: serde_json::Value = serde_json::from_slice(&found["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "kubebyon.internal/verify:1.2.3");
        let layer = &found[manifest[0]["Layers"][0].as_str().unwrap()];
        let config: serde_json::Value = serde_json::from_slice(&found[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex::encode(Sha256::digest(layer))));
        assert_eq!(entries(layer), [("kubebyon".to_owned(), b"#!static".to_vec())].into());
        std::fs::write(&program, "#!newer").unwrap();
        let newer = write(&program, "1.2.4", "amd64", dir.path()).unwrap();
        assert!(newer.exists() && !path.exists());
    }

    #[test]
    fn a_program_that_is_linked_dynamically_takes_its_libraries_along() {
        let own = std::env::current_exe().unwrap();
        let loader = interpreter(&own).unwrap();
        assert_eq!(loader.is_some(), !libraries().is_empty());
        assert_eq!(interpreter(Path::new("/etc/os-release")).unwrap(), None);
    }
}
