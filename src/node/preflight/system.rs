//! Judging the system: distribution, kernel, control groups, SELinux, memory, disk, clock, other Kubernetes.

use std::time::Duration;

use super::{Finding, Wanted};
use crate::domain::node::asked;
use crate::node::machine::{Facts, ModuleState, PackageTool, SeLinux};

/// How far clocks may be apart: certificates are dated back by more.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(120);
/// The oldest kernel on which everything works that a node needs.
const OLDEST_KERNEL: (u32, u32) = (4, 19);
/// From here on nf_tables does all that kube-proxy asks of it.
const NFTABLES_KERNEL: (u32, u32) = (5, 13);
const MIB: u64 = 1 << 20;

pub(super) fn judge(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(privileges(facts));
    findings.extend(architecture(facts));
    findings.extend(name(wanted));
    findings.extend(service(facts, wanted));
    findings.extend(kernel(facts));
    findings.extend(modules(facts));
    findings.extend(cgroups(facts));
    findings.extend(programs(facts, wanted));
    findings.extend(selinux(facts));
    findings.extend(swap(facts));
    findings.extend(memory(facts));
    findings.extend(disk(facts));
    findings.extend(clock(wanted));
    findings.extend(other_kubernetes(facts, wanted));
    findings.extend(container(facts));
    findings
}

fn privileges(facts: &Facts) -> Option<Finding> {
    (!facts.probed.root)
        .then(|| Finding::error("privileges", "Becoming a node needs root.", "Run the same command as root: put `sudo` before it."))
}

fn architecture(facts: &Facts) -> Option<Finding> {
    let architecture = facts.probed.architecture.as_str();
    (!matches!(architecture, "amd64" | "arm64")).then(|| {
        Finding::error(
            "architecture",
            format!("This machine's processor is of the kind {architecture}; nodes are amd64 or arm64."),
            "Use another machine; on a Raspberry Pi install the 64-bit Raspberry Pi OS (`uname -m` says aarch64 there).",
        )
    })
}

fn name(wanted: &Wanted) -> Option<Finding> {
    let wrong = asked::validate_name(&wanted.name).err()?;
    Some(Finding::error("name", format!("{}.", wrong.message), "Give the node a name: `kubebyon join --name NAME …`."))
}

fn service(facts: &Facts, wanted: &Wanted) -> Option<Finding> {
    (wanted.service && !facts.systemd).then(|| {
        Finding::error(
            "service",
            "systemd does not run here, and something has to keep the node's programs running.",
            "Join with --no-service, and have your own supervisor run `/opt/kubebyon/bin/kubebyon --role=node`.",
        )
    })
}

fn kernel(facts: &Facts) -> Option<Finding> {
    let kernel = &facts.kernel;
    if !kernel.at_least(OLDEST_KERNEL.0, OLDEST_KERNEL.1) {
        return Some(Finding::error(
            "kernel",
            format!("Linux {} is too old; {}.{} is the least.", kernel.release, OLDEST_KERNEL.0, OLDEST_KERNEL.1),
            match facts.os.packages() {
                PackageTool::Apt => "Upgrade: `apt-get update && apt-get dist-upgrade`, then reboot.",
                PackageTool::Dnf => "Upgrade: `dnf upgrade kernel`, then reboot.",
                _ => "Upgrade the kernel, then reboot.",
            },
        ));
    }
    (!kernel.at_least(NFTABLES_KERNEL.0, NFTABLES_KERNEL.1)).then(|| {
        Finding::warning(
            "kernel",
            format!("Linux {} is older than 5.13, so that Services are made with iptables instead of nftables.", kernel.release),
            "It works as it is; a newer kernel (`uname -r`) makes Services faster.",
        )
    })
}

/// What is lost without a module: (module, whether a node can do without it, what for).
const USES: [(&str, bool, &str); 7] = [
    ("overlay", false, "containers' file systems"),
    ("bridge", false, "the bridge that pods are on"),
    ("veth", false, "pods' interfaces"),
    ("nf_conntrack", false, "Services"),
    ("br_netfilter", true, "Services between pods of one node"),
    ("vxlan", true, "reaching pods of nodes whose network drops pods' addresses"),
    ("nf_tables", true, "nftables; Services are made with iptables then"),
];

fn modules(facts: &Facts) -> Vec<Finding> {
    let remedy = |module: &str| match facts.os.packages() {
        PackageTool::Apt if facts.os.id == "ubuntu" => {
            format!("Install it: `apt-get install linux-modules-extra-{}`, then `modprobe {module}`.", facts.kernel.release)
        }
        PackageTool::Dnf => format!("Install it: `dnf install kernel-modules-{}`, then `modprobe {module}`.", facts.kernel.release),
        _ => format!("Boot your distribution's own kernel, which has it (`modprobe {module}` then ends well)."),
    };
    let missing = USES.iter().filter(|(module, ..)| facts.kernel.module(module) == ModuleState::Missing);
    missing
        .map(|(module, spared, purpose)| {
            let message = format!("The kernel {} has no module {module}, which is for {purpose}.", facts.kernel.release);
            if *spared { Finding::warning("modules", message, remedy(module)) } else { Finding::error("modules", message, remedy(module)) }
        })
        .collect()
}

fn cgroups(facts: &Facts) -> Option<Finding> {
    let missing: Vec<_> = ["cpu", "memory", "pids"].into_iter().filter(|controller| !facts.cgroups.has(controller)).collect();
    if missing.is_empty() {
        return (facts.cgroups.version == 1).then(|| {
            Finding::warning(
                "cgroups",
                "Control groups are of version 1, which Kubernetes is about to give up.",
                "Boot with version 2: add `systemd.unified_cgroup_hierarchy=1` to the kernel's command line (on Red Hat's: `grubby --update-kernel=ALL \
                 --args=systemd.unified_cgroup_hierarchy=1`; else /etc/default/grub and `update-grub`), then reboot.",
            )
        });
    }
    let list = missing.join(", ");
    if facts.is_raspberry_pi() && missing.contains(&"memory") {
        return Some(Finding::error(
            "cgroups",
            format!("Cgroup controllers that the kubelet needs are switched off, as they are on a Raspberry Pi unless asked for: {list}."),
            "Switch them on: append ` cgroup_enable=memory cgroup_memory=1` to the one line of /boot/firmware/cmdline.txt (/boot/cmdline.txt \
             before bookworm): `sed -i '1 s/$/ cgroup_enable=memory cgroup_memory=1/' /boot/firmware/cmdline.txt`, then `reboot`.",
        ));
    }
    Some(Finding::error(
        "cgroups",
        format!("Cgroup controllers that the kubelet needs are missing: {list}."),
        "Add `cgroup_enable=memory systemd.unified_cgroup_hierarchy=1` to the kernel's command line (/etc/default/grub and `update-grub`, or \
         `grubby --update-kernel=ALL --args=…`), then reboot; in a container, have its host delegate them.",
    ))
}

fn programs(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let install = |packages: &str| format!("Install it: `{}`.", facts.os.packages().install(packages));
    let mut findings = Vec::new();
    if !facts.has("mount") || !facts.has("umount") {
        findings.push(Finding::error(
            "programs",
            "The program mount is missing; the kubelet needs it for volumes.",
            install("mount util-linux"),
        ));
    }
    let can_install = wanted.packages && facts.os.packages() != PackageTool::Unknown;
    if !facts.has("nft") && !facts.has("iptables") && !can_install {
        let remedy = install("nftables");
        findings.push(Finding::error("programs", "Neither nft nor iptables is here; Services are made with one of them.", remedy));
    }
    findings
}

fn selinux(facts: &Facts) -> Option<Finding> {
    (facts.selinux == SeLinux::Enforcing).then(|| {
        Finding::warning(
            "selinux",
            "SELinux is enforcing: programs get their labels by `restorecon`, and containers run unconfined by SELinux.",
            "Nothing is needed; where something is refused, `ausearch -m avc -ts recent` tells what.",
        )
    })
}

fn swap(facts: &Facts) -> Option<Finding> {
    (!facts.swap.is_empty()).then(|| {
        Finding::warning(
            "swap",
            format!("Swap is on ({}). The kubelet accepts it and pods do not use it; memory limits are less exact.", facts.swap.join(", ")),
            "It works as it is; to switch it off: `swapoff -a`, and take its line out of /etc/fstab.",
        )
    })
}

fn memory(facts: &Facts) -> Option<Finding> {
    let mib = facts.memory / MIB;
    match mib {
        1..400 => Some(Finding::error(
            "memory",
            format!("This machine has {mib} MiB of memory; a node takes 400 MiB for itself."),
            "Use a machine with 1 GiB or more (`free -m`).",
        )),
        400..900 => Some(Finding::warning(
            "memory",
            format!("This machine has {mib} MiB of memory, which leaves little for pods."),
            "It works as it is; 1 GiB or more is better (`free -m`).",
        )),
        _ => None,
    }
}

fn disk(facts: &Facts) -> Option<Finding> {
    let mib = facts.probed.disk_free? / MIB;
    match mib {
        0..1_024 => Some(Finding::error(
            "disk",
            format!("{mib} MiB are free below /var/lib; the programs and images of a node take 1 GiB."),
            "Make room (`du -xh --max-depth=2 /var | sort -h | tail`), or give /var/lib a larger disk.",
        )),
        1_024..5_120 => Some(Finding::warning(
            "disk",
            format!("{mib} MiB are free below /var/lib; the kubelet evicts pods when less than a tenth of the disk is free."),
            "Make room for images: 10 GiB or more (`df -h /var/lib`).",
        )),
        _ => None,
    }
}

fn clock(wanted: &Wanted) -> Option<Finding> {
    let (theirs, ours) = wanted.clocks?;
    let (apart, which) = if ours > theirs { (ours.since(theirs), "ahead of") } else { (theirs.since(ours), "behind") };
    (apart > CLOCK_TOLERANCE).then(|| {
        Finding::error(
            "clock",
            format!(
                "This machine's clock ({ours}) is {} s {which} the platform's ({theirs}); certificates would be refused.",
                apart.as_secs()
            ),
            CLOCK_REMEDY,
        )
    })
}

/// What to do about a clock that is off.
pub const CLOCK_REMEDY: &str = "Set it and keep it set: `timedatectl set-ntp true`, or `chronyc makestep`; then join again.";

fn other_kubernetes(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    let programs = &facts.running.kubernetes;
    if !programs.is_empty() {
        findings.push(Finding::error(
            "kubernetes",
            format!("Another Kubernetes runs here: {}.", programs.join(", ")),
            "A machine is a node of one cluster. Take it out of the other first: `kubeadm reset`, `k3s-uninstall.sh` or `k3s-agent-uninstall.sh`, \
             `rke2-uninstall.sh`, `k0s reset`, `snap remove --purge microk8s`.",
        ));
    }
    if !facts.other_kubernetes.is_empty() && programs.is_empty() && !wanted.member {
        findings.push(Finding::error(
            "kubernetes",
            format!("Another Kubernetes has left traces here: {}.", facts.other_kubernetes.join(", ")),
            "Remove what it left: `kubeadm reset`, or its own uninstaller; then move away what is still there, for example \
             `mv /var/lib/kubelet /var/lib/kubelet.old`.",
        ));
    }
    findings
}

fn container(facts: &Facts) -> Option<Finding> {
    let kind = facts.container.as_ref()?;
    Some(Finding::warning(
        "container",
        format!("This seems to be a container ({kind}); a node inside of one needs all privileges and control groups of its own."),
        "A machine or a virtual machine is better; in LXC allow nesting and the keyctl, and give it the host's modules.",
    ))
}
