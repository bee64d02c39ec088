#!/bin/bash
# Checks for what building and running need; as root, installs Debian's packages that are missing.
# Usage: prerequisites.sh [nodes] [tests]      for building the programs of nodes, for running the tests
. "$(dirname "$0")/common.sh"

missing=()
need() { # COMMAND PACKAGE
  command -v "$1" >/dev/null || missing+=("$2")
}
need gcc gcc
need make make
need curl curl
need setsid util-linux
need ip iproute2
need nft nftables
if command -v gcc >/dev/null && [[ $(gcc -print-file-name=libc.a) != */* ]]; then missing+=(libc6-dev); fi
for purpose in "$@"; do
  case $purpose in
    nodes)
      need pkg-config pkg-config
      pkg-config --exists libseccomp 2>/dev/null || missing+=(libseccomp-dev)
      ;;
    tests)
      need python3 python3
      need openssl openssl
      # Machines for tests.
      need unshare util-linux
      need sysctl procps
      need iptables iptables
      python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
      ;;
    *) fail "$purpose is no purpose: nodes, tests" ;;
  esac
done

if [ ${#missing[@]} -gt 0 ]; then
  install=(apt-get install -y --no-install-recommends "${missing[@]}")
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    fail "missing: ${missing[*]}. Run, as root: ${install[*]}"
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  if ! "${install[@]}" >"$log" 2>&1 </dev/null && ! { apt-get update && "${install[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    fail "these packages could not be installed: ${missing[*]} (the log is $log)"
  fi
  rm -f "$log"
fi

# at_least HAVE WANT: whether version HAVE is WANT or newer.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
command -v cargo >/dev/null || fail "Rust $rust or newer is missing: see https://rustup.rs"
have=$(rustc --version | cut -d' ' -f2)
at_least "$have" "$rust" || fail "Rust $have is older than $rust: run \`rustup update stable\`"

if ! command -v go >/dev/null; then
  say "note: Go is not installed. It is needed only where dl.k8s.io and github.com are out of reach, to build Kubernetes' programs"
elif have=$(go env GOVERSION) && ! at_least "${have#go}" 1.24; then
  say "note: ${have} is older than go1.24, with which Kubernetes' programs can be built where the mirrors are out of reach"
fi
