//! Whether the folder of the data is there, writable, and closed to others.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use super::{Context, Finding};

const CHECK: &str = "data-dir";

/// What is known of the folder.
#[derive(Debug, Clone, Copy)]
struct Found {
    is_folder: bool,
    mode: u32,
    writable: bool,
}

pub(super) fn check(context: &Context) -> Finding {
    let path = &context.data_dir;
    match std::fs::metadata(path) {
        Ok(metadata) => {
            let writable = access(path, AccessFlags::W_OK | AccessFlags::X_OK).is_ok();
            judge(path, Found { is_folder: metadata.is_dir(), mode: metadata.mode(), writable })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = path.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
            judge_missing(path, access(parent, AccessFlags::W_OK | AccessFlags::X_OK).is_ok())
        }
        Err(error) => Finding::failed(
            CHECK,
            format!("{} cannot be looked at: {error}.", path.display()),
            format!("Look at the folders on the way: `namei -l {}`.", path.display()),
        ),
    }
}

fn judge(path: &Path, folder: Found) -> Finding {
    let path = path.display();
    if !folder.is_folder {
        return Finding::failed(CHECK, format!("{path} is no folder."), format!("Move it away: `mv {path} {path}.old`."));
    }
    if !folder.writable {
        return Finding::failed(
            CHECK,
            format!("This user may not write to {path}."),
            format!("Give it to the user that the daemon runs as: `chown -R \"$(id -u)\" {path}`, or choose another with `--data-dir`."),
        );
    }
    let closed = format!("Close it: `chmod 0700 {path}`.");
    if folder.mode & 0o022 != 0 {
        return Finding::failed(CHECK, format!("Other users may change {path} (mode {:04o}).", folder.mode & 0o7777), closed);
    }
    if folder.mode & 0o044 != 0 {
        return Finding::warning(CHECK, format!("Other users may list {path} (mode {:04o}).", folder.mode & 0o7777), closed);
    }
    Finding::ok(CHECK, format!("{path} is writable, and closed to others."))
}

fn judge_missing(path: &Path, parent_writable: bool) -> Finding {
    let path = path.display();
    if parent_writable {
        Finding::ok(CHECK, format!("{path} will be made at the first start."))
    } else {
        Finding::failed(
            CHECK,
            format!("{path} does not exist, and this user may not make it."),
            format!("Make it: `sudo install -d -m 0700 -o \"$(id -un)\" {path}`, or choose another with `--data-dir`."),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn a_folder_must_be_writable_and_closed() {
        let path = Path::new("/d");
        for (is_folder, mode, writable, expected) in [
            (true, 0o40700, true, Status::Ok),
            (true, 0o40711, true, Status::Ok),
            (true, 0o40755, true, Status::Warning),
            (true, 0o40770, true, Status::Failed),
            (true, 0o41777, true, Status::Failed),
            (true, 0o40700, false, Status::Failed),
            (false, 0o100_600, true, Status::Failed),
        ] {
            assert_eq!(judge(path, Found { is_folder, mode, writable }).status, expected, "{mode:o} {writable}");
        }
        assert_eq!(judge_missing(path, true).status, Status::Ok);
        assert_eq!(judge_missing(path, false).status, Status::Failed);
    }
}
