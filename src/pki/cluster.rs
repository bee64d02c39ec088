//! All that is secret of one cluster, as one sealed value.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Authority, CertificateAuthority};
use crate::domain::{Ambient, ClusterId};

/// A cluster's authorities and long-lived keys. Leaves are made from it when they are materialised and are not kept.
#[derive(Clone, Serialize, Deserialize)]
pub struct ClusterPki {
    /// Its authorities: every [`Authority`] but `Platform`.
    pub authorities: Vec<CertificateAuthority>,
    /// Signs ServiceAccount tokens (PKCS #8, ECDSA P-256).
    pub service_account_key_pem: String,
    /// The same key's public half (SPKI PEM).
    pub service_account_public_pem: String,
    /// Encrypts Secrets in etcd: 32 bytes, base64 (secretbox).
    pub secrets_encryption_key: String,
}

impl ClusterPki {
    /// Fresh authorities and keys for a cluster.
    pub fn create(ambient: &Ambient, cluster: ClusterId) -> anyhow::Result<Self> {
        todo!()
    }
    /// One of the authorities.
    pub fn authority(&self, authority: Authority) -> &CertificateAuthority {
        todo!()
    }
}

/// Files by relative path, as `engine::plan` lists them: what is materialised beside a control plane.
pub type Files = BTreeMap<String, String>;
