//! URLs that carry a password.

use secrecy::{ExposeSecret, SecretString};

/// A URL whose password is shown to nobody: printing and serialising put `***` in its place.
#[derive(Clone, Default)]
pub struct SecretUrl(SecretString);

impl SecretUrl {
    /// Keeps `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self(SecretString::from(url.into()))
    }

    /// The whole URL, for connecting.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.expose().is_empty()
    }
}

impl std::fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.expose();
        // What cannot be told apart from a password is hidden whole; a query may hold one (`?password=`).
        let parts = url.split_once("://").and_then(|(scheme, rest)| {
            let rest = rest.split(['?', '#']).next().unwrap_or(rest);
            let (authority, path) = rest.split_once('/').map_or((rest, ""), |(a, p)| (a, p));
            if path.contains('@') {
                return None;
            }
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            let user = authority.rsplit_once('@').map(|(user, _)| user.split(':').next().unwrap_or(""));
            Some((scheme, user, host, path))
        });
        match parts {
            _ if url.is_empty() => Ok(()),
            Some((scheme, Some(user), host, path)) => write!(f, "{scheme}://{user}:***@{host}/{path}"),
            Some((scheme, None, host, path)) => write!(f, "{scheme}://{host}/{path}"),
            None => f.write_str("***"),
        }
    }
}

impl std::fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretUrl({self})")
    }
}

impl PartialEq for SecretUrl {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl serde::Serialize for SecretUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for SecretUrl {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}
