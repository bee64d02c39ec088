# Starting and stopping the daemon of `make up`. Sourced after common.sh.

pid_file="$run/pid"
log="$run/kubebyon.log"
config="$run/kubebyon.yaml"

# What `make up` last wrote of a key.
kept() { sed -n "s/^$1: \"\(.*\)\"\$/\1/p" "$config" 2>/dev/null || true; }

# What is given wins; else it stays as it is.
kept_data_dir=$(kept data_dir)
kept_listen=$(kept listen)
data_dir=${DATA_DIR:-${kept_data_dir:-$run/data}}
listen=${LISTEN:-${kept_listen:-:8443}}

# The configuration of `make up`: the same for the daemon and for commands to it.
write_config() {
  case ${kept_listen:=$listen} in "$listen") ;; *) say "listen: $kept_listen → $listen" ;; esac
  case ${kept_data_dir:=$data_dir} in "$data_dir") ;; *) say "data_dir: $kept_data_dir → $data_dir; the clusters of the first stay in it" ;; esac
  mkdir -p "$run" "$data_dir"
  {
    printf 'data_dir: "%s"\nlisten: "%s"\nassets:\n  dir: "%s"\n' "$data_dir" "$listen" "$cache/assets"
    # Where one address is listened on, kubeconfigs must name that one.
    local host=${listen%:*}
    case $host in "" | "[::]" | 0.0.0.0 | "*") ;; *) printf 'control_plane_host: "%s"\n' "${host//[\[\]]/}" ;; esac
  } >"$config.new"
  mv "$config.new" "$config"
}

# A command to the daemon. Without its socket the command would go to a platform that somebody signed in to.
platform() {
  [ -S "$data_dir/kubebyon.sock" ] || fail "the daemon does not run: $data_dir/kubebyon.sock is missing; its log is $log"
  kubebyon --config "$config" "$@" </dev/null
}

# The pid of the daemon, if it runs: a pid that was given to another process does not count.
daemon_pid() {
  local pid
  pid=$(cat "$pid_file" 2>/dev/null) && [ -n "$pid" ] || return 1
  tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q "^$binary --config $config" || return 1
  [ "$(sed 's/.*) //' "/proc/$pid/stat" | cut -d' ' -f1)" != Z ] || return 1
  echo "$pid"
}

# What the running daemon was started from: another binary or other settings want a restart.
daemon_stamp() {
  stat -c '%i %Y %s' "$binary"
  cat "$config"
}

ready() { curl -fsS -m 5 -o /dev/null --unix-socket "$data_dir/kubebyon.sock" http://localhost/readyz 2>/dev/null; }

start_daemon() {
  [ ! -s "$log" ] || mv "$log" "$log.old"
  env -u KUBEBYON_CACHE setsid "$binary" --config "$config" </dev/null >"$log" 2>&1 &
  echo $! >"$pid_file"
  daemon_stamp >"$run/stamp"
  for _ in $(seq 600); do
    ready && return
    if ! daemon_pid >/dev/null; then
      tail -n 20 "$log" >&2
      fail "the daemon ended; its log is $log"
    fi
    sleep 0.1
  done
  tail -n 20 "$log" >&2
  fail "the daemon is not ready after a minute; its log is $log"
}

# Ends the daemon; control planes go on.
stop_daemon() {
  local pid
  pid=$(daemon_pid) || return 0
  kill -TERM "$pid" 2>/dev/null || true
  for _ in $(seq 600); do
    daemon_pid >/dev/null || break
    sleep 0.1
  done
  ! daemon_pid >/dev/null || fail "the daemon (pid $pid) did not end within a minute of SIGTERM; its log is $log"
  rm -f "$pid_file"
}

# Makes sure that the daemon runs from the present binary and settings.
ensure_daemon() {
  write_config
  if daemon_pid >/dev/null; then
    if [ "$(cat "$run/stamp" 2>/dev/null)" = "$(daemon_stamp)" ] && ready; then return; fi
    say "restarting the daemon: its binary or its settings are others; control planes go on"
    stop_daemon
  fi
  start_daemon
}
