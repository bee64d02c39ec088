//! Whether the kernel is new enough: 5.13, for kube-proxy's nftables mode, pidfds and per-socket options.

use super::Finding;

const CHECK: &str = "kernel";
const NEEDED: (u32, u32) = (5, 13);

pub(super) fn check() -> Finding {
    match nix::sys::utsname::uname() {
        Ok(names) => judge(&names.release().to_string_lossy()),
        Err(error) => Finding::warning(CHECK, format!("The kernel's version cannot be read: {error}."), "Read it by hand: `uname -r`."),
    }
}

fn judge(release: &str) -> Finding {
    match version(release) {
        Some(found) if found >= NEEDED => Finding::ok(CHECK, format!("Linux {release}.")),
        Some(_) => Finding::failed(
            CHECK,
            format!(
                "Linux {release} is too old: processes cannot be adopted safely and kube-proxy's nftables mode does not work before 5.13."
            ),
            "Install a newer kernel, such as that of the distribution's backports (`apt-get install -t $(lsb_release -sc)-backports linux-image-amd64`), and reboot.",
        ),
        None => Finding::warning(
            CHECK,
            format!("The kernel calls itself {release:?}, which is no version of Linux."),
            "Check that it is at least 5.13: `uname -a`.",
        ),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (release, expected) in [
            ("6.1.0-13-amd64", Status::Ok),
            ("5.13.0", Status::Ok),
            ("5.9.12", Status::Failed),
            ("4.18.0-553.el8.x86_64", Status::Failed),
            ("10.0-rc1", Status::Ok),
            ("unknown", Status::Warning),
        ] {
            assert_eq!(judge(release).status, expected, "{release}");
        }
    }
}
