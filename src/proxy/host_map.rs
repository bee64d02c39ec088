//! Which name leads where. Swapped whole, read without a lock.
//!
//! Guarantees: names match exactly; [`HostMap::replace`] cuts the flows of every back end that the new table lacks, also
//! those that looked it up a moment before. May import: [`crate::domain`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::host_name::HostName;
use super::upstream::{Backend, Upstream, Upstreams};
use crate::domain::ClusterId;

/// Where a name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To the platform itself, which ends TLS.
    Platform,
    /// Through to a back end of a cluster.
    Backend(Backend),
}

/// A route with what its flows share.
#[derive(Debug, Clone)]
pub(super) enum Target {
    Platform,
    Upstream(Arc<Upstream>),
}

/// The routing table of the front door.
#[derive(Debug, Default)]
pub struct HostMap {
    table: ArcSwap<HashMap<HostName, Target>>,
    upstreams: Mutex<Upstreams>,
}

impl HostMap {
    /// An empty table: every name is unknown.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `routes` in the place of the present table. Flows of back ends that stay are not touched.
    pub fn replace(&self, routes: &BTreeMap<HostName, Route>) {
        let mut upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = upstreams.reconcile(routes.values().filter_map(|route| match route {
            Route::Platform => None,
            Route::Backend(backend) => Some(*backend),
        }));
        let table = routes
            .iter()
            .map(|(name, route)| {
                let target = match route {
                    Route::Platform => Target::Platform,
                    Route::Backend(backend) => Target::Upstream(upstreams.get(backend)),
                };
                (name.clone(), target)
            })
            .collect();
        self.table.store(Arc::new(table));
        // Only after the swap: whoever looks up from here on finds the new table, whoever did before holds a token that ends.
        for upstream in removed {
            upstream.retire();
        }
    }

    /// How many names lead somewhere.
    pub fn len(&self) -> usize {
        self.table.load().len()
    }

    /// Whether no name leads anywhere.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the present flows to `cluster`; new ones are welcome. Used once after a revocation, since a Kubernetes API server
    /// authorises a request at its start only. Returns how many flows were told to end.
    pub fn cut(&self, cluster: ClusterId) -> usize {
        self.upstreams.lock().unwrap_or_else(PoisonError::into_inner).cut(cluster)
    }

    /// The flows that are open, by cluster; clusters without one are left out.
    pub fn active(&self) -> BTreeMap<ClusterId, usize> {
        self.upstreams.lock().unwrap_or_else(PoisonError::into_inner).active()
    }

    pub(super) fn target(&self, name: &HostName) -> Option<Target> {
        self.table.load().get(name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Ambient;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    fn backend(port: u16) -> Backend {
        Backend { cluster: ClusterId::generate(&Ambient::system()), address: ([127, 0, 0, 1], port).into() }
    }

    fn upstream(map: &HostMap, host: &str) -> Arc<Upstream> {
        match map.target(&name(host)) {
            Some(Target::Upstream(upstream)) => upstream,
            other => panic!("{host} leads to {other:?}"),
        }
    }

    #[test]
    fn names_match_exactly_and_no_wildcard_exists() {
        let map = HostMap::new();
        map.replace(&BTreeMap::from([(name("a.example"), Route::Backend(backend(1))), (name("platform.example"), Route::Platform)]));
        assert!(map.target(&name("A.Example.")).is_some());
        assert!(matches!(map.target(&name("platform.example")), Some(Target::Platform)));
        for unknown in ["x.a.example", "example", "a.example.com", "aa.example"] {
            assert!(map.target(&name(unknown)).is_none(), "{unknown}");
        }
    }

    #[test]
    fn a_back_end_that_stays_keeps_its_flows_and_one_that_moves_loses_them() {
        let map = HostMap::new();
        let (stays, moves) = (backend(1), backend(2));
        map.replace(&BTreeMap::from([(name("s.example"), Route::Backend(stays)), (name("m.example"), Route::Backend(moves))]));
        let (kept, cut) = (upstream(&map, "s.example"), upstream(&map, "m.example"));
        let (kept_flow, cut_flow) = (kept.open(), cut.open());

        let moved = Backend { address: ([127, 0, 0, 1], 3).into(), ..moves };
        map.replace(&BTreeMap::from([(name("s.example"), Route::Backend(stays)), (name("m.example"), Route::Backend(moved))]));
        assert!(!kept_flow.cut().is_cancelled());
        assert!(cut_flow.cut().is_cancelled());
        assert!(cut.open().cut().is_cancelled(), "a look-up from before the swap must not outlive it");
        assert!(Arc::ptr_eq(&kept, &upstream(&map, "s.example")));
        assert_eq!(upstream(&map, "m.example").backend(), moved);
    }

    #[test]
    fn an_address_reused_by_another_cluster_shares_nothing() {
        let map = HostMap::new();
        let first = backend(1);
        map.replace(&BTreeMap::from([(name("a.example"), Route::Backend(first))]));
        let flow = upstream(&map, "a.example").open();
        let second = Backend { cluster: backend(1).cluster, ..first };
        map.replace(&BTreeMap::from([(name("a.example"), Route::Backend(second))]));
        assert!(flow.cut().is_cancelled());
        assert!(!upstream(&map, "a.example").open().cut().is_cancelled());
    }

    #[test]
    fn cutting_a_cluster_ends_its_present_flows_only() {
        let map = HostMap::new();
        let (ours, theirs) = (backend(1), backend(2));
        map.replace(&BTreeMap::from([(name("o.example"), Route::Backend(ours)), (name("t.example"), Route::Backend(theirs))]));
        let (our_flow, their_flow) = (upstream(&map, "o.example").open(), upstream(&map, "t.example").open());
        assert_eq!(map.active(), BTreeMap::from([(ours.cluster, 1), (theirs.cluster, 1)]));
        assert_eq!(map.cut(ours.cluster), 1);
        assert!(our_flow.cut().is_cancelled());
        assert!(!their_flow.cut().is_cancelled());
        assert!(!upstream(&map, "o.example").open().cut().is_cancelled());
        drop((our_flow, their_flow));
        assert!(map.active().is_empty());
    }
}
