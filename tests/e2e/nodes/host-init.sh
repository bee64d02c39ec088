#!/bin/bash
# The first process of a machine for tests, in namespaces of its own. Usage: host-init.sh DISK NAME MIB INIT
# Its root is an overlay over this machine's; what a node keeps much in lies on the real disk, since an overlay takes no other for its upper layer.
set -euo pipefail
disk=$1 name=$2 mib=$3 init=$4
root=$disk/root
mount --make-rprivate /
mkdir -p "$root" "$disk/kept"
kept=$disk/kept
if [ "$mib" -gt 0 ]; then mount -t tmpfs -o "size=${mib}m" tmpfs "$kept"; fi
first=no
[ -d "$kept/upper" ] || first=yes
mkdir -p "$kept"/{upper,work,node,kubelet}
mount -t overlay overlay -o "lowerdir=/,upperdir=$kept/upper,workdir=$kept/work" "$root"
if [ "$first" = yes ]; then
  # What this machine has and a new one has not.
  cd "$root"
  rm -rf etc/kubebyon etc/cni opt/cni opt/kubebyon opt/containerd var/lib/{kubelet,kubebyon,kubebyon-node,cni,containerd,docker} \
    var/log/{pods,containers,kubebyon-node} usr/libexec/kubernetes usr/local/bin/kubebyon etc/systemd/system/kubebyon* \
    etc/systemd/system/*.wants/* var/log/journal etc/sysctl.d/*kubebyon* etc/modules-load.d/*kubebyon*
  mkdir -p var/lib/{kubelet,kubebyon-node}
  echo "$name" >etc/hostname
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$name" >etc/hosts
  for unit in console-getty getty@tty1 serial-getty@ttyS0 systemd-logind systemd-udevd systemd-networkd systemd-resolved systemd-timesyncd; do
    ln -sf /dev/null "etc/systemd/system/$unit.service"
  done
fi
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir -p "$root/run/lock"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --bind "$kept/node" "$root/var/lib/kubebyon-node"
mount --bind "$kept/kubelet" "$root/var/lib/kubelet"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
  mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
  for folder in /sys/fs/cgroup/*/; do
    controller=$(basename "$folder")
    mountpoint -q "$folder" && [ ! -L "${folder%/}" ] && [ ! -e "$folder/cgroup.controllers" ] || continue
    mkdir "$root/sys/fs/cgroup/$controller"
    if [ "$controller" = systemd ]; then options=none,name=systemd; else options=$controller; fi
    mount -t cgroup -o "$options" cgroup "$root/sys/fs/cgroup/$controller"
  done
fi
# The program under test, wherever it was built.
mkdir -p "$root/run/test"
touch "$root/run/test/kubebyon"
mount --bind "$KUBEBYON_BIN" "$root/run/test/kubebyon"
cd "$root"
mkdir -p run/old
pivot_root . run/old
umount -l /run/old
rmdir /run/old
mount --make-rshared /
hostname "$name"
ip link set lo up
echo ready
exec >/dev/null 2>&1
if [ "$init" = systemd ]; then
  exec env -i container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
fi
# Reaps what is left to it.
exec bash -c 'trap exit TERM; while :; do sleep 1000 & wait "$!"; done'
