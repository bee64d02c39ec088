//! Whether the disk of the data has room: below a tenth free, creating clusters is refused.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

use super::{Context, Finding, readable};

const CHECK: &str = "disk";
/// Percent free below which the check fails.
const LEAST: u64 = 10;
/// Percent free below which it warns.
const SCARCE: u64 = 20;

/// What a file system has, in bytes or in files.
#[derive(Debug, Clone, Copy)]
struct Room {
    total: u64,
    free: u64,
}

pub(super) fn check(context: &Context) -> Finding {
    let folder = existing(&context.data_dir);
    match statvfs(&folder) {
        Ok(stat) => {
            let unit = stat.fragment_size();
            let room = Room { total: stat.blocks() * unit, free: stat.blocks_available() * unit };
            judge(&folder, room, Room { total: stat.files(), free: stat.files_available() })
        }
        Err(error) => Finding::failed(
            CHECK,
            format!("The disk of {} cannot be looked at: {error}.", folder.display()),
            format!("Look at it by hand: `df -h {}`.", folder.display()),
        ),
    }
}

/// The nearest folder on the way to `path` that exists.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|folder| folder.exists()).map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}

fn judge(folder: &Path, bytes: Room, files: Room) -> Finding {
    let folder = folder.display();
    let percent = |room: Room| if room.total == 0 { 100 } else { u128::from(room.free) * 100 / u128::from(room.total) };
    let (least, what) = if percent(files) < percent(bytes) { (percent(files), "inodes") } else { (percent(bytes), "space") };
    let message =
        format!("{least} % of the {what} on the disk of {folder} is free ({} of {}).", readable(bytes.free), readable(bytes.total));
    let remedy =
        format!("Make room (`du -xh --max-depth=2 {folder} | sort -h | tail` shows what takes it), or move `data_dir` to a larger disk.");
    if least < u128::from(LEAST) {
        Finding::failed(CHECK, format!("{message} Below {LEAST} % no cluster can be created."), remedy)
    } else if least < u128::from(SCARCE) {
        Finding::warning(CHECK, message, remedy)
    } else {
        Finding::ok(CHECK, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn the_scarcer_of_space_and_inodes_decides() {
        let room = |free| Room { total: 1_000, free };
        for (bytes, files, expected) in
            [(200, 200, Status::Ok), (199, 900, Status::Warning), (99, 900, Status::Failed), (900, 99, Status::Failed)]
        {
            assert_eq!(judge(Path::new("/d"), room(bytes), room(files)).status, expected, "{bytes} {files}");
        }
        let unlimited = Room { total: 0, free: 0 };
        assert_eq!(judge(Path::new("/d"), room(500), unlimited).status, Status::Ok, "btrfs counts no inodes");
    }

    #[test]
    fn a_folder_to_come_is_judged_by_the_one_it_will_be_in() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(existing(&dir.path().join("a/b")), dir.path());
    }
}
