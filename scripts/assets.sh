#!/bin/bash
# Brings programs into the cache: from the mirrors, else built from their Go modules. Arguments go to `kubebyon assets fetch`.
. "$(dirname "$0")/common.sh"
[ -x "$binary" ] || fail "$binary is missing: run \`make build\`"
case " $* " in *" --nodes "* | *" --all "*) scripts/prerequisites.sh nodes ;; esac
KUBEBYON_ASSETS__DIR="$cache/assets" kubebyon assets fetch "$@" </dev/null
