//! Whether the daemon may do what confining clusters takes, and what is not confined when it may not.

use super::Finding;

const CHECK: &str = "privileges";
/// The capabilities that the daemon uses (capabilities(7)): number, name, what for.
const NEEDED: &[(u32, &str, &str)] = &[
    (0, "CAP_CHOWN", "giving clusters their files"),
    (1, "CAP_DAC_OVERRIDE", "managing the clusters' files"),
    (5, "CAP_KILL", "stopping control planes"),
    (6, "CAP_SETGID", "running control planes under uids of their own"),
    (7, "CAP_SETUID", "running control planes under uids of their own"),
    (10, "CAP_NET_BIND_SERVICE", "listening on port 443"),
    (12, "CAP_NET_ADMIN", "confining the clusters' network with nftables"),
    (21, "CAP_SYS_ADMIN", "keeping keys in memory only (tmpfs)"),
];

pub(super) fn check() -> Finding {
    let root = nix::unistd::geteuid().is_root();
    match std::fs::read_to_string("/proc/self/status").ok().as_deref().and_then(effective) {
        Some(capabilities) => judge(root, capabilities),
        None => Finding::warning(CHECK, "The capabilities of this process cannot be read.", "Look at `grep Cap /proc/self/status`."),
    }
}

fn judge(root: bool, capabilities: u64) -> Finding {
    let missing: Vec<_> = NEEDED.iter().filter(|(bit, ..)| capabilities & (1 << bit) == 0).collect();
    if !root {
        return Finding::warning(
            CHECK,
            "Not root, so this is development mode. Not confined: control planes run under this very uid and can read each other's files, \
             their network is open, no share of memory or CPU holds them, and keys are no better kept than this user's files.",
            "For tenants who do not trust each other, run it as the system service: `sudo systemctl enable --now kubebyon`.",
        );
    }
    if missing.is_empty() {
        return Finding::ok(CHECK, "Root, with every capability that is needed to confine clusters.");
    }
    let list: Vec<String> = missing.iter().map(|(_, name, purpose)| format!("{name} ({purpose})")).collect();
    let names: Vec<&str> = missing.iter().map(|(_, name, _)| *name).collect();
    Finding::failed(
        CHECK,
        format!("Root, but without {}.", list.join(", ")),
        format!(
            "Give the service or the container these capabilities: `systemctl edit kubebyon` with CapabilityBoundingSet={}, or `--cap-add`.",
            names.join(" ")
        ),
    )
}

/// The effective capabilities in the text of `/proc/self/status`.
fn effective(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn what_is_missing_is_named() {
        let all = effective("Name:\tx\nCapEff:\t000001ffffffffff\n").unwrap();
        assert_eq!(judge(true, all).status, Status::Ok);
        let finding = judge(true, all & !(1 << 12));
        assert_eq!(finding.status, Status::Failed);
        assert!(finding.message.contains("CAP_NET_ADMIN") && !finding.message.contains("CAP_KILL"), "{}", finding.message);
        assert_eq!(judge(false, 0).status, Status::Warning);
        assert_eq!(effective("Name:\tx\n"), None);
    }
}
