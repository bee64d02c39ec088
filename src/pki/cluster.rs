//! All that is secret of one cluster, as one sealed value, and the paths under which its parts are materialised.
//!
//! May import: `domain`.
use std::collections::BTreeMap;

use base64::Engine as _;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Authority, CertificateAuthority};
use crate::domain::{Ambient, ClusterId};

/// Paths of certificates and keys below a control plane's run directory. Flags and kubeconfigs name them; a renewal rewrites them in place.
pub mod files {
    /// Trusted for serving certificates of the control plane.
    pub const SERVER_CA: &str = "pki/server-ca.crt";
    /// Trusted for clients of the API server (`--client-ca-file`).
    pub const CLIENT_CA: &str = "pki/client-ca.crt";
    /// Trusted for kubelets' serving certificates (`--kubelet-certificate-authority`).
    pub const KUBELET_SERVING_CA: &str = "pki/kubelet-serving-ca.crt";
    /// The one CA key that the controller-manager gets (`--cluster-signing-kubelet-serving-key-file`).
    pub const KUBELET_SERVING_CA_KEY: &str = "pki/kubelet-serving-ca.key";
    /// Trusted for the aggregator (`--requestheader-client-ca-file`).
    pub const FRONT_PROXY_CA: &str = "pki/front-proxy-ca.crt";
    /// Trusted between etcd, its peers and its client.
    pub const ETCD_CA: &str = "pki/etcd-ca.crt";
    /// Trusted between the API server and the terminator.
    pub const TERMINATOR_CA: &str = "pki/terminator-ca.crt";

    /// The API server's serving certificate.
    pub const API_SERVER_CERT: &str = "pki/apiserver.crt";
    /// Its key.
    pub const API_SERVER_KEY: &str = "pki/apiserver.key";
    /// The API server as etcd's client.
    pub const API_SERVER_ETCD_CLIENT_CERT: &str = "pki/apiserver-etcd-client.crt";
    /// Its key.
    pub const API_SERVER_ETCD_CLIENT_KEY: &str = "pki/apiserver-etcd-client.key";
    /// The API server as the kubelets' client.
    pub const API_SERVER_KUBELET_CLIENT_CERT: &str = "pki/apiserver-kubelet-client.crt";
    /// Its key.
    pub const API_SERVER_KUBELET_CLIENT_KEY: &str = "pki/apiserver-kubelet-client.key";
    /// The API server as client of aggregated API servers.
    pub const FRONT_PROXY_CLIENT_CERT: &str = "pki/front-proxy-client.crt";
    /// Its key.
    pub const FRONT_PROXY_CLIENT_KEY: &str = "pki/front-proxy-client.key";
    /// The API server as client of the revocation webhook.
    pub const API_SERVER_TERMINATOR_CLIENT_CERT: &str = "pki/apiserver-terminator-client.crt";
    /// Its key.
    pub const API_SERVER_TERMINATOR_CLIENT_KEY: &str = "pki/apiserver-terminator-client.key";
    /// etcd towards its clients; also etcd as its own client.
    pub const ETCD_SERVER_CERT: &str = "pki/etcd-server.crt";
    /// Its key.
    pub const ETCD_SERVER_KEY: &str = "pki/etcd-server.key";
    /// etcd towards its peers.
    pub const ETCD_PEER_CERT: &str = "pki/etcd-peer.crt";
    /// Its key.
    pub const ETCD_PEER_KEY: &str = "pki/etcd-peer.key";
    /// Signs ServiceAccount tokens.
    pub const SERVICE_ACCOUNT_KEY: &str = "pki/service-account.key";
    /// Verifies ServiceAccount tokens.
    pub const SERVICE_ACCOUNT_PUB: &str = "pki/service-account.pub";
    /// The controller-manager as client of the API server.
    pub const CONTROLLER_MANAGER_CERT: &str = "pki/controller-manager.crt";
    /// Its key.
    pub const CONTROLLER_MANAGER_KEY: &str = "pki/controller-manager.key";
    /// The controller-manager's own HTTPS port.
    pub const CONTROLLER_MANAGER_SERVING_CERT: &str = "pki/controller-manager-serving.crt";
    /// Its key.
    pub const CONTROLLER_MANAGER_SERVING_KEY: &str = "pki/controller-manager-serving.key";
    /// The scheduler as client of the API server.
    pub const SCHEDULER_CERT: &str = "pki/scheduler.crt";
    /// Its key.
    pub const SCHEDULER_KEY: &str = "pki/scheduler.key";
    /// The scheduler's own HTTPS port.
    pub const SCHEDULER_SERVING_CERT: &str = "pki/scheduler-serving.crt";
    /// Its key.
    pub const SCHEDULER_SERVING_KEY: &str = "pki/scheduler-serving.key";
    /// The terminator's serving certificate for the revocation webhook.
    pub const TERMINATOR_CERT: &str = "pki/terminator.crt";
    /// Its key.
    pub const TERMINATOR_KEY: &str = "pki/terminator.key";
    /// The terminator's serving certificate for the nodes' tunnels.
    pub const TUNNEL_CERT: &str = "pki/tunnel.crt";
    /// Its key.
    pub const TUNNEL_KEY: &str = "pki/tunnel.key";
}

/// Files by path relative to the run directory: what is materialised beside a control plane.
pub type Files = BTreeMap<String, String>;

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
        let authorities = Authority::OF_A_CLUSTER
            .into_iter()
            .map(|authority| CertificateAuthority::create(ambient, authority, &format!("kubebyon:{cluster}:{}", authority.as_str())))
            .collect::<anyhow::Result<_>>()?;
        let service_account = rcgen::KeyPair::generate()?;
        let encryption = Zeroizing::new(ambient.random::<32>());
        Ok(Self {
            authorities,
            service_account_key_pem: service_account.serialize_pem(),
            service_account_public_pem: service_account.public_key_pem(),
            secrets_encryption_key: base64::engine::general_purpose::STANDARD.encode(encryption.as_slice()),
        })
    }

    /// One of the authorities.
    ///
    /// # Panics
    /// For [`Authority::Platform`], which no cluster has.
    pub fn authority(&self, authority: Authority) -> &CertificateAuthority {
        self.authorities.iter().find(|ca| ca.authority == authority).expect("every authority of a cluster is made by ClusterPki::create")
    }

    /// What stays the same on every materialisation: the authorities' certificates, the kubelet-serving signer's key and the
    /// ServiceAccount keys. No other authority's key leaves this value.
    pub fn lasting_files(&self) -> Files {
        let certificate = |authority| self.authority(authority).cert_pem.clone();
        [
            (files::SERVER_CA, certificate(Authority::Server)),
            (files::CLIENT_CA, certificate(Authority::Client)),
            (files::KUBELET_SERVING_CA, certificate(Authority::KubeletServing)),
            (files::KUBELET_SERVING_CA_KEY, self.authority(Authority::KubeletServing).key_pem.clone()),
            (files::FRONT_PROXY_CA, certificate(Authority::FrontProxy)),
            (files::ETCD_CA, certificate(Authority::Etcd)),
            (files::TERMINATOR_CA, certificate(Authority::Terminator)),
            (files::SERVICE_ACCOUNT_KEY, self.service_account_key_pem.clone()),
            (files::SERVICE_ACCOUNT_PUB, self.service_account_public_pem.clone()),
        ]
        .into_iter()
        .map(|(path, text)| (path.to_owned(), text))
        .collect()
    }
}

impl Drop for ClusterPki {
    fn drop(&mut self) {
        use zeroize::Zeroize as _;
        self.service_account_key_pem.zeroize();
        self.secrets_encryption_key.zeroize();
    }
}
