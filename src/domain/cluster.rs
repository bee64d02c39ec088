//! A cluster: what was asked for (spec), what is (status), and what changes between them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{ClusterId, KubernetesVersion, ProjectId, Timestamp};

/// What runs a cluster's control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Processes on the platform's own host.
    Local,
    /// Pods of a host cluster.
    Hosted,
    /// The vCluster chart on a host cluster.
    Vcluster,
}

impl EngineKind {
    /// The word for it, as in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Hosted => "hosted",
            Self::Vcluster => "vcluster",
        }
    }

    /// Whether machines can join its clusters: the nodes of an open-source vCluster are those of its host cluster.
    pub const fn takes_nodes(self) -> bool {
        !matches!(self, Self::Vcluster)
    }
}

/// Whether the platform brings an add-on or its owner does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Addon {
    /// The platform's.
    #[default]
    Default,
    /// The owner's.
    None,
}

/// How a cluster's API server is reached from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PublicAccessMode {
    /// A port of its own.
    #[default]
    Nodeport,
    /// A host name of its own on the shared port.
    Domain,
}

impl PublicAccessMode {
    /// The word for it, as in JSON and settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nodeport => "nodeport",
            Self::Domain => "domain",
        }
    }
}

/// What was asked for. Fields without a comment on change are fixed at creation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterSpec {
    /// The Kubernetes version of the control plane; may go forwards by one minor at a time.
    #[schema(value_type = String, example = "1.34.4")]
    pub kubernetes_version: KubernetesVersion,
    /// What runs it.
    pub engine: EngineKind,
    /// The pods' range.
    #[schema(value_type = String, example = "10.244.0.0/16")]
    pub pod_cidr: IpNet,
    /// The Services' range.
    #[schema(value_type = String, example = "10.96.0.0/16")]
    pub service_cidr: IpNet,
    /// The pod network: the platform's, or the owner's.
    #[serde(default)]
    pub cni: Addon,
    /// kube-proxy: the platform's, or the owner's replacement.
    #[serde(default)]
    pub kube_proxy: Addon,
    /// The address on every node that leads to the API server.
    #[schema(value_type = String, example = "198.51.100.1")]
    pub api_local_address: IpAddr,
    /// How it is reached from outside; set from `public_access_mode` at creation.
    #[serde(default)]
    pub public_access_mode: PublicAccessMode,
    /// The host that kubeconfigs name in `nodeport` mode; absent: the platform's choice. May change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_host: Option<String>,
}

/// Where a cluster is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Accepted, not begun.
    Pending,
    /// Its parts are being made and started.
    Provisioning,
    /// Its API server answers and all parts are well.
    Ready,
    /// It was ready; a part is down. The conditions say which and why.
    Degraded,
    /// It is being given a new version or address.
    Updating,
    /// Its creation or change ended in an error that retrying did not mend; the conditions and the job say which.
    Failed,
    /// It is being taken down.
    Deleting,
}

impl Phase {
    /// The word for it, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Provisioning => "provisioning",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Updating => "updating",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
        }
    }
}

/// One aspect of a cluster's state, in the form that Kubernetes gives conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Condition {
    /// The aspect: `Ready`, `EtcdHealthy`, `ApiServerHealthy`, `ControllerManagerHealthy`, `SchedulerHealthy`, `EtcdSpace`, `Confined`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: bool,
    /// Why, one CamelCase word.
    pub reason: String,
    /// Why, for people, with what to do.
    pub message: String,
    /// Since when `status` is as it is.
    #[schema(value_type = String, format = DateTime)]
    pub last_transition_at: Timestamp,
}

/// The state of one program of a control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ComponentStatus {
    /// Its name: `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`.
    pub name: String,
    /// Whether it runs and says that it is well.
    pub healthy: bool,
    /// Its process id on the host (local engine).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// How often it was started again after it ended by itself.
    pub restarts: u32,
    /// Why it is not healthy, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How clients reach the API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Endpoint {
    /// The URL that a kubeconfig names, such as `https://203.0.113.7:30017`.
    pub server: String,
    /// The name to verify where it is not the URL's host (no DNS is asked for it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// The host name by which the front door knows the cluster, in every mode.
    pub sni: String,
}

/// What is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterStatus {
    /// Where it is on its way.
    pub phase: Phase,
    /// The generation of the spec that this status answers.
    pub observed_generation: i64,
    /// The version that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub kubernetes_version: Option<KubernetesVersion>,
    /// How clients reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Aspects of its state.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Its programs.
    #[serde(default)]
    pub components: Vec<ComponentStatus>,
}

impl Default for ClusterStatus {
    fn default() -> Self {
        Self {
            phase: Phase::Pending,
            observed_generation: 0,
            kubernetes_version: None,
            endpoint: None,
            conditions: Vec::new(),
            components: Vec::new(),
        }
    }
}

impl ClusterStatus {
    /// Sets a condition; its transition time moves only when its status changes.
    pub fn set_condition(&mut self, now: Timestamp, kind: &str, status: bool, reason: &str, message: impl Into<String>) {
        let message = message.into();
        if let Some(known) = self.conditions.iter_mut().find(|c| c.kind == kind) {
            if known.status != status {
                known.last_transition_at = now;
            }
            known.status = status;
            reason.clone_into(&mut known.reason);
            known.message = message;
        } else {
            let (kind, reason) = (kind.to_owned(), reason.to_owned());
            self.conditions.push(Condition { kind, status, reason, message, last_transition_at: now });
        }
    }

    /// The condition of that type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }
}

/// What the local engine allotted to a cluster on its host; kept in the cluster's row, so that it is the same after every restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAllotment {
    /// Its own address of `local.address_range`.
    pub address: Ipv4Addr,
    /// Its unprivileged uid (and gid) of `local.uid_range`; absent in development mode.
    pub uid: Option<u32>,
}

/// What a cluster's nodes are, taken together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterNodes {
    /// How many there are, those that are being removed included.
    pub total: u32,
    /// How many of them are Ready.
    pub ready: u32,
    /// How many of them were found to run pods with all that belongs to it.
    pub verified: u32,
    /// Where nodes and their pods reach the API server, `address:port`: what a pod network of the owner's is told (Cilium's
    /// `k8sServiceHost` and `k8sServicePort`).
    #[schema(value_type = String, example = "198.51.100.1:6443")]
    pub api_address: SocketAddr,
}

/// A cluster as it is stored and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Cluster {
    /// Its permanent identifier.
    pub id: ClusterId,
    /// The project's identifier.
    pub project_id: ProjectId,
    /// The project's name.
    pub project: String,
    /// Its name, unique in the project.
    pub name: String,
    /// `<name>-<6 random>`: unique in the installation, permanent, the first part of its host name.
    pub label: String,
    /// Labels for selection, as Kubernetes has them.
    pub labels: BTreeMap<String, String>,
    /// Grows with each change of the spec.
    pub generation: i64,
    /// Grows with each change of the row; the `ETag`.
    pub resource_version: i64,
    /// The platform's host that runs it (local engine).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its port of the front door in `nodeport` mode (local engine).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<u16>,
    /// What the local engine allotted to it; not sent.
    #[serde(skip)]
    pub local: Option<LocalAllotment>,
    /// What was asked for.
    pub spec: ClusterSpec,
    /// What is.
    pub status: ClusterStatus,
    /// Its nodes, taken together; absent where nobody counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<ClusterNodes>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When its deletion was asked for; it is gone once everything of it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deleted_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let mut status = ClusterStatus::default();
        status.set_condition(Timestamp::from_micros(1), "Ready", false, "Starting", "");
        status.set_condition(Timestamp::from_micros(2), "Ready", false, "Waiting", "");
        assert_eq!(status.condition("Ready").unwrap().last_transition_at, Timestamp::from_micros(1));
        status.set_condition(Timestamp::from_micros(3), "Ready", true, "Ready", "");
        assert_eq!(status.condition("Ready").unwrap().last_transition_at, Timestamp::from_micros(3));
        assert_eq!(status.conditions.len(), 1);
    }
}
