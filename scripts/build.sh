#!/bin/bash
# Builds target/release/kubebyon, one static file. Usage: build.sh TARGET (such as x86_64-unknown-linux-gnu)
. "$(dirname "$0")/common.sh"
target=${1:-$(rustc -vV | sed -n 's/^host: //p')}
[ -n "$target" ] || fail "rustc cannot be run: run \`make prerequisites\`"
# A target that is named keeps the flags off build scripts and procedural macros, which cannot be static.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" CARGO_TARGET_DIR="$PWD/target" \
  cargo build --release --target "$target" --bin kubebyon
mkdir -p target/release
ln -f "target/$target/release/kubebyon" "$binary"
