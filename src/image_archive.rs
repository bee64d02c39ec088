//! Image archives: a few files packed so that a container runtime imports them, without a container engine and without a registry.
//!
//! The format is that of `docker save`: a manifest, a configuration, one layer. The same files give the same bytes. Imports nothing of ours.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest as _, Sha256};

/// What is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The image's reference, such as `registry.k8s.io/pause:3.10.1`.
    pub reference: String,
    /// The architecture, by Go's name.
    pub architecture: String,
    /// What a container runs, when its pod does not say.
    pub entrypoint: Vec<String>,
    /// Each file's place in the image (without a leading `/`), and where it is read; all can be executed by everybody.
    pub files: Vec<(PathBuf, PathBuf)>,
}

impl Image {
    /// Writes the archive to `path`, whole or not at all.
    ///
    /// # Errors
    /// A file cannot be read, or the archive not written; the error names the file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let layer = tempfile::Builder::new().prefix(".layer-").tempfile_in(folder)?;
        let digest = self.write_layer(layer.as_file())?;
        let mut whole = tempfile::Builder::new().prefix(".image-").tempfile_in(folder)?;
        self.write_archive(layer.path(), &digest, whole.as_file_mut())?;
        whole.persist(path).map(drop).map_err(|failed| failed.error)
    }

    /// Writes the layer and gives its digest in hex.
    fn write_layer(&self, out: &File) -> io::Result<String> {
        let mut builder = tar::Builder::new(Hashing { inner: BufWriter::new(out), hash: Sha256::new() });
        for (place, source) in &self.files {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", source.display()));
            let mut file = File::open(source).map_err(named)?;
            let size = file.metadata().map_err(named)?.len();
            builder.append_data(&mut header(size, 0o755), place, &mut file)?;
        }
        let mut hashing = builder.into_inner()?;
        hashing.flush()?;
        Ok(hex::encode(hashing.hash.finalize()))
    }

    fn write_archive(&self, layer: &Path, digest: &str, out: &mut File) -> io::Result<()> {
        let config = json!({
            "architecture": self.architecture, "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": ["PATH=/bin:/"]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        let config = config.to_string().into_bytes();
        let config_name = format!("{}.json", hex::encode(Sha256::digest(&config)));
        let layer_name = format!("{digest}/layer.tar");
        let manifest = json!([{"Config": config_name, "RepoTags": [self.reference], "Layers": [layer_name]}]).to_string();
        let mut builder = tar::Builder::new(BufWriter::new(&mut *out));
        let mut layer = File::open(layer)?;
        let size = layer.metadata()?.len();
        builder.append_data(&mut header(config.len() as u64, 0o644), config_name, config.as_slice())?;
        builder.append_data(&mut header(size, 0o644), layer_name, &mut layer)?;
        builder.append_data(&mut header(manifest.len() as u64, 0o644), "manifest.json", manifest.as_bytes())?;
        builder.into_inner()?.flush()?;
        out.sync_all()
    }
}

/// A writer that hashes what passes.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    /// What an archive holds, by path.
    pub(crate) fn entries(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            found.insert(name, content);
        }
        found
    }

    #[test]
    fn the_archive_says_what_is_in_it_and_is_the_same_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, "#!static").unwrap();
        let image = Image {
            reference: "example.org/program:1".into(),
            architecture: "amd64".into(),
            entrypoint: vec!["/bin/program".into(), "serve".into()],
            files: vec![("bin/program".into(), program)],
        };
        let (one, two) = (dir.path().join("one.tar"), dir.path().join("two.tar"));
        image.write(&one).unwrap();
        image.write(&two).unwrap();
        let bytes = std::fs::read(&one).unwrap();
        assert_eq!(bytes, std::fs::read(&two).unwrap());
        let found = entries(&bytes);
        let manifest: serde_json::Value = serde_json::from_slice(&found["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "example.org/program:1");
        let layer = &found[manifest[0]["Layers"][0].as_str().unwrap()];
        let config: serde_json::Value = serde_json::from_slice(&found[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        assert_eq!(config["config"]["Entrypoint"][1], "serve");
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex::encode(Sha256::digest(layer))));
        assert_eq!(entries(layer), [("bin/program".to_owned(), b"#!static".to_vec())].into());
    }

    #[test]
    fn a_file_that_is_not_there_is_named_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out.tar");
        let files = vec![(PathBuf::from("a"), dir.path().join("absent"))];
        let image = Image { reference: "a:1".into(), architecture: "amd64".into(), entrypoint: Vec::new(), files };
        assert!(image.write(&out).unwrap_err().to_string().contains("absent"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
