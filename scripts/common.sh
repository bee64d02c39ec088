# What every script begins with: the folder, the paths, and how to fail. Sourced.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for folder in "$HOME/.cargo/bin" /usr/local/go/bin /usr/local/sbin /usr/sbin /sbin; do
  case ":$PATH:" in *":$folder:"*) ;; *) [ ! -d "$folder" ] || PATH="$PATH:$folder" ;; esac
done

: "${KUBEBYON_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/kubebyon}"
cache=$KUBEBYON_CACHE
binary="$PWD/target/release/kubebyon"
run="$PWD/.run"

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

# The binary, without the variables of these scripts: to it, KUBEBYON_… are configuration keys.
kubebyon() {
  env -u KUBEBYON_CACHE -u KUBEBYON_BIN "$binary" "$@"
}
