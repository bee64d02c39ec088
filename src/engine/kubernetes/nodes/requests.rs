//! Which requests of kubelets for certificates are good. Pure.
//!
//! Upstream approves on RBAC alone; here a request must come from the very node that it is for, by a certificate that is good now. (Who is
//! an administrator of a cluster may impersonate its nodes and so get a certificate in the name of one: of their own cluster, which they
//! own with its machines. It is recorded like any other and ends with the node's membership.)

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};

use crate::domain::node::{KUBELET_GROUP, kubelet_user};
use crate::pki::csr::{self, Described};
use crate::tunnel::CREDENTIAL_ID;

/// Signs kubelets' serving certificates; the controller-manager is its signer, the platform its approver.
pub const SERVING: &str = "kubernetes.io/kubelet-serving";
/// Signs kubelets' client certificates; the platform is both.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// How many good client certificates one node may have: renewals leave two, a kubelet that is started again and again some more.
pub const MAX_CERTIFICATES: usize = 16;

/// A node as the store knows it, by whose name a request came.
#[derive(Debug, Clone)]
pub struct Asker {
    /// Its name.
    pub name: String,
    /// Its `InternalIP`.
    pub address: IpAddr,
    /// SHA-256 of its client certificates that are good, in hex.
    pub fingerprints: BTreeSet<String>,
}

/// What is to be done with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Not the platform's affair, or done already.
    Leave,
    /// Approve it.
    Approve,
    /// Approve it, where that is not done, and sign it.
    Sign,
    /// Deny it, for this reason.
    Deny(String),
}

/// The name of the node that a request comes from, when it concerns the platform at all: one of a kubelet for one of its signers, that is
/// not decided yet, or is approved and not signed.
pub fn concerns(request: &CertificateSigningRequest) -> Option<&str> {
    let spec = &request.spec;
    let ours = spec.signer_name == CLIENT || spec.signer_name == SERVING;
    let decided = |kind: &str| has_condition(request, kind);
    let signed = request.status.as_ref().and_then(|s| s.certificate.as_ref()).is_some_and(|c| !c.0.is_empty());
    if !ours || signed || decided("Denied") || decided("Failed") || (spec.signer_name == SERVING && decided("Approved")) {
        return None;
    }
    spec.username.as_deref()?.strip_prefix("system:node:")
}

/// Whether a request has that condition.
pub fn has_condition(request: &CertificateSigningRequest, kind: &str) -> bool {
    let conditions = request.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|c| c.type_ == kind && c.status == "True")
}

/// Judges a request of which [`concerns`] gave a name; `asker` is the member of that name.
pub fn judge(request: &CertificateSigningRequest, asker: Option<&Asker>) -> Verdict {
    let Some(asker) = asker else {
        return Verdict::Deny("whoever asks is no node of this cluster; join the machine with `kubebyon join`".to_owned());
    };
    let spec = &request.spec;
    let serving = spec.signer_name == SERVING;
    match requestor(spec, asker).and_then(|()| content(spec, asker, serving)) {
        Err(why) => Verdict::Deny(why),
        Ok(()) if serving => Verdict::Approve,
        Ok(()) if asker.fingerprints.len() >= MAX_CERTIFICATES => Verdict::Deny(format!(
            "node {} has {} good client certificates already; one must end before it gets another",
            asker.name,
            asker.fingerprints.len()
        )),
        Ok(()) => Verdict::Sign,
    }
}

/// Whether it comes from that node, with a certificate that is good.
fn requestor(spec: &CertificateSigningRequestSpec, asker: &Asker) -> Result<(), String> {
    let user = kubelet_user(&asker.name);
    if spec.username.as_deref() != Some(user.as_str()) {
        return Err(format!("it does not come from {user}"));
    }
    if !spec.groups.iter().flatten().any(|group| group == KUBELET_GROUP) {
        return Err(format!("whoever asks is not of the group {KUBELET_GROUP}"));
    }
    let ids = spec.extra.as_ref().and_then(|extra| extra.get(CREDENTIAL_ID)).map(Vec::as_slice).unwrap_or_default();
    let [id] = ids else {
        return Err("it was not made with a node's client certificate".to_owned());
    };
    if id.strip_prefix("X509SHA256=").is_some_and(|fingerprint| asker.fingerprints.contains(fingerprint)) {
        return Ok(());
    }
    Err(format!("it was made with a certificate that is not, or no longer, one of node {}", asker.name))
}

/// Whether what it asks for is that node's.
fn content(spec: &CertificateSigningRequestSpec, asker: &Asker, serving: bool) -> Result<(), String> {
    let pem = std::str::from_utf8(&spec.request.0).map_err(|_| "it is no PEM".to_owned())?;
    let Described { common_names, organizations, dns_names, addresses, others } =
        csr::describe(pem).map_err(|error| format!("it cannot be read: {error:#}"))?;
    let user = kubelet_user(&asker.name);
    if common_names != [user.as_str()] {
        return Err(format!("its common name is not {user}"));
    }
    if organizations != [KUBELET_GROUP] {
        return Err(format!("its organization is not {KUBELET_GROUP} alone"));
    }
    if let Some(other) = others.first() {
        return Err(format!("it asks for more than a kubelet needs ({other})"));
    }
    usages(spec, serving)?;
    if !serving {
        return if dns_names.is_empty() && addresses.is_empty() {
            Ok(())
        } else {
            Err("a client certificate names no hosts or addresses".to_owned())
        };
    }
    if let Some(name) = dns_names.iter().find(|name| **name != asker.name) {
        return Err(format!("it asks for the name {name:?}; node {} may prove its own name and address alone", asker.name));
    }
    if let Some(address) = addresses.iter().find(|address| **address != asker.address) {
        return Err(format!("it asks for the address {address}; the address of node {} is {}", asker.name, asker.address));
    }
    if dns_names.is_empty() && addresses.is_empty() {
        return Err("it names no host and no address".to_owned());
    }
    Ok(())
}

/// Whether it is for what its signer signs (`digital signature`, and what RSA keys need beside it).
fn usages(spec: &CertificateSigningRequestSpec, serving: bool) -> Result<(), String> {
    let needed = if serving { "server auth" } else { "client auth" };
    let usages: Vec<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
    let known = ["digital signature", "key encipherment", needed];
    match usages.iter().find(|usage| !known.contains(usage)) {
        Some(odd) => Err(format!("it asks for the usage {odd:?}")),
        None if usages.contains(&needed) && usages.contains(&"digital signature") => Ok(()),
        None => Err(format!("it does not ask for the usages \"digital signature\" and {needed:?}")),
    }
}

#[cfg(test)]
mod tests;
