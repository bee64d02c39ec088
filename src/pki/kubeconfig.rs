//! kubeconfig files: written, and merged into one that exists.

/// What a client proves itself with.
#[derive(Debug, Clone)]
pub enum Credential {
    /// A client certificate and its key, both PEM.
    Certificate {
        /// The certificate.
        cert_pem: String,
        /// Its key.
        key_pem: String,
    },
    /// A bearer token.
    Token(String),
    /// Certificate and key by path, read again by client-go when they change.
    Files {
        /// Path of the certificate.
        cert: String,
        /// Path of its key.
        key: String,
    },
}

/// What a kubeconfig says.
#[derive(Debug, Clone)]
pub struct KubeconfigFile {
    /// The name of its cluster, user and context entries.
    pub name: String,
    /// The API server's URL.
    pub server: String,
    /// The name to verify where it is not the URL's host.
    pub tls_server_name: Option<String>,
    /// The authority to trust (PEM).
    pub ca_pem: String,
    /// The namespace of the context.
    pub namespace: Option<String>,
    /// What the client proves itself with.
    pub credential: Credential,
}

impl KubeconfigFile {
    /// The YAML of a kubeconfig with this one context, current.
    pub fn to_yaml(&self) -> String {
        todo!()
    }
}

/// `existing` with the entries of `new` put in (replacing those of the same name) and its context made current. Everything
/// else of `existing` stays, in its order; an `existing` that is no kubeconfig is refused.
pub fn merge(existing: &str, new: &KubeconfigFile) -> anyhow::Result<String> {
    todo!()
}
