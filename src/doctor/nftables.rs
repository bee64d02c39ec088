//! Whether nftables can confine clusters: the program, the permission and the kernel's part.

use std::io::ErrorKind;

use tokio::process::Command;

use super::{Finding, PATIENCE};

const CHECK: &str = "nftables";

pub(super) async fn check() -> Finding {
    let mut command = Command::new("nft");
    command.args(["list", "tables"]).kill_on_drop(true);
    match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => judge(output.status.success(), &String::from_utf8_lossy(&output.stderr), nix::unistd::geteuid().is_root()),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
            let message = "The program nft is missing, so that the network of clusters cannot be confined.";
            Finding::failed(CHECK, message, "Install it: `apt-get install nftables` or `dnf install nftables`.")
        }
        Ok(Err(error)) => Finding::failed(CHECK, format!("The program nft cannot be run: {error}."), "Try it by hand: `nft list tables`."),
        Err(_) => Finding::failed(CHECK, "The program nft does not answer.", "Try it by hand: `nft list tables`."),
    }
}

/// Judges how `nft list tables` ended.
fn judge(success: bool, error: &str, root: bool) -> Finding {
    if success {
        return Finding::ok(CHECK, "nftables works.");
    }
    let error = error.lines().next().unwrap_or("without a word").trim();
    if error.contains("Operation not permitted") || error.contains("must be root") {
        return if root {
            Finding::failed(
                CHECK,
                format!("This root may not use nftables: {error}."),
                "Give the service or the container CAP_NET_ADMIN: `systemctl edit kubebyon`, or `--cap-add NET_ADMIN`.",
            )
        } else {
            Finding::warning(
                CHECK,
                "Without root the network of clusters is not confined (development mode).",
                "Run it as the system service: `sudo systemctl enable --now kubebyon`.",
            )
        };
    }
    Finding::failed(
        CHECK,
        format!("The kernel does not do nftables: {error}."),
        "Load its module (`modprobe nf_tables`), or boot a kernel that has CONFIG_NF_TABLES.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn each_way_to_fail_has_its_own_remedy() {
        assert_eq!(judge(true, "", true).status, Status::Ok);
        let denied = "Operation not permitted (you must be root)\nnetlink: Error: cache initialization failed: Operation not permitted\n";
        assert_eq!(judge(false, denied, false).status, Status::Warning);
        let finding = judge(false, denied, true);
        assert!(finding.status == Status::Failed && finding.remedy.as_deref().unwrap().contains("NET_ADMIN"), "{finding:?}");
        let finding = judge(false, "netlink: Error: cache initialization failed: Protocol not supported\n", true);
        assert!(finding.status == Status::Failed && finding.remedy.as_deref().unwrap().contains("modprobe"), "{finding:?}");
        assert!(judge(false, "", true).message.contains("without a word"));
    }
}
