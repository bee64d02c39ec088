//! Mounts: which stand below folders of ours, and how they go.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

/// One line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The device, `major:minor`.
    pub device: String,
    /// Which folder of the device's file system it shows.
    pub root: PathBuf,
    /// Where it stands.
    pub at: PathBuf,
}

/// The mounts that this process sees, in the order in which they were made.
///
/// # Errors
/// `/proc` cannot be read: nothing can be removed safely then.
pub fn mounts() -> anyhow::Result<Vec<Mount>> {
    let text = std::fs::read("/proc/thread-self/mountinfo")
        .context("cannot read /proc/thread-self/mountinfo, without which nothing is removed")?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

fn parse(text: &str) -> Vec<Mount> {
    let one = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        Some(Mount { device: fields.next()?.to_owned(), root: unescape(fields.next()?), at: unescape(fields.next()?) })
    };
    text.lines().filter_map(one).collect()
}

/// Spaces and the like are written as `\040`.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let octal =
            bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        if let Some(byte) = octal.filter(|_| bytes[at] == b'\\') {
            plain.push(byte);
            at += 4;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    std::ffi::OsString::from_vec(plain).into()
}

/// The mount points below `folders`, the last made first; those that are folders of `folders` themselves, or that stood before, are not
/// among them.
fn below(mounts: &[Mount], folders: &[PathBuf], stood_before: &[PathBuf]) -> Vec<PathBuf> {
    let inside = |at: &Path| folders.iter().any(|folder| at != folder && at.starts_with(folder));
    mounts.iter().rev().map(|mount| mount.at.clone()).filter(|at| inside(at) && !stood_before.contains(at)).collect()
}

/// Takes down what is mounted below `folders`; busy ones are detached. Goes on past failures, and returns them all.
pub fn unmount_below(folders: &[PathBuf], stood_before: &[PathBuf]) -> Vec<anyhow::Error> {
    let mut failures = Vec::new();
    // What a mount hid may show further ones.
    for _ in 0..4 {
        let found = match mounts() {
            Ok(mounts) => below(&mounts, folders, stood_before),
            Err(error) => return vec![error],
        };
        if found.is_empty() {
            return Vec::new();
        }
        failures = found.iter().filter_map(|at| unmount(at).err()).collect();
    }
    failures
}

/// Takes one mount down, detached where it is busy; that there is none is well.
///
/// # Errors
/// The kernel refuses.
pub fn unmount(at: &Path) -> anyhow::Result<()> {
    let outcome = match umount2(at, MntFlags::UMOUNT_NOFOLLOW) {
        Err(Errno::EBUSY) => umount2(at, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW),
        other => other,
    };
    match outcome {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot unmount {}", at.display())),
    }
}

/// Where the folders are that local volumes of pods show: those of PersistentVolumes of the kind `local`.
pub fn local_volumes(mounts: &[Mount], kubelet_dir: &Path) -> Vec<PathBuf> {
    let pods = kubelet_dir.join("pods");
    let is_local = |mount: &&Mount| {
        let Ok(rest) = mount.at.strip_prefix(&pods) else { return false };
        let parts: Vec<_> = rest.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        parts.len() == 4 && parts[1] == "volumes" && parts[2] == "kubernetes.io~local-volume"
    };
    let mut found: Vec<_> = mounts.iter().filter(is_local).filter_map(|mount| origin(mounts, mount, kubelet_dir)).collect();
    found.sort();
    found.dedup();
    found
}

/// The path at which a bind mount's folder is seen outside of the kubelet's folder.
fn origin(mounts: &[Mount], bound: &Mount, kubelet_dir: &Path) -> Option<PathBuf> {
    let others = mounts.iter().filter(|mount| mount.device == bound.device && !mount.at.starts_with(kubelet_dir));
    let longest = others.filter(|mount| bound.root.starts_with(&mount.root)).max_by_key(|mount| mount.root.as_os_str().len())?;
    Some(longest.at.join(bound.root.strip_prefix(&longest.root).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 254:16 / /mnt/disk\\040one rw,relatime - ext4 /dev/vdb rw
40 22 0:50 / /var/lib/kubelet/pods/u1/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw
41 22 254:16 /data/a /var/lib/kubelet/pods/u1/volumes/kubernetes.io~local-volume/pv-1 rw - ext4 /dev/vdb rw
42 22 254:0 /srv/b /var/lib/kubelet/pods/u2/volumes/kubernetes.io~local-volume/pv-2 rw - ext4 /dev/vda rw
43 22 254:0 /disk /var/lib/kubebyon-node/containerd rw - ext4 /dev/vda rw
44 43 0:60 / /var/lib/kubebyon-node/containerd/x/rootfs rw - overlay overlay rw
45 22 254:32 / /var/lib/kubelet-other rw - ext4 /dev/vdc rw
garbage
";

    #[test]
    fn what_stands_below_is_found_and_what_stood_before_is_left() {
        let folders = ["/var/lib/kubelet".into(), "/var/lib/kubebyon-node".into()];
        let before = ["/var/lib/kubebyon-node/containerd".into()];
        let found = below(&parse(INFO), &folders, &before);
        let names: Vec<_> = found.iter().map(|at| at.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["rootfs", "pv-2", "pv-1", "token"]);
    }

    #[test]
    fn local_volumes_are_found_where_their_owner_sees_them() {
        let found = local_volumes(&parse(INFO), Path::new("/var/lib/kubelet"));
        assert_eq!(found, [PathBuf::from("/mnt/disk one/data/a"), PathBuf::from("/srv/b")]);
    }
}
