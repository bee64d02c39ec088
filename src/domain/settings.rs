//! Settings: what an administrator changes while the platform runs. A key that the configuration gives is fixed there.

use super::Invalid;

/// What may be set, with what it is for.
pub const KNOWN: &[(&str, &str)] = &[
    ("public_base_url", "the URL under which people reach the platform"),
    ("join_base_url", "the URL that join commands name; default: public_base_url"),
    ("public_access_mode", "how new clusters are reached from outside: nodeport or domain"),
    ("control_plane_host", "the host that kubeconfigs name in nodeport mode"),
    ("kubernetes_version", "the version of clusters created without one"),
];

/// Checks a value for a key; an empty value means: back to the default.
pub fn validate(key: &str, value: &str) -> Result<(), Invalid> {
    let refuse = |message: String| Err(Invalid::new(key, message));
    match key {
        _ if value.is_empty() && KNOWN.iter().any(|(k, _)| *k == key) => Ok(()),
        "public_base_url" | "join_base_url" => match value.strip_prefix("https://") {
            Some(rest) if !rest.is_empty() && !rest.contains(['/', '?', '#', '@', ' ']) => Ok(()),
            _ => refuse(format!(
                "{value:?} must look like https://kubebyon.example.com or https://kubebyon.example.com:8443, without a path"
            )),
        },
        "public_access_mode" if matches!(value, "nodeport" | "domain") => Ok(()),
        "public_access_mode" => refuse(format!("{value:?} is no mode; use nodeport or domain")),
        "control_plane_host" => super::access::validate_host(key, value),
        "kubernetes_version" => value.parse::<super::KubernetesVersion>().map(drop).map_err(|e| Invalid::new(key, e.message)),
        _ => refuse(format!("there is no such setting; there are {}", KNOWN.iter().map(|(k, _)| *k).collect::<Vec<_>>().join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_by_key() {
        for (key, good, bad) in [
            ("public_base_url", "https://k.example:8443", "http://k.example"),
            ("join_base_url", "https://k.example", "https://k.example/x"),
            ("public_access_mode", "domain", "both"),
            ("control_plane_host", "203.0.113.7", "a b"),
            ("kubernetes_version", "1.36.3", "latest"),
        ] {
            assert_eq!(validate(key, good), Ok(()));
            assert_eq!(validate(key, ""), Ok(()));
            assert!(validate(key, bad).is_err(), "{key}");
        }
        assert!(validate("publik_base_url", "").is_err());
    }
}
