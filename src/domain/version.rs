//! Kubernetes versions and which step from one to another is allowed.

use serde::{Deserialize, Serialize};

use super::Invalid;

/// A released Kubernetes version, such as `1.34.4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion {
    /// The major version; 1 to this day.
    pub major: u16,
    /// The minor version.
    pub minor: u16,
    /// The patch.
    pub patch: u16,
}

impl KubernetesVersion {
    /// A version by its three parts.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// Whether a control plane may go from this version to `to`: forwards by at most one minor, or by patches within one
    /// (<https://kubernetes.io/releases/version-skew-policy/>).
    pub fn check_upgrade(self, to: Self) -> Result<(), Invalid> {
        let field = "spec.kubernetes_version";
        if to < self {
            return Err(Invalid::new(
                field,
                format!("a control plane cannot go back from {self} to {to}: Kubernetes supports no downgrade"),
            ));
        }
        if to.major != self.major || to.minor > self.minor + 1 {
            return Err(Invalid::new(
                field,
                format!(
                    "from {self} only one minor at a time is allowed: upgrade to {}.{} first, then to {to}",
                    self.major,
                    self.minor + 1
                ),
            ));
        }
        Ok(())
    }
}

impl std::fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl std::str::FromStr for KubernetesVersion {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = || Invalid::new("spec.kubernetes_version", format!("{text:?} is no Kubernetes version; it looks like 1.34.4"));
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let mut part = || parts.next().filter(|p| p.bytes().all(|b| b.is_ascii_digit())).and_then(|p| p.parse().ok()).ok_or_else(refuse);
        let version = Self::new(part()?, part()?, part()?);
        if parts.next().is_some() { Err(refuse()) } else { Ok(version) }
    }
}

impl Serialize for KubernetesVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KubernetesVersion {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_orders() {
        let parse = |t: &str| t.parse::<KubernetesVersion>();
        assert_eq!(parse("v1.34.4").unwrap(), KubernetesVersion::new(1, 34, 4));
        assert!(parse("1.9.9").unwrap() < parse("1.10.0").unwrap());
        for bad in ["", "1", "1.2", "1.2.3.4", "1.2.x", "a", "1.+2.3", "1..3"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn upgrades_go_forwards_by_one_minor() {
        let v = KubernetesVersion::new;
        assert!(v(1, 34, 4).check_upgrade(v(1, 35, 0)).is_ok());
        assert!(v(1, 34, 4).check_upgrade(v(1, 34, 4)).is_ok());
        assert!(v(1, 34, 4).check_upgrade(v(1, 36, 0)).unwrap_err().message.contains("1.35 first"));
        assert!(v(1, 34, 4).check_upgrade(v(1, 34, 3)).is_err());
    }
}
