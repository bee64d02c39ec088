//! etcd 3.6: one member, mutual TLS for clients and peers.

use super::{CIPHER_SUITES, Flags, Layout, Limits, Program, ports};
use crate::domain::Cluster;
use crate::pki::cluster::files as pki;

/// Percentage of growth at which etcd's collector starts.
const GOGC: u32 = 30;

pub(super) fn program(cluster: &Cluster, layout: &Layout, limits: &Limits) -> Program {
    let clients = layout.url(ports::ETCD_CLIENT);
    let peers = layout.url(ports::ETCD_PEER);
    Flags::of("etcd", GOGC)
        .set("name", "etcd")
        .set("data-dir", format!("{}/etcd", layout.data_dir))
        .set("listen-client-urls", &clients)
        .set("advertise-client-urls", &clients)
        .set("listen-peer-urls", &peers)
        .set("initial-advertise-peer-urls", &peers)
        .set("initial-cluster", format!("etcd={peers}"))
        .set("initial-cluster-token", cluster.id)
        .set("initial-cluster-state", "new")
        // The gateway of `/v3/…` dials etcd itself with this certificate: it must be good for clients as well.
        .set("cert-file", layout.run(pki::ETCD_SERVER_CERT))
        .set("key-file", layout.run(pki::ETCD_SERVER_KEY))
        .set("trusted-ca-file", layout.run(pki::ETCD_CA))
        .set("client-cert-auth", true)
        .set("peer-cert-file", layout.run(pki::ETCD_PEER_CERT))
        .set("peer-key-file", layout.run(pki::ETCD_PEER_KEY))
        .set("peer-trusted-ca-file", layout.run(pki::ETCD_CA))
        .set("peer-client-cert-auth", true)
        .set("tls-min-version", "TLS1.2")
        .set("cipher-suites", CIPHER_SUITES)
        .set("quota-backend-bytes", limits.etcd_quota_bytes)
        // The API server compacts every five minutes; a second compactor would only take away history that it still serves.
        .set("auto-compaction-retention", 0)
        // A single member has no follower that must catch up: the log in memory and on disk may be short.
        .set("snapshot-catchup-entries", 100)
        .set("snapshot-count", 10_000)
        .set("max-wals", 2)
        .set("enable-grpc-gateway", true)
        .set("enable-pprof", false)
        .set("metrics", "basic")
        .set("logger", "zap")
        .set("log-level", "warn")
        .set("log-format", "console")
        .set("log-outputs", "stderr")
        .program()
}
