//! `node.yaml` at join: what the platform told and what the owner asked for, with the proxies of the environment.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Context as _;

use super::Options;
use super::journal::Journal;
use crate::domain::join::{Joined, JoinedCluster};
use crate::node::layout::Layout;
use crate::node::membership::{Membership, Options as Kept};

/// Reads `node.yaml`; `None` where this machine is no node.
///
/// # Errors
/// It cannot be read or is damaged.
pub fn read(layout: &Layout) -> anyhow::Result<Option<Membership>> {
    let path = layout.node_yaml();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let damaged = || format!("{} is damaged: run `kubebyon leave`, then join again", path.display());
    serde_saphyr::from_str(&text).map(Some).map_err(|error| anyhow::anyhow!("{}", error.without_snippet())).with_context(damaged)
}

/// Writes `node.yaml`, whole or not at all.
pub fn write(layout: &Layout, journal: &mut Journal, membership: &Membership) -> anyhow::Result<()> {
    let text = serde_saphyr::to_string(membership).context("the membership cannot be written as YAML")?;
    let head = "# What this machine learned when it joined its cluster. Written by `kubebyon join`.\n";
    journal.write(&layout.node_yaml(), format!("{head}{text}").as_bytes(), 0o600)
}

/// The membership that was given. What the owner asked for before and does not name again stays.
pub fn of(options: &Options, present: Option<&Membership>, server: &str, joined: &Joined, own: IpAddr) -> Membership {
    let kept = present.map(|present| present.options.clone()).unwrap_or_default();
    let environment: BTreeMap<String, String> =
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
    let proxy = proxies(&environment, &joined.cluster, own);
    Membership {
        server: server.to_owned(),
        trust: options.token.trust.clone(),
        node_id: joined.node_id,
        name: joined.name.clone(),
        address: joined.address,
        address_assigned: joined.address_assigned,
        cluster: joined.cluster.clone(),
        options: Kept {
            node_ip: options.node_ip.or(kept.node_ip),
            labels: if options.labels.is_empty() { kept.labels } else { options.labels.clone() },
            taints: if options.taints.is_empty() { kept.taints } else { options.taints.clone() },
            registry_mirrors: if options.registry_mirrors.is_empty() { kept.registry_mirrors } else { options.registry_mirrors.clone() },
            containerd_socket: options.containerd_socket.as_ref().map(|path| path.display().to_string()).or(kept.containerd_socket),
            proxy: if proxy.is_empty() { kept.proxy } else { proxy },
            service: options.service,
        },
    }
}

/// The proxies of an environment, with the cluster's own addresses and names spared.
fn proxies(environment: &BTreeMap<String, String>, cluster: &JoinedCluster, own: IpAddr) -> BTreeMap<String, String> {
    let variable = |name: &str| {
        let either = environment.get(name).or_else(|| environment.get(&name.to_lowercase()));
        either.filter(|value| !value.is_empty()).cloned()
    };
    let mut found: BTreeMap<String, String> =
        ["HTTP_PROXY", "HTTPS_PROXY"].into_iter().filter_map(|name| Some((name.to_owned(), variable(name)?))).collect();
    if found.is_empty() {
        return found;
    }
    let mut spared: Vec<String> = variable("NO_PROXY").unwrap_or_default().split(',').map(|entry| entry.trim().to_owned()).collect();
    spared.extend([
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        own.to_string(),
        cluster.api_local_address.to_string(),
        cluster.pod_cidr.to_string(),
        cluster.service_cidr.to_string(),
        ".svc".to_owned(),
        format!(".{}", cluster.dns_domain),
    ]);
    spared.retain(|entry| !entry.is_empty());
    let mut once = Vec::new();
    for entry in spared {
        if !once.contains(&entry) {
            once.push(entry);
        }
    }
    found.insert("NO_PROXY".to_owned(), once.join(","));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_spare_the_cluster() {
        let cluster = super::super::tests::joined(Vec::new()).cluster;
        let own = "192.168.1.10".parse().unwrap();
        let none = [("NO_PROXY".to_owned(), "x".to_owned())].into();
        assert!(proxies(&none, &cluster, own).is_empty());
        let some =
            [("https_proxy".to_owned(), "http://p:3128".to_owned()), ("NO_PROXY".to_owned(), "corp.example, localhost".to_owned())].into();
        let found = proxies(&some, &cluster, own);
        assert_eq!(found["HTTPS_PROXY"], "http://p:3128");
        let expected = "corp.example,localhost,127.0.0.1,192.168.1.10,198.51.100.1,10.244.0.0/16,10.96.0.0/16,.svc,.cluster.local";
        assert_eq!(found["NO_PROXY"], expected);
    }
}
