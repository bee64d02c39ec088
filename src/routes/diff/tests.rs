//! The difference, against a model of the kernel's table.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;
use crate::routes::{Scope, TABLE_MAIN, Wanted};

const OURS: Ownership = Ownership { table: TABLE_MAIN, protocol: 186, metric: None, within: None };

fn wanted(dst: &str, via: &str) -> Route {
    Wanted { dst: dst.parse().unwrap(), via: Some(via.parse().unwrap()), dev: None, onlink: false, source: None }.route(&OURS, Some(2))
}

fn foreign(route: &Route, protocol: u8, metric: u32) -> Route {
    Route { metric, protocol, ..route.clone() }
}

/// What the kernel's table is after a difference was applied. A replacement takes the first entry of its place, as the kernel does.
fn apply(present: &[Route], diff: &Diff) -> Vec<Route> {
    let mut table: Vec<Option<Route>> = present.iter().cloned().map(Some).collect();
    for (old, new) in &diff.replace {
        let first = present.iter().position(|route| route.same_place(&present[*old])).unwrap();
        assert_eq!(first, *old, "the kernel would have replaced another one");
        table[*old] = Some(new.clone());
    }
    for old in &diff.delete {
        table[*old] = None;
    }
    table.into_iter().flatten().chain(diff.add.iter().cloned()).collect()
}

#[test]
fn adds_what_is_missing_replaces_what_differs_deletes_what_nobody_wants() {
    let (a, b, c) = (wanted("10.1.0.0/24", "192.0.2.1"), wanted("10.2.0.0/24", "192.0.2.1"), wanted("10.3.0.0/24", "192.0.2.1"));
    let moved = wanted("10.2.0.0/24", "192.0.2.9");
    let found = diff(&[a.clone(), b.clone()], &[moved, c], &OURS);
    assert_eq!(found, Diff { add: vec![a], replace: vec![(0, b)], delete: vec![1], conflicts: vec![] });
}

#[test]
fn leaves_a_prefix_to_whoever_holds_it() {
    let ours = wanted("10.1.0.0/24", "192.0.2.1");
    for (protocol, metric) in [(2, 0), (16, 100), (4, 0)] {
        let found = diff(std::slice::from_ref(&ours), &[ours.clone(), foreign(&ours, protocol, metric)], &OURS);
        assert!(found.add.is_empty() && found.replace.is_empty());
        assert_eq!((found.delete, found.conflicts[0].holder), (vec![0], 1));
    }
    let elsewhere = Route { table: 100, ..foreign(&ours, 4, 0) };
    assert_eq!(diff(std::slice::from_ref(&ours), &[elsewhere], &OURS).add, [ours]);
}

#[test]
fn stands_beside_others_with_a_metric_of_its_own() {
    let own = Ownership { metric: Some(50), ..OURS };
    let ours = Route { metric: 50, ..wanted("10.1.0.0/24", "192.0.2.1") };
    assert_eq!(diff(std::slice::from_ref(&ours), &[foreign(&ours, 4, 0)], &own).add, std::slice::from_ref(&ours));
    assert_eq!(diff(std::slice::from_ref(&ours), &[foreign(&ours, 4, 50)], &own).conflicts.len(), 1);
}

#[test]
fn a_route_that_moves_to_another_metric_is_added_before_the_old_one_goes() {
    let ours = wanted("10.1.0.0/24", "192.0.2.1");
    let injected = foreign(&ours, 186, 7);
    assert_eq!(diff(std::slice::from_ref(&ours), &[injected], &OURS), Diff { add: vec![ours], delete: vec![0], ..Diff::default() });
}

#[test]
fn a_device_that_is_not_named_may_be_any_and_ipv6_has_its_metric() {
    let any = Route { dev: None, ..wanted("10.1.0.0/24", "192.0.2.1") };
    assert!(diff(std::slice::from_ref(&any), &[wanted("10.1.0.0/24", "192.0.2.1")], &OURS).is_empty());
    assert_eq!(wanted("fd00:1::/64", "fd00::1").metric, 1024);
}

#[test]
fn what_bears_our_number_outside_of_our_range_is_somebody_elses() {
    let own = Ownership { within: Some("10.1.0.0/16".parse().unwrap()), ..OURS };
    let present = ["10.0.0.0/8", "10.2.0.0/24", "10.1.9.0/24"].map(|dst| wanted(dst, "192.0.2.1"));
    assert_eq!(diff(&[], &present, &own).delete, [2]);
}

fn any_route() -> impl Strategy<Value = Route> {
    let protocol = prop_oneof![3 => Just(186_u8), 1 => Just(2), 1 => Just(16)];
    (0_u8..4, 0_u8..3, 0_u32..3, protocol, 0_u8..2, any::<bool>(), 1_u32..3).prop_map(|(net, via, metric, protocol, table, plain, dev)| {
        Route {
            dst: IpNet::new(IpAddr::V4(Ipv4Addr::new(10, net, 0, 0)), 24).unwrap(),
            via: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, via))),
            dev: Some(dev),
            table: if table == 0 { TABLE_MAIN } else { 100 },
            metric,
            onlink: false,
            scope: Scope::Universe,
            protocol,
            source: None,
            tos: 0,
            plain,
        }
    })
}

fn any_wanted(metric: u32) -> impl Strategy<Value = Vec<Route>> {
    let ours = move |route| Route { table: TABLE_MAIN, protocol: 186, metric, plain: true, ..route };
    prop::collection::vec(any_route().prop_map(ours), 0..5)
}

proptest! {
    #[test]
    fn one_pass_is_enough_and_touches_nothing_of_others(
        (own, wanted) in prop::option::of(0_u32..3).prop_flat_map(|metric| {
            any_wanted(metric.unwrap_or(0)).prop_map(move |wanted| (Ownership { metric, ..OURS }, wanted))
        }),
        present in prop::collection::vec(any_route(), 0..12),
    ) {
        let found = diff(&wanted, &present, &own);
        for at in found.delete.iter().chain(found.replace.iter().map(|(at, _)| at)) {
            prop_assert!(own.owns(&present[*at]));
        }
        // The kernel replaces the first entry of a place, whoever made it: ours only where no other's stands there.
        for (at, _) in &found.replace {
            prop_assert!(present.iter().filter(|route| route.same_place(&present[*at])).all(|route| own.owns(route)));
        }
        let after = apply(&present, &found);
        let others = |routes: &[Route]| routes.iter().filter(|route| !own.owns(route)).cloned().collect::<Vec<_>>();
        prop_assert_eq!(others(&after), others(&present));
        prop_assert!(diff(&wanted, &after, &own).is_empty());
        let prefixes: BTreeSet<_> = wanted.iter().map(|route| route.dst).collect();
        let served = after.iter().filter(|route| own.owns(route)).count() + found.conflicts.len();
        prop_assert_eq!(served, prefixes.len());
    }
}
