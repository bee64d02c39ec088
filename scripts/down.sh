#!/bin/bash
# Deletes the clusters of `make up` and ends its daemon. Usage: down.sh [--and-remove]    (the data folder is removed next)
. "$(dirname "$0")/common.sh"
. scripts/daemon.sh

# Each cluster has a folder for as long as anything of it is on this host.
clusters() { compgen -G "$data_dir/clusters/*" >/dev/null; }

if ! daemon_pid >/dev/null && ! clusters; then
  say "nothing runs from $data_dir"
  exit 0
fi
[ -x "$binary" ] || fail "$binary is missing: run \`make build\`"
# Deleting is the daemon's work.
[ -e "$config" ] || write_config
daemon_pid >/dev/null || start_daemon
for name in $(platform cluster list -A -o name); do
  platform cluster delete "$name" --wait >&2
done
stop_daemon
rm -f "$run"/*.kubeconfig "$run/stamp"
case ${1:-} in --and-remove) say "stopped" ;; *) say "stopped; $data_dir stays (\`make clean-run\` removes it)" ;; esac
