//! The data folder: it is there, it is ours, and nobody else reads it. May import: nothing of ours.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};

/// Makes the folder with mode 0700 where it is absent, and refuses one that is another user's or open to others. An empty one that is
/// open is closed: nothing was in it to be read.
pub fn prepare(path: &Path) -> anyhow::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        std::fs::create_dir_all(parent).with_context(|| format!("cannot make the folder {}", parent.display()))?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e).with_context(|| format!("cannot make the data folder {}; give another with --data-dir", path.display())),
    }
    let shown = path.display();
    let found = std::fs::metadata(path).with_context(|| format!("cannot look at the data folder {shown}"))?;
    if !found.is_dir() {
        bail!("the data folder {shown} is no folder; give another with --data-dir");
    }
    let me = nix::unistd::geteuid().as_raw();
    if found.uid() != me {
        bail!(
            "the data folder {shown} belongs to uid {}, and this process is uid {me}; run it as that user, or: chown {me} {shown}",
            found.uid()
        );
    }
    let for_others = found.mode() & 0o077;
    if for_others == 0 {
        return Ok(());
    }
    let empty = std::fs::read_dir(path).with_context(|| format!("cannot look into the data folder {shown}"))?.next().is_none();
    if !empty {
        let mode = found.mode() & 0o7777;
        bail!("the data folder {shown}, which holds keys, is open to others (mode {mode:04o}); do: chmod 700 {shown}");
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).with_context(|| format!("cannot close {shown} to others"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        prepare(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        prepare(&path).unwrap();
    }

    #[test]
    fn what_others_can_read_is_refused_and_an_empty_one_closed() {
        let folder = tempfile::tempdir().unwrap();
        let set = |mode| std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let mode = || std::fs::metadata(folder.path()).unwrap().mode() & 0o7777;
        set(0o755);
        prepare(folder.path()).unwrap();
        assert_eq!(mode(), 0o700);
        std::fs::write(folder.path().join("key"), "").unwrap();
        for (open, fine) in [(0o700, true), (0o711, false), (0o750, false), (0o755, false), (0o702, false)] {
            set(open);
            assert_eq!(prepare(folder.path()).is_ok(), fine, "{open:o}");
            assert_eq!(mode(), open, "what is in use is left as it is");
        }
    }

    #[test]
    fn what_is_no_folder_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(prepare(file.path()).unwrap_err().to_string().contains("is no folder"));
        assert!(prepare(&file.path().join("below")).is_err());
    }
}
