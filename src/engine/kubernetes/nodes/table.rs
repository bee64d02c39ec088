//! What a terminator is to know of its cluster's nodes, and its feed from the store.
//!
//! Pure but for the feed. Whoever is in the table may connect; so a member without a good certificate is in it with none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::Scope;
use crate::domain::access::Addressing;
use crate::domain::cluster::ClusterSpec;
use crate::domain::join::TunnelEndpoint;
use crate::domain::node::Fate;
use crate::domain::{Node, NodeId};
use crate::store::nodes::{NodeCertificate, Tombstone};
use crate::store::{self, Change};
use crate::tunnel::terminator::nodes::{NodeEntry, NodeTable};

/// How often the table is made anew when nothing is told: certificates end, and another process may have written.
const SAFETY_NET: Duration = Duration::from_secs(300);
/// Changes that follow each other so closely make one table.
const TOGETHER: Duration = Duration::from_millis(50);
/// After a setting changed, the addresses that follow from it are read after so long.
const SETTLE: Duration = Duration::from_secs(1);

/// What does not come from the store.
#[derive(Clone)]
pub struct Surroundings {
    /// The platform's addresses as they are at the time of the call.
    pub addressing: Arc<dyn Fn() -> Addressing + Send + Sync>,
    /// Names that API servers may reach through nodes, in lower case.
    pub public_hosts: BTreeSet<String>,
    /// Proves probes between nodes (32 bytes).
    pub probe_key: [u8; 32],
}

/// What was read of the store.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// The nodes' rows.
    pub nodes: Vec<Node>,
    /// Their certificates that are good.
    pub certificates: Vec<NodeCertificate>,
    /// Ends of memberships that are remembered.
    pub tombstones: Vec<Tombstone>,
}

/// The table that follows from rows.
pub fn table(spec: &ClusterSpec, rows: &Rows, tunnel_endpoints: Vec<TunnelEndpoint>, surroundings: &Surroundings) -> NodeTable {
    let mut fingerprints: BTreeMap<NodeId, BTreeSet<String>> = BTreeMap::new();
    for certificate in &rows.certificates {
        fingerprints.entry(certificate.node_id).or_default().insert(certificate.fingerprint.clone());
    }
    let ended: BTreeSet<NodeId> = rows.tombstones.iter().map(|end| end.node_id).collect();
    let nodes = rows.nodes.iter().filter(|node| !ended.contains(&node.id));
    NodeTable {
        nodes: nodes
            .map(|node| NodeEntry {
                id: node.id,
                name: node.name.clone(),
                address: node.address,
                underlay: node.status.underlay.clone(),
                pod_cidr: node.status.pod_cidr,
                fingerprints: fingerprints.remove(&node.id).unwrap_or_default(),
            })
            .collect(),
        ended: rows.tombstones.iter().map(|end| (end.node_id, end.fate, told(end))).collect(),
        pod_cidr: spec.pod_cidr,
        service_cidr: spec.service_cidr,
        cni: spec.cni,
        public_hosts: surroundings.public_hosts.clone(),
        tunnel_endpoints,
        probe_key: base64::engine::general_purpose::STANDARD.encode(surroundings.probe_key),
    }
}

/// What a machine is told of the end of its membership.
fn told(end: &Tombstone) -> String {
    let (node, cluster) = (&end.name, &end.cluster);
    let what = match end.fate {
        Fate::Removed => format!("node {node} was removed from cluster {cluster} on the platform"),
        Fate::Left => format!("node {node} has left cluster {cluster}"),
        Fate::Replaced => format!("another machine took the place of node {node} in cluster {cluster}"),
        Fate::ClusterDeleted => format!("cluster {cluster} was deleted"),
        Fate::Member | Fate::Unknown => format!("node {node} is no node of cluster {cluster} any more"),
    };
    format!("{what}; run `kubebyon leave` here to clean up, and join again with a new token if it is to come back")
}

/// Reads the rows of a cluster.
pub async fn read(scope: &Scope) -> store::Result<Rows> {
    let mut sql = scope.store.read().await?;
    Ok(Rows {
        nodes: store::nodes::list(&mut *sql, scope.cluster).await?,
        certificates: store::nodes::certificates(&mut *sql, scope.cluster, scope.ambient.now()).await?,
        tombstones: store::nodes::tombstones(&mut *sql, scope.cluster).await?,
    })
}

/// The table as it is.
pub async fn current(scope: &Scope, surroundings: &Surroundings) -> store::Result<NodeTable> {
    let rows = read(scope).await?;
    Ok(table(&scope.spec, &rows, (surroundings.addressing)().tunnel_endpoints(), surroundings))
}

/// Keeps `sender` at the present table: after each change of a node or a setting, and from time to time. What is the same is not sent.
pub async fn feed(scope: Scope, surroundings: Surroundings, sender: Arc<watch::Sender<Arc<NodeTable>>>) {
    let mut changes = scope.store.changes();
    loop {
        match current(&scope, &surroundings).await {
            Ok(table) => {
                sender.send_if_modified(|known| {
                    let differs = **known != table;
                    if differs {
                        *known = Arc::new(table);
                    }
                    differs
                });
            }
            Err(error) => tracing::error!(cluster = %scope.cluster, %error, "the table of nodes cannot be read; it is tried again"),
        }
        if let Ok(false) = tokio::time::timeout(SAFETY_NET, next(&mut changes, &scope)).await {
            return;
        }
        tokio::time::sleep(TOGETHER).await;
        // What was told meanwhile is in the next table.
        changes = changes.resubscribe();
    }
}

/// Waits for a change that concerns the table; `false`: there will be none.
async fn next(changes: &mut tokio::sync::broadcast::Receiver<Change>, scope: &Scope) -> bool {
    loop {
        match changes.recv().await {
            Ok(Change::Nodes(cluster)) if cluster == scope.cluster => return true,
            Ok(Change::Settings) => {
                tokio::time::sleep(SETTLE).await;
                return true;
            }
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Ambient, ClusterId, Timestamp};
    use crate::engine::kubernetes::nodes::signing::tests::{node, spec};

    #[test]
    fn members_have_their_good_certificates_and_the_ended_none() {
        let ambient = Ambient::system();
        let cluster = ClusterId::generate(&ambient);
        let (a, b) = (node(&ambient, cluster, "a", "192.168.1.10"), node(&ambient, cluster, "b", "192.168.1.11"));
        let certificate = |node: &Node, fingerprint: &str| NodeCertificate {
            fingerprint: fingerprint.to_owned(),
            node_id: node.id,
            cluster_id: cluster,
            not_after: Timestamp::from_micros(1),
            revoked_at: None,
        };
        let end = |node: &Node, fate| Tombstone {
            node_id: node.id,
            cluster_id: cluster,
            cluster: "demo".into(),
            name: node.name.clone(),
            fate,
            public_key: Vec::new(),
            at: Timestamp::from_micros(1),
        };
        let rows = Rows {
            nodes: vec![a.clone(), b.clone()],
            certificates: vec![certificate(&a, "aa"), certificate(&a, "ab"), certificate(&b, "ba")],
            tombstones: vec![end(&b, Fate::Replaced)],
        };
        let surroundings = Surroundings {
            addressing: Arc::new(|| unreachable!("addresses are given")),
            public_hosts: BTreeSet::from(["api.example".to_owned()]),
            probe_key: [7; 32],
        };
        let endpoints = vec![TunnelEndpoint { host: "k.example".into(), port: 443 }];
        let made = table(&spec(), &rows, endpoints.clone(), &surroundings);
        assert_eq!(made.nodes.len(), 1, "one whose membership ended is no member though its row is there");
        assert_eq!(made.nodes[0].id, a.id);
        assert_eq!(made.nodes[0].fingerprints, BTreeSet::from(["aa".to_owned(), "ab".to_owned()]));
        let (id, fate, message) = &made.ended[0];
        assert_eq!((*id, *fate), (b.id, Fate::Replaced));
        assert!(message.contains("another machine took the place of node b in cluster demo") && message.contains("kubebyon leave"));
        assert_eq!((made.tunnel_endpoints, made.public_hosts), (endpoints, surroundings.public_hosts.clone()));
        assert_eq!(base64::engine::general_purpose::STANDARD.decode(made.probe_key).unwrap(), [7; 32]);
    }
}
