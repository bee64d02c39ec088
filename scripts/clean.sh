#!/bin/bash
# Removes what was built and measured. The cache with Kubernetes' programs and the state of `make up` stay.
. "$(dirname "$0")/common.sh"
. scripts/daemon.sh
! daemon_pid >/dev/null || fail "the daemon of \`make up\` runs from target/: run \`make down\` first"
rm -rf -- target bench/out
say "removed target/; the programs in $cache stay"
