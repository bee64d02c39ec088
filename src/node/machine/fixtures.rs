//! Machines as folders of files, written after what such machines have: for tests of facts, preflight, plan and join.

use std::net::IpAddr;
use std::path::Path;

use super::{Facts, Probed};
use crate::node::layout::Layout;

/// What every machine here has.
const COMMON: &[(&str, &str)] = &[
    ("proc/net/route", ROUTES),
    ("proc/net/tcp", "  sl  local_address rem_address   st\n   0: 00000000:0016 00000000:0000 0A 00000000:00000000\n"),
    ("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
    ("proc/meminfo", "MemTotal:        4028316 kB\nMemFree:         2028316 kB\n"),
    ("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"),
    ("proc/sys/net/ipv4/ip_forward", "0\n"),
    ("proc/sys/fs/inotify/max_user_instances", "128\n"),
    ("proc/sys/fs/inotify/max_user_watches", "1048576\n"),
    ("proc/sys/vm/overcommit_memory", "0\n"),
    ("proc/sys/kernel/panic", "0\n"),
    ("etc/resolv.conf", "nameserver 192.168.1.1\n"),
    ("usr/bin/mount", ""),
    ("usr/bin/umount", ""),
    ("usr/bin/systemctl", ""),
    ("usr/sbin/modprobe", ""),
    ("run/systemd/system/.keep", ""),
];
const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
    eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
    eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
const CONTROLLERS: &str = "cpuset cpu io memory hugetlb pids rdma misc\n";

const DEBIAN: &[(&str, &str)] = &[
    (
        "etc/os-release",
        "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION=\"12 (bookworm)\"\nID=debian\n",
    ),
    ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
    ("proc/sys/kernel/hostname", "Worker-1\n"),
    ("sys/fs/cgroup/cgroup.controllers", CONTROLLERS),
    ("lib/modules/6.1.0-18-amd64/modules.builtin", "kernel/net/ipv4/tcp_cubic.ko\n"),
    ("lib/modules/6.1.0-18-amd64/modules.dep", MODULES),
    ("usr/bin/apt-get", ""),
];
const MODULES: &str = "kernel/fs/overlayfs/overlay.ko:\nkernel/net/bridge/bridge.ko: kernel/net/llc/llc.ko\n\
    kernel/net/bridge/br_netfilter.ko: kernel/net/bridge/bridge.ko\nkernel/drivers/net/veth.ko:\nkernel/drivers/net/vxlan/vxlan.ko:\n\
    kernel/net/netfilter/nf_conntrack.ko:\nkernel/net/netfilter/nf_tables.ko:\n";

const UBUNTU: &[(&str, &str)] = &[
    ("etc/os-release", "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nNAME=\"Ubuntu\"\nVERSION_ID=\"24.04\"\nID=ubuntu\nID_LIKE=debian\n"),
    ("proc/sys/kernel/osrelease", "6.8.0-45-generic\n"),
    ("proc/sys/kernel/hostname", "ubuntu\n"),
    ("sys/fs/cgroup/cgroup.controllers", CONTROLLERS),
    ("lib/modules/6.8.0-45-generic/modules.builtin", "kernel/fs/overlayfs/overlay.ko\nkernel/net/bridge/bridge.ko\n"),
    (
        "lib/modules/6.8.0-45-generic/modules.dep",
        "kernel/net/bridge/br_netfilter.ko.zst:\nkernel/drivers/net/veth.ko.zst:\nkernel/net/netfilter/nf_conntrack.ko.zst:\n\
         kernel/net/netfilter/nf_tables.ko.zst:\n",
    ),
    ("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/swap.img file 4194300 0 -2\n"),
    ("etc/resolv.conf", "nameserver 127.0.0.53\noptions edns0 trust-ad\n"),
    ("run/systemd/resolve/resolv.conf", "nameserver 10.96.0.53\n"),
    ("etc/ufw/ufw.conf", "# set by ufw\nENABLED=yes\nLOGLEVEL=low\n"),
    ("proc/900/comm", "dockerd\n"),
    ("usr/bin/apt-get", ""),
    ("usr/sbin/nft", ""),
    ("usr/sbin/iptables", ""),
];

const ROCKY: &[(&str, &str)] = &[
    (
        "etc/os-release",
        "NAME=\"Rocky Linux\"\nVERSION=\"9.4 (Blue Onyx)\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\n\
         PRETTY_NAME=\"Rocky Linux 9.4 (Blue Onyx)\"\n",
    ),
    ("proc/sys/kernel/osrelease", "5.14.0-427.13.1.el9_4.x86_64\n"),
    ("proc/sys/kernel/hostname", "rocky.lan\n"),
    ("sys/fs/cgroup/cgroup.controllers", CONTROLLERS),
    ("sys/fs/selinux/enforce", "1"),
    ("lib/modules/5.14.0-427.13.1.el9_4.x86_64/modules.builtin", "\n"),
    (
        "lib/modules/5.14.0-427.13.1.el9_4.x86_64/modules.dep",
        "kernel/fs/overlayfs/overlay.ko.xz:\nkernel/net/bridge/bridge.ko.xz:\nkernel/net/bridge/br_netfilter.ko.xz:\n\
         kernel/drivers/net/veth.ko.xz:\nkernel/drivers/net/vxlan/vxlan.ko.xz:\nkernel/net/netfilter/nf_conntrack.ko.xz:\n\
         kernel/net/netfilter/nf_tables.ko.xz:\n",
    ),
    ("proc/700/comm", "firewalld\n"),
    ("usr/bin/dnf", ""),
    ("usr/sbin/nft", ""),
    ("usr/sbin/restorecon", ""),
];

const RASPBERRY_PI: &[(&str, &str)] = &[
    ("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n"),
    ("proc/device-tree/model", "Raspberry Pi 4 Model B Rev 1.5\0"),
    ("proc/sys/kernel/osrelease", "6.6.31+rpt-rpi-v8\n"),
    ("proc/sys/kernel/hostname", "raspberrypi\n"),
    ("proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t60\t1\ncpu\t0\t60\t1\nmemory\t0\t60\t0\npids\t0\t60\t1\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids\n"),
    (
        "boot/firmware/cmdline.txt",
        "console=serial0,115200 console=tty1 root=PARTUUID=4e639091-02 rootfstype=ext4 fsck.repair=yes rootwait\n",
    ),
    ("lib/modules/6.6.31+rpt-rpi-v8/modules.builtin", "\n"),
    (
        "lib/modules/6.6.31+rpt-rpi-v8/modules.dep",
        "kernel/fs/overlayfs/overlay.ko.xz:\nkernel/net/bridge/bridge.ko.xz:\nkernel/net/bridge/br_netfilter.ko.xz:\n\
         kernel/drivers/net/veth.ko.xz:\nkernel/drivers/net/vxlan/vxlan.ko.xz:\nkernel/net/netfilter/nf_conntrack.ko.xz:\n\
         kernel/net/netfilter/nf_tables.ko.xz:\n",
    ),
    ("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/var/swap file 524284 0 -2\n"),
    ("usr/bin/apt-get", ""),
    ("usr/sbin/nft", ""),
];

/// A machine as a folder.
pub(crate) struct Fixture {
    /// The folder.
    pub root: tempfile::TempDir,
    /// What no file tells.
    pub probed: Probed,
}

impl Fixture {
    fn of(files: &[(&str, &str)], architecture: &str) -> Self {
        let fixture = Self {
            root: tempfile::tempdir().unwrap(),
            probed: Probed {
                architecture: architecture.to_owned(),
                addresses: vec![("lo".to_owned(), [127, 0, 0, 1].into()), ("eth0".to_owned(), [192, 168, 1, 10].into())],
                address: Some(IpAddr::from([192, 168, 1, 10])),
                disk_free: Some(20 << 30),
                forward_drop: Some(false),
                root: true,
            },
        };
        for (path, content) in COMMON.iter().chain(files) {
            fixture.put(path, content);
        }
        fixture
    }

    /// Debian 12 as its installer leaves it.
    pub(crate) fn debian() -> Self {
        Self::of(DEBIAN, "amd64")
    }

    /// Ubuntu 24.04 without linux-modules-extra, with ufw, Docker and swap.
    pub(crate) fn ubuntu() -> Self {
        let mut fixture = Self::of(UBUNTU, "amd64");
        fixture.probed.forward_drop = Some(true);
        fixture
    }

    /// Rocky 9 as its installer leaves it: SELinux and firewalld.
    pub(crate) fn rocky() -> Self {
        Self::of(ROCKY, "amd64")
    }

    /// Raspberry Pi OS (bookworm, 64 bits) as its image has it.
    pub(crate) fn raspberry_pi() -> Self {
        Self::of(RASPBERRY_PI, "arm64")
    }

    /// Writes a file below the folder.
    pub(crate) fn put(&self, path: &str, content: &str) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// The layout below the folder.
    pub(crate) fn layout(&self) -> Layout {
        Layout::below(self.root.path())
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    /// The facts.
    pub(crate) fn facts(&self) -> Facts {
        Facts::read(&self.layout(), self.probed.clone())
    }
}
