# What every script begins with: the folder, the paths, and how to fail. Sourced.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for folder in "$HOME/.cargo/bin" /usr/local/go/bin /usr/local/sbin /usr/sbin /sbin; do
  case ":$PATH:" in *":$folder:"*) ;; *) [ ! -d "$folder" ] || PATH="$PATH:$folder" ;; esac
done

: "${KUBEBYON_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/kubebyon}"
cache=$KUBEBYON_CACHE
# To the binary, KUBEBYON_… are configuration, or another platform to talk to. Neither is meant for the daemon of these scripts.
for name in "${!KUBEBYON_@}"; do
  case $name in KUBEBYON_CACHE | KUBEBYON_ASSETS__MIRROR) ;; *) unset "$name" ;; esac
done
binary="$PWD/target/release/kubebyon"
run="$PWD/.run"

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

kubebyon() { env -u KUBEBYON_CACHE "$binary" "$@"; }
