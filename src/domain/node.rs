//! Nodes: tenants' machines that have joined a cluster, and what is known of each.

pub mod address;
pub mod asked;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{ClusterId, Condition, JoinTokenId, NodeId, Timestamp};

/// How long the client certificate that a kubelet gets at join is good for; it asks for the next one by itself when 10 to 30 % are left.
pub const KUBELET_CLIENT_TTL: Duration = Duration::from_secs(90 * 24 * 3600);

/// What a machine says of itself when it joins and when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct Machine {
    /// The operating system as `/etc/os-release` names it (`PRETTY_NAME`).
    pub operating_system: String,
    /// `amd64` or `arm64`.
    pub architecture: String,
    /// The kernel's release (`uname -r`).
    pub kernel: String,
    /// The version of its kubebyon.
    pub kubebyon_version: String,
    /// The version of its kubelet; empty before it is installed.
    pub kubelet_version: String,
    /// Its container runtime, such as `containerd 2.2.9`.
    pub container_runtime: String,
}

/// A taint, as Kubernetes has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; may be empty.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// What is known of a node at present.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct NodeStatus {
    /// Whether its tunnel is up.
    pub connected: bool,
    /// When its tunnel last came up or went down.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub connection_changed_at: Option<Timestamp>,
    /// Whether Kubernetes says that it is Ready.
    pub ready: bool,
    /// When it was last verified: a pod ran, resolved a name, reached the API server, `exec` and `logs` answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub verified_at: Option<Timestamp>,
    /// Its range of pod addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub pod_cidr: Option<IpNet>,
    /// Its own addresses on its networks, the preferred first; other nodes try them for pod traffic. Not unique in a cluster.
    #[schema(value_type = Vec<String>)]
    pub underlay: Vec<IpAddr>,
    /// Aspects of its state: `Verified`, `PodNetwork`, `KubeletHealthy`, `ContainerRuntimeHealthy`, `KubeProxyHealthy`.
    pub conditions: Vec<Condition>,
}

impl NodeStatus {
    /// Whether it was found to run pods with all that belongs to it, and nothing was found since that speaks against it.
    pub fn is_verified(&self) -> bool {
        self.conditions.iter().any(|condition| condition.kind == "Verified" && condition.status)
    }
}

/// A node as it is stored and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Node {
    /// Its identifier; a machine that joins anew gets another one.
    pub id: NodeId,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Its name, unique in its cluster; a DNS subdomain (RFC 1123).
    pub name: String,
    /// Its `InternalIP`: unique in its cluster. The address that the machine reported, or one that the platform assigned on a clash.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Whether the platform assigned the address because another node of the cluster reported the same.
    pub address_assigned: bool,
    /// What the machine says of itself.
    pub machine: Machine,
    /// Labels that were asked for at join; the platform sets them.
    pub labels: BTreeMap<String, String>,
    /// Taints that were asked for at join.
    pub taints: Vec<Taint>,
    /// What is known at present.
    pub status: NodeStatus,
    /// The token that it joined with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_token_id: Option<JoinTokenId>,
    /// When it joined.
    #[schema(value_type = String, format = DateTime)]
    pub joined_at: Timestamp,
    /// When its removal was asked for; the row goes when it is out of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub removed_at: Option<Timestamp>,
    /// The key that its kubelet proves itself with (DER of the SubjectPublicKeyInfo); not sent.
    #[serde(skip)]
    pub public_key: Vec<u8>,
}

/// What became of a machine's membership; kept for 30 days after its end, so that the machine can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It is a node of its cluster.
    Member,
    /// It was removed by somebody on the platform.
    Removed,
    /// It left by itself.
    Left,
    /// Another machine took its name (`join --replace`).
    Replaced,
    /// Its cluster was deleted.
    ClusterDeleted,
    /// Nothing is known of it (any more).
    Unknown,
}

impl Fate {
    /// The word for it, as in JSON and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Removed => "removed",
            Self::Left => "left",
            Self::Replaced => "replaced",
            Self::ClusterDeleted => "cluster-deleted",
            Self::Unknown => "unknown",
        }
    }
}

impl std::str::FromStr for Fate {
    type Err = super::Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Member, Self::Removed, Self::Left, Self::Replaced, Self::ClusterDeleted, Self::Unknown]
            .into_iter()
            .find(|fate| fate.as_str() == text)
            .ok_or_else(|| super::Invalid::new("fate", format!("{text:?} is no fate of a node")))
    }
}

/// Kubernetes' user name of a node's kubelet.
pub fn kubelet_user(name: &str) -> String {
    format!("system:node:{name}")
}

/// What the ledger of certificates says that a kubelet's client certificate is for.
pub const KUBELET_PURPOSE: &str = "kubelet";

/// The group of all kubelets.
pub const KUBELET_GROUP: &str = "system:nodes";
