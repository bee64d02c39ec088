#!/bin/bash
# Removes .run/ after `make down`. A data folder that stands elsewhere is the operator's to remove.
. "$(dirname "$0")/common.sh"
. scripts/daemon.sh
! daemon_pid >/dev/null || fail "the daemon still runs: run \`make down\`"
rm -rf -- "$run"
[ ! -e "$data_dir" ] || say "$data_dir stays: it is outside $run"
