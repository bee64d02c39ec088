//! What may be asked for when a machine joins: its name, labels and taints, by Kubernetes' rules and some of ours.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Invalid, label};
use super::Taint;

/// The longest name: it is the value of the label `kubernetes.io/hostname`, too.
pub const NODE_NAME_MAX: usize = 63;
/// The most taints that can be asked for.
pub const MAX_TAINTS: usize = 32;
/// The effects of taints.
pub const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Prefixes below Kubernetes' own domains whose labels are the owner's to set.
const LABELS_OF_OWNERS: [&str; 4] =
    ["node-role.kubernetes.io", "topology.kubernetes.io", "node.kubernetes.io", "node-restriction.kubernetes.io"];

/// Checks a node's name: a DNS subdomain (RFC 1123) of at most [`NODE_NAME_MAX`] characters that is neither an address nor an id.
///
/// # Errors
/// It cannot be a node's name; the message says why, and what can.
pub fn validate_name(name: &str) -> Result<(), Invalid> {
    let wrong = |message: String| Err(Invalid::new("name", message));
    if name.is_empty() {
        return wrong("a node needs a name: lower-case letters, digits, '-' and '.'".to_owned());
    }
    if name.len() > NODE_NAME_MAX {
        return wrong(format!(
            "the node's name has {} characters; at most {NODE_NAME_MAX} are allowed: choose one with --name",
            name.len()
        ));
    }
    if !is_subdomain(name) {
        return wrong(format!(
            "{name:?} cannot be a node's name: use lower-case letters, digits, '-' and '.', each part beginning and ending with a \
             letter or digit; choose one with --name"
        ));
    }
    if name.parse::<std::net::IpAddr>().is_ok() || uuid::Uuid::try_parse(name).is_ok() {
        return wrong(format!("{name:?} has the form of an address or of an id: choose another name with --name"));
    }
    if name == "localhost" || name.starts_with("localhost.") {
        return wrong("every machine is localhost to itself: set its host name, or choose a name with --name".to_owned());
    }
    Ok(())
}

/// Checks labels: Kubernetes' form, and below its domains only those that are the owner's to set.
///
/// # Errors
/// One of them cannot be set; the message says which and why.
pub fn validate_labels(labels: &BTreeMap<String, String>) -> Result<(), Invalid> {
    label::validate_all(labels)?;
    for key in labels.keys() {
        let Some((prefix, _)) = key.split_once('/') else { continue };
        if is_kubernetes(prefix) && !LABELS_OF_OWNERS.contains(&prefix) {
            return Err(Invalid::new(
                "labels",
                format!("the label {key:?} is Kubernetes' own; below its domains you may set {}", LABELS_OF_OWNERS.join("/…, ") + "/…"),
            ));
        }
    }
    Ok(())
}

/// Checks taints: Kubernetes' form, each key and effect once, and none of those that Kubernetes sets and takes away by itself.
///
/// # Errors
/// One of them cannot be set; the message says which and why.
pub fn validate_taints(taints: &[Taint]) -> Result<(), Invalid> {
    let wrong = |message: String| Err(Invalid::new("taints", message));
    if taints.len() > MAX_TAINTS {
        return wrong(format!("{} taints are too many; at most {MAX_TAINTS} are allowed", taints.len()));
    }
    let mut seen = BTreeSet::new();
    for Taint { key, value, effect } in taints {
        if label::validate(key, value).is_err() {
            return wrong(format!("{key:?}={value:?} is no taint: key and value have the form of a label's, such as dedicated=gpu"));
        }
        if !TAINT_EFFECTS.contains(&effect.as_str()) {
            return wrong(format!("{effect:?} is no effect of a taint: it is one of {}", TAINT_EFFECTS.join(", ")));
        }
        if let Some((prefix, _)) = key.split_once('/')
            && is_kubernetes(prefix)
            && prefix != "node-role.kubernetes.io"
        {
            return wrong(format!("the taint {key:?} is Kubernetes' own, which sets it and takes it away by itself"));
        }
        if !seen.insert((key, effect)) {
            return wrong(format!("the taint {key:?} with effect {effect} is given twice"));
        }
    }
    Ok(())
}

fn is_kubernetes(prefix: &str) -> bool {
    ["kubernetes.io", "k8s.io"].iter().any(|domain| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(|part| {
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = part.as_bytes();
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(key: &str, value: &str) -> BTreeMap<String, String> {
        [(key.to_owned(), value.to_owned())].into()
    }

    fn taint(key: &str, effect: &str) -> Taint {
        Taint { key: key.to_owned(), value: "yes".to_owned(), effect: effect.to_owned() }
    }

    #[test]
    fn names_are_subdomains() {
        for good in ["a", "node-1", "node-1.lan.example.com", "0a", &"a".repeat(63)] {
            assert_eq!(validate_name(good), Ok(()), "{good}");
        }
        for bad in
            ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a.", "ä", "a/b", "../x", "a b", "localhost", "localhost.localdomain", "10.0.0.1"]
        {
            assert!(validate_name(bad).is_err(), "{bad:?}");
        }
        assert!(validate_name(&"a".repeat(64)).unwrap_err().message.contains("64"));
        assert!(validate_name("0190163d-8694-739b-aea5-966c26f8ad90").is_err());
    }

    #[test]
    fn labels_of_kubernetes_are_left_to_it() {
        for good in ["team", "example.com/team", "node-role.kubernetes.io/worker", "topology.kubernetes.io/zone", "mykubernetes.io/x"] {
            assert_eq!(validate_labels(&labels(good, "a")), Ok(()), "{good}");
        }
        for bad in
            ["kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/arch", "k8s.io/x", "a.k8s.io/x", "a b"]
        {
            assert!(validate_labels(&labels(bad, "a")).is_err(), "{bad}");
        }
        assert!(validate_labels(&labels("team", "a b")).is_err());
    }

    #[test]
    fn taints_have_a_key_a_value_and_an_effect() {
        let good = [taint("dedicated", "NoSchedule"), taint("dedicated", "NoExecute"), taint("node-role.kubernetes.io/gpu", "NoSchedule")];
        assert_eq!(validate_taints(&good), Ok(()));
        for bad in [taint("dedicated", "Never"), taint("", "NoSchedule"), taint("node.kubernetes.io/not-ready", "NoExecute")] {
            assert!(validate_taints(std::slice::from_ref(&bad)).is_err(), "{bad:?}");
        }
        let twice = [taint("dedicated", "NoSchedule"), taint("dedicated", "NoSchedule")];
        assert!(validate_taints(&twice).unwrap_err().message.contains("twice"));
        assert!(validate_taints(&vec![taint("a", "NoSchedule"); MAX_TAINTS + 1]).is_err());
    }
}
