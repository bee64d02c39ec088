//! Addresses to listen on and to be reached at.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::as_text;

/// An address and a port to listen on, such as `[::]:443`; `:443` means every address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenAddress(pub SocketAddr);

impl ListenAddress {
    /// Every address of the machine, on `port`.
    pub const fn any(port: u16) -> Self {
        Self(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))
    }

    /// Whether both cannot be listened on at once: one port, and addresses that are the same or cover each other.
    pub fn collides(self, other: Self) -> bool {
        let (a, b) = (self.0, other.0);
        let covers = |wide: IpAddr, narrow: IpAddr| match wide {
            IpAddr::V6(wide) => wide.is_unspecified(),
            IpAddr::V4(wide) => wide.is_unspecified() && narrow.is_ipv4(),
        };
        a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || covers(a.ip(), b.ip()) || covers(b.ip(), a.ip()))
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
            return Ok(Self::any(port));
        }
        text.parse().map(Self).map_err(|_| {
            format!(
                "{text:?} is no address to listen on; it looks like [::]:443, 0.0.0.0:443 or :443 (an IP address, not a name, and a port)"
            )
        })
    }
}
as_text!(ListenAddress);

/// A listener that may be off: `null` (the key's own default), `off`, or an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listener {
    /// Nothing was said: what the key's description says then holds.
    #[default]
    Unset,
    /// Not listening.
    Off,
    /// Listening there.
    At(ListenAddress),
}

impl Listener {
    /// The address, where one is given.
    pub const fn address(self) -> Option<ListenAddress> {
        match self {
            Self::At(address) => Some(address),
            Self::Unset | Self::Off => None,
        }
    }
}

impl serde::Serialize for Listener {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unset => serializer.serialize_none(),
            Self::Off => serializer.serialize_str("off"),
            Self::At(address) => serializer.collect_str(address),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Listener {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<String>::deserialize(deserializer)?.as_deref() {
            None => Ok(Self::Unset),
            Some("off" | "") => Ok(Self::Off),
            Some(text) => text.parse().map(Self::At).map_err(|e| serde::de::Error::custom(format!("{e}, or off"))),
        }
    }
}

/// A host (a name or an IP address) and a port, such as `kube.example.com:443` or `[2001:db8::1]:8443`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// The host, without brackets.
    pub host: String,
    /// The port, which is not 0.
    pub port: u16,
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') { write!(f, "[{}]:{}", self.host, self.port) } else { write!(f, "{}:{}", self.host, self.port) }
    }
}

impl std::str::FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no host and port; it looks like kube.example.com:443 or [2001:db8::1]:443");
        let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(refuse)?;
        let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(Some(inner)) if inner.parse::<Ipv6Addr>().is_ok() => inner,
            Some(_) => return Err(refuse()),
            None if host.contains(':') => return Err(refuse()),
            None => host,
        };
        crate::domain::access::validate_host("", host).map_err(|_| refuse())?;
        Ok(Self { host: host.to_owned(), port })
    }
}
as_text!(HostPort);
