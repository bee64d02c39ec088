//! Whether enough descriptors may be open: each connection that passes through takes two.

use nix::sys::resource::{Resource, getrlimit};

use super::Finding;

const CHECK: &str = "limits";
const LEAST: u64 = 4_096;
const AMPLE: u64 = 65_536;

pub(super) fn check() -> Finding {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) => judge(hard),
        Err(error) => Finding::warning(CHECK, format!("The limit of open files cannot be read: {error}."), "Look at `ulimit -Hn`."),
    }
}

fn judge(hard: u64) -> Finding {
    let message = format!("At most {hard} files may be open, enough for about {} connections.", hard.saturating_sub(200) / 2);
    let remedy = "Raise it: `systemctl edit kubebyon` with LimitNOFILE=1048576, or `ulimit -Hn 1048576` as root before a start by hand.";
    match hard {
        0..LEAST => Finding::failed(CHECK, message, remedy),
        LEAST..AMPLE => Finding::warning(CHECK, message, remedy),
        nix::libc::RLIM_INFINITY => Finding::ok(CHECK, "Any number of files may be open."),
        _ => Finding::ok(CHECK, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn few_descriptors_fail_and_some_warn() {
        for (hard, expected) in [
            (1_024, Status::Failed),
            (4_096, Status::Warning),
            (65_535, Status::Warning),
            (65_536, Status::Ok),
            (nix::libc::RLIM_INFINITY, Status::Ok),
        ] {
            assert_eq!(judge(hard).status, expected, "{hard}");
        }
    }
}
