#!/bin/bash
# Starts the daemon, has a first cluster ready, and says how to use it. Run again, it does only what is left to do.
. "$(dirname "$0")/common.sh"
. scripts/daemon.sh
cluster=demo
kubeconfig="$run/$cluster.kubeconfig"

if [ "$(id -u)" -ne 0 ]; then
  say "Without root this is the development mode. Root (\`sudo make up\`) adds: a uid and firewall rules of its own for each"
  say "control plane, memory limits, keys on a file system in memory, and the standard port 443 (LISTEN=:443)."
fi
ensure_daemon

if ! platform cluster get "$cluster" -o name >/dev/null 2>&1; then
  platform cluster create "$cluster" --wait >&2
fi

# kubectl of the cluster's own version.
version=$(platform cluster get "$cluster" -o json | sed -n 's/.*"kubernetes_version": "\([0-9.]*\)".*/\1/p' | head -n 1)
kubectl=$(compgen -G "$cache/assets/kubernetes/$version/*/kubectl" | head -n 1) ||
  fail "kubectl $version is not among the assets: run \`make assets VERSIONS=$version\`"
# What it says on stderr is the answer. Reading a namespace proves the credential as well as the API server.
# shellcheck disable=SC2069
ask() { "$kubectl" --kubeconfig "$kubeconfig" --request-timeout 5s get namespace default 2>&1 >/dev/null; }
fresh() { [ -s "$kubeconfig" ] && [ -z "$(find "$kubeconfig" -mmin +240)" ]; }

if ! fresh || ! ask >/dev/null; then
  rm -f "$kubeconfig"
  platform kubeconfig "$cluster" --file "$kubeconfig" >&2
  for attempt in $(seq 60); do
    said=$(ask) && break
    [ "$attempt" -lt 60 ] ||
      fail "cluster $cluster does not answer: ${said##*$'\n'} See \`$binary --config $config cluster get $cluster\`"
    sleep 1
  done
fi

server=$(sed -n 's/^ *server: *//p' "$kubeconfig" | head -n 1)
host=$(printf '%s' "$server" | sed -E 's#^https://(\[[^]]*\]|[^:/]*).*#\1#')
cat <<TEXT

KubeBYON runs (pid $(daemon_pid), log $log).
  API          https://$host:${listen##*:}    (its authority: $data_dir/platform-ca.crt)
  admin        user admin; the password is in $data_dir/initial-admin-password
  cluster      $cluster, Kubernetes $version, at $server
  kubeconfig   $kubeconfig
Next:
  alias kb='$binary --config $config'
  export KUBECONFIG=$kubeconfig
  $kubectl create deployment hello --image=registry.k8s.io/pause:3.10
  $kubectl get deployments
  kb cluster list
Nodes cannot join yet; they come with a later release. Until then pods stay Pending.
TEXT
