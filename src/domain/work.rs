//! What jobs are told and what they answer: the JSON in a job's row. No private key is in any of it.

use serde::{Deserialize, Serialize};

use super::kubeconfig::ClusterRole;
use super::{KubeconfigId, Timestamp};

/// Brings a cluster to its spec, or takes it down when its deletion was asked for. Payload: none (`{}`).
pub const RECONCILE_CLUSTER: &str = "reconcile-cluster";
/// Signs a client certificate for a kubeconfig. Payload [`SignRequest`], result [`SignResult`] as [`Answer`].
pub const SIGN: &str = "sign";
/// Makes a ServiceAccount's token for a kubeconfig. Payload [`ServiceAccountTokenRequest`], result
/// [`ServiceAccountTokenResult`] as [`Answer`].
pub const SERVICE_ACCOUNT_TOKEN: &str = "service-account-token";
/// Makes the revocation of a kubeconfig effective at the API server. Payload [`RevokeRequest`].
pub const REVOKE: &str = "revoke";
/// Makes a machine a node: uses the token once, takes its name and address, signs its certificate. Payload [`SignNodeRequest`], result
/// [`SignNodeResult`] as [`Answer`].
pub const SIGN_NODE: &str = "sign-node";
/// Takes a node out of its cluster: drains, deletes its object, revokes its certificates, ends its tunnel. Payload [`RemoveNodeRequest`].
pub const REMOVE_NODE: &str = "remove-node";
/// Removes rows that are past their keep. Payload: none (`{}`).
pub const PRUNE: &str = "prune";

/// What a job answers to somebody who waits for it and may have asked for what cannot be: the job has then done its work,
/// and whoever asked is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer<T> {
    /// It cannot be.
    Refused {
        /// Why, and what to do.
        refused: String,
        /// Why, as one of the reasons that callers tell apart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<Refusal>,
    },
    /// It is done.
    Done(T),
}

impl<T> Answer<T> {
    /// That it cannot be, with a reason that callers tell apart.
    pub fn refused(kind: Refusal, why: impl Into<String>) -> Self {
        Self::Refused { refused: why.into(), kind: Some(kind) }
    }
}

/// Why a machine does not become a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// There is no such token, its secret is another, or it is of another cluster.
    TokenUnknown,
    /// The token ended.
    TokenExpired,
    /// As many machines as the token was made for have joined with it.
    TokenUsedUp,
    /// The token was revoked.
    TokenRevoked,
    /// The cluster's deletion was asked for.
    ClusterDeleting,
    /// Machines cannot join a cluster of this engine.
    TakesNoNodes,
    /// The name is none that a node can have.
    NameInvalid,
    /// A node of that name is there.
    NameTaken,
    /// The node's removal was asked for and has not come to its end.
    NodeLeaving,
    /// The machine's key is that of a node of another name.
    OtherName,
    /// Labels, taints, address or key cannot be taken.
    RequestInvalid,
}

impl Refusal {
    /// The word for it, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokenUnknown => "token-unknown",
            Self::TokenExpired => "token-expired",
            Self::TokenUsedUp => "token-used-up",
            Self::TokenRevoked => "token-revoked",
            Self::ClusterDeleting => "cluster-deleting",
            Self::TakesNoNodes => "takes-no-nodes",
            Self::NameInvalid => "name-invalid",
            Self::NameTaken => "name-taken",
            Self::NodeLeaving => "node-leaving",
            Self::OtherName => "other-name",
            Self::RequestInvalid => "request-invalid",
        }
    }

    /// The HTTP status that fits: 403 for tokens, 422 for what can never be, 409 for what may be once something else changed.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::TokenUnknown | Self::TokenExpired | Self::TokenUsedUp | Self::TokenRevoked => 403,
            Self::NameInvalid | Self::RequestInvalid => 422,
            Self::ClusterDeleting | Self::TakesNoNodes | Self::NameTaken | Self::NodeLeaving | Self::OtherName => 409,
        }
    }
}

/// A client certificate that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignRequest {
    /// The request for the key (PKCS #10, PEM); only its key is taken.
    pub csr_pem: String,
    /// Who asked for it: the record's owner and the certificate's common name.
    pub owner: String,
    /// What it may do.
    pub role: ClusterRole,
    /// The one namespace it is good for.
    pub namespace: Option<String>,
    /// How long it is good for.
    pub ttl_seconds: u64,
}

/// A client certificate that was signed and recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignResult {
    /// The id of its record.
    pub kubeconfig_id: KubeconfigId,
    /// The certificate.
    pub cert_pem: String,
    /// The authority that the API server proves itself with.
    pub ca_pem: String,
    /// When the certificate ends.
    pub expires_at: Timestamp,
}

/// A ServiceAccount token that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccountTokenRequest {
    /// The record's owner.
    pub owner: String,
    /// The ServiceAccount's namespace.
    pub service_account_namespace: String,
    /// The ServiceAccount's name.
    pub service_account_name: String,
    /// The role it is bound to.
    pub role: ClusterRole,
    /// The one namespace the role is bound in.
    pub namespace: Option<String>,
    /// How long the token is good for.
    pub ttl_seconds: u64,
}

/// A ServiceAccount token that was made and recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccountTokenResult {
    /// The id of its record.
    pub kubeconfig_id: KubeconfigId,
    /// The token, sealed with the platform's key under [`token_context`], base64.
    pub sealed_token: String,
    /// The authority that the API server proves itself with.
    pub ca_pem: String,
    /// When the token ends.
    pub expires_at: Timestamp,
}

/// A kubeconfig whose revocation is to take effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeRequest {
    /// Its record; marked as revoked in the transaction that enqueued this.
    pub kubeconfig_id: KubeconfigId,
}

/// A machine that is to become a node. The token was checked; the job checks it again in the transaction that uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignNodeRequest {
    /// The token.
    pub token: super::JoinTokenId,
    /// The request for the kubelet's client certificate (PEM); only its key is taken.
    pub csr_pem: String,
    /// The node's name.
    pub name: String,
    /// The machine's address.
    pub address: std::net::IpAddr,
    /// What the machine says of itself.
    pub machine: super::node::Machine,
    /// Labels to set.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Taints to set.
    pub taints: Vec<super::node::Taint>,
    /// Take the place of a node of that name which is not Ready.
    pub replace: bool,
}

/// A machine that has become a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignNodeResult {
    /// The node.
    pub node: super::NodeId,
    /// Its kubelet's client certificate (PEM).
    pub certificate_pem: String,
    /// The authority that the API server and the tunnel prove themselves with (PEM).
    pub server_ca_pem: String,
    /// The authority of the API server's clients (PEM).
    pub client_ca_pem: String,
}

/// A node that is to be taken out of its cluster; its row says that it is being removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveNodeRequest {
    /// Which.
    pub node: super::NodeId,
    /// How its membership ends: `Removed`, `Left` or `Replaced`.
    pub fate: super::node::Fate,
    /// Evict its pods first, for at most so many seconds; 0: not at all.
    pub drain_seconds: u64,
}

/// The context under which a job's token is sealed.
pub fn token_context(job: super::JobId) -> String {
    format!("job/{job}/token")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_and_a_result_are_told_apart() {
        let done = Answer::Done(RevokeRequest { kubeconfig_id: "00000000-0000-7000-8000-000000000000".parse().unwrap() });
        let refused = Answer::Refused { refused: "no such namespace".to_owned(), kind: None };
        let typed = Answer::Refused { refused: "it ended".to_owned(), kind: Some(Refusal::TokenExpired) };
        for answer in [done, refused, typed] {
            let json = serde_json::to_value(&answer).unwrap();
            assert_eq!(
                json.get("kind").map(ToString::to_string).as_deref(),
                matches!(&answer, Answer::Refused { kind: Some(_), .. }).then_some("\"token-expired\"")
            );
            assert_eq!(json.get("refused").is_some(), matches!(answer, Answer::Refused { .. }));
            assert_eq!(serde_json::from_value::<Answer<RevokeRequest>>(json).unwrap(), answer);
        }
    }
}
