//! The store's folder on disk: bounded reads, atomic writes, hashing, the lock, and putting an item in place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::catalogue::{Kind, Want};
use super::manifest::Manifest;
use super::progress::ProgressSink;
use super::{AssetError, manifest};

/// Work in progress stands below this name in the store's root.
const STAGING: &str = ".staging";
/// How often a process that waits for another's lock looks again.
const LOCK_POLL: Duration = Duration::from_millis(200);

/// Reads a file that may have at most `max` bytes.
pub(super) fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is larger than {max} bytes")));
    }
    Ok(bytes)
}

/// Writes a file beside `path`, syncs it and renames it over `path`.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), AssetError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let fail = |e| AssetError::io(path, e);
    let mut file =
        tempfile::Builder::new().prefix(".new-").permissions(fs::Permissions::from_mode(0o644)).tempfile_in(dir).map_err(fail)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(fail)?;
    file.persist(path).map_err(|e| fail(e.error))?;
    sync_dir(dir)
}

/// Makes the entries of a folder last.
pub(super) fn sync_dir(dir: &Path) -> Result<(), AssetError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| AssetError::io(dir, e))
}

/// Makes a folder and its parents, which others may enter: programs run under the uids of clusters.
pub(super) fn make_dir(dir: &Path) -> Result<(), AssetError> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(|e| AssetError::io(dir, e))
}

/// Removes a folder and all in it; absent is well.
pub(super) fn remove_dir(dir: &Path) -> Result<(), AssetError> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(AssetError::io(dir, e)),
        _ => Ok(()),
    }
}

/// SHA-256 in hex and size of what `reader` gives, copied to `writer` on the way.
pub(super) fn copy_hashed(reader: &mut impl Read, writer: &mut impl Write) -> io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut size = 0;
    loop {
        let n = match reader.read(&mut buffer) {
            Ok(0) => return Ok((hex::encode(hasher.finalize()), size)),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        hasher.update(&buffer[..n]);
        writer.write_all(&buffer[..n])?;
        size += n as u64;
    }
}

/// SHA-256 in hex and size of a file.
pub(super) fn hash_file(path: &Path) -> io::Result<(String, u64)> {
    copy_hashed(&mut File::open(path)?, &mut io::sink())
}

/// Makes the program `path` from `reader`, executable by all, synced; gives its SHA-256 and size.
pub(super) fn write_program(path: &Path, reader: &mut impl Read) -> Result<(String, u64), AssetError> {
    let mut write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
        let done = copy_hashed(reader, &mut file)?;
        file.sync_all()?;
        Ok(done)
    };
    write().map_err(|e| AssetError::io(path, e))
}

/// The right to change the store; given back when dropped, or when the process ends.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code, reason = "holding it open is what it is for")] File);

impl Lock {
    fn file(root: &Path) -> Result<File, AssetError> {
        let path = root.join(".lock");
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(&path);
        open.map_err(|e| AssetError::io(&path, e))
    }

    /// Takes the lock if nobody has it.
    pub(super) fn try_take(root: &Path) -> Result<Option<Self>, AssetError> {
        let file = Self::file(root)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(e)) => Err(AssetError::io(root, e)),
        }
    }

    /// Takes the lock, after whoever has it.
    pub(super) async fn take(root: &Path, sink: &dyn ProgressSink) -> Result<Self, AssetError> {
        let mut told = false;
        loop {
            if let Some(lock) = Self::try_take(root)? {
                return Ok(lock);
            }
            if !told {
                sink.step(&format!("another process is changing {}; waiting for it", root.display()));
                told = true;
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }
}

/// An item in the making: what is fetched stays for the next try, the tree is put in place whole.
#[derive(Debug)]
pub(super) struct Staging {
    root: PathBuf,
    dir: PathBuf,
    want: Want,
}

impl Staging {
    /// The place in which `want` is made; the caller holds the [`Lock`].
    pub(super) fn begin(root: &Path, want: &Want) -> Result<Self, AssetError> {
        let dir = root.join(STAGING).join(format!("{}-{}-{}", want.kind.name(), want.version, want.arch.name()));
        let staging = Self { root: root.to_owned(), dir, want: want.clone() };
        remove_dir(&staging.tree())?;
        make_dir(&staging.tree())?;
        Ok(staging)
    }

    /// What becomes the item's folder.
    pub(super) fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    /// Where a download grows, kept when it is cut.
    pub(super) fn partial(&self, file_name: &str) -> PathBuf {
        self.dir.join(format!("{file_name}.partial"))
    }

    /// A folder for scratch files.
    pub(super) fn scratch(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes the manifest and puts the tree in place of whatever stood there; programs that run from the old files keep them.
    pub(super) fn commit(self, manifest: &mut Manifest) -> Result<(), AssetError> {
        let tree = self.tree();
        for (name, record) in &mut manifest.files {
            let path = tree.join(name);
            let meta = fs::symlink_metadata(&path).map_err(|e| AssetError::io(&path, e))?;
            record.stamp = record.link.is_none().then(|| manifest::Stamp::of(&meta));
        }
        manifest.write(&tree)?;
        let place = self.want.dir(&self.root);
        let parent = place.parent().expect("an item's folder is below the root");
        make_dir(parent)?;
        self.keep_strangers(&place)?;
        let old = self.dir.join("old");
        remove_dir(&old)?;
        match fs::rename(&place, &old) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(AssetError::io(&place, e)),
            _ => {}
        }
        fs::rename(&tree, &place).map_err(|e| AssetError::io(&place, e))?;
        sync_dir(parent)?;
        remove_dir(&self.dir)
    }

    /// Takes along what others put beside images: an operator's own archives.
    fn keep_strangers(&self, place: &Path) -> Result<(), AssetError> {
        if self.want.kind != Kind::Images {
            return Ok(());
        }
        let known = Manifest::read(place).ok().flatten().map(|manifest| manifest.files).unwrap_or_default();
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let ours = name.to_str().is_some_and(|name| known.contains_key(name) || name == manifest::FILE);
            let target = self.tree().join(&name);
            if !ours && !target.exists() {
                fs::hard_link(entry.path(), &target).map_err(|e| AssetError::io(&target, e))?;
            }
        }
        Ok(())
    }

    /// Forgets all of it, partial downloads too.
    pub(super) fn discard(&self) {
        if let Err(error) = remove_dir(&self.dir) {
            tracing::warn!(%error, "a half-made item could not be removed");
        }
    }
}
