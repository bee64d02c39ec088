#!/bin/bash
# Everything that CI runs. The last line is "N passed, N failed"; a test that was passed over counts as failed.
. "$(dirname "$0")/common.sh"
exec </dev/null
# The daemons of the tests get their configuration from the tests alone.
mirror=${KUBEBYON_ASSETS__MIRROR:-}
unset KUBEBYON_ASSETS__MIRROR
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# end PASSED FAILED
end() {
  echo "$1 passed, $2 failed"
  [ "$2" -eq 0 ] && exit 0 || exit 1
}
step() { say "== $*"; "$@" >&2 || { say "error: $* failed"; end 0 1; }; }

step scripts/prerequisites.sh tests
step scripts/build.sh
# shellcheck disable=SC2046,SC2086
step env ${mirror:+KUBEBYON_ASSETS__MIRROR="$mirror"} scripts/assets.sh $(printf -- '--kubernetes %s ' ${TEST_VERSIONS:-1.34.4 1.36.3})
step scripts/test-tools.sh

say "== cargo test"
status=0
KUBEBYON_BIN="$binary" KUBEBYON_CACHE="$cache" cargo test --no-fail-fast 2>&1 | tee "$output" || status=$?

sum() { sed -nE "s/^test result: .* ([0-9]+) $1.*/\1/p" "$output" | awk '{ n += $1 } END { print n + 0 }'; }
passed=$(sum passed) failed=$(sum failed) ignored=$(sum ignored)
if [ "$ignored" -gt 0 ]; then
  say "$ignored tests were passed over (ignored); they count as failed"
  failed=$((failed + ignored))
fi
# A test program that does not compile, or ends without a result, has run none of its tests.
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
if [ "$passed" -eq 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
end "$passed" "$failed"
