//! What has to change so that our routes are those that are wanted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::{Ownership, Route};

/// What has to change. Present routes are named by their places in the list that was given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    /// Routes to add.
    pub add: Vec<Route>,
    /// Routes of ours to be put in the place of others of ours: the present one, the new one.
    pub replace: Vec<(usize, Route)>,
    /// Routes of ours to delete, after the rest is done.
    pub delete: Vec<usize>,
    /// Wanted routes whose prefix somebody else holds.
    pub conflicts: Vec<Conflict>,
}

/// A wanted route whose prefix is held by a route that is not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// What is wanted.
    pub wanted: Route,
    /// Who holds it: the place in the list of present routes.
    pub holder: usize,
}

impl Diff {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.replace.is_empty() && self.delete.is_empty()
    }
}

/// The difference between the routes that are wanted and those that are present.
///
/// Of several wanted routes to one prefix the first counts. Nothing that `ownership` does not own is touched: where such a route holds a
/// wanted prefix, the wanted route is a conflict, and one of ours that may be there goes.
pub fn diff(wanted: &[Route], present: &[Route], ownership: &Ownership) -> Diff {
    let mut by_prefix: BTreeMap<IpNet, Vec<usize>> = BTreeMap::new();
    for (at, route) in present.iter().enumerate().filter(|(_, route)| route.table == ownership.table) {
        by_prefix.entry(route.dst).or_default().push(at);
    }
    let mut diff = Diff::default();
    let mut kept: BTreeSet<usize> = BTreeSet::new();
    let mut seen: BTreeSet<IpNet> = BTreeSet::new();
    for route in wanted.iter().filter(|route| seen.insert(route.dst)) {
        let held: &[usize] = by_prefix.get(&route.dst).map_or(&[], Vec::as_slice);
        let in_the_way = |at: &&usize| {
            let other = &present[**at];
            !ownership.owns(other) && (ownership.metric.is_none() || other.metric == route.metric)
        };
        if let Some(holder) = held.iter().find(in_the_way) {
            diff.conflicts.push(Conflict { wanted: route.clone(), holder: *holder });
            continue;
        }
        let mut ours = held.iter().copied().filter(|at| ownership.owns(&present[*at]));
        if let Some(met) = ours.clone().find(|at| route.is_met_by(&present[*at])) {
            kept.insert(met);
        } else if let Some(old) = ours.find(|at| route.same_place(&present[*at])) {
            kept.insert(old);
            diff.replace.push((old, route.clone()));
        } else {
            diff.add.push(route.clone());
        }
    }
    diff.delete = (0..present.len()).filter(|at| ownership.owns(&present[*at]) && !kept.contains(at)).collect();
    diff
}

#[cfg(test)]
mod tests;
