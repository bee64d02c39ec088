//! Claims: who on this host has which address and which uid, so that two installations never share one.
//!
//! A claim is a file whose name says what is claimed and whose text says by whom. It comes into being whole, or not at all, and only where
//! there is none. Claims last until they are released or the host restarts; after a restart each installation claims again what
//! its clusters' rows say. May import: `domain`.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ipnet::Ipv4Net;

use crate::domain::ClusterId;
use crate::domain::cluster::LocalAllotment;

/// The claims of a host, as one installation sees them.
#[derive(Debug, Clone)]
pub struct Claims {
    folder: PathBuf,
    installation: String,
}

/// What became of an attempt to claim.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Ours,
    Taken(String),
}

impl Claims {
    /// The claims in `folder`, made where absent (0700).
    pub fn open(folder: PathBuf, installation: &str) -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot make the folder of claims {}", folder.display()))?;
        Ok(Self { folder, installation: installation.to_owned() })
    }

    fn holder(&self, cluster: ClusterId) -> String {
        format!("{} {cluster}\n", self.installation)
    }

    fn claim(&self, what: &str, cluster: ClusterId) -> anyhow::Result<Outcome> {
        let path = self.folder.join(what);
        let text = self.holder(cluster);
        let draft = self.folder.join(format!(".{what}.{}.{cluster}", self.installation));
        std::fs::write(&draft, &text).with_context(|| format!("cannot write {}", draft.display()))?;
        // A link comes into being whole and fails where something stands.
        let linked = std::fs::hard_link(&draft, &path);
        let _ = std::fs::remove_file(&draft);
        match linked {
            Ok(()) => Ok(Outcome::Ours),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let holder = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                Ok(if holder == text { Outcome::Ours } else { Outcome::Taken(holder.trim_end().to_owned()) })
            }
            Err(error) => Err(error).with_context(|| format!("cannot claim {}", path.display())),
        }
    }

    /// Claims what a cluster has been allotted; refuses when another holds it.
    pub fn hold(&self, cluster: ClusterId, allotment: &LocalAllotment) -> anyhow::Result<()> {
        for what in names(allotment) {
            if let Outcome::Taken(holder) = self.claim(&what, cluster)? {
                bail!(
                    "{what} belongs to this cluster, yet this host has it claimed by another (installation and cluster {holder}): \
                     delete that cluster, or remove {} when its installation is gone",
                    self.folder.join(&what).display()
                );
            }
        }
        Ok(())
    }

    /// Chooses an address (and a uid) that nobody has and claims them. Candidates begin at a place that follows from the cluster's id, so that
    /// two installations seldom meet. `usable` refuses what is in use without a claim.
    pub fn choose(
        &self,
        cluster: ClusterId,
        addresses: Ipv4Net,
        uids: Option<std::ops::RangeInclusive<u32>>,
        usable: &dyn Candidates,
    ) -> anyhow::Result<LocalAllotment> {
        let seed = cluster.uuid().as_u128() as u64;
        let address = self
            .first(cluster, address_candidates(addresses, seed).filter(|a| usable.address(*a)), |a| address_name(*a))?
            .with_context(|| format!("every address of local.address_range ({addresses}) is taken: delete clusters, or widen the range"))?;
        let uid = match uids {
            None => None,
            Some(range) => {
                let text = format!("{}-{}", range.start(), range.end());
                let found = self.first(cluster, uid_candidates(range, seed).filter(|u| usable.uid(*u)), |u| uid_name(*u))?;
                Some(
                    found
                        .with_context(|| format!("every uid of local.uid_range ({text}) is taken: delete clusters, or widen the range"))?,
                )
            }
        };
        Ok(LocalAllotment { address, uid })
    }

    fn first<T>(&self, cluster: ClusterId, candidates: impl Iterator<Item = T>, name: impl Fn(&T) -> String) -> anyhow::Result<Option<T>> {
        for candidate in candidates.take(4096) {
            if self.claim(&name(&candidate), cluster)? == Outcome::Ours {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// Releases all that a cluster holds.
    pub fn release(&self, cluster: ClusterId) -> anyhow::Result<()> {
        self.release_but(cluster, None)
    }

    /// Releases what a cluster holds beside its allotment: what a start that was cut off had claimed.
    pub fn release_but(&self, cluster: ClusterId, kept: Option<&LocalAllotment>) -> anyhow::Result<()> {
        let kept = kept.map(names).unwrap_or_default();
        for (name, holder) in self.ours()? {
            if holder == cluster && !kept.contains(&name) {
                remove(&self.folder.join(name))?;
            }
        }
        Ok(())
    }

    /// The clusters of this installation that hold anything.
    pub fn clusters(&self) -> anyhow::Result<std::collections::BTreeSet<ClusterId>> {
        Ok(self.ours()?.into_iter().map(|(_, cluster)| cluster).collect())
    }

    fn ours(&self) -> anyhow::Result<Vec<(String, ClusterId)>> {
        let mut claims = Vec::new();
        for entry in std::fs::read_dir(&self.folder).with_context(|| format!("cannot read {}", self.folder.display()))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let Ok(text) = std::fs::read_to_string(self.folder.join(&name)) else { continue };
            if let Some((installation, cluster)) = text.trim_end().split_once(' ')
                && installation == self.installation
                && let Ok(cluster) = cluster.parse()
            {
                claims.push((name, cluster));
            }
        }
        Ok(claims)
    }
}

/// What may be chosen besides what is unclaimed.
pub trait Candidates {
    /// Whether nothing on this host listens on the address.
    fn address(&self, address: Ipv4Addr) -> bool;
    /// Whether no user of this host has the uid.
    fn uid(&self, uid: u32) -> bool;
}

fn address_name(address: Ipv4Addr) -> String {
    format!("address-{address}")
}

fn uid_name(uid: u32) -> String {
    format!("uid-{uid}")
}

fn names(allotment: &LocalAllotment) -> Vec<String> {
    std::iter::once(address_name(allotment.address)).chain(allotment.uid.map(uid_name)).collect()
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the claim {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Addresses of the range from a place that follows from `seed`, round once; without those that end in 0 or 255, which some programs
/// take for a network or a broadcast.
fn address_candidates(range: Ipv4Net, seed: u64) -> impl Iterator<Item = Ipv4Addr> {
    let (first, count) = (u32::from(range.network()), 1_u64 << (32 - range.prefix_len()));
    (0..count).map(move |n| Ipv4Addr::from(first + ((seed % count + n) % count) as u32)).filter(|a| !matches!(a.octets()[3], 0 | 255))
}

fn uid_candidates(range: std::ops::RangeInclusive<u32>, seed: u64) -> impl Iterator<Item = u32> {
    let (first, count) = (*range.start(), u64::from(range.end().saturating_sub(*range.start())) + 1);
    (0..count).map(move |n| first + ((seed % count + n) % count) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Ambient;

    struct All;
    impl Candidates for All {
        fn address(&self, _: Ipv4Addr) -> bool {
            true
        }
        fn uid(&self, _: u32) -> bool {
            true
        }
    }

    fn id() -> ClusterId {
        ClusterId::generate(&Ambient::system())
    }

    #[test]
    fn two_installations_never_share() {
        let folder = tempfile::tempdir().unwrap();
        let a = Claims::open(folder.path().into(), "a").unwrap();
        let b = Claims::open(folder.path().into(), "b").unwrap();
        let range: Ipv4Net = "127.64.0.0/29".parse().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        let clusters: Vec<_> = (0..7).map(|_| id()).collect();
        for (n, cluster) in clusters.iter().enumerate() {
            let claims = if n % 2 == 0 { &a } else { &b };
            let one = claims.choose(*cluster, range, Some(900_000..=900_006), &All).unwrap();
            assert!(seen.insert(one.address.to_string()) && seen.insert(one.uid.unwrap().to_string()), "{one:?} is shared");
            assert_eq!(claims.choose(*cluster, range, Some(900_000..=900_006), &All).unwrap(), one, "a second run claims something else");
            claims.hold(*cluster, &one).unwrap();
            let other = if n % 2 == 0 { &b } else { &a };
            assert!(other.hold(*cluster, &one).unwrap_err().to_string().contains("claimed by another"));
        }
        let error = a.choose(id(), range, None, &All).unwrap_err().to_string();
        assert!(error.contains("local.address_range"), "{error}");
        assert_eq!(b.clusters().unwrap().len(), 3);
        a.release(clusters[0]).unwrap();
        a.release(clusters[0]).unwrap();
        assert_eq!(a.clusters().unwrap().len(), 3);
        assert!(b.choose(id(), range, None, &All).is_ok());
    }

    #[test]
    fn claims_beside_the_allotment_are_released() {
        let folder = tempfile::tempdir().unwrap();
        let claims = Claims::open(folder.path().into(), "a").unwrap();
        let cluster = id();
        let range = "127.64.0.0/16".parse().unwrap();
        let kept = claims.choose(cluster, range, Some(1..=9), &All).unwrap();
        assert_eq!(claims.claim("uid-77", cluster).unwrap(), Outcome::Ours);
        claims.release_but(cluster, Some(&kept)).unwrap();
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left.len(), 2);
        assert!(!left.contains(&"uid-77".to_owned()));
    }

    #[test]
    fn candidates_go_round_the_range_once() {
        let range: Ipv4Net = "127.64.0.0/24".parse().unwrap();
        let all: Vec<_> = address_candidates(range, u64::MAX).collect();
        assert_eq!(all.len(), 254);
        assert!(all.iter().all(|a| range.contains(a)));
        let uids: Vec<_> = uid_candidates(10..=13, 2).collect();
        assert_eq!(uids, [12, 13, 10, 11]);
    }
}
