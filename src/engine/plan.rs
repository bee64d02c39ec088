//! From a cluster's spec to programs, flags and files: one pure function that every engine of ours shares.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::domain::Cluster;

/// The programs of a control plane, in the order in which they start (they stop in the order controller-manager, scheduler, API server, etcd).
pub const COMPONENTS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Fixed ports on the cluster's own address.
pub mod ports {
    /// kube-apiserver.
    pub const API_SERVER: u16 = 6443;
    /// etcd's clients.
    pub const ETCD_CLIENT: u16 = 2379;
    /// etcd's peers.
    pub const ETCD_PEER: u16 = 2380;
    /// kube-controller-manager.
    pub const CONTROLLER_MANAGER: u16 = 10257;
    /// kube-scheduler.
    pub const SCHEDULER: u16 = 10259;
    /// The tunnel's terminator.
    pub const TERMINATOR: u16 = 9443;
}

/// Where things are on the machine (or in the pod) that runs the control plane.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The cluster's own address.
    pub address: IpAddr,
    /// The folder of materialised keys, configurations and sockets (tmpfs): `pki/…`, `*.yaml`, `cluster.sock`, `controlplane.sock`.
    pub run_dir: String,
    /// The folder that lasts: `etcd/`, `audit/`.
    pub data_dir: String,
}

/// What may be spent on one cluster.
#[derive(Debug, Clone)]
pub struct Limits {
    /// etcd's `--quota-backend-bytes`.
    pub etcd_quota_bytes: u64,
    /// The API server's `--max-requests-inflight`.
    pub max_requests_inflight: u32,
    /// The API server's `--max-mutating-requests-inflight`.
    pub max_mutating_requests_inflight: u32,
    /// Audit log: size of a file in MB, and how many are kept.
    pub audit_max_size_mb: u32,
    /// How many audit log files are kept.
    pub audit_max_files: u32,
}

/// One program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its name, one of [`COMPONENTS`].
    pub name: &'static str,
    /// Its arguments, each `--flag=value`.
    pub args: Vec<String>,
    /// Its environment, whole: nothing is inherited.
    pub env: BTreeMap<String, String>,
}

/// A control plane: programs in the order of their start, and the files they read, by path below `run_dir`.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    /// The programs.
    pub programs: Vec<Program>,
    /// Files that are the same on every materialisation (configurations, kubeconfigs that name certificate files).
    pub files: BTreeMap<String, String>,
}

/// The control plane for a cluster's spec.
pub fn control_plane(cluster: &Cluster, layout: &Layout, limits: &Limits) -> ControlPlane {
    todo!()
}
