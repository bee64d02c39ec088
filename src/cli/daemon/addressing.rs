//! The platform's addresses as configuration and settings give them; read again when a setting changes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::api::state::Addresses;
use crate::config::Config;
use crate::domain::access::Addressing;
use crate::store::{self, Store};

/// The present addresses; cheap to clone.
#[derive(Clone)]
pub struct CurrentAddressing(Arc<ArcSwap<Addressing>>);

impl CurrentAddressing {
    /// The addresses for a configuration and the settings that stand.
    pub async fn load(config: &Config, store: &Store) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(resolve(config, &settings(store).await?)))))
    }

    /// Reads the settings again; gives whether the addresses changed.
    pub async fn refresh(&self, config: &Config, store: &Store) -> anyhow::Result<bool> {
        let next = resolve(config, &settings(store).await?);
        let changed = **self.0.load() != next;
        if changed {
            self.0.store(Arc::new(next));
        }
        Ok(changed)
    }

    /// As they are.
    pub fn get(&self) -> Addressing {
        Addressing::clone(&self.0.load())
    }
}

impl Addresses for CurrentAddressing {
    fn current(&self) -> Addressing {
        self.get()
    }
}

async fn settings(store: &Store) -> anyhow::Result<BTreeMap<String, String>> {
    let mut sql = store.read().await?;
    Ok(store::settings::all(&mut *sql).await?)
}

/// The addresses that follow from configuration and settings; the configuration wins.
fn resolve(config: &Config, settings: &BTreeMap<String, String>) -> Addressing {
    let own = own_address(config.listen.0.ip()).to_string();
    let advertised = config.advertise_address.as_ref().map_or_else(
        || (config.platform_host.clone().unwrap_or_else(|| own.clone()), config.listen.0.port()),
        |address| (address.host.clone(), address.port),
    );
    let control_plane_host = config
        .control_plane_host
        .clone()
        .or_else(|| settings.get("control_plane_host").cloned())
        .or_else(|| config.advertise_address.as_ref().map(|address| address.host.clone()))
        .unwrap_or_else(|| own.clone());
    let url_hosts = ["public_base_url", "join_base_url"].into_iter().filter_map(|key| settings.get(key)).filter_map(|url| host_of(url));
    let mut platform_names: Vec<String> = config.platform_host.iter().cloned().chain([advertised.0.clone()]).chain(url_hosts).collect();
    platform_names.extend(["localhost".to_owned(), own, Ipv4Addr::LOCALHOST.to_string(), std::net::Ipv6Addr::LOCALHOST.to_string()]);
    let mut seen = std::collections::BTreeSet::new();
    platform_names.retain(|name| seen.insert(name.to_ascii_lowercase()));
    let join = settings.get("join_base_url").and_then(|url| host_and_port_of(url));
    Addressing {
        base_domain: config.base_domain().to_owned(),
        base_domain_is_public: config.base_domain.is_some(),
        control_plane_host,
        advertised,
        join,
        platform_names,
    }
}

/// The host of an `https://host[:port]` URL.
fn host_of(url: &str) -> Option<String> {
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split_once(']').map(|(host, _)| host.to_owned());
    }
    Some(authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_owned())
}

/// Host and port of an `https://host[:port]` URL.
fn host_and_port_of(url: &str) -> Option<(String, u16)> {
    let host = host_of(url)?;
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    let behind = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
    let port = behind.rsplit_once(':').map_or(Some(443), |(_, port)| port.parse().ok())?;
    Some((host, port))
}

/// The address at which this machine is reached when nothing else is said: the one that is listened on, else that of the default route.
fn own_address(listen: IpAddr) -> IpAddr {
    if listen.is_unspecified() { default_route_address() } else { listen }
}

/// The address of the default route: what the kernel would send from. No packet is sent.
fn default_route_address() -> IpAddr {
    // TEST-NET-1 (RFC 5737) stands for "anywhere".
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).and_then(|()| socket.local_addr()))
        .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_out_of_urls() {
        for (url, host) in [("https://a.example", "a.example"), ("https://a.example:8443", "a.example"), ("https://[fd00::1]:1", "fd00::1")]
        {
            assert_eq!(host_of(url).as_deref(), Some(host));
        }
        assert_eq!(host_of("http://a"), None);
        for (url, host, port) in
            [("https://a.example", "a.example", 443), ("https://a.example:8443", "a.example", 8443), ("https://[fd00::1]", "fd00::1", 443)]
        {
            assert_eq!(host_and_port_of(url), Some((host.to_owned(), port)));
        }
        assert_eq!(host_and_port_of("https://[fd00::1]:8443"), Some(("fd00::1".to_owned(), 8443)));
        assert_eq!(host_and_port_of("https://a.example:x"), None);
    }

    #[test]
    fn an_address_that_is_listened_on_is_the_one_to_name() {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(own_address(loopback), loopback);
        assert!(!own_address(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).is_unspecified());
    }
}
