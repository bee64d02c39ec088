#!/bin/bash
# Creates, uses and deletes a cluster on the daemon of `make up`, again and again, and writes what the daemon holds after each
# round to bench/out/soak.csv, and what commands said to soak.log. Fails when a round fails, or when the last round holds more than the second did.
# Then the tests of etcd's upkeep, which take minutes. Usage: soak.sh MINUTES
. "$(dirname "$0")/common.sh"
. scripts/daemon.sh
minutes=${1:-60}
table="bench/out/soak.csv"

ensure_daemon
mkdir -p bench/out
: >bench/out/soak.log
echo "round,seconds,rss_kib,descriptors,threads" >"$table"
name=soak kubeconfig="$run/soak.kubeconfig"
end=$((SECONDS + minutes * 60)) round=0

# What the daemon holds: memory, descriptors, threads.
held() {
  local pid
  pid=$(daemon_pid) || fail "the daemon ended; its log is $log"
  echo "$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status"),$(find "/proc/$pid/fd" -mindepth 1 | wc -l),$(awk '/^Threads/ { print $2 }' "/proc/$pid/status")"
}

if platform cluster get "$name" -o name >/dev/null 2>&1; then platform cluster delete "$name" --wait 2>>bench/out/soak.log; fi
while [ "$SECONDS" -lt "$end" ] || [ "$round" -lt 3 ]; do
  round=$((round + 1)) began=$SECONDS
  platform cluster create "$name" --wait >/dev/null 2>>bench/out/soak.log || fail "round $round: the create failed: see bench/out/soak.log"
  rm -f "$kubeconfig"
  platform kubeconfig "$name" --file "$kubeconfig" >/dev/null 2>>bench/out/soak.log || fail "round $round: no kubeconfig: see bench/out/soak.log"
  version=$(platform cluster get "$name" -o json | sed -n 's/.*"kubernetes_version": "\([0-9.]*\)".*/\1/p' | head -n 1)
  kubectl=$(compgen -G "$cache/assets/kubernetes/$version/*/kubectl" | head -n 1)
  "$kubectl" --kubeconfig "$kubeconfig" create configmap soak --from-literal="round=$round" >/dev/null || fail "round $round: nothing can be written"
  [ "$("$kubectl" --kubeconfig "$kubeconfig" get configmap soak -o 'jsonpath={.data.round}')" = "$round" ] || fail "round $round: the ConfigMap does not read back"
  platform cluster delete "$name" --wait >/dev/null 2>>bench/out/soak.log || fail "round $round: the delete failed: see bench/out/soak.log"
  row="$round,$((SECONDS - began)),$(held)"
  echo "$row" | tee -a "$table"
done

# The first round fills caches; from the second on nothing may grow but by a margin.
awk -F, 'NR == 3 { rss = $3; fds = $4 } { last_rss = $3; last_fds = $4 }
  END {
    if (last_fds > fds + 20) { print "descriptors grew from " fds " to " last_fds; bad = 1 }
    if (last_rss > rss * 1.3 + 10240) { print "memory grew from " rss " to " last_rss " KiB"; bad = 1 }
    exit bad
  }' "$table" >&2 || fail "the daemon holds more than it did: see $table"
say "$round rounds, nothing grew; see $table"

say "== the upkeep of etcd"
KUBEBYON_CACHE="$cache" cargo test --features soak --lib engine::local::tests::upkeep -- --test-threads=1 >&2
