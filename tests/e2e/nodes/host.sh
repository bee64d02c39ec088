#!/bin/bash
# A machine for tests: it lives as long as standard input stays open. Usage: host.sh DISK NAME MIB INIT
# DISK keeps what survives a reboot; MIB bounds it (0: does not); INIT is `plain` or `systemd`.
set -euo pipefail
disk=$1 name=$2 mib=$3 init=$4
here=$(dirname "$(readlink -f "$0")")

# Its cgroup, which it sees as the root of all.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  groups=("/sys/fs/cgroup/$name")
  controllers=$(sed 's/[a-z]\+/+&/g' /sys/fs/cgroup/cgroup.controllers)
  echo "$controllers" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true
else
  groups=()
  for folder in /sys/fs/cgroup/*/; do
    mountpoint -q "$folder" && [ ! -L "${folder%/}" ] && [ ! -e "$folder/cgroup.controllers" ] && groups+=("$folder$name")
  done
fi
remove_groups() {
  for group in "${groups[@]}"; do
    for _ in $(seq 50); do
      [ -d "$group" ] || break
      find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
      sleep 0.1
    done
  done
}
remove_groups
for group in "${groups[@]}"; do
  mkdir -p "$group"
  for file in cpuset.cpus cpuset.mems; do
    [ ! -e "$group/$file" ] || [ -e /sys/fs/cgroup/cgroup.controllers ] || cat "$(dirname "$group")/$file" >"$group/$file"
  done
done

(
  for group in "${groups[@]}"; do echo "$BASHPID" >"$group/cgroup.procs"; done
  exec unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child --mount-proc \
    bash "$here/host-init.sh" "$disk" "$name" "$mib" "$init" </dev/null
) &
machine=$!
# Ends with the test, however that ends, and with the machine.
{ cat >/dev/null || true; kill -KILL "$machine" 2>/dev/null || true; } <&0 &
wait "$machine" || true
remove_groups
