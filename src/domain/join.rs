//! Joining: tokens, and what a machine and the platform tell each other below `/join/v1/`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::cluster::Addon;
use super::node::{Fate, Machine, Taint};
use super::work::Refusal;
use super::{ClusterId, Invalid, JoinTokenId, KubernetesVersion, NodeId, Timestamp};

/// How long a token is good for when nothing is said.
pub const DEFAULT_TTL: Duration = Duration::from_secs(3600);
/// The longest life that can be asked for.
pub const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
/// The shortest life that can be asked for.
pub const MIN_TTL: Duration = Duration::from_secs(60);
/// How many machines may join with a token when nothing is said.
pub const DEFAULT_USES: u32 = 10;
/// The most machines that one token can be made for.
pub const MAX_USES: u32 = 1000;
/// How long the end of a membership is remembered.
pub const TOMBSTONE_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The architectures that machines may have.
pub const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
/// The domain that names inside clusters end in.
pub const CLUSTER_DOMAIN: &str = "cluster.local";

/// A token as it is stored and listed; its secret is kept as a hash alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JoinToken {
    /// Its identifier; not secret.
    pub id: JoinTokenId,
    /// The cluster that machines join with it.
    pub cluster_id: ClusterId,
    /// Who made it.
    pub owner: String,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// How many machines may join with it.
    pub uses: u32,
    /// How many have.
    pub used: u32,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub revoked_at: Option<Timestamp>,
}

impl JoinToken {
    /// Whether a machine can join that cluster with it at `now`.
    ///
    /// # Errors
    /// Why not: the reason and a sentence with what to do.
    pub fn check(&self, cluster: ClusterId, now: Timestamp) -> Result<(), (Refusal, String)> {
        let refuse = |kind, why: &str| Err((kind, format!("{why}: make another with `kubebyon join-token create`")));
        if self.cluster_id != cluster {
            return refuse(Refusal::TokenUnknown, "the join token is not of this cluster");
        }
        if self.revoked_at.is_some() {
            return refuse(Refusal::TokenRevoked, "the join token was revoked");
        }
        if self.expires_at <= now {
            return refuse(Refusal::TokenExpired, &format!("the join token ended at {}", self.expires_at));
        }
        if self.used >= self.uses {
            return refuse(Refusal::TokenUsedUp, &format!("the join token is used up ({} of {} uses)", self.used, self.uses));
        }
        Ok(())
    }
}

/// How a joining machine knows that it speaks with the platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// By the machine's own trusted authorities: the platform has a public certificate.
    System,
    /// By this authority alone: SHA-256 of the DER of its certificate, in hex. The server sends it with its leaf.
    Authority(String),
}

/// What a token says; its text is what people paste.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenContent {
    /// The platform's URL, such as `https://203.0.113.7`.
    #[serde(rename = "s")]
    pub server: String,
    /// The cluster's label.
    #[serde(rename = "c")]
    pub cluster: String,
    /// The token's identifier.
    #[serde(rename = "i")]
    pub id: JoinTokenId,
    /// Its secret: 256 random bits, base64url.
    #[serde(rename = "k")]
    pub secret: String,
    /// How the platform is known.
    #[serde(rename = "t")]
    pub trust: Trust,
}

impl std::fmt::Debug for TokenContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenContent")
            .field("server", &self.server)
            .field("cluster", &self.cluster)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

const PREFIX: &str = "kbj1_";
const CHECK: usize = 4;
/// The longest text that is looked at.
const MAX_TOKEN: usize = 4096;

impl TokenContent {
    /// The text: a prefix, then the content and four bytes of its hash, so that a text which was cut off is known as such.
    pub fn encode(&self) -> String {
        let mut bytes = serde_json::to_vec(self).expect("a token's content is plain");
        let check = Sha256::digest(&bytes);
        bytes.extend_from_slice(&check[..CHECK]);
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads a text.
    ///
    /// # Errors
    /// It is no join token, or it is not whole.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let text = text.trim();
        let wrong = |message: &str| Invalid::new("token", message);
        let cut = || wrong("the join token is not whole: copy the line again, from the first to the last character");
        let body = text
            .strip_prefix(PREFIX)
            .ok_or_else(|| wrong("this is no join token, which begins with kbj1_: make one with `kubebyon join-token create CLUSTER`"))?;
        if text.len() > MAX_TOKEN {
            return Err(wrong("this is no join token: it is too long"));
        }
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| cut())?;
        let (content, check) = bytes.split_at_checked(bytes.len().saturating_sub(CHECK)).ok_or_else(cut)?;
        if Sha256::digest(content)[..CHECK] != *check {
            return Err(cut());
        }
        serde_json::from_slice(content)
            .map_err(|_| wrong("this join token is of another version: use the kubebyon that the platform hands out"))
    }
}

/// The hash under which a token's secret is stored and compared (in constant time).
pub fn secret_hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Where a node's tunnel leads: the platform's shared port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TunnelEndpoint {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// `POST /join/v1/nodes`: a machine asks for membership. Sent again with the same key it gets the same answer and uses nothing up.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// The token's identifier.
    pub token: JoinTokenId,
    /// The token's secret.
    pub secret: String,
    /// The request for the kubelet's client certificate (PKCS #10, PEM): of it only the key is taken.
    pub csr_pem: String,
    /// The node's name.
    pub name: String,
    /// The machine's preferred address, its `InternalIP` unless another node reported the same.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// What the machine says of itself.
    pub machine: Machine,
    /// Labels to set; reserved ones too, since the platform sets them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints to set.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// Take the place of a node of that name which is not Ready.
    #[serde(default)]
    pub replace: bool,
}

/// What a machine gets when it has become a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Joined {
    /// Its identifier.
    pub node_id: NodeId,
    /// Its name.
    pub name: String,
    /// Its `InternalIP`.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Whether that address is not the machine's own and is to stand on the API interface.
    pub address_assigned: bool,
    /// The kubelet's client certificate (PEM).
    pub certificate_pem: String,
    /// The cluster.
    pub cluster: JoinedCluster,
    /// The programs to install.
    pub programs: Vec<ProgramFile>,
    /// Image archives to import.
    pub images: Vec<ProgramFile>,
}

/// What a node must know of its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JoinedCluster {
    /// Its identifier.
    pub id: ClusterId,
    /// Its name, for people.
    pub name: String,
    /// Its label.
    pub label: String,
    /// The version that its kubelets run.
    #[schema(value_type = String)]
    pub kubernetes_version: KubernetesVersion,
    /// The authority of the API server's and the tunnel's certificates (PEM).
    pub server_ca_pem: String,
    /// The authority of the kubelet's clients (PEM): the kubelet's `clientCAFile`.
    pub client_ca_pem: String,
    /// The name that the tunnel's certificate proves and that is sent as SNI.
    pub tunnel_name: String,
    /// Where the tunnel leads, to be tried in order.
    pub tunnel_endpoints: Vec<TunnelEndpoint>,
    /// The address on the node that leads to the API server.
    #[schema(value_type = String)]
    pub api_local_address: IpAddr,
    /// The port there.
    pub api_port: u16,
    /// The pods' range.
    #[schema(value_type = String)]
    pub pod_cidr: IpNet,
    /// The Services' range.
    #[schema(value_type = String)]
    pub service_cidr: IpNet,
    /// The Service address of DNS.
    #[schema(value_type = String)]
    pub dns_address: IpAddr,
    /// The cluster's domain, such as `cluster.local`.
    pub dns_domain: String,
    /// The pod network: the platform's or the owner's.
    pub cni: Addon,
    /// kube-proxy: the platform's or the owner's.
    pub kube_proxy: Addon,
    /// The image that holds a pod's namespaces.
    pub pause_image: String,
}

/// A file that nodes fetch from the platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProgramFile {
    /// What it is, such as `kubernetes`, `containerd`, `runc`, `cni-plugins`, `kubebyon`, or for an image archive its file name.
    pub kind: String,
    /// Its version; empty for image archives.
    pub version: String,
    /// Its file name.
    pub name: String,
    /// Its path on the platform, below the platform's URL: `/assets/…`.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, in hex.
    pub sha256: String,
}

/// `POST /join/v1/steps`: how a join goes, for the cluster's events.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepReport {
    /// The token's identifier.
    pub token: JoinTokenId,
    /// The token's secret.
    pub secret: String,
    /// The node's name.
    pub name: String,
    /// The step, one CamelCase word of at most 40 characters.
    pub step: String,
    /// A sentence of at most 500 characters.
    pub message: String,
    /// Whether the join ended there.
    #[serde(default)]
    pub failed: bool,
}

/// `POST /join/v1/fate`: a machine whose tunnel is refused asks what became of its membership.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FateRequest {
    /// The node.
    pub node: NodeId,
    /// The machine's time; at most ten minutes off.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Its kubelet key's ECDSA signature (ASN.1, base64) of [`fate_statement`].
    pub signature: String,
}

/// What is signed to ask for a node's fate.
pub fn fate_statement(node: NodeId, at: Timestamp) -> Vec<u8> {
    format!("kubebyon fate\n{node}\n{}\n", at.as_micros()).into_bytes()
}

/// The answer to a [`FateRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FateAnswer {
    /// What became of it.
    pub fate: Fate,
    /// A sentence with what to do.
    pub message: String,
    /// The tunnel's endpoints at present; only for a member.
    #[serde(default)]
    pub tunnel_endpoints: Vec<TunnelEndpoint>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Ambient;

    fn content() -> TokenContent {
        TokenContent {
            server: "https://203.0.113.7:8443".to_owned(),
            cluster: "demo-abc234".to_owned(),
            id: JoinTokenId::generate(&Ambient::system()),
            secret: "s".repeat(43),
            trust: Trust::Authority("ab".repeat(32)),
        }
    }

    #[test]
    fn a_token_is_good_for_its_cluster_until_it_ended_or_was_used_up() {
        let ambient = Ambient::system();
        let (cluster, at) = (ClusterId::generate(&ambient), Timestamp::from_micros(1_000_000));
        let token = JoinToken {
            id: JoinTokenId::generate(&ambient),
            cluster_id: cluster,
            owner: "ada".into(),
            created_at: at,
            expires_at: at.plus(DEFAULT_TTL),
            uses: 2,
            used: 1,
            revoked_at: None,
        };
        let kind = |token: &JoinToken, cluster, now| token.check(cluster, now).err().map(|(kind, _)| kind);
        assert_eq!(kind(&token, cluster, at), None);
        assert_eq!(kind(&token, cluster, at.plus(DEFAULT_TTL)), Some(Refusal::TokenExpired));
        assert_eq!(kind(&token, ClusterId::generate(&ambient), at), Some(Refusal::TokenUnknown));
        assert_eq!(kind(&JoinToken { used: 2, ..token.clone() }, cluster, at), Some(Refusal::TokenUsedUp));
        assert_eq!(kind(&JoinToken { revoked_at: Some(at), ..token }, cluster, at), Some(Refusal::TokenRevoked));
    }

    #[test]
    fn a_token_says_what_was_put_into_it() {
        let content = content();
        assert_eq!(TokenContent::parse(&format!(" {}\n", content.encode())).unwrap(), content);
        assert!(!format!("{content:?}").contains("sss"), "the secret is not printed");
    }

    #[test]
    fn a_token_that_was_cut_off_anywhere_is_known_as_such() {
        let text = content().encode();
        for end in 0..text.len() {
            let refused = TokenContent::parse(&text[..end]).unwrap_err();
            let expected = if end < PREFIX.len() { "no join token" } else { "not whole" };
            assert!(refused.message.contains(expected), "{end}: {refused}");
        }
        assert!(TokenContent::parse(&text.replace('a', "b")).is_err());
    }
}
