#!/bin/bash
# Fuzzes each target for some seconds. Usage: fuzz.sh SECONDS
. "$(dirname "$0")/common.sh"
seconds=${1:-60}
cargo +nightly fuzz --version >/dev/null 2>&1 ||
  fail "fuzzing needs a nightly compiler and cargo-fuzz: run \`rustup toolchain install nightly && cargo install cargo-fuzz\`"
for target in $(cargo +nightly fuzz list); do
  say "== $target, $seconds s"
  cargo +nightly fuzz run "$target" -- -max_total_time="$seconds"
done
