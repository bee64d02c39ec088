//! What a node and its cluster's terminator say to each other.
//!
//! A node opens one TLS 1.3 connection (ALPN [`ALPN`] carries the protocol's version) with its kubelet's client certificate, and both
//! sides open yamux streams on it, whose bytes travel in blocks: a length (`u16`, big-endian) and that many bytes, where the length 0 ends a
//! direction. Each stream begins with one frame, an [`Opening`], and unless it is the control stream is answered with one frame, an
//! [`Opened`]; after that it carries bytes, with half-closes. The control stream carries frames both ways: [`FromNode`] and
//! [`FromPlatform`]. A frame is its length (`u32`, big-endian) and that many bytes of JSON; unknown fields are ignored, so that neighbouring
//! versions understand each other. May import: `domain`.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::domain::NodeId;
use crate::domain::join::TunnelEndpoint;
use crate::domain::node::{Fate, Machine};

/// The protocol's version as TLS negotiates it (RFC 7301).
pub const ALPN: &[u8] = b"kubebyon-tunnel/1";

/// The first frame of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Opening {
    /// The node's control stream: one a connection, opened first.
    Control,
    /// From the node: to the cluster's API server. It names no address.
    Api,
    /// From the platform: to an address in the cluster's network, as a CONNECT of the API server asked for it.
    Dial {
        /// An address, or for `public` a name.
        host: String,
        /// The port.
        port: u16,
        /// Whether it is a public host that `egress.public_hosts` names: the node resolves it, and connects to public addresses only.
        #[serde(default)]
        public: bool,
    },
}

/// The answer to an [`Opening`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Opened {
    /// Bytes follow.
    Ok,
    /// It is not reached; the stream ends here.
    Refused {
        /// An HTTP status: 403 for what may not be reached, 502 for what cannot, 503 where there is too much.
        status: u16,
        /// Why, in one line.
        reason: String,
    },
}

/// What a node says on its control stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromNode {
    /// The first frame.
    Hello(Hello),
    /// How it is; sent when it changes, and every five minutes.
    Report(Report),
    /// A question; answered by [`FromPlatform::Reply`] of the same number.
    Ask {
        /// Counts up in a connection.
        number: u64,
        /// The question.
        ask: Ask,
    },
    /// Answers [`FromPlatform::Ping`].
    Pong,
}

/// What a node says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Which node it is; its certificate must agree.
    pub node: NodeId,
    /// What the machine says of itself.
    pub machine: Machine,
    /// Its own addresses, the preferred first.
    pub underlay: Vec<IpAddr>,
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// What the machine says of itself.
    pub machine: Machine,
    /// Its own addresses, the preferred first.
    pub underlay: Vec<IpAddr>,
    /// Aspects of its state: `KubeletHealthy`, `ContainerRuntimeHealthy`, `KubeProxyHealthy`, `PodNetwork`.
    pub aspects: Vec<Aspect>,
}

/// One aspect of a node's state, as conditions have them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aspect {
    /// Which.
    pub kind: String,
    /// Whether it holds.
    pub status: bool,
    /// Why, one CamelCase word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

/// What a node may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// A token of kube-proxy's ServiceAccount, bound to this node's object. Answered by [`Answer::Token`].
    KubeProxyToken,
    /// Check that pods work here. Answered by [`Answer::Verified`] when that is done, which may take minutes.
    Verify,
    /// Drain this node and take it out of the cluster. Answered by [`Answer::Done`] when it is out.
    Leave {
        /// Evict pods first, for at most so many seconds.
        drain_seconds: u64,
    },
}

/// What the platform says on a control stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromPlatform {
    /// The first frame, and again whenever something of it changes.
    State(NodeState),
    /// Answers an [`FromNode::Ask`].
    Reply {
        /// The question's number.
        number: u64,
        /// The answer, or why there is none: a sentence.
        answer: Result<Answer, String>,
    },
    /// A step of something that the node asked for, to be shown.
    Step {
        /// The question's number.
        number: u64,
        /// One CamelCase word.
        step: String,
        /// A sentence.
        message: String,
    },
    /// The membership has ended: the last frame of the connection.
    Ended {
        /// How.
        fate: Fate,
        /// A sentence with what to do.
        message: String,
    },
    /// Are you there? Sent when nothing else was for 25 seconds; NAT keeps idle connections for no longer than a minute.
    Ping,
}

/// What the platform answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// A ServiceAccount token.
    Token {
        /// The token.
        token: String,
        /// For how many seconds it is good.
        seconds: u64,
    },
    /// What the verification found, in the order of its steps; the first that failed is the last.
    Verified {
        /// The steps.
        steps: Vec<Aspect>,
    },
}

/// What a node is to know at present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Where tunnels lead, to be tried in order.
    pub tunnel_endpoints: Vec<TunnelEndpoint>,
    /// The node's `InternalIP`.
    pub address: IpAddr,
    /// Its range of pod addresses, once Kubernetes has given it one.
    pub pod_cidr: Option<IpNet>,
    /// The other nodes.
    pub peers: Vec<Peer>,
    /// Proves probes between nodes of this cluster (32 bytes, base64).
    pub probe_key: String,
}

/// Another node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Which.
    pub node: NodeId,
    /// Its `InternalIP`.
    pub address: IpAddr,
    /// Its own addresses, the preferred first.
    pub underlay: Vec<IpAddr>,
    /// Its range of pod addresses.
    pub pod_cidr: Option<IpNet>,
}
