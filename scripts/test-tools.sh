#!/bin/bash
# Installs the tools of tests below the cache: schemathesis, which checks the API against its OpenAPI file.
. "$(dirname "$0")/common.sh"
version=4.32.5
venv="$cache/schemathesis"
if [ "$(cat "$venv/version" 2>/dev/null)" = "$version" ] && [ -x "$venv/bin/schemathesis" ]; then exit 0; fi
say "installing schemathesis $version into $venv"
rm -rf -- "$venv"
mkdir -p "$cache"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
echo "$version" >"$venv/version"
