//! A host name as it is compared: one normaliser for the routing table, the look-up and the configuration.
//!
//! Guarantees that two spellings of one DNS name are equal as values. May import: nothing of ours.

use std::borrow::Borrow;
use std::net::IpAddr;

/// The longest name in its text form, without the final dot (RFC 1035, section 2.3.4).
pub const MAX_LENGTH: usize = 253;

/// A DNS host name: ASCII lower case, no final dot, at most [`MAX_LENGTH`] bytes, never an IP address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Box<str>);

/// Why a text is no host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAName {
    /// It is an IPv4 or IPv6 address, which SNI does not carry (RFC 6066, section 3).
    #[error("this is an IP address, and connections by address carry no name; give a host name")]
    Address,
    /// It has another form than a host name.
    #[error("this is no host name: use letters, digits, '-' and '_' in labels of 1 to 63 characters, 253 in all, separated by dots")]
    Form,
}

impl HostName {
    /// Normalises `text`.
    pub fn parse(text: &str) -> Result<Self, NotAName> {
        Self::from_bytes(text.as_bytes())
    }

    /// Normalises the bytes that a ClientHello carries.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotAName> {
        let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
        if bytes.len() > MAX_LENGTH {
            return Err(NotAName::Form);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| NotAName::Form)?;
        if text.parse::<IpAddr>().is_ok() {
            return Err(NotAName::Address);
        }
        if text.split('.').all(is_label) { Ok(Self(text.to_ascii_lowercase().into())) } else { Err(NotAName::Form) }
    }

    /// The normalised text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether `label` may stand between two dots. Underscores are no part of RFC 1123 but occur in the field.
fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

impl Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for HostName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for HostName {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_name_are_equal() {
        let name = HostName::parse("api.tenant.example").unwrap();
        for same in ["API.Tenant.Example", "api.tenant.example.", "Api.TENANT.example."] {
            assert_eq!(HostName::parse(same).as_ref(), Ok(&name), "{same}");
        }
        assert_ne!(HostName::parse("api.tenant.example.x"), Ok(name));
    }

    #[test]
    fn the_longest_name_is_253_bytes_without_its_final_dot() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(longest.len(), MAX_LENGTH);
        assert!(HostName::parse(&format!("{longest}.")).is_ok());
        assert_eq!(HostName::parse(&format!("{longest}a")), Err(NotAName::Form));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for bad in ["", ".", "a..b", "a.b..", "a\0b", "ä.example", "a b", "*.example", "-\r\n", &"a".repeat(64)] {
            assert_eq!(HostName::parse(bad), Err(NotAName::Form), "{bad:?}");
        }
        for address in ["10.0.0.1", "::1", "2001:db8::1"] {
            assert_eq!(HostName::parse(address), Err(NotAName::Address), "{address}");
        }
        assert_eq!(HostName::from_bytes(&[0xff, 0xfe]), Err(NotAName::Form));
    }
}
