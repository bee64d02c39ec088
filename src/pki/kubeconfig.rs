//! kubeconfig files: written, and merged into one that exists.
//!
//! May import: nothing of ours.
use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;

use super::yaml::{self, Node};

/// The largest kubeconfig that is merged into, in bytes.
pub const MAX_KUBECONFIG_BYTES: usize = 4 * 1024 * 1024;

/// What a client proves itself with.
#[derive(Clone)]
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

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Certificate { .. } => "Certificate",
            Self::Token(_) => "Token",
            Self::Files { .. } => "Files",
        })
    }
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
        yaml::write(&self.document())
    }

    fn document(&self) -> Node {
        let mut cluster = vec![("server".to_owned(), Node::text(&self.server))];
        if let Some(name) = &self.tls_server_name {
            cluster.push(("tls-server-name".to_owned(), Node::text(name)));
        }
        cluster.push(("certificate-authority-data".to_owned(), data(&self.ca_pem)));

        let user = match &self.credential {
            Credential::Certificate { cert_pem, key_pem } => {
                Node::map([("client-certificate-data", data(cert_pem)), ("client-key-data", data(key_pem))])
            }
            Credential::Token(token) => Node::map([("token", Node::text(token))]),
            Credential::Files { cert, key } => Node::map([("client-certificate", Node::text(cert)), ("client-key", Node::text(key))]),
        };
        document(&self.name, Node::Map(cluster), user, self.namespace.as_deref())
    }
}

/// The kubeconfig of a program beside its API server: authority, certificate and key by absolute path, nothing secret in the file itself.
pub fn by_path(name: &str, server: &str, ca: &str, cert: &str, key: &str) -> String {
    let cluster = Node::map([("server", Node::text(server)), ("certificate-authority", Node::text(ca))]);
    let user = Node::map([("client-certificate", Node::text(cert)), ("client-key", Node::text(key))]);
    yaml::write(&document(name, cluster, user, None))
}

/// `existing` with the entries of the kubeconfig `new` put in (replacing those of the same name) and its context made current. Everything
/// else of `existing` stays, in its order; an `existing` that is no kubeconfig is refused. Comments are not kept (kubectl drops them too).
pub fn merge(existing: &str, new: &str) -> anyhow::Result<String> {
    ensure!(
        existing.len() <= MAX_KUBECONFIG_BYTES,
        "this kubeconfig has {} bytes; at most {MAX_KUBECONFIG_BYTES} are merged",
        existing.len()
    );
    let Node::Map(fresh) = yaml::read(new).context("the new kubeconfig is no YAML")? else { bail!("the new kubeconfig is no mapping") };
    let mut whole = match yaml::read(existing).context("this is no YAML, so no kubeconfig: nothing was changed")? {
        Node::Null => return Ok(new.to_owned()),
        Node::Map(entries) => entries,
        _ => bail!("this is no kubeconfig (no mapping at its top): nothing was changed"),
    };
    check_kind(&whole)?;
    for (key, value) in fresh {
        match (whole.iter_mut().find(|(name, _)| *name == key), value) {
            (Some((_, stands @ (Node::List(_) | Node::Null))), Node::List(entries)) => put_entries(stands, entries),
            (Some(_), Node::List(_)) => bail!("this is no kubeconfig ({key} is not a list): nothing was changed"),
            (Some((_, stands)), value) if key == "current-context" => *stands = value,
            (Some(_), _) => {}
            (None, value) => whole.push((key, value)),
        }
    }
    Ok(yaml::write(&Node::Map(whole)))
}

/// Refuses what calls itself something else than a kubeconfig, or has nothing of one.
fn check_kind(entries: &[(String, Node)]) -> anyhow::Result<()> {
    let known = ["apiVersion", "kind", "clusters", "users", "contexts", "current-context", "preferences", "extensions"];
    match entries.iter().find(|(key, _)| key == "kind") {
        Some((_, Node::Text(kind))) if kind == "Config" => Ok(()),
        Some(_) => bail!("this is no kubeconfig (its kind is not Config): nothing was changed"),
        None if entries.iter().all(|(key, _)| known.contains(&key.as_str())) => Ok(()),
        None => bail!("this is no kubeconfig (it has no kind): nothing was changed"),
    }
}

/// Puts each named entry in the place of the one that has its name, or at the end.
fn put_entries(list: &mut Node, entries: Vec<Node>) {
    if *list == Node::Null {
        *list = Node::List(Vec::new());
    }
    let Node::List(items) = list else { return };
    for entry in entries {
        match items.iter_mut().find(|item| item.get_text("name").is_some() && item.get_text("name") == entry.get_text("name")) {
            Some(item) => *item = entry,
            None => items.push(entry),
        }
    }
}

fn document(name: &str, cluster: Node, user: Node, namespace: Option<&str>) -> Node {
    let mut context = vec![("cluster".to_owned(), Node::text(name)), ("user".to_owned(), Node::text(name))];
    if let Some(namespace) = namespace {
        context.push(("namespace".to_owned(), Node::text(namespace)));
    }
    let named = |key, value| Node::List(vec![Node::map([("name", Node::text(name)), (key, value)])]);
    Node::map([
        ("apiVersion", Node::text("v1")),
        ("kind", Node::text("Config")),
        ("clusters", named("cluster", cluster)),
        ("users", named("user", user)),
        ("contexts", named("context", Node::Map(context))),
        ("current-context", Node::text(name)),
    ])
}

fn data(pem: &str) -> Node {
    Node::text(base64::engine::general_purpose::STANDARD.encode(pem))
}

#[cfg(test)]
mod tests;
