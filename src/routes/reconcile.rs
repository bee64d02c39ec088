//! One pass: list, compare, and bring what is there to what is wanted.

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::{Diff, Netlink, NetlinkError, Ownership, Route, Wanted, diff};

/// How many requests are under way at once.
const AT_ONCE: usize = 64;

/// What a pass did, and what it could not.
#[derive(Debug, Default)]
pub struct Pass {
    /// How many routes were added.
    pub added: usize,
    /// How many were replaced.
    pub replaced: usize,
    /// How many were deleted.
    pub deleted: usize,
    /// Wanted routes whose prefix is held by a route that is not ours: what is wanted, who holds it.
    pub conflicts: Vec<(Route, Route)>,
    /// What failed; the rest was done.
    pub failures: Vec<Failure>,
}

impl Pass {
    /// Whether anything was changed.
    pub fn changed(&self) -> bool {
        self.added + self.replaced + self.deleted > 0
    }
}

/// Something that a pass could not do.
#[derive(Debug)]
pub enum Failure {
    /// A wanted route names a device that is not there.
    NoDevice(Wanted),
    /// The kernel refused.
    Kernel(NetlinkError),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoDevice(wanted) => {
                let dev = wanted.dev.as_deref().unwrap_or_default();
                write!(f, "the route to {} waits for the interface {dev}, which is not there", wanted.dst)
            }
            Self::Kernel(error) => error.fmt(f),
        }
    }
}

/// What there is and what would be done: for a pass, and for showing it alone.
#[derive(Debug)]
pub struct Plan {
    /// What there is, with the kernel's own messages.
    pub present: Vec<(Route, netlink_packet_route::route::RouteMessage)>,
    /// What would be done.
    pub diff: Diff,
    /// Wanted routes whose device is not there.
    pub no_device: Vec<Wanted>,
}

/// Lists and compares; changes nothing.
///
/// # Errors
/// The kernel's listings failed or stay torn.
pub async fn plan(netlink: &Netlink, ownership: &Ownership, wanted: &[Wanted]) -> Result<Plan, NetlinkError> {
    let links = netlink.links().await?;
    let present = netlink.routes().await?;
    let mut no_device = Vec::new();
    let mut routes = Vec::with_capacity(wanted.len());
    for want in wanted {
        let index = want.dev.as_ref().map(|name| links.iter().find(|link| link.name == *name).map(|link| link.index));
        match index {
            Some(None) => no_device.push(want.clone()),
            Some(Some(index)) => routes.push(want.route(ownership, Some(index))),
            None => routes.push(want.route(ownership, None)),
        }
    }
    let listed: Vec<Route> = present.iter().map(|(route, _)| route.clone()).collect();
    let diff = diff(&routes, &listed, ownership);
    Ok(Plan { present, diff, no_device })
}

/// Brings our routes to what is wanted. A failure of one route stops no other.
///
/// # Errors
/// The kernel's listings failed or stay torn; then nothing was changed.
pub async fn reconcile(netlink: &Netlink, ownership: &Ownership, wanted: &[Wanted]) -> Result<Pass, NetlinkError> {
    let Plan { present, diff, no_device } = plan(netlink, ownership, wanted).await?;
    let mut pass = Pass { failures: no_device.into_iter().map(Failure::NoDevice).collect(), ..Pass::default() };
    pass.conflicts = diff.conflicts.iter().map(|conflict| (conflict.wanted.clone(), present[conflict.holder].0.clone())).collect();
    let adding = diff.add.iter().map(|route| netlink.add_route(route).boxed()).collect();
    pass.added = count(adding, &mut pass.failures).await;
    let replacing = diff.replace.iter().map(|(_, route)| netlink.replace_route(route).boxed()).collect();
    pass.replaced = count(replacing, &mut pass.failures).await;
    let delete = |at: &usize| netlink.delete_route(&present[*at].0, &present[*at].1).boxed();
    let deleting = diff.delete.iter().map(delete).collect();
    pass.deleted = count(deleting, &mut pass.failures).await;
    Ok(pass)
}

/// Carries requests out, many at once. Returns how many went well.
async fn count(requests: Vec<BoxFuture<'_, Result<(), NetlinkError>>>, failures: &mut Vec<Failure>) -> usize {
    let mut done = 0;
    let mut results = stream::iter(requests).buffer_unordered(AT_ONCE);
    while let Some(result) = results.next().await {
        match result {
            Ok(()) => done += 1,
            Err(error) => failures.push(Failure::Kernel(error)),
        }
    }
    done
}
