//! One daemon for a data folder: an exclusive flock(2) on `kubebyon.lock` inside of it.
//!
//! The kernel lets go of the lock when the process ends, however it ends; the file stays, since removing it would let two processes
//! lock two files of one name. May import: nothing of ours.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file's name in the data folder.
pub const FILE_NAME: &str = "kubebyon.lock";

/// Why a data folder cannot be had alone.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("{} is in use by another KubeBYON ({}); stop that one, or give this one its own with --data-dir", folder.display(), holder(*pid))]
    Held {
        /// The data folder.
        folder: PathBuf,
        /// The process that has it, where its file tells.
        pid: Option<u32>,
    },
    /// The file cannot be used.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// The lock's file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "its process is not known".to_owned(), |pid| format!("process {pid}"))
}

/// The data folder is this process's until it is dropped.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
}

impl DataDirLock {
    /// Takes the lock, or says who has it; does not wait.
    pub fn acquire(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(FILE_NAME);
        let fail = |source| LockError::Io { path: path.clone(), source };
        let mut options = File::options();
        let nofollow = nix::fcntl::OFlag::O_NOFOLLOW.bits();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(nofollow).open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { folder: folder.to_owned(), pid: read_pid(&file) }),
            Err(TryLockError::Error(e)) => return Err(fail(e)),
        }
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
        Ok(Self { _file: file })
    }
}

fn read_pid(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_hears_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataDirLock::acquire(folder.path()).unwrap();
        // flock(2) is held by the open file, so that a second open in one process is refused as a second process would be.
        let message = DataDirLock::acquire(folder.path()).unwrap_err().to_string();
        assert!(message.contains(&format!("process {}", std::process::id())) && message.contains("--data-dir"), "{message}");
        drop(first);
        DataDirLock::acquire(folder.path()).unwrap();
    }

    #[test]
    fn what_a_dead_process_left_does_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE_NAME), "999999999 and more that nobody asked for\n").unwrap();
        let lock = DataDirLock::acquire(folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap(), format!("{}\n", std::process::id()));
        drop(lock);
    }

    #[test]
    fn a_link_or_a_missing_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/null", folder.path().join(FILE_NAME)).unwrap();
        assert!(matches!(DataDirLock::acquire(folder.path()), Err(LockError::Io { .. })));
        assert!(matches!(DataDirLock::acquire(&folder.path().join("absent")), Err(LockError::Io { .. })));
    }
}
