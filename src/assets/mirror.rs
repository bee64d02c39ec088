//! Where published files are: upstream, or a mirror whose paths begin with upstream's host names.

use std::path::PathBuf;

/// Where published files are fetched from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Mirror {
    /// Upstream itself: `dl.k8s.io`, `github.com`, `get.helm.sh`.
    #[default]
    Upstream,
    /// A web server: `<base>/dl.k8s.io/release/…`, `<base>/github.com/etcd-io/…`, `<base>/get.helm.sh/…`.
    Url(String),
    /// A folder with the same paths.
    Folder(PathBuf),
}

/// One file's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A web address.
    Url(String),
    /// A file.
    File(PathBuf),
}

impl Place {
    /// For messages and manifests.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Url(url) => url.clone(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

impl Mirror {
    /// Upstream itself.
    pub const fn upstream() -> Self {
        Self::Upstream
    }

    /// The mirror of a configuration that was checked: a URL, or an absolute path.
    pub fn at(base: impl AsRef<str>) -> Self {
        let base = base.as_ref();
        base.parse().unwrap_or_else(|_| Self::Url(base.to_owned()))
    }

    /// The place of the file with upstream's path `path` (which begins with the host name).
    pub(super) fn locate(&self, path: &str) -> Place {
        match self {
            Self::Upstream => Place::Url(format!("https://{path}")),
            Self::Url(base) => Place::Url(format!("{base}/{path}")),
            Self::Folder(dir) => Place::File(dir.join(path)),
        }
    }
}

impl std::str::FromStr for Mirror {
    type Err = String;

    /// Empty is upstream; else `https://…`, `http://…`, `file:///…` or an absolute path.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim_end_matches('/');
        if text.is_empty() {
            return Ok(Self::Upstream);
        }
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        if rest.is_some_and(|host| !host.is_empty() && !host.starts_with('/')) {
            return Ok(Self::Url(text.to_owned()));
        }
        let path = text.strip_prefix("file://").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::Folder(PathBuf::from(path)));
        }
        Err(format!("{text:?} is no mirror: give https://HOST/PATH, or the absolute path of a folder"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_locates() {
        let at = |mirror: &str| mirror.parse::<Mirror>().unwrap().locate("get.helm.sh/x").describe();
        assert_eq!(at(""), "https://get.helm.sh/x");
        assert_eq!(at("https://m.example/k8s/"), "https://m.example/k8s/get.helm.sh/x");
        assert_eq!(at("/srv/mirror"), "/srv/mirror/get.helm.sh/x");
        assert_eq!(at("file:///srv/mirror"), "/srv/mirror/get.helm.sh/x");
        for bad in ["mirror", "ftp://x", "https://", "./x"] {
            assert!(bad.parse::<Mirror>().is_err(), "{bad}");
        }
    }
}
