#!/bin/bash
# Deletes the clusters of `make up`, ends its daemon, and removes .run/. A data folder elsewhere is the operator's to remove.
. "$(dirname "$0")/common.sh"
. scripts/daemon.sh
scripts/down.sh --and-remove
rm -rf -- "$run"
if [ -e "$data_dir" ]; then say "removed $run; $data_dir is outside of it and stays"; else say "removed $run"; fi
