//! `node.yaml`: what a machine learned when it joined, and how its owner wants it.
//!
//! Written by `join` (whole or not at all, 0600), read by the node role at each start and by `leave`, `status` and `doctor`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::domain::NodeId;
use crate::domain::join::{JoinedCluster, Trust};
use crate::domain::node::Taint;

/// The content of `node.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The platform's URL.
    pub server: String,
    /// How the platform is known.
    pub trust: Trust,
    /// Which node this is.
    pub node_id: NodeId,
    /// Its name.
    pub name: String,
    /// Its `InternalIP`.
    pub address: IpAddr,
    /// Whether that address was assigned, and stands on the API interface.
    pub address_assigned: bool,
    /// Its cluster.
    pub cluster: JoinedCluster,
    /// What the owner asked for.
    #[serde(default)]
    pub options: Options,
}

/// What a machine's owner may ask for at join.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The machine's address to use (`--node-ip`); absent: that of the default route, followed when it changes.
    pub node_ip: Option<IpAddr>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Registry mirrors: registry → URLs, tried in order before the registry itself.
    pub registry_mirrors: BTreeMap<String, Vec<String>>,
    /// A containerd of the owner's own (`--containerd-socket`); absent: one of ours.
    pub containerd_socket: Option<String>,
    /// `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` (with the cluster's ranges added) for all programs.
    pub proxy: BTreeMap<String, String>,
    /// Whether systemd keeps the node role (`--no-service` says no).
    pub service: bool,
}
