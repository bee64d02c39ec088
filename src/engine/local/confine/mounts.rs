//! Mounts: a tmpfs for what is secret, bind mounts for what a cluster's uid must reach although it lies below folders that it may not enter.
//!
//! Every mount is private, so nothing of it shows up in other mount namespaces, and each step looks at what is mounted first: run twice, it
//! ends the same. May import: nothing of ours.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::mount::{MntFlags, MsFlags};

/// A line of `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// The folder of its filesystem that is its root.
    pub root: PathBuf,
    /// Its filesystem.
    pub kind: String,
    /// The options of the mount, such as `ro`.
    pub options: String,
    /// The options of the filesystem: for cgroup version 1 its controllers.
    pub super_options: String,
}

/// What is mounted, in the order of mounting.
pub fn mounted() -> anyhow::Result<Vec<Mount>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    Ok(parse(&text))
}

/// Parses `mountinfo`; lines of another form are left out.
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines()
        .filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let mut front = front.split(' ').skip(3);
            let (root, point, options) = (front.next()?, front.next()?, front.next()?);
            let mut back = back.split(' ');
            let (kind, _, super_options) = (back.next()?, back.next()?, back.next()?);
            Some(Mount {
                point: unescape(point),
                root: unescape(root),
                kind: kind.to_owned(),
                options: options.to_owned(),
                super_options: super_options.to_owned(),
            })
        })
        .collect()
}

/// Blanks, tabs, newlines and backslashes stand as three octal digits behind a backslash.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        if let (b'\\', Some(byte)) = (first, octal) {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Mounts a tmpfs with mode 0711 and at most `bytes` at `at`, where none is mounted there. Its pages are kept out of swap where the kernel can (6.4).
pub fn ensure_tmpfs(at: &Path, bytes: u64) -> anyhow::Result<()> {
    std::fs::create_dir_all(at).with_context(|| format!("cannot make the folder {}", at.display()))?;
    if mounted()?.iter().rev().find(|m| m.point == at).is_some_and(|m| m.kind == "tmpfs") {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mount = |more: &str| {
        let options = format!("mode=0711,size={bytes}{more}");
        nix::mount::mount(Some("kubebyon"), at, Some("tmpfs"), flags, Some(options.as_str()))
    };
    mount(",noswap").or_else(|_| mount("")).with_context(|| format!("cannot mount a tmpfs at {}", at.display()))?;
    make_private(at)
}

/// Binds `source` (a file or a folder) at `target`, made where absent. A bind of another file is replaced.
pub fn ensure_bind(source: &Path, target: &Path, read_only: bool) -> anyhow::Result<()> {
    let meta = std::fs::metadata(source).with_context(|| format!("cannot read {}", source.display()))?;
    while is_mounted(target)? {
        // A mount of the very same file has its device and inode, whatever path led to it.
        let there = std::fs::metadata(target).ok();
        if there.is_some_and(|t| (t.dev(), t.ino()) == (meta.dev(), meta.ino())) {
            return restrict(target, read_only);
        }
        unmount(target)?;
    }
    if meta.is_dir() {
        std::fs::create_dir_all(target).with_context(|| format!("cannot make the folder {}", target.display()))?;
    } else {
        std::fs::OpenOptions::new().create(true).append(true).open(target).with_context(|| format!("cannot make {}", target.display()))?;
    }
    nix::mount::mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("cannot bind {} at {}", source.display(), target.display()))?;
    make_private(target)?;
    restrict(target, read_only)
}

fn restrict(target: &Path, read_only: bool) -> anyhow::Result<()> {
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    flags |= if read_only { MsFlags::MS_RDONLY } else { MsFlags::MS_NOEXEC };
    nix::mount::mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("cannot restrict the mount at {}", target.display()))
}

fn make_private(at: &Path) -> anyhow::Result<()> {
    nix::mount::mount(None::<&str>, at, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>)
        .with_context(|| format!("cannot make the mount at {} private", at.display()))
}

/// Whether something is mounted exactly there.
pub fn is_mounted(at: &Path) -> anyhow::Result<bool> {
    Ok(mounted()?.iter().any(|m| m.point == at))
}

/// Unmounts all that is mounted at `below` or below it, the last mount first; goes on past failures and gives them all.
pub fn unmount_below(below: &Path) -> Vec<anyhow::Error> {
    let mounts = match mounted() {
        Ok(mounts) => mounts,
        Err(error) => return vec![error],
    };
    mounts.iter().rev().filter(|m| m.point.starts_with(below)).filter_map(|m| unmount(&m.point).err()).collect()
}

fn unmount(at: &Path) -> anyhow::Result<()> {
    // Detached at once; the kernel frees it when its last user ends.
    match nix::mount::umount2(at, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot unmount {}", at.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_parsed() {
        let text = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
            30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\ngarbage\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].point.as_path(), mounts[0].root.as_path()), (Path::new("/mnt 2"), Path::new("/mnt1")));
        assert_eq!((mounts[1].kind.as_str(), mounts[1].super_options.as_str()), ("cgroup", "rw,memory"));
        assert_eq!(unescape("a\\134b\\x"), Path::new("a\\b\\x"));
    }

    /// Needs root.
    #[test]
    fn mounts_are_made_once_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (tmpfs, source) = (folder.path().join("run"), folder.path().join("programs"));
        ensure_tmpfs(&tmpfs, 1 << 20).unwrap();
        ensure_tmpfs(&tmpfs, 1 << 20).unwrap();
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("etcd"), "one").unwrap();
        let (data, etcd) = (tmpfs.join("data"), tmpfs.join("etcd"));
        for _ in 0..2 {
            ensure_bind(&source, &data, false).unwrap();
            ensure_bind(&source.join("etcd"), &etcd, true).unwrap();
        }
        assert_eq!(mounted().unwrap().iter().filter(|m| m.point.starts_with(&tmpfs)).count(), 3);
        assert!(std::fs::write(&etcd, "x").is_err(), "the program can be written to");
        std::fs::write(data.join("other"), "two").unwrap();
        // Another file in the place of the program: the mount follows.
        std::fs::rename(source.join("other"), source.join("etcd")).unwrap();
        assert_eq!(std::fs::read_to_string(&etcd).unwrap(), "one");
        ensure_bind(&source.join("etcd"), &etcd, true).unwrap();
        assert_eq!(std::fs::read_to_string(&etcd).unwrap(), "two");
        assert!(unmount_below(&tmpfs).is_empty());
        assert!(!mounted().unwrap().iter().any(|m| m.point.starts_with(&tmpfs)));
    }
}
