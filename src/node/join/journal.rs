//! What a join made on this machine, noted before it is made, so that `leave` is its exact inverse wherever a join was cut.
//!
//! One JSON value a line, appended and synced: a line that was cut off is the last, and what it would have told was not made. Paths are
//! noted as they are on the machine. May import nothing of ours but the layout.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::node::layout::Layout;

/// Something that was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Made {
    /// A folder; it goes when it is empty.
    Folder(PathBuf),
    /// A folder that is ours with all that will ever be in it.
    Tree(PathBuf),
    /// A folder of the owner's that was empty, such as a disk's: what is in it goes.
    Content(PathBuf),
    /// A mount that stood in a folder of ours before; it stays.
    Mount(PathBuf),
    /// A file or a link.
    File(PathBuf),
    /// A file that stood there before, and where it is kept.
    Replaced {
        /// The file.
        path: PathBuf,
        /// Where the former one is.
        kept: PathBuf,
    },
    /// A setting of the kernel, and what it was.
    Sysctl {
        /// Its name.
        name: String,
        /// Its former value.
        former: String,
    },
    /// A unit of systemd that was enabled.
    Unit(String),
}

/// The journal of a machine.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    entries: Vec<Made>,
    known: BTreeSet<Made>,
}

/// Where it is.
pub fn path(layout: &Layout) -> PathBuf {
    layout.state_dir().join("made.json")
}

/// Reads a journal; empty where there is none.
///
/// # Errors
/// It cannot be read.
pub fn read(layout: &Layout) -> anyhow::Result<Vec<Made>> {
    let path = path(layout);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

impl Journal {
    /// Opens the journal, and makes the folder that it is in.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(layout: &Layout) -> anyhow::Result<Self> {
        let state = layout.state_dir();
        let absent: Vec<PathBuf> = missing(&state);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&state).with_context(|| cannot("make", &state))?;
        let entries = read(layout)?;
        let mut journal = Self { path: path(layout), known: entries.iter().cloned().collect(), entries };
        journal.end_last_line()?;
        for folder in absent {
            journal.note(if folder == state { Made::Tree(folder) } else { Made::Folder(folder) })?;
        }
        Ok(journal)
    }

    /// A line that was cut off ends here, so that the next is one of its own.
    fn end_last_line(&self) -> anyhow::Result<()> {
        let text = std::fs::read(&self.path).unwrap_or_default();
        if text.last().is_some_and(|last| *last != b'\n') {
            self.append(b"\n")?;
        }
        Ok(())
    }

    fn append(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut file =
            OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path).with_context(|| cannot("write", &self.path))?;
        file.write_all(bytes).and_then(|()| file.sync_data()).with_context(|| cannot("write", &self.path))
    }

    /// Notes what is about to be made; what is noted already is not noted again.
    pub fn note(&mut self, made: Made) -> anyhow::Result<()> {
        if self.known.contains(&made) {
            return Ok(());
        }
        let mut line = serde_json::to_vec(&made).context("a path that is no text cannot be noted")?;
        line.push(b'\n');
        self.append(&line)?;
        self.known.insert(made.clone());
        self.entries.push(made);
        Ok(())
    }

    /// What was made so far, in its order.
    pub fn entries(&self) -> &[Made] {
        &self.entries
    }

    /// Whether a path was noted as a file or a link of ours.
    pub fn made_file(&self, path: &Path) -> bool {
        self.known.contains(&Made::File(path.to_owned()))
            || self.entries.iter().any(|made| matches!(made, Made::Replaced { path: replaced, .. } if replaced == path))
    }

    /// Makes a folder with those above it; each that was not there is noted.
    pub fn folder(&mut self, folder: &Path, mode: u32) -> anyhow::Result<()> {
        for absent in missing(folder) {
            self.note(Made::Folder(absent))?;
        }
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(folder).with_context(|| cannot("make", folder))
    }

    /// Notes a folder as ours with all that will be in it, unless it is there already.
    pub fn tree(&mut self, folder: &Path) -> anyhow::Result<()> {
        if let Some((top, below)) = missing(folder).split_last() {
            for absent in below {
                self.note(Made::Folder(absent.clone()))?;
            }
            self.note(Made::Tree(top.clone()))?;
        }
        Ok(())
    }

    /// Makes room for a file: its folder is made, and a stranger's file of that name is kept for `leave`.
    pub fn before_file(&mut self, path: &Path) -> anyhow::Result<()> {
        self.folder(path.parent().context("a file stands in a folder")?, 0o755)?;
        if self.made_file(path) {
            return Ok(());
        }
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.note(Made::File(path.to_owned())),
            Err(error) => Err(error).with_context(|| cannot("look at", path)),
            Ok(meta) if meta.is_dir() => bail!("{} is a folder, where a file is to be: move it away", path.display()),
            Ok(_) => {
                let kept = self.path.with_file_name(format!("replaced-{}", self.entries.len()));
                copy(path, &kept)?;
                self.note(Made::Replaced { path: path.to_owned(), kept })
            }
        }
    }

    /// Writes a file, whole or not at all.
    pub fn write(&mut self, path: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
        if std::fs::read(path).is_ok_and(|present| present == content) && self.made_file(path) {
            return Ok(());
        }
        self.before_file(path)?;
        write_whole(path, content, mode)
    }

    /// Makes a link, in the place of one of ours that leads elsewhere.
    pub fn link(&mut self, path: &Path, target: &Path) -> anyhow::Result<()> {
        if std::fs::read_link(path).is_ok_and(|present| present == target) && self.made_file(path) {
            return Ok(());
        }
        self.before_file(path)?;
        let aside = path.with_file_name(format!(".{}.kubebyon-link", path.file_name().unwrap_or_default().to_string_lossy()));
        let _ = std::fs::remove_file(&aside);
        std::os::unix::fs::symlink(target, &aside)
            .and_then(|()| std::fs::rename(&aside, path))
            .with_context(|| cannot("make the link", path))
    }
}

/// Keeps a file or a link as it is.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let done = match std::fs::read_link(from) {
        Ok(target) => {
            let _ = std::fs::remove_file(to);
            std::os::unix::fs::symlink(target, to)
        }
        Err(_) => std::fs::copy(from, to).map(drop),
    };
    done.with_context(|| format!("cannot keep {} as {}", from.display(), to.display()))
}

/// Writes a file beside its place and moves it there.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
    let folder = path.parent().context("a file stands in a folder")?;
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".kubebyon-").tempfile_in(folder)?;
        file.write_all(content)?;
        file.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|failed| failed.error)?;
        Ok(())
    };
    write().map_err(explain).with_context(|| cannot("write", path))
}

/// The folders of a path that are not there, the uppermost first.
fn missing(folder: &Path) -> Vec<PathBuf> {
    let mut absent: Vec<_> = folder.ancestors().take_while(|folder| folder.symlink_metadata().is_err()).map(Path::to_owned).collect();
    absent.reverse();
    absent
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}

/// A full disk, with what to do; any other error as it is.
pub fn explain(error: std::io::Error) -> std::io::Error {
    if matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) {
        return std::io::Error::new(
            error.kind(),
            "the disk is full: make room (`df -h`), then run the same command again; it goes on where it was",
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_before_it_makes_and_keeps_what_was_there() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::below(root.path());
        std::fs::create_dir_all(root.path().join("opt/cni/bin")).unwrap();
        let foreign = root.path().join("opt/cni/bin/bridge");
        std::fs::write(&foreign, "theirs").unwrap();
        let mut journal = Journal::open(&layout).unwrap();
        journal.write(&foreign, b"ours", 0o755).unwrap();
        let new = root.path().join("opt/kubebyon/bin/x");
        journal.write(&new, b"x", 0o755).unwrap();
        journal.link(&root.path().join("usr/local/bin/x"), &new).unwrap();
        let before = journal.entries().to_vec();
        journal.write(&new, b"y", 0o755).unwrap();
        journal.link(&root.path().join("usr/local/bin/x"), &new).unwrap();
        assert_eq!(journal.entries(), before, "nothing is noted twice");
        assert_eq!(Journal::open(&layout).unwrap().entries(), before);
        let kept = before.iter().find_map(|made| match made {
            Made::Replaced { path, kept } => Some((path.clone(), std::fs::read_to_string(kept).unwrap())),
            _ => None,
        });
        assert_eq!(kept, Some((foreign, "theirs".to_owned())));
        assert!(
            before.contains(&Made::Folder(root.path().join("opt/kubebyon"))) && !before.contains(&Made::Folder(root.path().join("opt")))
        );
        assert!(before.contains(&Made::Tree(layout.state_dir())));
    }

    #[test]
    fn a_line_that_was_cut_off_is_the_last() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::below(root.path());
        let mut journal = Journal::open(&layout).unwrap();
        journal.note(Made::Unit("a".into())).unwrap();
        OpenOptions::new().append(true).open(path(&layout)).unwrap().write_all(b"{\"unit\":\"b").unwrap();
        let mut journal = Journal::open(&layout).unwrap();
        journal.note(Made::Unit("c".into())).unwrap();
        let units: Vec<_> = read(&layout).unwrap().into_iter().filter(|made| matches!(made, Made::Unit(_))).collect();
        assert_eq!(units, [Made::Unit("a".into()), Made::Unit("c".into())]);
    }
}
