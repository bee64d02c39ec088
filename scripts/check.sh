#!/bin/bash
# Format, lints, import rules, dependencies. Goes on past failures and exits 1 if there was one.
. "$(dirname "$0")/common.sh"
failures=()
check() { say "== $*"; "$@" || failures+=("$*"); }

check cargo fmt --check
check cargo clippy --all-targets -- -D warnings
check cargo test --quiet --test architecture
if command -v shellcheck >/dev/null; then check shellcheck -s bash -e SC1091,SC2034,SC2154 scripts/*.sh .ci/run; else say "note: shellcheck is not installed; scripts are not checked"; fi
if cargo deny --version >/dev/null 2>&1; then
  check cargo deny check bans licenses sources
else
  say "note: cargo-deny is not installed (\`cargo install cargo-deny\`); licences and sources of dependencies are not checked"
fi
if cargo machete --version >/dev/null 2>&1; then
  check cargo machete
else
  say "note: cargo-machete is not installed (\`cargo install cargo-machete\`); unused dependencies are not looked for"
fi

if [ ${#failures[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failures[@]}" >&2
  exit 1
fi
say "all checks passed"
