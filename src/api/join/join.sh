#!/bin/sh
# Makes this machine a node of a KubeBYON cluster: fetches the platform's own kubebyon, checks it, and runs `kubebyon join`.
#
#     sh -s -- TOKEN [options of kubebyon join]        as root; the token may also be in KUBEBYON_JOIN_TOKEN
#
# Its last line alone runs anything, so that a download which was cut off does nothing. What it fetches is removed when it ends.

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "error: $*"
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Sets `arch` and `expected`, the SHA-256 of kubebyon for this machine.
look_at_machine() {
    system=$(uname -s)
    [ "$system" = Linux ] || fail "nodes run Linux, and this is $system"
    case $(uname -m) in
        x86_64 | amd64)
            arch=amd64
            expected=$amd64
            ;;
        aarch64 | arm64)
            arch=arm64
            expected=$arm64
            ;;
        *) fail "there is no kubebyon for machines of the kind $(uname -m); nodes are x86_64 or aarch64" ;;
    esac
    [ -n "$expected" ] || fail "the platform has no kubebyon for $arch machines; its operator can put one there (see its runbook for nodes)"
    [ "$(id -u)" = 0 ] || fail "becoming a node needs root: put sudo before sh"
    if has sha256sum; then
        hasher=sha256sum
    elif has busybox && busybox sha256sum </dev/null >/dev/null 2>&1; then
        hasher='busybox sha256sum'
    elif has openssl; then
        hasher='openssl dgst -sha256 -r'
    else
        fail "nothing here computes SHA-256: install coreutils or openssl"
    fi
}

# Sets `room`: a folder of this run's own in which programs can be executed. /tmp is often mounted noexec.
make_room() {
    for base in "${TMPDIR:-/tmp}" /var/tmp /opt /root /run; do
        room=$(mktemp -d "$base/kubebyon-join.XXXXXX" 2>/dev/null) || continue
        trap 'rm -rf "$room"' EXIT
        trap 'exit 129' HUP
        trap 'exit 130' INT
        trap 'exit 143' TERM
        if printf '#!/bin/sh\nexit 0\n' >"$room/try" && chmod 0700 "$room/try" && "$room/try" 2>/dev/null; then
            rm -f "$room/try"
            return 0
        fi
        rm -rf "$room"
    done
    fail "programs can be executed in none of ${TMPDIR:-/tmp}, /var/tmp, /opt, /root and /run (full, or mounted noexec): set TMPDIR to a folder where they can"
}

# fetch URL FILE: goes on where FILE ends. What would be the same the next time ends everything.
fetch() {
    status=0
    if has curl; then
        if [ -n "$pin" ]; then
            set -- "$1" "$2" --insecure --pinnedpubkey "$pin"
        fi
        url=$1
        file=$2
        shift 2
        if [ -t 2 ]; then
            set -- --progress-bar "$@"
        else
            set -- --silent "$@"
        fi
        curl --fail --show-error --connect-timeout 20 --speed-limit 1 --speed-time 60 --continue-at - "$@" --output "$file" "$url" || status=$?
        case $status in
            0) return 0 ;;
            23) fail "what is fetched cannot be written to $file: make room on that disk, or set TMPDIR to a folder on another" ;;
            33 | 36) rm -f "$file" ;;
            60) fail "the certificate of $server is not trusted here. Is the package ca-certificates installed, and the clock right?" ;;
            90) fail "what answers at $server is not the platform: its key is another. Does a proxy or firewall look into TLS? It must leave this host alone" ;;
        esac
        return 1
    fi
    [ -z "$pin" ] || fail "curl is needed: wget cannot pin the platform's key. Install curl"
    has wget || fail "curl or wget is needed: install curl"
    wget -q -T 60 -c -O "$2" "$1" || status=$?
    case $status in
        0) return 0 ;;
        3) fail "what is fetched cannot be written to $2: make room on that disk, or set TMPDIR to a folder on another" ;;
        5) fail "the certificate of $server is not trusted here. Is the package ca-certificates installed, and the clock right?" ;;
    esac
    return 1
}

# Whether the file has the content that the platform promised.
is_whole() {
    [ -s "$1" ] || return 1
    found=$($hasher "$1" | cut -d ' ' -f 1)
    [ "$found" = "$expected" ]
}

fetch_kubebyon() {
    say "fetching kubebyon $version from $server"
    attempt=1
    while ! fetch "$server/assets/kubebyon/$version/$arch/kubebyon" "$room/kubebyon"; do
        [ "$attempt" -lt 6 ] || fail "kubebyon could not be fetched from $server: can this machine reach it? Behind a proxy, set https_proxy, and let sudo keep it (sudo -E)"
        say "that did not come through; going on in $attempt s"
        sleep "$attempt"
        attempt=$((attempt + 1))
    done
    is_whole "$room/kubebyon" || fail "what came is not the kubebyon that the platform promised (its SHA-256 is not $expected): run the same command again"
    chmod 0755 "$room/kubebyon"
}

main() {
    set -eu
    umask 022
    server=@SERVER@
    pin=@PIN@
    version=@VERSION@
    amd64=@AMD64@
    arm64=@ARM64@
    # wget and others know these names in lower case alone.
    if [ -z "${https_proxy:-}" ] && [ -n "${HTTPS_PROXY:-}" ]; then
        https_proxy=$HTTPS_PROXY
        export https_proxy
    fi
    if [ -z "${no_proxy:-}" ] && [ -n "${NO_PROXY:-}" ]; then
        no_proxy=$NO_PROXY
        export no_proxy
    fi
    if [ $# -eq 0 ] && [ -z "${KUBEBYON_JOIN_TOKEN:-}" ]; then
        fail "a token is needed behind \`sh -s --\`: make one with \`kubebyon join-token create CLUSTER\`, which prints the whole line to run here"
    fi
    look_at_machine
    make_room
    fetch_kubebyon
    "$room/kubebyon" join "$@"
}

{ main "$@"; }
