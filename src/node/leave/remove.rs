//! Removing files without ever crossing into a mount, following a link, or taking what is not ours; and the inverse of the journal.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use super::mounts;
use crate::node::join::journal::Made;
use crate::node::layout::Layout;

/// Removes trees. What is mounted somewhere stays with all that leads to it.
pub struct Remover {
    /// Mount points; a bind mount of the same file system shows in no other way.
    mounted: BTreeSet<PathBuf>,
    /// Those of them that the owner made before the join: they stay, and nothing is to be said of it.
    stood_before: BTreeSet<PathBuf>,
    /// What could not be removed, and why.
    pub failures: Vec<anyhow::Error>,
}

impl Remover {
    /// Looks at what is mounted.
    ///
    /// # Errors
    /// That cannot be told: then nothing may be removed.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            mounted: mounts::mounts()?.into_iter().map(|mount| mount.at).collect(),
            stood_before: BTreeSet::new(),
            failures: Vec::new(),
        })
    }

    /// Removes a folder with all that is in it.
    pub fn tree(&mut self, folder: &Path) {
        let Ok(meta) = folder.symlink_metadata() else { return };
        if !meta.is_dir() {
            return self.file(folder);
        }
        if self.mounted.contains(folder) {
            // The owner's disk stays, without what is ours on it.
            return self.content(folder);
        }
        self.below(folder, meta.dev());
        self.folder(folder);
    }

    /// Removes what is in a folder, and keeps the folder.
    pub fn content(&mut self, folder: &Path) {
        if let Ok(meta) = folder.symlink_metadata()
            && meta.is_dir()
        {
            self.below(folder, meta.dev());
        }
    }

    fn below(&mut self, folder: &Path, device: u64) {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => return self.failures.push(anyhow!("cannot look into {}: {error}", folder.display())),
        };
        for entry in entries.flatten() {
            let path = entry.path();
            match path.symlink_metadata() {
                _ if self.stood_before.contains(&path) => {}
                _ if self.mounted.contains(&path) => {
                    self.failures.push(anyhow!("{} is left: something is mounted there (`findmnt {0}`)", path.display()));
                }
                Ok(meta) if meta.is_dir() && meta.dev() != device => {
                    self.failures.push(anyhow!("{} is left: it is on another file system", path.display()));
                }
                Ok(meta) if meta.is_dir() => {
                    self.below(&path, device);
                    self.folder(&path);
                }
                Ok(_) => self.file(&path),
                Err(error) => self.note(&path, &error),
            }
        }
    }

    /// Removes a file or a link; that there is none is well.
    pub fn file(&mut self, path: &Path) {
        if let Err(error) = std::fs::remove_file(path) {
            self.note(path, &error);
        }
    }

    /// Removes a folder that is empty; any other stays.
    pub fn folder(&mut self, path: &Path) {
        match std::fs::remove_dir(path) {
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::ResourceBusy | ErrorKind::NotADirectory) => {}
            Err(error) => self.note(path, &error),
            Ok(()) => {}
        }
    }

    fn note(&mut self, path: &Path, error: &std::io::Error) {
        if error.kind() != ErrorKind::NotFound {
            self.failures.push(anyhow!("cannot remove {}: {error}", path.display()));
        }
    }

    /// Undoes what was noted, the last first. The folder with the journal goes last of all.
    pub fn undo(&mut self, made: &[Made], layout: &Layout) {
        let state = layout.state_dir();
        self.stood_before = stood_before(made);
        for one in made.iter().rev() {
            match one {
                Made::File(path) if !path.is_dir() => self.file(path),
                Made::Replaced { path, kept } => {
                    if let Err(error) = restore(kept, path) {
                        self.failures.push(error);
                    }
                }
                Made::Tree(path) if *path != state => self.tree(path),
                Made::Content(path) => self.content(path),
                Made::Folder(path) => self.folder(path),
                Made::Sysctl { name, former } => {
                    if let Err(error) = reset(layout, name, former) {
                        self.failures.push(error);
                    }
                }
                Made::File(_) | Made::Tree(_) | Made::Unit(_) | Made::Mount(_) => {}
            }
        }
    }

    /// What only this machine's membership has, the journal's folder last; then those that were made above them.
    pub fn own_folders(&mut self, made: &[Made], layout: &Layout) {
        self.file(&layout.node_yaml());
        for folder in [layout.run_dir(), layout.log_dir(), layout.root().join("opt/kubebyon"), layout.state_dir()] {
            self.tree(&folder);
        }
        let mut above: Vec<&PathBuf> = made.iter().filter_map(|one| if let Made::Folder(path) = one { Some(path) } else { None }).collect();
        above.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        for path in above {
            self.folder(path);
        }
    }
}

/// The mounts that stood in folders of a node's before the join.
pub fn stood_before(made: &[Made]) -> BTreeSet<PathBuf> {
    made.iter().filter_map(|one| if let Made::Mount(path) = one { Some(path.clone()) } else { None }).collect()
}

/// Puts a file back that stood there before.
fn restore(kept: &Path, path: &Path) -> anyhow::Result<()> {
    if kept.symlink_metadata().is_err() {
        // It was put back by an earlier try.
        return Ok(());
    }
    let context = || format!("cannot put {} back (it is kept as {})", path.display(), kept.display());
    let aside = path.with_file_name(format!(".{}.kubebyon-back", path.file_name().unwrap_or_default().to_string_lossy()));
    let _ = std::fs::remove_file(&aside);
    match std::fs::read_link(kept) {
        Ok(target) => std::os::unix::fs::symlink(target, &aside),
        Err(_) => std::fs::copy(kept, &aside).map(drop),
    }
    .and_then(|()| std::fs::rename(&aside, path))
    .with_context(context)?;
    std::fs::remove_file(kept).with_context(context)
}

fn reset(layout: &Layout, name: &str, former: &str) -> anyhow::Result<()> {
    let path = layout.root().join("proc/sys").join(name.replace('.', "/"));
    match std::fs::read_to_string(&path) {
        Ok(present) if present.trim() != former => std::fs::write(&path, format!("{former}\n"))
            .with_context(|| format!("cannot set {name} back to {former} (`sysctl -w {name}={former}`)")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::join::journal::Journal;
    use nix::mount::{MsFlags, mount};

    #[test]
    fn what_was_made_goes_and_what_was_there_stays() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::below(root.path());
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir_all(path("opt/cni/bin")).unwrap();
        std::fs::create_dir_all(path("var/lib")).unwrap();
        std::fs::create_dir_all(path("proc/sys/vm")).unwrap();
        std::fs::write(path("proc/sys/vm/panic"), "0\n").unwrap();
        std::fs::write(path("opt/cni/bin/bridge"), "theirs").unwrap();
        std::os::unix::fs::symlink("elsewhere", path("opt/cni/bin/portmap")).unwrap();
        let mut journal = Journal::open(&layout).unwrap();
        for name in ["opt/cni/bin/bridge", "opt/cni/bin/portmap", "opt/cni/bin/loopback", "etc/kubebyon/node.yaml"] {
            journal.write(&path(name), b"ours", 0o755).unwrap();
        }
        journal.folder(&path("etc/kubebyon/containerd.d"), 0o755).unwrap();
        std::fs::write(path("etc/kubebyon/containerd.d/mine.toml"), "owner's").unwrap();
        journal.tree(&path("var/lib/kubelet")).unwrap();
        std::fs::create_dir_all(path("var/lib/kubelet/pods/x")).unwrap();
        std::os::unix::fs::symlink(path("opt"), path("var/lib/kubelet/pods/x/link")).unwrap();
        journal.note(Made::Sysctl { name: "vm.panic".into(), former: "0".into() }).unwrap();
        std::fs::write(path("proc/sys/vm/panic"), "10").unwrap();
        for _ in 0..2 {
            let made = crate::node::join::journal::read(&layout).unwrap();
            let mut remover = Remover::new().unwrap();
            remover.undo(&made, &layout);
            remover.own_folders(&made, &layout);
            assert!(remover.failures.is_empty(), "{:?}", remover.failures);
        }
        assert_eq!(std::fs::read_to_string(path("opt/cni/bin/bridge")).unwrap(), "theirs");
        assert_eq!(std::fs::read_link(path("opt/cni/bin/portmap")).unwrap(), Path::new("elsewhere"));
        assert_eq!(std::fs::read_to_string(path("proc/sys/vm/panic")).unwrap(), "0\n");
        for gone in ["opt/cni/bin/loopback", "etc/kubebyon/node.yaml", "var/lib/kubelet", "var/lib/kubebyon-node"] {
            assert!(path(gone).symlink_metadata().is_err(), "{gone}");
        }
        assert!(path("etc/kubebyon/containerd.d/mine.toml").exists(), "what the owner wrote stays");
    }

    #[test]
    fn a_bind_mount_of_the_same_file_system_is_never_crossed() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir_all(path("kubelet/pods/volume")).unwrap();
        std::fs::create_dir_all(path("data")).unwrap();
        std::fs::write(path("data/precious"), "x").unwrap();
        // Of a thread of its own, whose mounts go with it.
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
                    let none: Option<&str> = None;
                    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
                    mount(Some(&path("data")), &path("kubelet/pods/volume"), none, MsFlags::MS_BIND, none).unwrap();
                    let mut remover = Remover::new().unwrap();
                    remover.tree(&path("kubelet"));
                    assert_eq!(remover.failures.len(), 1);
                    assert!(path("data/precious").exists());
                    assert!(mounts::unmount_below(&[path("kubelet")], &[]).is_empty());
                    let mut remover = Remover::new().unwrap();
                    remover.tree(&path("kubelet"));
                    assert!(remover.failures.is_empty() && !path("kubelet").exists());
                })
                .join()
                .unwrap();
        });
        assert!(path("data/precious").exists());
    }
}
